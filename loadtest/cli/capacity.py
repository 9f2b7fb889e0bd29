"""`voiceprobe capacity`."""

from typing import Annotated, Final

import typer
from rich.console import Console

from loadtest.cli.flags import (
    Json,
    Out,
    Processes,
    Slo,
    Target,
    durations,
    flag,
    given_on_command_line,
    sends_callers,
    shared_by,
)
from loadtest.run.request import RunRequest, out_folder
from loadtest.scenario.settings import SwarmSettings
from telemetry.model.durations import METAVAR, Duration

_STEP_TIME: Final = "60s"
_REST: Final = "3s"

EXAMPLE: Final = "Example: voiceprobe capacity ws://127.0.0.1:8765/v1/realtime --from 4 --max 64 --out cap"


@sends_callers("speech", "callers")
def capacity(
    context: typer.Context,
    target: Target = "",
    *,
    first: Annotated[int, flag("load", "--from", help="callers of the first step")] = 4,
    most: Annotated[int, flag("load", "--max", help="callers of the last step at most")] = 256,
    resolution: Annotated[float, flag("load", help="how close to bisect, as a share of the callers")] = 0.1,
    turns_per_step: Annotated[int, flag("load", help="turns wanted at each step, at least 20")] = 100,
    step_time: Annotated[
        str, flag("load", help="how long one measurement of a step may last", metavar=METAVAR)
    ] = _STEP_TIME,
    rest: Annotated[str, flag("load", help="pause between two steps", metavar=METAVAR)] = _REST,
    processes: Processes = "1",
    slo: Slo = None,
    out: Out = None,
    json_file: Json = None,
    settings: SwarmSettings,
    unreadable: list[str],
) -> None:
    """Find how many concurrent callers an endpoint serves within its objectives.

    Doubles the callers until an objective is missed, then bisects. Each step lasts until it has the turns that its p95
    needs, and is measured longer where it is close. Ends early when the generator is the limit.
    """
    from loadtest.capacity.job import CapacityRequest
    from loadtest.capacity.job import capacity as carry_out

    del target  # the settings have it
    times = durations(unreadable, step_time=step_time, rest=rest)
    folder = out_folder(out)
    request = CapacityRequest(
        RunRequest(
            settings,
            first,
            None,
            None,
            slo,
            folder,
            json_file,
            shared_by(processes, unreadable),
            given=frozenset(given_on_command_line(context)),
            unreadable=tuple(unreadable),
        ),
        first,
        most,
        resolution,
        turns_per_step,
        times.get("step_time", Duration.parse(_STEP_TIME)).seconds,
        times.get("rest", Duration.parse(_REST)).seconds,
    )
    raise typer.Exit(int(carry_out(request, Console())))
