"""What the sidecar takes in and how fast its store answers, for stores of several sizes."""

import dataclasses
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from loadtest.run.json_file import write_json
from tests.benchmarks.bench import machine
from tests.benchmarks.bench.store.filling import Filled, fill
from tests.benchmarks.bench.store.measuring import answered, sidecar_on, size_bytes
from tests.benchmarks.bench.store.options import StoreBenchOptions
from tests.benchmarks.bench.store.report import StoreFigures, markdown, print_figures

LOG_WIDTH: Final = 132
LOOKUPS: Final = 20
# The generated turns end before those that are sent, as in a store that a sidecar has written for a while.
_BEFORE_NOW_NS: Final = 600 * 1_000_000_000
_STEPS: Final = 6
_Step = Callable[[str], None]


def bench_store(options: StoreBenchOptions) -> None:
    """Measure stores of each size and write what was asked for.

    Raises OutputError for a file that cannot be written, StoreError, and ProcessFailedError for a process that failed.
    """
    console = Console(stderr=options.markdown, width=None if sys.stdout.isatty() else LOG_WIDTH)
    info = machine.machine_info()
    console.print(f"{machine.sentence(info)}, load {info['load_before']}", soft_wrap=True)
    found: list[StoreFigures] = []
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with (
        tempfile.TemporaryDirectory(prefix="voiceprobe-bench-", dir=options.folder) as folder,
        Progress(*columns, console=console, transient=True) as progress,
    ):
        for turns in options.turns:
            task = progress.add_task(f"{turns:,} turns: filling", total=turns)

            def on_turns(added: int, task: Any = task) -> None:
                progress.update(task, advance=added)

            def step(name: str, task: Any = task, turns: int = turns) -> None:
                progress.update(task, description=f"{turns:,} turns: {name}", advance=1)

            store = Path(folder) / f"store-{turns}"
            filled = fill(store, turns, end_unix_ns=time.time_ns() - _BEFORE_NOW_NS, on_turns=on_turns)
            progress.reset(task, total=_STEPS)
            found.append(measured(store, filled, options, step))
            progress.remove_task(task)
            shutil.rmtree(store)
    print_figures(console, found)
    if options.markdown:
        sys.stdout.write(markdown(found, machine.sentence(info)) + "\n")
    if options.json_file is not None:
        stores = [dataclasses.asdict(figures) for figures in found]
        write_json(options.json_file, {"machine": info, "stores": stores})


def measured(store: Path, filled: Filled, options: StoreBenchOptions, step: _Step) -> StoreFigures:
    """The figures of one store; what changes the store comes last. Raises ProcessFailedError."""
    folder = store.parent
    stored_bytes = size_bytes(store)
    step("starting")
    with sidecar_on(store, folder) as sidecar:
        times = str(options.times)
        step("page")
        questions = "tests.benchmarks.bench.store.questions"
        page = answered(questions, "page", str(store), times, folder=folder)
        step("lookup and summary")
        lookup = answered(questions, "lookup", str(store), str(LOOKUPS), folder=folder)
        summary = answered(questions, "summary", str(store), times, folder=folder)
        step("freshness")
        fresh = answered(questions, "fresh", str(store), str(LOOKUPS), sidecar.url, folder=folder)
        step("ingest, paced")
        paced = sidecar.ingest(options.window_s, options.spans_per_s, folder)
        step("ingest")
        fastest = sidecar.ingest(options.window_s, 0, folder)
    return StoreFigures(
        turns=filled.turns,
        spans=filled.spans,
        size_bytes=stored_bytes,
        start_s=sidecar.start_s,
        page=page,
        lookup=lookup,
        summary=summary,
        fresh=fresh,
        fastest=fastest,
        paced=paced,
    )
