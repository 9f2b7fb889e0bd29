"""`voiceprobe rules`: rules for Prometheus, made from a file of objectives."""

from collections.abc import Sequence
from pathlib import Path

from corpora.output_paths import unwritable, write_whole
from loadtest.errors import OutputError, UsageError
from telemetry.objectives.burn_rates import DEFAULT_BURN_RATES, burn_rates_from, window_ms
from telemetry.objectives.rules import RuleOptions, rules_text
from telemetry.objectives.slo import load_objectives


def rules(objectives: Path | None, burn_rates: Sequence[str], quiet_after: str, out: Path | None) -> str | None:
    """Write the rules of the objectives to a file; the rules themselves where there is none.

    Raises UsageError, OutputError, and ConfigError with every fault of the file or of the burn rates.
    """
    if window_ms(quiet_after) is None:
        raise UsageError(
            f"--quiet-after {quiet_after!r} is not a time: give a whole number with s, m, h or d, such as 1h"
        )
    if out is not None and (fault := unwritable(out)):
        raise UsageError(fault)
    rates = burn_rates_from(burn_rates, "--burn-rate") or DEFAULT_BURN_RATES
    text = rules_text(load_objectives(objectives), RuleOptions(rates, quiet_after))
    if out is None:
        return text
    try:
        write_whole(out, text.encode())
    except OSError as error:
        raise OutputError(f"{out} could not be written: {error.strerror}; make room or name another place") from None
    return None
