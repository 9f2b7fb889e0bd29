"""`voiceprobe runs`: the flags of its commands."""

from typing import Annotated, Final

import typer
from rich.console import Console

from loadtest.cli.flags import Json, Places, SloOfRuns, durations
from telemetry.model.durations import METAVAR

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
    # What stands before the name of a command holds for it too.
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
    """Keep a note beside a run; the list and the dashboard show it. Exit code 0; 2 where there is no such run."""
    from loadtest.run.runs import note_run

    raise typer.Exit(int(note_run(name, text, context.obj, Console())))
