"""`voiceprobe pair`."""

from typing import Annotated, Final

import typer
from rich.console import Console

from loadtest.cli.flags import SMALLEST_MS, Json, Out, Smallest, flag, sends_callers
from loadtest.errors import UsageError
from loadtest.run.request import RunRequest, check, out_folder
from loadtest.scenario.settings import SwarmSettings

EXAMPLE: Final = "Example: voiceprobe pair old=ws://127.0.0.1:8765/v1/realtime new=ws://127.0.0.1:8766/v1/realtime"


@sends_callers("speech", "callers")
def pair(
    targets: Annotated[list[str], typer.Argument(help="addresses, as URL or NAME=URL; the first one is the control")],
    *,
    metric: Annotated[str, flag("objectives", help="the duration of a turn that decides")] = "voice_to_voice",
    quantile: Annotated[float, flag("objectives", help="its quantile: 0.5, 0.95 or 0.99")] = 0.5,
    smallest: Smallest = SMALLEST_MS,
    pairs: Annotated[int, flag("load", help="utterances that are said at most, to every target once")] = 2_000,
    out: Out = None,
    json_file: Json = None,
    settings: SwarmSettings,
    unreadable: list[str],
) -> None:
    """Say the same utterances to several targets in turn, and show what differs.

    Each utterance is said to every target, in an order drawn anew, before the next one is said; the differences are
    those of both targets' quantiles over the same utterances, with 95 % intervals that hold at every look. It stops
    when the difference is decided: its interval leaves out 0, or lies within the smallest difference worth having. Exit
    code 0: decided; 6: undecided.
    """
    from dataclasses import replace

    from loadtest.pairing.job import PairRequest, check_decision, exit_code, named_variants
    from loadtest.pairing.job import pair as carry_out
    from loadtest.pairing.view import paired_object, paired_view
    from loadtest.run.json_file import write_json

    faults = [*unreadable, *check_decision(metric, quantile, smallest, pairs)]
    try:
        variants = named_variants(targets)
    except UsageError as error:
        raise UsageError("\n".join([*faults, str(error)])) from None
    folder = out_folder(out)
    asked = replace(settings, host=variants[0].url)
    checked = check(RunRequest(asked, 1, 1, None, None, folder, json_file, unreadable=tuple(faults)))
    console = Console()
    console.print(f"{checked.sentence}; {checked.kept_in}", soft_wrap=not console.is_terminal)
    found = carry_out(PairRequest(checked, variants, metric, quantile, smallest, pairs), console)
    console.print(paired_view(found))
    if json_file is not None:
        write_json(json_file, paired_object(found))
    raise typer.Exit(int(exit_code(found)))
