"""First paint and refresh of each page of the dashboard: `python -m tests.benchmarks.dashboard --turns 100k,10M`.

For developers of the store and of the pages. A store of each size is filled as `bench store` fills it, or taken where
it is there (`--store DIR`, once for each size). A real sidecar writes to a copy of it, to which turns of its largest
run come all the while, and a real Chromium opens each page of a real dashboard on it, several times. Printed are
seconds until a page shows its first figures, until all of it is there, charts below the fold included, and until a
refresh is there, each time the middle and the slowest one; and in brackets the CPU seconds of the dashboard's process,
as the machine may be busy with other things.

The browser has the dashboard's priority: both work for the same viewer, and none of them goes before callers. It has
been there before, with a profile of its own: it keeps the scripts, and what it has compiled of them. (A private window
compiles them anew each time, for about a second of a core.)
"""

import argparse
import json
import secrets
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx
import psutil
from playwright.sync_api import BrowserContext, Page, sync_playwright
from rich.console import Console
from rich.table import Table

from dashboard.launch import POLITENESS
from telemetry.store.answers import Filter
from telemetry.store.database import DATABASE_NAME
from telemetry.store.reader import StoreReader
from telemetry.store.schema import Batch
from telemetry.store.writer import StoreWriter
from tests.benchmarks.bench.store.exports import one_turn
from tests.benchmarks.bench.store.filling import fill
from tests.benchmarks.bench.store.options import checked
from tests.benchmarks.bench.store.templates import LARGE_RUN, run_span
from tests.benchmarks.page_times import PageTimes, open_page, refreshes
from tests.browser.conftest import CHROMIUM_ARGUMENTS
from tests.fixtures_sidecar import ROOT, running_sidecar
from tests.programs import needed

PAGES: Final = {
    "now": "",
    "now, last 5 min": "?window=5m",
    "now, one noise": "?noise=clean",
    "turns": "turns",
    "turn": "?trace={trace}&turn=0",
    "cohorts": "cohorts",
    "rollout": "rollout",
    "objectives": "objectives",
    "objectives, one noise": "objectives?noise=clean",
    "runs": "runs",
    "cache": "cache",
    "instrument": "instrument",
}
FIRST_PAINT_S: Final = 2.0
REFRESH_S: Final = 0.5
_HEADERS: Final = {"content-type": "application/x-protobuf"}
_BEFORE_NOW_NS: Final = 60 * 1_000_000_000
_SEND_EVERY_S: Final = 0.2
# A page that is closed in the middle of a refresh is still answered.
_BETWEEN_PAGES_S: Final = 3.0
# A browser keeps what it has compiled of a script when it has run it more than once, and a while after that.
_VISITS_BEFORE: Final = 3
_VISIT_S: Final = 3.0
# What a page says of a store that has nothing for it: such a page is left out, as no figure of it was drawn.
_NOTHING_TO_SHOW: Final = "No rollout yet"


@dataclass(frozen=True, slots=True)
class PageCost:
    """How a page opened, each time, and its refreshes, with the CPU time that the dashboard's process took for one."""

    opens: tuple[PageTimes, ...]
    open_cpu_s: float
    refreshes: tuple[PageTimes, ...]
    refresh_cpu_s: float | None

    @property
    def figures_s(self) -> list[float]:
        """Until the first figures were there; of a page that showed none before, until all of it was."""
        return [each.shown_s if each.figures_s is None else each.figures_s for each in self.opens]


@contextmanager
def _live_copy(store: Path, folder: Path) -> Generator[Path]:
    """A copy of a store that a sidecar writes to, with turns of its largest run that begin now."""
    copy = folder / "store"
    copy.mkdir()
    shutil.copy2(store / DATABASE_NAME, copy / DATABASE_NAME)
    # The filled run has announced its end; of a run that goes on pages refresh by themselves.
    begun = run_span(LARGE_RUN, time.time_ns(), "start", (secrets.token_hex(16), secrets.token_hex(8)))
    with StoreWriter(copy) as writer:
        writer.append(Batch((), [begun]))
    ended = threading.Event()
    with running_sidecar(copy) as sidecar:

        def send() -> None:
            with httpx.Client(timeout=60) as client:
                while not ended.wait(_SEND_EVERY_S):
                    body, _ = one_turn(time.time_ns())
                    client.post(f"{sidecar.http}/v1/traces", content=body, headers=_HEADERS).raise_for_status()

        sending = threading.Thread(target=send)
        sending.start()
        try:
            yield copy
        finally:
            ended.set()
            sending.join()
            sidecar.terminate()


@contextmanager
def _dashboard(store: Path) -> Generator[tuple[psutil.Process, str]]:
    """A dashboard on a store, once it is ready, and its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "dashboard", "--store", str(store), "--port", "0", "--headless"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout is not None
    try:
        yield psutil.Process(process.pid), json.loads(process.stdout.readline())["url"]
    finally:
        process.terminate()
        process.wait(timeout=60)
        process.stdout.close()


def measure(store: Path, pages: list[str], opens: int, count: int) -> dict[str, PageCost]:
    """Open each page of a dashboard on a live copy of a store, and watch it refresh `count` times the last time."""
    with StoreReader(store) as reader:
        (turn,) = reader.turns(Filter(run_id=LARGE_RUN), 1, source="client")
    executable = needed("chromium", "chromium-browser", "google-chrome")
    found: dict[str, PageCost] = {}
    with (
        tempfile.TemporaryDirectory(dir=store.parent) as folder,
        _live_copy(store, Path(folder)) as live,
        _dashboard(live) as (process, url),
        sync_playwright() as playwright,
        playwright.chromium.launch_persistent_context(
            Path(folder) / "profile",
            executable_path=_polite(executable, Path(folder)),
            args=list(CHROMIUM_ARGUMENTS),
            viewport={"width": 1280, "height": 900},
        ) as context,
    ):
        for _ in range(_VISITS_BEFORE):
            visit = context.new_page()
            visit.goto(url, wait_until="networkidle")
            time.sleep(_VISIT_S)
            visit.close()
        for name in pages:
            address = f"{url}/{PAGES[name].format(trace=turn.trace_id)}"
            cost = _cost(context, process, address, opens, count)
            if cost is None:
                sys.stderr.write(f"{name}: left out, the store has nothing to show there\n")
                continue
            found[name] = cost
            sys.stderr.write(f"{name}: {', '.join(_cells(cost))}\n")
    return found


def _polite(executable: str, folder: Path) -> str:
    """A program that runs another at the dashboard's priority; all of its processes get it."""
    script = folder / "browser"
    script.write_text(f'#!/bin/sh\nexec nice -n {POLITENESS} "{executable}" "$@"\n')
    script.chmod(0o700)
    return str(script)


def _cost(context: BrowserContext, process: psutil.Process, address: str, opens: int, count: int) -> PageCost | None:
    """What a page costs; None of one that has nothing to show. Raises RuntimeError for one that shows an error."""
    times: list[PageTimes] = []
    cpu_s: list[float] = []
    while True:
        used_s = _cpu_s(process)
        page, opened = open_page(context, address)
        times.append(opened)
        cpu_s.append(_cpu_s(process) - used_s)
        if page.get_by_text(_NOTHING_TO_SHOW).count():
            page.close()
            return None
        _refuse_errors(page)
        if len(times) == opens:
            break
        page.close()
        time.sleep(_BETWEEN_PAGES_S)
    used_s = _cpu_s(process)
    seen = tuple(refreshes(page, count, within_s=8.0 + 12.0 * count))
    refresh_cpu_s = (_cpu_s(process) - used_s) / len(seen) if seen else None
    page.close()
    time.sleep(_BETWEEN_PAGES_S)
    return PageCost(tuple(times), statistics.median(cpu_s), seen, refresh_cpu_s)


def _refuse_errors(page: Page) -> None:
    """A page that shows an error is quick, and nothing is measured."""
    shown = page.locator('[data-testid="stException"], .vp-empty')
    if shown.count():
        raise RuntimeError(f"{page.url} shows no figures: {shown.first.inner_text()[:300]}")


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def _cells(cost: PageCost) -> tuple[str, str, str]:
    """The first figures, all of a page and its refreshes, with what is slower than its target marked."""
    all_of_it = f"{_middle([each.shown_s for each in cost.opens])} ({cost.open_cpu_s:.2f})"
    shown = [each.shown_s for each in cost.refreshes]
    refresh = f"{_middle(shown, REFRESH_S)} ({cost.refresh_cpu_s:.2f})" if shown else "none by itself"
    return _middle(cost.figures_s, FIRST_PAINT_S), all_of_it, refresh


def _middle(seconds: list[float], target_s: float | None = None) -> str:
    """The middle and the slowest of several times; marked where the middle misses its target."""
    middle_s = statistics.median(seconds)
    mark = " !" if target_s is not None and middle_s > target_s else ""
    return f"{middle_s:.2f}, {max(seconds):.2f}{mark}"


def _print(found: dict[int, dict[str, PageCost]]) -> None:
    table = Table(title="Seconds, the middle and the slowest (of them CPU of the dashboard)", title_justify="left")
    table.add_column("page")
    for turns in found:
        table.add_column(f"first figures, {turns:,} turns", justify="right")
        table.add_column("all of it", justify="right")
        table.add_column("refresh", justify="right")
    for name in next(iter(found.values())):
        table.add_row(name, *(cell for each in found.values() for cell in _cells(each[name])))
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(table)
    console.print(f"! marks what is slower than {FIRST_PAINT_S:g} s for first figures or {REFRESH_S:g} s for a refresh")
    sizes = list(found)
    for name in next(iter(found.values())):
        first, last = found[sizes[0]][name], found[sizes[-1]][name]
        if len(sizes) > 1:
            ratio = last.open_cpu_s / max(first.open_cpu_s, 0.01)
            console.print(f"{name}: first paint takes {ratio:.1f} times the CPU time of {sizes[0]:,} turns")


def main() -> None:
    """Measure with the arguments of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--turns", default="100k,1M", help="sizes of the stores, such as 100k,10M")
    parser.add_argument("--store", type=Path, action="append", default=[], help="a filled store, one for each size")
    parser.add_argument("--folder", type=Path, help="where the stores are filled, and links of them made")
    parser.add_argument("--page", action="append", choices=list(PAGES), help="this page only; may be repeated")
    parser.add_argument("--opens", type=int, default=3, help="how often each page is opened")
    parser.add_argument("--refreshes", type=int, default=5)
    arguments = parser.parse_args()
    sizes = checked(
        turns=arguments.turns,
        window=None,
        spans_per_s=1,
        short=True,
        folder=arguments.folder,
        json_file=None,
        markdown=False,
    ).turns
    found: dict[int, dict[str, PageCost]] = {}
    with tempfile.TemporaryDirectory(prefix="voiceprobe-pages-", dir=arguments.folder) as folder:
        for place, turns in enumerate(sizes):
            store = Path(folder) / f"store-{turns}"
            if place < len(arguments.store):
                store = arguments.store[place]
            else:
                fill(store, turns, end_unix_ns=time.time_ns() - _BEFORE_NOW_NS)
            pages = arguments.page or list(PAGES)
            found[turns] = measure(store, pages, arguments.opens, arguments.refreshes)
    _print(found)


if __name__ == "__main__":
    main()
