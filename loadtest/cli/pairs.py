"""`voiceprobe pair` and `voiceprobe techniques`: what differs where two targets hear the same."""

from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from loadtest.cli.flags import SMALLEST_MS, Json, Out, Smallest, flag, sends_callers
from loadtest.errors import UsageError
from loadtest.scenario.options import settings_from
from loadtest.scenario.sections import RunLoad
from loadtest.scenario.settings import SwarmSettings
from loadtest.techniques.catalog import TECHNIQUES, named
from telemetry.model.metrics import HEADLINE

ONE_CALLER: Final = RunLoad(users=1, spawn_rate=1.0)
PAIR_EXAMPLE: Final = "Example: voiceprobe pair old=ws://127.0.0.1:8765/v1/realtime new=ws://127.0.0.1:8766/v1/realtime"


@sends_callers("speech", "callers")
def pair(
    targets: Annotated[list[str], typer.Argument(help="addresses, as URL or NAME=URL; the first one is the control")],
    *,
    metric: Annotated[str, flag("objectives", help="metric that decides: a duration")] = "voice_to_voice",
    quantile: Annotated[float, flag("objectives", help="quantile of the metric: 0.5, 0.95 or 0.99")] = 0.5,
    smallest: Smallest = SMALLEST_MS,
    pairs: Annotated[
        int, flag("load", help="most valid pairs of turns; a pair with an invalid turn is replaced by one more")
    ] = 2_000,
    out: Out = None,
    json_file: Json = None,
    settings: SwarmSettings,
    unreadable: list[str],
) -> None:
    """Say the same utterances to several targets in turn, and show the differences.

    Each utterance is said to every target, in a newly drawn order, before the next one is said; the differences are
    those of both targets' quantiles over the same utterances, with 95 % intervals that hold at every look. It stops
    when the difference is decided: its interval leaves out 0, or lies within the smallest difference worth having. Exit
    code 0: decided; 6: undecided.
    """
    from loadtest.pairing.job import PairRequest, check_decision, exit_code, named_variants
    from loadtest.pairing.job import pair as carry_out
    from loadtest.pairing.view import paired_object, paired_view
    from loadtest.run.json_file import write_json
    from loadtest.run.request import RunRequest, check, out_folder, sole_use_of

    faults = [*unreadable, *check_decision(metric, quantile, smallest, pairs)]
    try:
        variants = named_variants(targets)
    except UsageError as error:
        raise UsageError("\n".join([*faults, str(error)])) from None
    folder = out_folder(out)
    asked = settings.replaced(host=variants[0].url)
    checked = check(RunRequest(asked, ONE_CALLER, None, folder, json_file, unreadable=tuple(faults)))
    console = Console()
    console.print(f"{checked.sentence}; {checked.kept_in}", soft_wrap=not console.is_terminal)
    with sole_use_of(folder):
        run = carry_out(PairRequest(checked, variants, folder / "store", metric, quantile, smallest, pairs), console)
    console.print(paired_view(run))
    if json_file is not None:
        write_json(json_file, paired_object(run))
    raise typer.Exit(int(exit_code(run)))


TECHNIQUES_EXAMPLE: Final = "Example: voiceprobe techniques --quick --json techniques.json"
QUICK_PAIRS: Final = 20
FULL_PAIRS: Final = 500
QUANTILE: Final = 0.5  # that decides
_NAMES: Final = ", ".join(technique.name for technique in TECHNIQUES)


def techniques(
    *,
    only: Annotated[str | None, flag("load", help=f"names, with commas between them, of {_NAMES}")] = None,
    quick: Annotated[
        bool, flag("load", "--quick", help=f"four techniques, {QUICK_PAIRS} pairs each: medians alone, in minutes")
    ] = False,
    pairs: Annotated[
        int | None,
        flag(
            "load", help=f"valid pairs of turns of a technique at most, with it and without it (default: {FULL_PAIRS})"
        ),
    ] = None,
    smallest: Smallest = SMALLEST_MS,
    out: Out = None,
    json_file: Json = None,
    html_file: Annotated[Path | None, flag("output", "--html", help="write the table as one HTML file")] = None,
) -> None:
    """Measure what each latency technique is worth, on an assistant with real models.

    Each technique is an option of the reference assistant: two assistants, with it and without it, hear the same
    utterances in turn. The full table takes hours; a folder given again with --out resumes where it stopped. Its store
    has a run for each technique, which the dashboard's page of cohorts shows. Exit code 0: every technique is decided;
    6: one is not.
    """
    from corpora.manifest.library import BUNDLED
    from corpora.output_paths import unwritable
    from loadtest.pairing.job import check_decision
    from loadtest.run.json_file import write_json, write_result
    from loadtest.run.request import RunRequest, check, out_folder
    from loadtest.techniques.job import TechniquesRequest, exit_code
    from loadtest.techniques.job import techniques as carry_out
    from loadtest.techniques.view import techniques_page, techniques_view

    faults: list[str] = []
    chosen = ()
    try:
        chosen = named(only, quick)
    except KeyError as error:
        faults.append(f"--only {error.args[0]!r:.40} is not a technique; known are {_NAMES}")
    most = pairs if pairs is not None else QUICK_PAIRS if quick else FULL_PAIRS
    faults += check_decision(HEADLINE, QUANTILE, smallest, most)
    if html_file is not None and (fault := unwritable(html_file)):
        faults.append(fault)
    if faults:
        raise UsageError("\n".join(faults))
    # Each technique has an address of its own, once its assistants have started.
    patient = {"reply_timeout": "30s"}  # of a busy machine an answer may be late, and is one all the same
    spoken = {"corpus": BUNDLED, "length": "short", "think": 0.2, **patient}
    settings = settings_from({"host": "ws://127.0.0.1:1/v1/realtime", **spoken})
    checked = check(RunRequest(settings, ONE_CALLER, None, out_folder(out), json_file))
    console = Console()
    console.print(f"{checked.sentence}; {checked.kept_in}", soft_wrap=not console.is_terminal)
    rows, interrupted = carry_out(TechniquesRequest(checked, chosen, QUANTILE, smallest, most), console)
    console.print(techniques_view(rows))
    if json_file is not None:
        write_json(json_file, {"interrupted": interrupted, "rows": rows})
    if html_file is not None:
        write_result(html_file, techniques_page(rows).encode())
    raise typer.Exit(int(exit_code(rows, interrupted)))
