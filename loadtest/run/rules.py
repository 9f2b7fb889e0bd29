"""`voiceprobe rules`: rules for Prometheus, or objectives for Sloth or Pyrra, made from a file of objectives."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from corpora.output_paths import unwritable, write_whole
from loadtest.errors import OutputError, UsageError
from telemetry.objectives.error_budgets import DEFAULT_BURN_RATES, burn_rates_from, window_ms
from telemetry.objectives.exports import pyrra_text, sloth_text
from telemetry.objectives.rules import QUIET_AFTER, RuleOptions, rules_text
from telemetry.objectives.slo import load_objectives

RuleFormat = Literal["prometheus", "sloth", "pyrra"]


def rules(
    objectives: Path | None,
    format_: RuleFormat,
    out: Path | None,
    burn_rates: Sequence[str] = (),
    quiet_after: str = QUIET_AFTER,
) -> str | None:
    """Write the rules of the objectives to a file; the text itself where there is none.

    Raises UsageError, OutputError, and ConfigError with every fault of the file or of the burn rates.
    """
    if window_ms(quiet_after) is None:
        raise UsageError(
            f"--quiet-after {quiet_after!r} is not a time: give a whole number with s, m, h or d, such as 1h"
        )
    if format_ != "prometheus" and (burn_rates or quiet_after != QUIET_AFTER):
        raise UsageError(
            f"--burn-rate and --quiet-after are of Prometheus' rules: {format_} has its own; leave them out"
        )
    if out is not None and (fault := unwritable(out)):
        raise UsageError(fault)
    rates = burn_rates_from(burn_rates, "--burn-rate") or DEFAULT_BURN_RATES
    loaded = load_objectives(objectives)
    match format_:
        case "prometheus":
            text = rules_text(loaded, RuleOptions(rates, quiet_after))
        case "sloth":
            text = sloth_text(loaded)
        case "pyrra":
            text = pyrra_text(loaded)
    if out is None:
        return text
    try:
        write_whole(out, text.encode())
    except OSError as error:
        raise OutputError(f"{out} could not be written: {error.strerror}; make room or name another place") from None
    return None
