"""Rules that teams use instead, on the same turns and at the same looks.

None of these rules knows of calls: turns count as independent. Where a rule has no verdict for promoting, a candidate
that was never rolled back is promoted at the end.
"""

import math
from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln, ndtri, xlogy

from telemetry.rollout.cohort_turns import CohortTurns
from telemetry.rollout.plan import Decision
from tests.benchmarks.rollout.generator import MS, SAME, Change
from tests.benchmarks.rollout.scenarios import BIMODAL, MARGIN_MS, Scenario
from tests.benchmarks.rollout.simulate import Simulated, looks, turns_of

Floats = NDArray[np.float64]
Rule = Callable[[Floats, Floats], Decision]

FRACTION: Final = 0.95
LEVEL: Final = 0.05
# Of Kayenta's judge (NetflixACAJudge): the level of its interval, and the part of the effect's size that it tolerates.
_KAYENTA_CONFIDENCE: Final = 0.98
_KAYENTA_TOLERANCE: Final = 0.25
_KAYENTA_OUTLIERS: Final = 3.0  # of the quartiles' distance, beyond which it removes values
_BISECTIONS: Final = 40
_MIXTURE_TURNS: Final = 100.0  # how many turns the mixture weighs as much as: bounds tuned at about ten times as many
COMPARED: Final = tuple(
    Scenario(f"compared, {name}:", (BIMODAL,), change, 0.25)
    for name, change in (
        ("identical", SAME),
        ("p95 at the margin", Change(MARGIN_MS)),
        ("2 x the margin", Change(2 * MARGIN_MS)),
    )
)


def naive(candidate: Floats, control: Floats) -> Decision:
    """Roll back once the candidate's p95 exceeds the control's by the margin."""
    return "roll_back" if np.quantile(candidate, FRACTION) > np.quantile(control, FRACTION) + MARGIN_MS else "hold"


def mann_whitney(candidate: Floats, control: Floats) -> Decision:
    """Roll back once the test, one-sided at a nominal 5 %, calls the candidate slower."""
    return "roll_back" if _slower(candidate, control, 0.0) > -ndtri(LEVEL) else "hold"


def kayenta(candidate: Floats, control: Floats) -> Decision:
    """Fail once the lower bound of the Hodges-Lehmann shift exceeds a quarter of the shift: the metric is `High`."""
    candidate, control = _without_outliers(candidate), _without_outliers(control)
    critical = -float(ndtri((1 - _KAYENTA_CONFIDENCE) / 2))
    if _slower(candidate, control, 0.0) <= critical:
        return "hold"  # the lower bound is not even above zero
    low, high = 0.0, float(candidate.max() - control.min())
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if _slower(candidate, control, middle) > 0 else (low, middle)
    return "roll_back" if _slower(candidate, control, _KAYENTA_TOLERANCE * low) > critical else "hold"


def quantile_sequence(candidate: Floats, control: Floats) -> Decision:
    """Bounds of each cohort's p95 that hold at every look (Howard & Ramdas, *Sequential estimation of quantiles*, 2022,
    by the beta-binomial mixture), one minus the other."""
    (low, high), (control_low, control_high) = (_bounds(np.sort(sample)) for sample in (candidate, control))
    if high - control_low < MARGIN_MS:
        return "promote"
    return "roll_back" if low - control_high > 0 else "hold"


RULES: Final[dict[str, Rule]] = {
    "naive": naive,
    "Mann-Whitney at each look": mann_whitney,
    "Kayenta's judge": kayenta,
    "anytime quantile sequence": quantile_sequence,
}


def by_rule(rule: str, scenario: Scenario, number: int, seed: int) -> Simulated:
    """The rollout of this number, decided by a rule."""
    both = turns_of(scenario, number, seed)
    values = [_values_ms(cohort) for cohort in (both.candidate, both.control)]
    for turns in looks(scenario, both.candidate.turns):
        verdict = RULES[rule](values[0][:turns], values[1][: both.control_turns[turns - 1]])
        if verdict != "hold":
            return Simulated(verdict, turns)
    return Simulated("hold" if rule == "anytime quantile sequence" else "promote", both.candidate.turns)


def _values_ms(of: CohortTurns) -> Floats:
    """A turn that nobody answered took longer than any other."""
    values = of.number("voice_to_voice")
    assert values is not None
    values = values / MS
    return np.where(np.isnan(values), np.nanmax(values), values)


def _slower(candidate: Floats, control: Floats, shift: float) -> float:
    """Return by how many standard errors the candidate less `shift` ranks above the control (normal approximation)."""
    ordered, moved = np.sort(control), candidate - shift
    below = np.searchsorted(ordered, moved, "left") + np.searchsorted(ordered, moved, "right")
    pairs = candidate.size * control.size
    wins = float(below.sum()) / 2 - pairs / 2
    return wins / math.sqrt(pairs * (candidate.size + control.size + 1) / 12)


def _without_outliers(values: Floats) -> Floats:
    low, high = np.quantile(values, (0.25, 0.75))
    reach = _KAYENTA_OUTLIERS * (high - low)
    return values[(values >= low - reach) & (values <= high + reach)]


def _bounds(ordered: Floats) -> tuple[float, float]:
    """Between which values a sorted sample's quantile lies, at every look together: those whose number of smaller
    values does not refute the fraction."""
    counts = np.arange(ordered.size + 1)
    first, second = FRACTION * _MIXTURE_TURNS, (1 - FRACTION) * _MIXTURE_TURNS
    rest = ordered.size - counts
    evidence = betaln(counts + first, rest + second) - betaln(first, second)
    evidence -= xlogy(counts, FRACTION) + xlogy(rest, 1 - FRACTION)
    likely = np.flatnonzero(evidence < -math.log(LEVEL))
    low, high = int(likely[0]), int(likely[-1])
    return (
        float(ordered[low - 1]) if low else -math.inf,
        float(ordered[high]) if high < ordered.size else math.inf,
    )
