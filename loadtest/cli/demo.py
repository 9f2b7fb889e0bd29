"""`voiceprobe demo`."""

from typing import Annotated, Final

import typer
from rich.console import Console

from loadtest.cli.flags import Json, Out, Slo, Users, durations, flag, sends_callers
from loadtest.run.request import out_folder
from loadtest.scenario.settings import SwarmSettings
from telemetry.model.durations import METAVAR

EXAMPLE: Final = "Example: voiceprobe demo --users 8 --run-time 60s --exit --json summary.json"


@sends_callers("speech")
def demo(
    *,
    users: Users = 8,
    run_time: Annotated[str, flag("load", help="how long the swarm runs, e.g. 60s", metavar=METAVAR)] = "60s",
    exit_after: Annotated[bool, flag("output", "--exit", help="end by itself instead of staying until Ctrl-C")] = False,
    engines: Annotated[str, flag("target", help="the assistant's engines: scripted or real")] = "scripted",
    slo: Slo = None,
    out: Out = None,
    json_file: Json = None,
    settings: SwarmSettings,
) -> None:
    """Start the reference assistant, the sidecar and the dashboard, and send callers: the whole way, once."""
    from loadtest.run.demo import DemoRequest
    from loadtest.run.demo import demo as carry_out

    folder = out_folder(out)
    run_time_s = durations(run_time=run_time)["run_time"].seconds
    request = DemoRequest(users, run_time_s, exit_after, engines, settings, slo, folder, json_file)
    raise typer.Exit(int(carry_out(request, Console())))
