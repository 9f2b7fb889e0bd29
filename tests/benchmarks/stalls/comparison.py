"""Turns as the store has them beside what the endpoint knows and what held the generator up. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

from telemetry.model.bounds import metric_bounds
from telemetry.model.metrics import METRICS
from telemetry.model.turns import Turn

MS: Final = 1_000_000
Interval = tuple[float, float]
VOICE_TO_VOICE: Final = METRICS["voice_to_voice"]
# Goals of issue 34.
WITHIN_SHARE: Final = 0.999
MEDIAN_WIDTH_NS: Final = 1 * MS
WIDTH_SHARE: Final = 0.99
WIDTH_BEYOND_STALL_NS: Final = 2 * MS
LEFT_OUT_SHARE: Final = 0.02
INVALID_BY_NS: Final = 50 * MS
# An endpoint that was held up itself does not know the moment well enough to judge by.
ENDPOINT_WIDTH_NS: Final = 1 * MS
# Both sides mean the same sample, but either may name the one beside it.
SAMPLE_NS: Final = 1_000_000_000 // 24_000
ALTERED: Final = ("frame lateness", "drift")


@dataclass(frozen=True, slots=True)
class Stall:
    """A time in which the generator, or a part of it, could not run, on the clock that all processes share."""

    begin_ns: int
    end_ns: int
    kind: str

    @property
    def length_ns(self) -> int:
        """How long it was."""
        return self.end_ns - self.begin_ns


@dataclass(frozen=True, slots=True)
class Truth:
    """One answer as the endpoint knows it: each moment an interval on its own clock, None where it does not know."""

    response_id: str
    speech_end_ns: Interval | None
    first_audio_ns: Interval | None
    held_up_ns: int = 0  # of its answer, because the caller's silence came late

    @property
    def voice_to_voice_ns(self) -> Interval | None:
        """Its own delay, at the least and the most."""
        end, first = self.speech_end_ns, self.first_audio_ns
        if end is None or first is None:
            return None
        return first[0] - end[1], first[1] - end[0]


def independent_truth(row: Mapping[str, Any]) -> Truth:
    """The truth in a row of `endpoint.py`."""
    end, first = row["speech_end_ns"], row["first_audio_ns"]
    known = None if first is None else (first[0], first[1])
    return Truth(row["response_id"], (end[0], end[1]), known, row["held_up_ns"])


def ground_truth(row: Mapping[str, Any]) -> Truth:
    """The truth in a row of loadtest.targets.ground_truth, which names moments that it does not know for certain."""
    end, first = (None if name in row["unsure"] else row[f"{name}_perf_ns"] for name in ("speech_end", "first_audio"))
    known = None if first is None else (first, first + row["first_audio_within_ns"])
    return Truth(row["response_id"], None if end is None else (end, end), known)


@dataclass(frozen=True, slots=True)
class Compared:
    """One turn of the comparison."""

    turn: Turn
    truth: Interval
    stated: Interval
    held_up_ns: int
    stall_ns: int  # of the stalls that overlapped end of speech to first audio, in all

    @property
    def width_ns(self) -> float:
        """How wide the stated interval is."""
        return self.stated[1] - self.stated[0]

    @property
    def miss_ns(self) -> float:
        """How far the truth lies beside the stated interval; 0 within it. Without the lateness that held the endpoint
        up, it would have answered sooner by as much, and that too must lie within."""
        above = self.truth[0] - SAMPLE_NS - self.stated[1]
        below = self.stated[0] - self.truth[1] - SAMPLE_NS
        too_late = self.stated[0] - (self.truth[1] - self.held_up_ns) - SAMPLE_NS
        return max(0.0, above, below, too_late)


@dataclass(slots=True)
class Comparison:
    """What came of the turns of one run, or of several."""

    turns: int = 0
    compared: list[Compared] = field(default_factory=list[Compared])
    left_out: Counter[str] = field(default_factory=Counter[str])
    invalid_turns: int = 0
    invalid: Counter[str] = field(default_factory=Counter[str])  # reasons, of which a turn may have several
    altered: int = 0  # turns that were not said as recorded
    invalid_without_stall: list[Turn] = field(default_factory=list[Turn])

    def add(self, other: "Comparison") -> None:
        """Count the turns of another one, too."""
        self.turns += other.turns
        self.compared += other.compared
        self.left_out.update(other.left_out)
        self.invalid_turns += other.invalid_turns
        self.invalid.update(other.invalid)
        self.altered += other.altered
        self.invalid_without_stall += other.invalid_without_stall

    @property
    def misses(self) -> list[Compared]:
        """Turns whose true value lies beside the stated interval, the farthest first."""
        return sorted((one for one in self.compared if one.miss_ns > 0), key=lambda one: -one.miss_ns)

    @property
    def within(self) -> float | None:
        """The share of turns whose true value lies within the stated interval."""
        return 1 - len(self.misses) / len(self.compared) if self.compared else None

    @property
    def quiet_width_ns(self) -> float | None:
        """The median width of turns that no stall overlapped."""
        widths = [one.width_ns for one in self.compared if not one.stall_ns]
        return median(widths) if widths else None

    @property
    def too_wide(self) -> list[Compared]:
        """Turns whose interval is wider than the stall that overlapped them explains, the widest first."""
        beyond = [one for one in self.compared if one.width_ns > one.stall_ns + WIDTH_BEYOND_STALL_NS]
        return sorted(beyond, key=lambda one: one.stall_ns - one.width_ns)

    @property
    def narrow(self) -> float | None:
        """The share of turns whose interval is no wider than the stall that overlapped them and 2 ms."""
        return 1 - len(self.too_wide) / len(self.compared) if self.compared else None

    @property
    def left_out_share(self) -> float | None:
        """The share of all turns that could not be compared."""
        return self.left_out.total() / self.turns if self.turns else None


def overlapping_ns(stalls: Iterable[Stall], begin_ns: float, end_ns: float) -> int:
    """How long the stalls that overlap a time are in all. Of several at once, each moment counts once."""
    total, until = 0, 0
    for stall in sorted(stalls, key=lambda one: one.begin_ns):
        if stall.begin_ns <= end_ns and stall.end_ns >= begin_ns and stall.end_ns > until:
            total += stall.end_ns - max(stall.begin_ns, until)
            until = stall.end_ns
    return total


def compare(turns: Sequence[Turn], truths: Mapping[str, Truth], stalls: Sequence[Stall]) -> Comparison:
    """Join the client's turns of a run with the endpoint's log, by response id."""
    result = Comparison(turns=len(turns))
    heard = {turn.response_id for turn in turns}
    unheard = sum(name not in heard for name in truths)
    # The endpoint answered them, and the store has no turn with that answer: it may have turns without one instead.
    answerless = sum(turn.response_id is None for turn in turns)
    if unheard > answerless:
        result.turns += unheard - answerless
        result.left_out["answered, and not in the store"] += unheard - answerless
    for turn in turns:
        _note_validity(result, turn, stalls)
        one = _compared(turn, truths.get(turn.response_id or ""), stalls)
        if isinstance(one, str):
            result.left_out[one] += 1
        else:
            result.compared.append(one)
    return result


def _compared(turn: Turn, truth: Truth | None, stalls: Sequence[Stall]) -> Compared | str:
    """A turn beside its truth, or the reason to leave it out."""
    heard_ns = turn.first_audio_perf_ns
    if turn.response_id is None or heard_ns is None:
        return f"not answered ({turn.outcome_observed or turn.outcome})"
    if truth is None:
        return "not in the endpoint's log"
    true, end, first = truth.voice_to_voice_ns, truth.speech_end_ns, truth.first_audio_ns
    if true is None or end is None or first is None or true[1] - true[0] > ENDPOINT_WIDTH_NS:
        return "the endpoint was held up"
    stated = metric_bounds(turn, VOICE_TO_VOICE)
    if stated is None:
        return "no interval stated"
    return Compared(turn, true, stated, truth.held_up_ns, overlapping_ns(stalls, end[0], max(first[1], heard_ns)))


def _note_validity(result: Comparison, turn: Turn, stalls: Sequence[Stall]) -> None:
    if turn.outcome != "invalid":
        return
    result.invalid_turns += 1
    result.invalid.update(turn.invalid_reasons)
    result.altered += any(reason in ALTERED for reason in turn.invalid_reasons)
    ends = (turn.first_audio_perf_ns, turn.speech_end_perf_ns, turn.started_perf_ns)
    end = max(one for one in ends if one is not None)
    long = [stall for stall in stalls if stall.length_ns > INVALID_BY_NS]
    if not overlapping_ns(long, turn.started_perf_ns, end):
        result.invalid_without_stall.append(turn)


def missed_goals(result: Comparison, least_turns: int) -> list[str]:
    """The goals that were missed, a sentence each."""
    missed: list[str] = []
    if len(result.compared) < least_turns:
        missed.append(f"only {len(result.compared)} turns were compared, fewer than {least_turns}")
    if not result.compared:
        return missed
    if result.within is not None and result.within < WITHIN_SHARE:
        misses = f"{len(result.misses)} of {len(result.compared)} turns"
        missed.append(f"the true value of {misses} lies beside the interval")
    if result.quiet_width_ns is None or result.quiet_width_ns > MEDIAN_WIDTH_NS:
        width = "not known" if result.quiet_width_ns is None else f"{result.quiet_width_ns / MS:.2f} ms"
        missed.append(f"the median width of turns without a stall is {width}")
    if result.narrow is not None and result.narrow < WIDTH_SHARE:
        missed.append(f"{len(result.too_wide)} of {len(result.compared)} intervals are wider than their stall and 2 ms")
    if (result.left_out_share or 0) > LEFT_OUT_SHARE:
        missed.append(f"{result.left_out.total()} of {result.turns} turns are left out")
    if result.invalid_without_stall:
        missed.append(f"{len(result.invalid_without_stall)} turns are invalid without a stall of more than 50 ms")
    return missed
