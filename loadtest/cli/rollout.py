"""`voiceprobe rollout`: the flags of its commands."""

from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from loadtest.cli.flags import Json, Slo

CHECK_EXAMPLE: Final = (
    "Example: voiceprobe rollout check examples/rollouts/streaming.toml --store ./store --history streaming.json"
)

rollout = typer.Typer(help="Judge a staged rollout by its plan.", no_args_is_help=True, add_completion=False)


@rollout.callback()
def group() -> None:
    """Judge a staged rollout by its plan."""


@rollout.command(epilog=CHECK_EXAMPLE)
def check(
    plan: Annotated[Path, typer.Argument(help="plan of the rollout, a TOML file, see examples/rollouts")],
    store: Annotated[
        str, typer.Option(help="folder of the store, or http://HOST:4318 of its sidecar (with its token)")
    ],
    *,
    slo: Slo = None,
    stage: Annotated[
        str | None, typer.Option(help="stage that is judged (default: where the history is, else the first)")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="MOMENT",
            help="when the stage began, as 2026-11-02T08:00:00Z (default: as the plan or history says)",
        ),
    ] = None,
    history: Annotated[
        Path | None, typer.Option(help="file that keeps every look; made by the first, read by the next")
    ] = None,
    also: Annotated[
        list[Path] | None, typer.Option(help="another plan that is evaluated at the same time; may be repeated")
    ] = None,
    json_file: Json = None,
    junit_file: Annotated[Path | None, typer.Option("--junit", help="write the result as a JUnit file")] = None,
    markdown_file: Annotated[
        Path | None, typer.Option("--markdown", help="write the result as Markdown, for the summary of a CI job")
    ] = None,
) -> None:
    """Say of a rollout's stage whether to promote, hold or roll back, why, and how many turns are still needed.

    Look as often as you like: the bounds hold at every look. Exit code 0: promote; 3: roll back; 6: hold; 2: the plan
    or a flag cannot be used.
    """
    from loadtest.run.rollout_check import RolloutCheckRequest
    from loadtest.run.rollout_check import check as carry_out

    request = RolloutCheckRequest(
        plan, store, slo, stage, since, history, tuple(also or ()), json_file, junit_file, markdown_file
    )
    raise typer.Exit(int(carry_out(request, Console())))
