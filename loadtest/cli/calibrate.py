"""`voiceprobe calibrate`."""

from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from loadtest.cli.flags import Json, Out, flag
from loadtest.run.request import out_folder

EXAMPLE: Final = "Example: voiceprobe calibrate --quick --json calibration.json --picture calibration.svg"


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
