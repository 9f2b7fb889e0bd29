"""The voice turn that a model is the middle of: predicted voice-to-voice, its budgets, and the verdict. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from loadtest.llm.figures import MIN_COUNT_FOR, Figure, Percentile, figure, needed_for_bounds
from loadtest.llm.rows import BenchRows, CountedShare, Stall, share
from telemetry.model.formatting import NS_PER_S, declared_milliseconds, milliseconds, percent

BUDGETS_S: Final = (0.3, 0.5, 0.8)
LOST_S: Final = 0.9  # a pause after which people speak again
_RESAMPLES: Final = 400
_TAIL: Final = 0.025


@dataclass(frozen=True, slots=True)
class OtherStages:
    """All of a voice turn but its model, as `sentence` says: one sum of figures, or a value for each turn of a run."""

    rests_s: tuple[float, ...]
    sentence: str

    @property
    def is_constant(self) -> bool:
        """Whether it is a sum of figures."""
        return len(self.rests_s) == 1


@dataclass(frozen=True, slots=True)
class VoiceRow:
    """Predicted voice-to-voice of a target: the others' time and the wait for the first sentence, taken as independent.
    `within` are the shares of turns within each budget."""

    target: str
    source: str
    voice_to_voice_s: Figure
    within: tuple["BudgetShare", ...]
    above_900_ms: CountedShare


@dataclass(frozen=True, slots=True)
class BudgetShare:
    """The share of turns within a budget."""

    budget_s: float
    share: CountedShare


def predict(stall: Stall, others: OtherStages, seed: int) -> VoiceRow:
    """Every wait for a first sentence with every time of the other stages."""
    waits, rests = np.asarray(stall.values_s, dtype=float), np.asarray(others.rests_s)
    sums = np.add.outer(waits, rests).ravel()
    # Of the pairs no more are independent than there are turns on the shorter side.
    n = len(stall.values_s) if others.is_constant else min(len(stall.values_s), len(others.rests_s))

    def good(most_s: float) -> int:
        return round(float(np.mean(sums <= most_s)) * n) if n else 0

    return VoiceRow(
        stall.target,
        stall.source,
        figure(map(float, sums)) if others.is_constant else _resampled(waits, rests, n, seed),
        tuple(BudgetShare(budget, share(good(budget), n)) for budget in BUDGETS_S),
        share(n - good(LOST_S), n),
    )


def _resampled(waits: np.ndarray, rests: np.ndarray, n: int, seed: int) -> Figure:  # type: ignore[type-arg]
    """The percentiles of the sums, with bootstrap intervals over both sides."""
    if not n:
        return Figure()
    rng = np.random.default_rng(seed)
    names = [name for name, least in MIN_COUNT_FOR.items() if n >= least]
    fractions = [int(name[1:]) / 100 for name in names]
    drawn = [
        np.quantile(np.add.outer(rng.choice(waits, waits.size), rng.choice(rests, min(rests.size, 500))), fractions)
        for _ in range(_RESAMPLES)
    ]
    values = np.quantile(np.add.outer(waits, rests), fractions)
    lower, upper = np.quantile(drawn, (_TAIL, 1 - _TAIL), axis=0)
    return Figure(
        n,
        {name: Percentile(float(values[at]), float(lower[at]), float(upper[at])) for at, name in enumerate(names)},
    )


def seconds(value: float | None) -> str:
    """A measured duration for people."""
    return milliseconds(None if value is None else value * NS_PER_S)


def declared(value: float) -> str:
    """A duration that somebody chose, for people."""
    return declared_milliseconds(value * NS_PER_S)


def stall_sentence(stall: Stall) -> str:
    """The first line of the output: the wait that one call in ten has."""
    p90 = stall.first_sentence_s.at("p90")
    if p90 is None:
        n = stall.first_sentence_s.n
        return f"{stall.target}: how long one call in ten stalls is not known: p90 needs 10 answers, there are {n}"
    return (
        f"{stall.target}: one call in ten stalls for {seconds(p90.value)} or longer until its first sentence "
        f"({bounds_text(p90)}; {stall.first_sentence_s.n} {_answers(stall)})"
    )


def _answers(stall: Stall) -> str:
    return stall.source if stall.source.startswith("answers") else f"answers of {stall.source}"


def bounds_text(of: Percentile) -> str:
    """The interval of a percentile in words."""
    if of.lower is None and of.upper is None:
        return "too few for an interval"
    if of.upper is None:
        return f"95 % interval: at least {seconds(of.lower)}, too few for the other side"
    lower = "at most" if of.lower is None else f"{seconds(of.lower)} to"
    return f"95 % interval: {lower} {seconds(of.upper)}"


def verdict(rows: BenchRows, voices: Sequence[VoiceRow]) -> str:
    """Return which targets are fast enough for a voice in nine turns of ten, and which is the fastest."""
    budget = BUDGETS_S[-1]
    states: dict[str, list[str]] = {"fast enough": [], "too slow": [], "undecided": []}
    for row in voices:
        p90 = row.voice_to_voice_s.at("p90")
        if p90 is not None and p90.upper is not None and p90.upper <= budget:
            states["fast enough"].append(row.target)
        elif p90 is not None and p90.lower is not None and p90.lower > budget:
            states["too slow"].append(row.target)
        elif row.voice_to_voice_s.n:
            fewest = needed_for_bounds(0.9)
            more = f" ({row.voice_to_voice_s.n} answers; {fewest} bound it)" if row.voice_to_voice_s.n < fewest else ""
            states["undecided"].append(row.target + more)
    parts = [f"{state}: {', '.join(names)}" for state, names in states.items() if names]
    parts += [f"no answer: {name}" for name in rows.given_up]
    head = f"for a voice that answers within {declared(budget)} in nine turns of ten"
    return "; ".join([f"{head}, {'; '.join(parts) or 'nothing was measured'}", *_fastest(rows.stalls)])


def _fastest(stalls: Sequence[Stall]) -> list[str]:
    """Name the target that begins to speak first at p50, where the intervals are apart."""
    known = [(p50, stall.target) for stall in stalls if (p50 := stall.first_sentence_s.at("p50")) is not None]
    if len(known) < 2:
        return []
    known.sort(key=lambda pair: pair[0].value)
    (first, name), others = known[0], known[1:]
    behind = [other for other in others if first.upper is not None and other[0].lower is not None]
    if len(behind) == len(others) and all(first.upper < other[0].lower for other in behind):  # type: ignore[operator]
        return [f"{name} says its first sentence soonest, {seconds(first.value)} in the median"]
    return [f"whose first sentence is soonest cannot be said: the intervals of {name} and others overlap"]


def lost_sentence(row: VoiceRow) -> str:
    """The share of turns above 900 ms."""
    if row.above_900_ms.ratio is None or row.above_900_ms.interval is None:
        return f"{row.target}: the share of turns above {declared(LOST_S)} is not known"
    low, high = (percent(side) for side in row.above_900_ms.interval)
    return f"{row.target}: {percent(row.above_900_ms.ratio)} of turns above {declared(LOST_S)} ({low} to {high})"
