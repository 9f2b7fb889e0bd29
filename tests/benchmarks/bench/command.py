"""`python -m tests.benchmarks.bench`: the flags of the benchmark."""

from pathlib import Path
from typing import Annotated, Final

import typer

from loadtest.cli.flags import given_on_command_line
from loadtest.errors import UsageError
from telemetry.model.durations import METAVAR
from tests.benchmarks.bench.cases import DEFAULT_MODES, PARTS, REPLIES, WIRES

EXAMPLE: Final = "Example: python -m tests.benchmarks.bench --callers 100,500 --modes duplex --json bench.json"
STORE_EXAMPLE: Final = "Example: python -m tests.benchmarks.bench store --turns 10k,1M,10M --json store.json"
DENSITY_EXAMPLE: Final = "Example: python -m tests.benchmarks.bench density --wires twilio,pipecat --json density.json"
CALLERS_HELP: Final = "sizes to compare at (default: 100,500,1000,2000; conversations: 200,400,600,800,1000)"
WINDOW_HELP: Final = "length of each measured window (default: 3s; conversations: 6s)"
REPLIES_HELP: Final = (
    "replies in conversations: plain (400 ms in chunks of 100 ms), drip (500 ms in chunks of 20 ms) or long (4 s)"
)

bench = typer.Typer(invoke_without_command=True, add_completion=False)


@bench.callback(epilog=EXAMPLE)
def generator(
    context: typer.Context,
    *,
    only: Annotated[str, typer.Option(help=f"parts to run, of {','.join(PARTS)}")] = ",".join(PARTS),
    callers: Annotated[str | None, typer.Option(help=CALLERS_HELP)] = None,
    modes: Annotated[
        str,
        typer.Option(
            help="one-way; duplex: reply audio comes back; duplex-bare: events come back that no caller waits for"
        ),
    ] = ",".join(DEFAULT_MODES),
    wires: Annotated[str, typer.Option(help="ws, wss (up to 500 callers, without the C control)")] = ",".join(WIRES),
    rounds: Annotated[int | None, typer.Option(help="rounds, in each of which every sender runs (default: 3)")] = None,
    window: Annotated[str | None, typer.Option(help=WINDOW_HELP, metavar=METAVAR)] = None,
    replies: Annotated[str, typer.Option(help=REPLIES_HELP)] = REPLIES[0],
    short: Annotated[bool, typer.Option("--short", help="a few seconds of everything, to see that it works")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="write all figures as one JSON object")] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="print the tables as Markdown")] = False,
) -> None:
    """Measure what the load generator costs and how exact its time stamps are.

    The engine, a C program and a usual locustfile take turns on one pinned core, sending; then the engine and a C
    program, in conversations with an endpoint that knows when it answered; then the cost of telemetry for each turn,
    and how far event stamps are from the truth. Targets are shown beside the figures and never decide the exit code:
    they are met or not met on this machine, as it is now. Takes about twenty minutes.

    --only conversations compares callers who speak, wait and hear; --only senders those who send, or also hear, all the
    time.
    """
    if context.invoked_subcommand is not None:
        _refuse_flags(context)
        return
    from tests.benchmarks.bench.job import bench as carry_out
    from tests.benchmarks.bench.options import checked

    options = checked(
        only=only,
        callers=callers,
        modes=modes,
        wires=wires,
        rounds=rounds,
        window=window,
        replies=replies,
        short=short,
        json_file=json_file,
        markdown=markdown,
    )
    carry_out(options)


@bench.command(epilog=STORE_EXAMPLE)
def store(
    *,
    turns: Annotated[str | None, typer.Option(help="sizes of the stores, in turns (default: 10k,1M)")] = None,
    window: Annotated[
        str | None, typer.Option(help="how long spans are sent, twice for each store (default: 10s)", metavar=METAVAR)
    ] = None,
    spans_per_s: Annotated[int, typer.Option(help="rate of the paced sending")] = 10_000,
    short: Annotated[bool, typer.Option("--short", help="a store of 3,000 turns, to see that it works")] = False,
    folder: Annotated[Path | None, typer.Option(help="where the stores are made (default: a temporary folder)")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="write all figures as one JSON object")] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="print the table as Markdown")] = False,
) -> None:
    """Measure what the sidecar takes in and how fast its store answers, for stores of several sizes.

    Each store is filled with generated turns and merged as a sidecar would. Then a sidecar is started on it; processes
    of their own ask for a page, a turn and a summary; and spans are sent, at a rate and as fast as they are
    acknowledged. Figures never decide the exit code. 10 million turns need about 6 GB of disk, and eight minutes.
    """
    from tests.benchmarks.bench.store.job import bench_store
    from tests.benchmarks.bench.store.options import checked

    bench_store(
        checked(
            turns=turns,
            window=window,
            spans_per_s=spans_per_s,
            short=short,
            folder=folder,
            json_file=json_file,
            markdown=markdown,
        )
    )


@bench.command(epilog=DENSITY_EXAMPLE)
def density(
    *,
    wires: Annotated[str | None, typer.Option(help="wires to compare with raw WebSocket frames (default: all)")] = None,
    callers: Annotated[int | None, typer.Option(help="calls of each window (default: 100)")] = None,
    rounds: Annotated[int | None, typer.Option(help="rounds, in each of which every wire runs (default: 9)")] = None,
    window: Annotated[
        str | None, typer.Option(help="length of each measured window (default: 300ms)", metavar=METAVAR)
    ] = None,
    short: Annotated[bool, typer.Option("--short", help="a round with few callers, to see that it works")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="write all figures as one JSON object")] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="print the table as Markdown")] = False,
) -> None:
    """Measure what a frame of audio costs on each wire, beside raw WebSocket frames.

    The engine carries the calls of one wire after the other, for a short window each, to a sink on another core; raw
    frames are measured before and after each wire. Frames are due ten times as often as in a call, and what counts is
    CPU time, which other work on the machine changes little. Figures never decide the exit code. Takes four minutes.
    """
    from tests.benchmarks.bench.density.job import bench_density
    from tests.benchmarks.bench.density.options import checked

    bench_density(
        checked(
            wires=wires,
            callers=callers,
            rounds=rounds,
            window=window,
            short=short,
            json_file=json_file,
            markdown=markdown,
        )
    )


def _refuse_flags(context: typer.Context) -> None:
    """Raise UsageError for a flag of `bench` before the name of a sub-command, which would be without effect."""
    if given := given_on_command_line(context):
        flags = ", ".join(f"--{name.removesuffix('_file').replace('_', '-')}" for name in given)
        raise UsageError(f"{flags}: write flags behind `{context.invoked_subcommand}`; its --help lists them")
