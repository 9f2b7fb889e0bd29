"""The benchmarks of developers: `python -m tests.benchmarks.bench`; `store`, `pages` and the other names have their own
flags."""

import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from corpora.output_paths import unwritable
from loadtest.cli.flags import given_on_command_line
from loadtest.cli.guard import guarded
from loadtest.errors import UsageError
from loadtest.targets.ground_truth.plan import BEHAVIORS, check_behavior
from telemetry.model.durations import METAVAR, Duration, DurationError
from tests.benchmarks.bench.paired import Report

DEFAULT_CALLERS: Final = {
    "one-way": "100,500,1000,2000",
    "duplex": "1000",
    "conversations": "200,400,800",
    "stalls": "20",
}
# TLS costs every sender the same: it is compared at the smaller sizes only.
MOST_CALLERS_OVER_TLS: Final = 500
SIZES_HELP: Final = (
    "sizes to compare at (default: 100,500,1000,2000; duplex 1000; conversations 200,400,800; stalls 20)"
)
MODES_HELP: Final = (
    "one-way: callers only send; duplex: audio comes back all the time; conversations: they speak, wait and hear; "
    "stalls: conversations of callers that are held up in several ways"
)

bench = typer.Typer(invoke_without_command=True, add_completion=False)
Json = Annotated[Path | None, typer.Option("--json", help="write all figures as one JSON object")]
Markdown = Annotated[bool, typer.Option("--markdown", help="print the tables as Markdown")]
Turns = Annotated[str, typer.Option(help="sizes of the stores, in turns")]
Folder = Annotated[Path | None, typer.Option(help="where the stores are made (default: a temporary folder)")]


@bench.callback(epilog="Example: python -m tests.benchmarks.bench --callers 100,500 --modes duplex --json bench.json")
def generator(
    context: typer.Context,
    *,
    modes: Annotated[str, typer.Option(help=MODES_HELP)] = ",".join(DEFAULT_CALLERS),
    callers: Annotated[str | None, typer.Option(help=SIZES_HELP)] = None,
    wires: Annotated[str, typer.Option(help="ws, wss (up to 500 callers, without the program in C)")] = "ws",
    rounds: Annotated[int, typer.Option(help="rounds, in each of which every sender runs", min=1, max=100)] = 3,
    window: Annotated[str, typer.Option(help="length of each measured window", metavar=METAVAR)] = "6s",
    replies: Annotated[str, typer.Option(help=f"how the endpoint answers, of {', '.join(BEHAVIORS)}")] = "plain",
    short: Annotated[
        bool, typer.Option("--short", help="one short round of few callers, to see that it works")
    ] = False,
    json_file: Json = None,
    markdown: Markdown = False,
) -> None:
    """Measure what the load generator costs and how exact its figures are.

    The engine, a program in C and a usual locustfile take turns on one pinned core; an endpoint in C on another one
    knows when it answered. Figures never decide the exit code: they are of this machine, as it is now.
    """
    if context.invoked_subcommand is not None:
        if given := given_on_command_line(context):
            flags = ", ".join(f"--{name.removesuffix('_file').replace('_', '-')}" for name in given)
            raise UsageError(f"{flags}: write flags behind `{context.invoked_subcommand}`; its --help lists them")
        return
    from tests.benchmarks.bench.generator import STALLS, Case, Options, bench_generator

    cases: list[Case] = []
    for mode in _listed("--modes", modes, tuple(DEFAULT_CALLERS)):
        loads = [*_counts(callers or ("20" if short else DEFAULT_CALLERS[mode]))]
        if mode == "stalls":
            cases += [Case(load, "conversations", stall=stall) for load in loads for stall in STALLS]
            continue
        for wire in _listed("--wires", wires, ("ws", "wss")):
            cases += [Case(load, mode, wire) for load in loads if wire == "ws" or load <= MOST_CALLERS_OVER_TLS]
    warm_up_ms, window_ms = 4000, _window_ms("2s" if short else window)
    options = Options(tuple(cases), 1 if short else rounds, warm_up_ms, window_ms, check_behavior(replies))
    bench_generator(options, _report(json_file, markdown=markdown))


@bench.command(epilog="Example: python -m tests.benchmarks.bench store --turns 10k,1M,10M --json store.json")
def store(
    *,
    turns: Turns = "10k,1M",
    window: Annotated[str, typer.Option(help="how long spans are sent, twice for each store", metavar=METAVAR)] = "10s",
    spans_per_s: Annotated[int, typer.Option(help="rate of the paced sending", min=1, max=1_000_000)] = 10_000,
    short: Annotated[bool, typer.Option("--short", help="a store of 3,000 turns, to see that it works")] = False,
    folder: Folder = None,
    json_file: Json = None,
    markdown: Markdown = False,
) -> None:
    """Measure what the sidecar takes in and how fast its store answers, for stores of several sizes.

    A sidecar is started on each store; processes of their own ask for a page, turns and a summary; and spans are sent,
    at a rate and as fast as they are acknowledged. 10 million turns need about 6 GB of disk.
    """
    from tests.benchmarks.bench.store import StoreOptions, bench_store, sizes

    window_s = _window_ms("1s" if short else window) / 1000
    options = StoreOptions(sizes("3k" if short else turns), window_s, spans_per_s, 2 if short else 5, _there(folder))
    bench_store(options, _report(json_file, markdown=markdown))


@bench.command(epilog="Example: python -m tests.benchmarks.bench pages --turns 100k,10M")
def pages(
    *,
    turns: Turns = "100k,1M",
    opens: Annotated[int, typer.Option(help="how often each page is opened", min=1)] = 3,
    refreshes: Annotated[int, typer.Option(help="refreshes to wait for", min=0)] = 5,
    short: Annotated[bool, typer.Option("--short", help="a store of 3,000 turns, to see that it works")] = False,
    folder: Folder = None,
    json_file: Json = None,
    markdown: Markdown = False,
) -> None:
    """Measure in a browser how soon each page of the dashboard is there, and refreshed."""
    from tests.benchmarks.bench.pages import PAGES, PageOptions, bench_pages
    from tests.benchmarks.bench.store import sizes

    options = PageOptions(tuple(PAGES), sizes(turns), opens, refreshes, _there(folder))
    if short:
        options = PageOptions(("now", "turns"), sizes("3k"), 1, 1, options.folder)
    bench_pages(options, _report(json_file, markdown=markdown))


def _listed(flag: str, text: str, known: tuple[str, ...]) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names or not set(names) <= set(known):
        raise UsageError(f"{flag} {text}: give one or more of {','.join(known)}")
    return [name for name in known if name in names]


def _counts(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and 0 < int(part) <= 20_000 for part in parts):
        raise UsageError(f"--callers {text}: give numbers from 1 to 20000, such as 100,500")
    return sorted({int(part) for part in parts})


def _window_ms(text: str) -> int:
    try:
        seconds = Duration.parse(text).seconds
    except DurationError as error:
        raise UsageError(f"--window {error}") from None
    if not 0.5 <= seconds <= 600:
        raise UsageError(f"--window {text}: give a duration from 500ms to 10m")
    return round(seconds * 1000)


def _there(folder: Path | None) -> Path | None:
    if folder is not None and not folder.is_dir():
        raise UsageError(f"--folder {folder}: there is no such folder; make it or name another one")
    return folder


def _report(json_file: Path | None, *, markdown: bool) -> Report:
    if json_file is not None and (fault := unwritable(json_file)):
        raise UsageError(f"--json {fault}")
    return Report(json_file, markdown=markdown)


if __name__ == "__main__":
    sys.exit(guarded(bench))
