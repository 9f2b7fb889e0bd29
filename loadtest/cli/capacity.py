"""`voiceprobe capacity` and `voiceprobe calibrate`: how many callers an endpoint serves, and this machine drives."""

from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from loadtest.cli.flags import (
    Json,
    Out,
    Slo,
    Target,
    durations,
    flag,
    given_on_command_line,
    sends_callers,
)
from loadtest.scenario.sections import RunLoad
from loadtest.scenario.settings import SwarmSettings
from telemetry.model.durations import METAVAR, Duration

_STEP_TIME: Final = "60s"
_REST: Final = "3s"

CAPACITY_EXAMPLE: Final = "Example: voiceprobe capacity ws://127.0.0.1:8765/v1/realtime --from 4 --max 64 --out cap"


@sends_callers("speech", "callers", load_flags=("processes",))
def capacity(
    context: typer.Context,
    target: Target = "",
    *,
    first: Annotated[int, flag("load", "--from", help="callers of the first step")] = 4,
    most: Annotated[int, flag("load", "--max", help="callers of the last step at most")] = 256,
    resolution: Annotated[float, flag("load", help="precision of the search, as a share of the callers")] = 0.1,
    turns_per_step: Annotated[int, flag("load", help="turns wanted at each step, at least 20")] = 100,
    step_time: Annotated[
        str, flag("load", help="how long one measurement of a step may last", metavar=METAVAR)
    ] = _STEP_TIME,
    rest: Annotated[str, flag("load", help="pause between two steps", metavar=METAVAR)] = _REST,
    slo: Slo = None,
    out: Out = None,
    json_file: Json = None,
    load: RunLoad,
    settings: SwarmSettings,
    unreadable: list[str],
) -> None:
    """Find how many concurrent callers an endpoint serves within its objectives.

    Doubles the callers until an objective is missed, then bisects. Each step lasts until it has the turns that its p95
    needs, and is measured longer where it is close. Ends early when the generator is the limit.
    """
    from loadtest.capacity.job import CapacityRequest
    from loadtest.capacity.job import capacity as carry_out
    from loadtest.run.request import RunRequest, out_folder

    del target  # the settings have it
    times = durations(unreadable, step_time=step_time, rest=rest)
    folder = out_folder(out)
    request = CapacityRequest(
        RunRequest(
            settings,
            load.model_copy(update={"users": first}),
            slo,
            folder,
            json_file,
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


CALIBRATE_EXAMPLE: Final = "Example: voiceprobe calibrate --quick --json calibration.json --picture calibration.svg"


def calibrate(
    *,
    quick: Annotated[bool, flag("load", "--quick", help="about a minute: loads 1, 50 and 200")] = False,
    loads: Annotated[str | None, flag("load", help="loads to try, callers in rising order, e.g. 1,50,200")] = None,
    turns: Annotated[int | None, flag("load", help="turns of each caller (default: 8, with --quick 4)")] = None,
    faults: Annotated[bool, flag("load", help="let the endpoint misbehave on purpose, too")] = True,
    out: Out = None,
    json_file: Json = None,
    picture: Annotated[
        Path | None, flag("output", help="the picture, .svg, .png or .pdf (default: calibration.svg in --out)")
    ] = None,
    processes: Annotated[
        int | None,
        flag("machine", help="processes that may share a load at most (default: the usable cores less one; 2 of 2)"),
    ] = None,
) -> None:
    """Measure the instrument's own error on this machine, and how many callers it drives with figures to be trusted.

    Callers speak to an endpoint that knows what it did and when. A load that one process does not keep up with is tried
    with more. The result is stored, and later runs cite it. Exit code 0: a load was trustworthy; 4: none was; 6: too
    few turns to judge any; 130: interrupted.
    """
    from loadtest.calibration.job import calibrate as carry_out
    from loadtest.calibration.job import request_of
    from loadtest.run.request import out_folder

    request = request_of(
        quick=quick,
        loads=loads,
        turns=turns,
        most=processes,
        faults=faults,
        out=out_folder(out),
        json_file=json_file,
        picture=picture,
    )
    raise typer.Exit(int(carry_out(request, Console())))
