"""`voiceprobe report`."""

from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from loadtest.cli.flags import Json, flag
from loadtest.errors import UsageError

EXAMPLE: Final = "Example: voiceprobe report runs/20260101-120000-abcdef --html report.html --junit junit.xml"


def report(
    run: Annotated[
        str | None,
        typer.Argument(help="folder of a run, or the id of one (default: the newest run in the folder runs)"),
    ] = None,
    *,
    store: Annotated[
        str | None,
        flag("target", help="a store instead: its folder, or http://HOST:4318 of its sidecar (with its token)"),
    ] = None,
    run_id: Annotated[
        str | None, flag("target", "--run", help="id of the run in the store (default: the newest)")
    ] = None,
    list_runs: Annotated[bool, flag("target", "--list", help="list the runs of the store instead")] = False,
    slo: Annotated[
        Path | None,
        flag("objectives", help="objectives, an OpenSLO file (default: those of the run, else the built-in set)"),
    ] = None,
    json_file: Json = None,
    html: Annotated[Path | None, flag("output", help="write the report as one HTML file")] = None,
    junit: Annotated[Path | None, flag("output", help="write the verdicts as a JUnit file")] = None,
    markdown: Annotated[Path | None, flag("output", help="write the summary of a CI job, in Markdown")] = None,
) -> None:
    """Judge a run from its store: the same text, files and exit code as `voiceprobe run`, whoever started it.

    Works while the run is under way, and for swarms that were started with plain Locust.
    """
    from loadtest.run.report import ReportFiles
    from loadtest.run.report import list_runs as show_runs
    from loadtest.run.report import report as carry_out
    from loadtest.run.run_place import find_run

    console = Console()
    if list_runs and store is None and run is None:
        raise UsageError("--list shows the runs of a store: give --store")
    place = find_run(run, store, run_id)
    if list_runs:
        raise typer.Exit(int(show_runs(place.store, console)))
    files = ReportFiles(json=json_file, html=html, junit=junit, markdown=markdown)
    raise typer.Exit(int(carry_out(place, console, slo=slo, files=files)))
