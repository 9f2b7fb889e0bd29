"""`voiceprobe report`, `voiceprobe compare` and `voiceprobe runs`: runs that are kept."""

from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from loadtest.cli.flags import Json, Places, SloOfRuns, durations, flag
from loadtest.errors import UsageError
from telemetry.model.durations import METAVAR

REPORT_EXAMPLE: Final = "Example: voiceprobe report runs/20260101-120000-abcdef --html report.html --junit junit.xml"


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
    """Judge a run from its store: the same text, files and exit code as `voiceprobe run`, whatever started it.

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


COMPARE_EXAMPLE: Final = "Example: voiceprobe compare before after --margin 100ms --html compared.html"


def compare(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN",
            help="two runs or more, the first is the baseline: a run's folder, its id or the beginning of it, "
            "STORE#RUN, or http://HOST:4318#RUN of a sidecar",
        ),
    ],
    *,
    places: Places = None,
    margin: Annotated[
        str, typer.Option(help="most by which the figure may exceed the baseline's", metavar=METAVAR)
    ] = "100ms",
    metric: Annotated[str, typer.Option(help="metric that the margin applies to: a duration")] = "voice_to_voice",
    statistic: Annotated[str, typer.Option(help="percentile of the metric: p50, p95 or p99")] = "p95",
    slo: Annotated[
        Path | None,
        flag("objectives", help="objectives, an OpenSLO file (default: those of the baseline, else the built-in set)"),
    ] = None,
    json_file: Json = None,
    html_file: Annotated[
        Path | None, typer.Option("--html", help="write the result as one HTML file, with pictures")
    ] = None,
    markdown_file: Annotated[
        Path | None, typer.Option("--markdown", help="write the result as Markdown, for the summary of a CI job")
    ] = None,
) -> None:
    """Compare runs with a baseline: differences of latency, good turns, cache, fallbacks and word errors.

    Every difference has a 95 % interval whose variance is clustered by call, and paired by utterance where both runs
    heard the same audio. Exit code 0: shown to be within the margin; 3: a regression, shown to exceed it; 6: undecided,
    too few turns, or a run is generator-limited; 2: a run or a flag cannot be used.
    """
    from loadtest.run.compare import CompareRequest
    from loadtest.run.compare import compare as carry_out

    request = CompareRequest(
        tuple(runs), tuple(places or ()), margin, metric, statistic, slo, json_file, html_file, markdown_file
    )
    raise typer.Exit(int(carry_out(request, Console())))


EXAMPLE: Final = "Example: voiceprobe runs --limit 10"
LIST_EXAMPLE: Final = "Example: voiceprobe runs list --since 7d --state missed"
REMOVE_EXAMPLE: Final = "Example: voiceprobe runs remove 20260101-120000-abcdef --yes"
NOTE_EXAMPLE: Final = "Example: voiceprobe runs note 20260101-120000-abcdef 'new model, warm cache'"
LIST_HELP: Final = "List runs, as `voiceprobe runs` does by itself: with the same flags, output and exit codes."
RUN_HELP: Final = "folder of the run, its id, or the beginning of it"

Limit = Annotated[int | None, typer.Option(min=1, help="show at most so many, the newest first")]
Since = Annotated[
    str | None, typer.Option(metavar=METAVAR, help="only runs that began so long ago at most, e.g. 7d (default: all)")
]
Cohort = Annotated[str | None, typer.Option(help="only runs in which this cohort occurs")]
OfTarget = Annotated[str | None, typer.Option("--target", help="only runs against this target")]
State = Annotated[
    str | None, typer.Option(help="only runs in this state: met, missed, undecided, not judged, damaged, …")
]

runs = typer.Typer(invoke_without_command=True, add_completion=False, epilog=EXAMPLE)


@runs.callback()
def list_all(
    context: typer.Context,
    *,
    places: Places = None,
    limit: Limit = None,
    since: Since = None,
    cohort: Cohort = None,
    target: OfTarget = None,
    state: State = None,
    slo: SloOfRuns = None,
    json_file: Json = None,
) -> None:
    """List runs: when, against what, how many turns, voice-to-voice, verdict and note; the newest first.

    A folder that is damaged or half written is listed with its fault. Exit code 0; 2 where a place is not a folder of
    runs, store or sidecar, or a sidecar cannot be asked: what the others have is listed.
    """
    from loadtest.run.runs import RunsRequest, list_runs

    length = None if since is None else durations(since=since)["since"]
    request = RunsRequest(tuple(places or ()), limit, slo, json_file, length, cohort, target, state)
    # Flags before the name of a command apply to it too.
    context.obj = request if context.obj is None else request.or_else(context.obj)
    if context.invoked_subcommand is None:
        raise typer.Exit(int(list_runs(context.obj, Console())))


runs.command("list", epilog=LIST_EXAMPLE, help=LIST_HELP)(list_all)


@runs.command(epilog=REMOVE_EXAMPLE)
def remove(
    context: typer.Context,
    names: Annotated[list[str], typer.Argument(metavar="RUN", help=RUN_HELP)],
    *,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
) -> None:
    """Delete the folders of runs, with their stores. A run that is under way is kept.

    A folder is renamed first and then deleted: whenever the command is killed, a run is listed whole or not at all.
    Exit code 0: all removed (or nothing, by your answer); 2: no such run, or it cannot be removed.
    """
    from loadtest.run.runs import remove_runs

    raise typer.Exit(int(remove_runs(names, context.obj, Console(), is_sure=yes)))


@runs.command(epilog=NOTE_EXAMPLE)
def note(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="RUN", help=RUN_HELP)],
    text: Annotated[str, typer.Argument(help="what to remember of it; empty: take the note away")],
) -> None:
    """Store a note on a run; the list and the dashboard show it. Exit code 0; 2 if there is no such run."""
    from loadtest.run.runs import note_run

    raise typer.Exit(int(note_run(name, text, context.obj, Console())))
