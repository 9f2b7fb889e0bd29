"""`voiceprobe demo`."""

from typing import Annotated, Final

import typer
from rich.console import Console

from loadtest.cli.flags import Json, Out, Slo, flag, given_on_command_line, sends_callers
from loadtest.scenario.settings import SwarmSettings
from telemetry.model.durations import METAVAR

USERS: Final = 12
REAL_USERS: Final = 2
RUN_TIME: Final = "60s"
ROLLOUT_USERS: Final = 64
ROLLOUT_RUN_TIME: Final = "15m"
EXAMPLE: Final = "Example: voiceprobe demo --users 12 --run-time 60s --exit --json summary.json"


_Users = Annotated[
    int | None,
    flag(
        "load",
        "--users",
        "-u",
        help=f"callers at the same time (default: {USERS}; real engines: {REAL_USERS}; --rollout: {ROLLOUT_USERS})",
    ),
]
_RunTime = Annotated[
    str | None,
    flag(
        "load",
        help=f"how long the swarm runs, e.g. 60s; of --rollout, how long at most (default: {RUN_TIME}; "
        f"{ROLLOUT_RUN_TIME})",
        metavar=METAVAR,
    ),
]


# What the rollouts of the demo can be asked; all else they have by themselves.
_OF_ROLLOUT: Final = frozenset({"rollout", "users", "run_time", "exit_after", "out", "json_file"})


@sends_callers("speech")
def demo(
    context: typer.Context,
    *,
    rollout: Annotated[
        bool,
        flag(
            "load",
            "--rollout",
            help="two staged rollouts instead: a good change is promoted, then one that is slow for one turn in ten "
            "is taken back",
        ),
    ] = False,
    users: _Users = None,
    run_time: _RunTime = None,
    exit_after: Annotated[bool, flag("output", "--exit", help="exit when done instead of waiting for Ctrl-C")] = False,
    engines: Annotated[
        str,
        flag(
            "target", help="the assistant's engines: scripted, or real (models on this machine, 950 MB, installed once)"
        ),
    ] = "scripted",
    slo: Slo = None,
    out: Out = None,
    json_file: Json = None,
    settings: SwarmSettings,
    unreadable: list[str],
) -> None:
    """Start the reference assistant, the sidecar and the dashboard, and send callers."""
    from loadtest.run.request import called_as_its_folder, out_folder
    from loadtest.scenario.options import load_from

    folder = out_folder(out)
    few = ROLLOUT_USERS if rollout else REAL_USERS if engines == "real" else USERS
    usual = ROLLOUT_RUN_TIME if rollout else RUN_TIME
    asked = {"users": few if users is None else users, "run_time": run_time or usual}
    load = load_from(asked, unreadable)
    if rollout:
        from loadtest.rollout.demo import RolloutDemoRequest, demo_rollout

        useless = [name for name in given_on_command_line(context) if name not in _OF_ROLLOUT]
        unreadable += [f"--{name.replace('_', '-')}: not supported with --rollout; leave it out" for name in useless]
        rollout_request = RolloutDemoRequest(load, exit_after, folder, json_file, unreadable=tuple(unreadable))
        raise typer.Exit(int(demo_rollout(rollout_request, Console())))
    from loadtest.run.demo import DemoRequest
    from loadtest.run.demo import demo as carry_out

    named = called_as_its_folder(settings, folder, out)
    request = DemoRequest(load, exit_after, engines, named, slo, folder, json_file, tuple(unreadable))
    raise typer.Exit(int(carry_out(request, Console())))
