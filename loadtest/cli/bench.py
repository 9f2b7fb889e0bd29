"""`voiceprobe bench`: the flags of the benchmark."""

from pathlib import Path
from typing import Annotated, Final

import typer

from loadtest.bench.cases import DEFAULT_MODES, PARTS, WIRES
from telemetry.model.durations import METAVAR

EXAMPLE: Final = "Example: voiceprobe bench --callers 100,500 --modes duplex --json bench.json --out pictures"


def bench(
    *,
    only: Annotated[str, typer.Option(help=f"parts to run, of {','.join(PARTS)}")] = ",".join(PARTS),
    callers: Annotated[str | None, typer.Option(help="sizes to compare at (default: 100,500,1000,2000)")] = None,
    modes: Annotated[
        str,
        typer.Option(
            help="one-way; duplex: reply audio comes back; duplex-bare: events come back that no caller waits for"
        ),
    ] = ",".join(DEFAULT_MODES),
    wires: Annotated[str, typer.Option(help="ws, wss (up to 500 callers, without the C control)")] = ",".join(WIRES),
    rounds: Annotated[int | None, typer.Option(help="rounds, in each of which every sender runs (default: 3)")] = None,
    window: Annotated[
        str | None, typer.Option(help="length of each measured window (default: 3s)", metavar=METAVAR)
    ] = None,
    short: Annotated[bool, typer.Option("--short", help="a few seconds of everything, to see that it works")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="write all figures as one JSON object")] = None,
    out: Annotated[Path | None, typer.Option(help="folder for pictures of the senders' cost and pacing")] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="print the tables as Markdown")] = False,
) -> None:
    """Measure what the load generator costs and how exact its time stamps are.

    The engine, a C program and a usual locustfile take turns on one pinned core; then the cost of telemetry for each
    turn, and how far event stamps are from the truth. Targets are shown beside the figures and never decide the exit
    code: they are met or not met on this machine, as it is now. Takes about twelve minutes.
    """
    from loadtest.bench.job import bench as carry_out
    from loadtest.bench.options import checked

    options = checked(
        only=only,
        callers=callers,
        modes=modes,
        wires=wires,
        rounds=rounds,
        window=window,
        short=short,
        json_file=json_file,
        out=out,
        markdown=markdown,
    )
    carry_out(options)
