"""`voiceprobe rollout`: the flags of its commands."""

from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from loadtest.cli.flags import Json, Slo, durations
from telemetry.model.durations import METAVAR

CHECK_EXAMPLE: Final = (
    "Example: voiceprobe rollout check examples/rollouts/streaming.toml --store ./store --history streaming.json"
)

RUN_EXAMPLE: Final = "Example: voiceprobe rollout run rollout.toml --store ./store"
REPORT_EXAMPLE: Final = "Example: voiceprobe rollout report rollout.toml --store ./store --html rollout.html"
WATCH_EXAMPLE: Final = "Example: voiceprobe rollout watch examples/rollouts/streaming.toml --store ./store"

Plan = Annotated[Path, typer.Argument(help="the rollout's plan, a TOML file; see examples/rollouts")]
Store = Annotated[str, typer.Option(help="folder of the store, or http://HOST:4318 of its sidecar (with its token)")]
Also = Annotated[
    list[Path] | None,
    typer.Option(metavar="<path>", help="another plan that runs at the same time; may be repeated"),
]
Every = Annotated[str, typer.Option(help="time between two looks, e.g. 10s", metavar=METAVAR)]

rollout = typer.Typer(help="Decide on a staged rollout by its plan.", no_args_is_help=True, add_completion=False)


@rollout.callback()
def group() -> None:
    """Decide on a staged rollout by its plan."""


@rollout.command(epilog=CHECK_EXAMPLE)
def check(
    plan: Plan,
    store: Store,
    *,
    slo: Slo = None,
    stage: Annotated[
        str | None, typer.Option(help="stage to judge (default: the history's current stage, else the first)")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="MOMENT",
            help="when the stage began, e.g. 2026-11-02T08:00:00Z (default: from the plan or the history)",
        ),
    ] = None,
    history: Annotated[Path | None, typer.Option(help="file that records every look; created by the first one")] = None,
    also: Also = None,
    json_file: Json = None,
    junit_file: Annotated[Path | None, typer.Option("--junit", help="write the result as a JUnit file")] = None,
    markdown_file: Annotated[
        Path | None, typer.Option("--markdown", help="write the result as Markdown, for the summary of a CI job")
    ] = None,
) -> None:
    """Decide whether to promote, hold or roll back a stage of a rollout, with reasons and the turns still needed.

    Run it as often as you like: the bounds hold at every look.

    Exit code 0: promote; 3: roll back; 6: hold; 2: the plan or a flag cannot be used.
    """
    from loadtest.run.rollout_check import RolloutCheckRequest
    from loadtest.run.rollout_check import check as carry_out

    request = RolloutCheckRequest(
        plan, store, slo, stage, since, history, tuple(also or ()), json_file, junit_file, markdown_file
    )
    raise typer.Exit(int(carry_out(request, Console())))


@rollout.command(epilog=RUN_EXAMPLE)
def run(
    plan: Plan,
    store: Store,
    *,
    slo: Slo = None,
    log: Annotated[
        Path | None,
        typer.Option(
            help="folder of a store for the verdicts; required if --store is the address of a sidecar that does not "
            "evaluate the plan"
        ),
    ] = None,
    every: Every = "10s",
    at_most: Annotated[
        str | None,
        typer.Option(
            "--for", help="end after this time even if the rollout is not over (default: never)", metavar=METAVAR
        ),
    ] = None,
    also: Also = None,
) -> None:
    """Take a rollout through its stages: change the candidate's share as the plan says, as far as verdicts allow.

    A stage begins after the one before it was promoted. A roll back sets the candidate's share to 0.

    Verdicts are stored before they take effect, so after a crash the same command continues.

    If --store is the address of a sidecar that evaluates the plan, the sidecar's verdicts decide.

    Exit code 0: promoted through every stage; 3: rolled back; 6: the time of --for is over;
    2: the plan or a flag cannot be used.
    """
    from loadtest.rollout.job import RolloutRunRequest, run_rollout

    every_s = durations(every=every)["every"].seconds
    at_most_s = None if at_most is None else durations(**{"for": at_most})["for"].seconds
    request = RolloutRunRequest(plan, store, slo, log, every_s, at_most_s, tuple(also or ()))
    raise typer.Exit(int(run_rollout(request, Console())))


@rollout.command(epilog=WATCH_EXAMPLE)
def watch(
    plan: Plan,
    store: Store,
    *,
    slo: Slo = None,
    stage: Annotated[
        str | None, typer.Option(help="stage to judge (default: the store's current stage, else the first)")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="MOMENT",
            help="when the stage began, e.g. 2026-11-02T08:00:00Z (default: from the store or the plan)",
        ),
    ] = None,
    every: Every = "10s",
    until_verdict: Annotated[
        bool, typer.Option("--until-verdict", help="end with the first verdict that is not hold")
    ] = False,
    also: Also = None,
) -> None:
    """Show the verdict on a rollout as it develops. Changes and stores nothing; anything may split the callers.

    Ends with Ctrl-C or --until-verdict.

    Exit code, of the last look: 0 promote, 3 roll back, 6 hold; 2: the plan or a flag cannot be used.
    """
    from loadtest.rollout.job import RolloutWatchRequest
    from loadtest.rollout.job import watch as carry_out

    every_s = durations(every=every)["every"].seconds
    request = RolloutWatchRequest(plan, store, slo, stage, since, every_s, until_verdict, tuple(also or ()))
    raise typer.Exit(int(carry_out(request, Console())))


@rollout.command(epilog=REPORT_EXAMPLE)
def report(
    plan: Plan,
    store: Store,
    html: Annotated[Path, typer.Option(help="file to write, e.g. rollout.html")],
    *,
    slo: Slo = None,
) -> None:
    """Write a report of a rollout as one HTML file: stages, verdicts, bounds at each look, and both cohorts' curves.

    The file loads nothing from a network.

    Exit code, of the last verdict: 0 promote, 3 roll back, 6 hold; 2: the plan or a flag cannot be used.
    """
    from loadtest.rollout.reporting import RolloutReportRequest, report_rollout

    raise typer.Exit(int(report_rollout(RolloutReportRequest(plan, store, html, slo), Console())))
