"""`voiceprobe report`."""

from typing import Annotated, Final

import typer
from rich.console import Console

from loadtest.cli.flags import Json, Slo

EXAMPLE: Final = "Example: voiceprobe report --store runs/20260101-120000-abcdef/store --json summary.json"


def report(
    store: Annotated[
        str, typer.Option(help="folder of the store, or http://HOST:4318 of its sidecar (with its token)")
    ],
    run_id: Annotated[str | None, typer.Option("--run", help="name of the run (default: the newest)")] = None,
    list_runs: Annotated[bool, typer.Option("--list", help="list the runs of the store instead")] = False,
    slo: Slo = None,
    json_file: Json = None,
) -> None:
    """Judge a run from its store: the same text, JSON and exit code as `voiceprobe run`, whoever started it.

    Works while the run is under way, and for swarms that were started with plain Locust.
    """
    from loadtest.run.report import list_runs as show_runs
    from loadtest.run.report import report as carry_out

    console = Console()
    code = (
        show_runs(store, console)
        if list_runs
        else carry_out(store, console, run_id=run_id, slo=slo, json_file=json_file)
    )
    raise typer.Exit(int(code))
