"""The cause of a missed objective, as far as it is shown: since when, in which cohort, in which stage and by how much.
Pure.

Each part is named only where it is shown, at an error level of ERROR_LEVEL divided by how often it is tried. Turns of
one call are not independent, so every standard error is taken over calls; fewer than FEWEST_CALLS show nothing.

- **Cohort**: named where its share of bad turns is shown to be more than the objective permits, at least one other
  cohort is shown to be within it, and no other one with enough turns is neither. Turns without a cohort are compared,
  and never named.
- **Since when**: one change of the share of bad turns, at the place of the largest likelihood ratio (turns in the order
  in which they began, of the cohorts that were named, else all). On each side lie enough turns for the objective, and
  5 % of all at least. Shown where the ratio, divided by how much less turns say that belong together (by call, and by
  stretch of time), exceeds CHANGE_CRITICAL (Andrews, *Econometrica* 61, 1993); the objective is held before, and shown
  to be missed after. The same search for a change back says until when; both must then exceed 20.
- **Stage and size**: the difference of a stage's percentile between the turns that miss the objective and others to
  compare them with: the named cohorts and those within; else those after the change and before; else the bad turns and
  the good ones. The percentile is the one that bad turns are at: p50 where half of the turns or more are bad, p95 where
  5 % or more are, else p99. Named where it is shown to be longer, is half or more of the whole difference, and is shown
  to be more than that of any other stage that both have. The intervals are those of `rollout.quantile_intervals`; the
  difference of two stages has theirs combined (MOVER). Where most of the turns have a stage of which too little is
  known for an interval, no other one is named.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import scipy
from numpy.typing import NDArray

from telemetry.model.stats import minimum_for_target
from telemetry.objectives.run_verdict import MissCause, StageGrowth, Statistic
from telemetry.rollout.check_sample import CheckSample, Codes, Floats, TooFewError
from telemetry.rollout.quantile_intervals import QuantileDifference, quantile_difference

Bools = NDArray[np.bool_]

ERROR_LEVEL: Final = 0.05
FEWEST_CALLS: Final = 20
# The 1 % critical value of the largest of the likelihood ratios of one change, none in the outer 5 % of the turns.
CHANGE_CRITICAL: Final = 13.0
# Two changes are searched for where one was: more is asked of both.
_BACK_CRITICAL: Final = 20.0
_OUTER_SHARE: Final = 0.05
_FRACTIONS: Final[dict[Statistic, float]] = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
NO_COHORT: Final = -1


@dataclass(frozen=True, slots=True)
class MissTurns:
    """The turns that count for one objective, in the order in which they began: columns of one length.

    `calls` and `cohorts` are whole numbers: of a cohort its place in `labels`, or NO_COHORT. `total` is the metric that
    the objective is about and `stages` its parts, in ns, NaN where a turn has none; empty for other objectives.
    """

    objective: str
    target: float
    started_unix_ns: Codes
    is_bad: Bools
    calls: Codes
    cohorts: Codes
    labels: tuple[str, ...] = ()
    total: Floats | None = None
    stages: Mapping[str, Floats] = field(default_factory=dict[str, Floats])


@dataclass(frozen=True, slots=True)
class ClusteredShare:
    """A share of turns, its standard error over calls, and by how much less the turns say than independent ones."""

    value: float
    standard_error: float
    design_effect: float
    turns: int
    calls: int


def find_cause(turns: MissTurns) -> MissCause:
    """Find the cause of a missed objective, as far as it is shown."""
    size = turns.is_bad.size
    if not size:
        return MissCause(turns.objective)
    cohorts = _ComparedCohorts.of(turns)
    is_suspect = np.isin(turns.cohorts, cohorts.missing) if cohorts.missing else np.ones(size, dtype=bool)
    change = _Change.of(turns, np.flatnonzero(is_suspect))
    return MissCause(
        objective=turns.objective,
        turns=size,
        first_unix_ns=int(turns.started_unix_ns[0]),
        last_unix_ns=int(turns.started_unix_ns[-1]),
        cohorts=tuple(turns.labels[code] for code in cohorts.missing),
        within=tuple(turns.labels[code] for code in cohorts.within if code != NO_COHORT) if cohorts.missing else (),
        others=cohorts.too_small if cohorts.missing else 0,
        stage=_grown_stage(turns, cohorts, change),
        since_unix_ns=None if change is None else int(turns.started_unix_ns[change.begin]),
        until_unix_ns=None if change is None or change.end is None else int(turns.started_unix_ns[change.end]),
    )


def clustered_share(is_bad: Bools, calls: Codes) -> ClusteredShare:
    """The share of true values with its standard error over calls, never less than with independent turns."""
    size = is_bad.size
    bad = int(np.count_nonzero(is_bad))
    share = bad / size
    _, places = np.unique(calls, return_inverse=True)
    known = int(places.max()) + 1
    sums = np.bincount(places.reshape(-1), weights=is_bad - share)
    between = float((sums**2).sum()) / size**2 * known / max(1, known - 1)
    # Agresti & Caffo (Am. Stat. 54, 2000): no bad turn among a hundred does not mean that there can be none.
    cautious = (bad + 1) / (size + 2)
    alone = cautious * (1 - cautious) / size
    plain = share * (1 - share) / size
    effect = max(1.0, between / plain) if plain else 1.0
    return ClusteredShare(share, math.sqrt(max(between, alone)), effect, size, known)


def _critical(tries: int) -> float:
    return -float(scipy.special.ndtri(ERROR_LEVEL / max(1, tries)))


@dataclass(frozen=True, slots=True)
class _ComparedCohorts:
    """Codes of the cohorts that are shown to miss the objective and, then, of those shown to be within it; none of
    either where that does not tell cohorts apart."""

    missing: tuple[int, ...] = ()
    within: tuple[int, ...] = ()
    too_small: int = 0

    @classmethod
    def of(cls, turns: MissTurns) -> "_ComparedCohorts":
        permitted, fewest = 1 - turns.target, minimum_for_target(turns.target)
        codes = np.unique(turns.cohorts).tolist()
        shares = {code: clustered_share(turns.is_bad[of], turns.calls[of]) for code in codes
                  if (of := turns.cohorts == code).any()}  # fmt: skip
        large = {code: share for code, share in shares.items() if share.turns >= fewest and share.calls >= FEWEST_CALLS}
        critical = _critical(2 * len(large))
        beyond = {code: (share.value - permitted) / share.standard_error for code, share in large.items()}
        missing = [code for code, z in beyond.items() if z > critical]
        within = [code for code, z in beyond.items() if z < -critical]
        if not missing or not within or len(missing) + len(within) < len(large) or NO_COHORT in missing:
            return cls()
        named = sum(code != NO_COHORT for code in shares) - sum(code != NO_COHORT for code in large)
        return cls(tuple(missing), tuple(within), named)


@dataclass(frozen=True, slots=True)
class _Change:
    """Places among all turns: of the first turn after the change, and of the first after the change back."""

    begin: int
    end: int | None = None

    @classmethod
    def of(cls, turns: MissTurns, places: Codes) -> "_Change | None":
        """The change that is shown of the turns at these places; None where none is."""
        is_bad, calls = turns.is_bad[places], turns.calls[places]
        begin = _best_split(is_bad, turns.target, is_worse=True)
        if begin is None:
            return None
        back = _best_split(is_bad[begin.place :], turns.target, is_worse=False)
        if back is not None:
            end = begin.place + back.place
            again = _best_split(is_bad[:end], turns.target, is_worse=True)
            limit = _BACK_CRITICAL * _together(is_bad, calls, () if again is None else (again.place, end))
            if again is not None and min(again.ratio, back.ratio) > limit:
                return cls._shown(turns, places, again.place, end)
        if begin.ratio > CHANGE_CRITICAL * _together(is_bad, calls, (begin.place,)):
            return cls._shown(turns, places, begin.place, None)
        return None

    @classmethod
    def _shown(cls, turns: MissTurns, places: Codes, begin: int, end: int | None) -> "_Change | None":
        """The change, where the turns between are shown to miss the objective."""
        during = places[begin:end]
        share = clustered_share(turns.is_bad[during], turns.calls[during])
        if share.calls < FEWEST_CALLS or share.value - (1 - turns.target) <= _critical(1) * share.standard_error:
            return None
        return cls(int(places[begin]), None if end is None else int(places[end]))


@dataclass(frozen=True, slots=True)
class _Split:
    place: int  # of the first turn after it
    ratio: float  # twice the logarithm of the likelihood ratio


def _best_split(is_bad: Bools, target: float, *, is_worse: bool) -> _Split | None:
    """The likeliest change of the share of bad turns from within to beyond what the objective permits, or back; None
    where there is none, or too few turns on a side of any."""
    size, permitted = is_bad.size, 1 - target
    outer = max(minimum_for_target(target), math.ceil(_OUTER_SHARE * size))
    if size < 2 * outer:
        return None
    left = np.arange(outer, size - outer + 1)
    bad = np.concatenate([[0], np.cumsum(is_bad)])
    before, after = bad[left] / left, (bad[-1] - bad[left]) / (size - left)
    ratio = 2 * (
        _likelihood(bad[left], left) + _likelihood(bad[-1] - bad[left], size - left) - _likelihood(bad[-1], size)
    )
    held, missed = (before, after) if is_worse else (after, before)
    is_change = (held <= permitted) & (missed > permitted)
    if not is_change.any():
        return None
    best = int(np.argmax(np.where(is_change, ratio, -1.0)))
    return _Split(int(left[best]), float(ratio[best]))


def _likelihood(bad: Codes | int, size: Codes | int) -> Floats:
    """The largest logarithm of the likelihood of so many bad turns of `size`."""
    bad_part = scipy.special.xlogy(bad, np.divide(bad, size))
    return bad_part + scipy.special.xlogy(np.subtract(size, bad), 1 - np.divide(bad, size))


def _together(is_bad: Bools, calls: Codes, places: Sequence[int]) -> float:
    """Return how many times less the turns between the places of changes say than independent ones: because of calls,
    or of stretches of time."""
    parts = np.split(is_bad.astype(np.float64), list(places))
    rest = np.concatenate([part - part.mean() for part in parts if part.size])
    alone = float((rest**2).sum())
    if not alone:
        return 1.0
    stretches = np.arange(is_bad.size) // max(1, math.isqrt(is_bad.size))
    call_codes = np.unique(calls, return_inverse=True)[1].reshape(-1)
    return max(1.0, *(float((np.bincount(by, weights=rest) ** 2).sum()) / alone for by in (call_codes, stretches)))


def _grown_stage(turns: MissTurns, cohorts: _ComparedCohorts, change: _Change | None) -> StageGrowth | None:
    if turns.total is None:
        return None
    suspect, reference, statistic = _compared(turns, cohorts, change)
    bad = suspect & turns.is_bad
    known_bad = np.count_nonzero(bad & ~np.isnan(turns.total))
    if not known_bad or 2 * known_bad < np.count_nonzero(bad):
        return None  # most of the bad turns were not slow, but not answered
    fraction = _FRACTIONS[statistic]
    whole = _difference(_samples(turns, turns.total, suspect, reference), fraction, 1)
    tried = {
        name: samples
        for name, values in turns.stages.items()
        if (samples := _samples(turns, values, suspect, reference)) is not None
    }
    if whole is None:
        return None
    differences: dict[str, QuantileDifference] = {}
    for name, samples in tried.items():
        difference = _difference(samples, fraction, 2)  # of two stages that grew alike, either may be the larger
        if difference is not None:
            differences[name] = difference
        elif 2 * samples[0].size >= np.count_nonzero(suspect):
            return None  # nothing is shown to be more than it
    if not differences or set(differences) == {"unexplained"}:
        return None
    name = max(differences, key=lambda stage: differences[stage].value)
    grown, alone = differences[name], _difference(tried[name], fraction, len(tried))
    is_shown = alone is not None and alone.lower > 0
    is_more = all(_is_larger(grown, other) for stage, other in differences.items() if stage != name)
    if not is_shown or not is_more or 2 * grown.value < whole.value:
        return None
    return StageGrowth(name, grown.value, statistic)


def _is_larger(grown: QuantileDifference, other: QuantileDifference) -> bool:
    """Return whether a stage's difference is shown to be more than another's: the lower bound of how much more, from
    the intervals of both (Zou & Donner, Stat. Med. 27, 2008), lies above 0."""
    return grown.value - other.value > math.hypot(grown.value - grown.lower, other.upper - other.value)


def _compared(turns: MissTurns, cohorts: _ComparedCohorts, change: _Change | None) -> tuple[Bools, Bools, Statistic]:
    """The turns whose stages are compared with each other, and the percentile."""
    places = np.arange(turns.is_bad.size)
    is_during = np.ones(places.size, dtype=bool)
    if change is not None:
        is_during = (places >= change.begin) & (places < (places.size if change.end is None else change.end))
    if cohorts.missing:
        suspect = np.isin(turns.cohorts, cohorts.missing) & is_during
        reference = np.isin(turns.cohorts, cohorts.within) & is_during
    elif change is not None:
        suspect, reference = is_during, places < change.begin
    else:
        return turns.is_bad, ~turns.is_bad, "p50"
    share = float(turns.is_bad[suspect].mean())
    return suspect, reference, "p50" if share >= 0.5 else "p95" if share >= 1 - _FRACTIONS["p95"] else "p99"


def _samples(
    turns: MissTurns, values: Floats, suspect: Bools, reference: Bools
) -> tuple[CheckSample, CheckSample] | None:
    """The turns with a value of both sides; None where a side has none."""
    known = [of & ~np.isnan(values) for of in (suspect, reference)]
    if not all(mask.any() for mask in known):
        return None
    bad, others = (
        CheckSample(values[mask], np.unique(turns.calls[mask], return_inverse=True)[1].reshape(-1)) for mask in known
    )
    return bad, others


def _difference(
    samples: tuple[CheckSample, CheckSample] | None, fraction: float, tries: int
) -> QuantileDifference | None:
    """The difference of a percentile, each bound of which fails in ERROR_LEVEL of so many tries; None where the turns
    with a value are too few for an interval."""
    if samples is None:
        return None
    try:
        return quantile_difference(*samples, fraction, 1 - 2 * ERROR_LEVEL / tries)
    except TooFewError:
        return None
