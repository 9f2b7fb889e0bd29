"""One turn judged by one objective: good, bad, or open with its cause; and how many turns are which. Pure.

The rules are those of docs/explanation/validity.md. A value is judged by the interval in which it truly lies
(telemetry.model.bounds): it is good where its worst end meets the threshold, bad where its best end misses it. A turn
is *open* where nobody can know whether it was good: the threshold lies within the interval, it was not said as recorded
or our own machine prevented it, our caller or the end of the run ended it before the threshold had passed, a value
contradicts its own evidence, a service answered and does not state how long it took, more of a service's turn is still
to come, or its telemetry was lost. An open
turn never helps a claim: an objective is met only if it is met with every open turn counted bad, and missed only if it
is missed with every open turn counted good.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from operator import attrgetter
from typing import Final

from telemetry.model.bounds import Bounds, measured_bounds, metric_bounds, timestamp_bounds
from telemetry.model.metrics import CONNECT, HEADLINE, METRICS, NOT_OF_AN_ANSWER, Metric, is_withheld
from telemetry.model.semconv import UNANSWERED, Source
from telemetry.model.turns import OF_OBJECTIVES, Turn
from telemetry.objectives.objective import Objective


class Judgment(StrEnum):
    """The judgment of one turn by an objective. NO_VALUE: the client has no value of a stage; it is bad where other
    turns of the run have one, since the client hears that stage on this wire. All others but GOOD and BAD are open.
    Where the threshold lies within the interval of a value, it is GENERATOR if our own measuring is too wide for an
    answer, and SPEECH if only the annotation of the caller's recorded clip is."""

    GOOD = "good"
    BAD = "bad"
    NO_VALUE = "no value"
    GENERATOR = "generator"
    SPEECH = "speech bounds uncertain"
    CUT = "cut by the end of the run"
    INTERRUPTED = "interrupted by the caller"
    CONTRADICTED = "contradicts its own evidence"
    NOT_STATED = "latency not stated by the service"
    PENDING = "not complete yet"
    LOST = "telemetry lost"


DECIDED: Final = (Judgment.GOOD, Judgment.BAD)
# Outcomes that leave a turn open whatever its values are.
_UNDECIDED: Final[dict[str, Judgment]] = {"invalid": Judgment.GENERATOR, "pending": Judgment.PENDING}

# From where a caller waits for what a metric measures, as the name of a timestamp of the turn: on a turn that ended
# early, what had not come by then took at least as long.
WAITED_FROM: Final[dict[str, str]] = {
    "voice_to_voice": "speech_end",
    "endpointing": "speech_end",
    "asr_partial_latency": "speech_start",
    "asr_final_latency": "speech_end",
    "llm_first_token_latency": "speech_end",
    "time_to_first_sentence": "speech_end",
    "connect": "started",
}
# By how much our own lateness can have held up what a caller waits for from there on, as a field of the turn.
HELD_UP: Final[dict[str, str]] = {"speech_start": "held_up_speaking_ns", "speech_end": "held_up_ns"}
# What stays as it is once it is known, however the turn goes on. Other figures of a turn that was cut may have become
# worse: they count only where they are bad already.
SETTLED: Final = frozenset({*WAITED_FROM, "llm_ttft", "tts_first_chunk_latency", "leading_silence", "wer"})


class CountedByJudgment:
    """Numbers of turns that add up: good, bad and open ones are the eligible ones."""

    __slots__ = ()

    good: int
    eligible: int
    open: Mapping[str, int]

    @property
    def open_turns(self) -> int:
        """The turns that are neither known to be good nor known to be bad."""
        return sum(self.open.values())

    @property
    def decided(self) -> int:
        """The turns that are good or bad."""
        return self.eligible - self.open_turns

    @property
    def bad(self) -> int:
        """The turns that use up the budget: neither good nor open."""
        return self.decided - self.good


@dataclass(frozen=True, slots=True)
class EligibleTurns(CountedByJudgment):
    """Good and eligible turns, and those of the eligible ones that are open, by cause. All others are bad."""

    good: int = 0
    eligible: int = 0
    open: Mapping[str, int] = field(default_factory=dict[str, int])

    def __add__(self, other: "EligibleTurns") -> "EligibleTurns":
        causes = dict(sorted((Counter(self.open) + Counter(other.open)).items()))
        return EligibleTurns(self.good + other.good, self.eligible + other.eligible, causes)


@dataclass(slots=True)
class JudgmentTally:
    """Judgments of the turns of one run by one objective, counted as they come."""

    judged: Counter[Judgment] = field(default_factory=Counter[Judgment])
    has_value: bool = False  # at least one turn has a value of the objective's metric

    def take(self, objective: Objective, turn: Turn, source: Source, count: int = 1) -> None:
        """Count `count` turns like this one."""
        judgment = judge_turn(objective, turn, source)
        if judgment is not None:
            self.judged[judgment] += count
        self.has_value = self.has_value or has_value(objective, turn)

    def counts(self, objective: Objective) -> EligibleTurns:
        """The turns that count."""
        counted: Counter[Judgment] = Counter()
        for judgment, n in self.judged.items():
            resolved = resolve(judgment, objective, has_value=self.has_value)
            if resolved is not None:
                counted[resolved] += n
        causes = {judgment.value: n for judgment, n in sorted(counted.items()) if judgment not in DECIDED}
        return EligibleTurns(counted[Judgment.GOOD], counted.total(), causes)


def is_met(counts: EligibleTurns, target: float) -> bool | None:
    """Return whether an objective is met with every open turn counted bad (True), missed with every open turn counted
    good (False), or neither (None). Whether the turns are enough for a verdict is not asked here."""
    wanted = Fraction(str(target)) * counts.eligible
    if counts.good >= wanted:
        return True
    return False if counts.good + counts.open_turns < wanted else None


def turns_to_verdict(counts: EligibleTurns, target: float, minimum: int) -> int | None:
    """Return how many more turns bring a verdict if they are good, bad and open in the same proportion as those so far;
    None if no number does.

    Turns cut by the end of a run do not grow with its length, so their number is constant.
    """
    cut = counts.open.get(Judgment.CUT.value, 0)
    others = counts.eligible - cut
    if not counts.decided:
        return None if others else minimum
    wanted, good = Fraction(str(target)), Fraction(counts.good, others)
    not_bad = Fraction(others - counts.bad, others)
    to_meet = wanted * counts.eligible - counts.good
    to_miss = counts.good + counts.open_turns - wanted * counts.eligible
    claims: list[int] = []
    if to_meet <= 0 or good > wanted:
        claims.append(0 if to_meet <= 0 else math.ceil(to_meet / (good - wanted)))
    if to_miss < 0 or not_bad < wanted:
        claims.append(0 if to_miss < 0 else math.floor(to_miss / (wanted - not_bad)) + 1)
    if not claims:
        return None
    enough = math.ceil(Fraction((minimum - counts.decided) * others, counts.decided))
    return max(0, enough, min(claims))


def resolve(judgment: Judgment | None, objective: Objective, *, has_value: bool) -> Judgment | None:
    """A judgment in the light of the run: a missing value of a stage that other turns of it have is bad, and one that a
    service states elsewhere is open. Without any value in the run the stage is not shown, and the turn does not
    count; a missing answer always does."""
    if judgment is Judgment.NO_VALUE:
        return Judgment.BAD if has_value else None
    if judgment is Judgment.NOT_STATED and not has_value and objective.metric != HEADLINE:
        return None
    return judgment


def judge_turn(objective: Objective, turn: Turn, source: Source = "client") -> Judgment | None:
    """Judge a turn by the objective; None where it does not count at all.

    Only turns of one `source` (that a client heard, or that a service reports) and of the objective's dimensions
    count; a silent turn asked nothing and does not. A metric that the wire withholds does not count, nor does one that
    has nothing to measure on this turn (no barge-in, a second connect, one single token). A turn that got no answer, or
    broke down, is bad by every metric of an answer. A call that could not be connected is a bad one, also where its
    caller was to begin with a silent turn. A fallback counts where the endpoint said how it answered, a cache where it
    said hit or miss. Raises ValueError for a metric objective without a metric or threshold.
    """
    asks = turn.turn_kind != "silence" or objective.metric == CONNECT
    if turn.source != source or not asks or not matches(objective, turn):
        return None
    if objective.kind == "metric":
        return _judge_metric(objective, turn)
    if objective.kind == "outcome":
        return _judge_outcome(objective, turn)
    good = _stated(objective, turn)
    return None if good is None else _UNDECIDED.get(turn.outcome, _decided(good))


def is_good(objective: Objective, turn: Turn, source: Source = "client") -> bool | None:
    """Return whether a turn is good by the objective; None if it is open, does not count, or has no value of a
    stage."""
    judgment = judge_turn(objective, turn, source)
    return judgment is Judgment.GOOD if judgment in DECIDED else None


def count_turns(turns: Iterable[Turn], source: Source = "client") -> "TurnCount":
    """A `count` for `slo.judge` over turns in memory."""
    return TurnCount(tuple(turns), source)


@dataclass(frozen=True, slots=True)
class TurnCount:
    """Turns in memory, counted by any objective, each run separately."""

    turns: tuple[Turn, ...]
    source: Source = "client"

    def __call__(self, objective: Objective) -> EligibleTurns:
        """Count the turns."""
        by_run: dict[str, JudgmentTally] = {}
        for turn in self.turns:
            by_run.setdefault(turn.run_id, JudgmentTally()).take(objective, turn, self.source)
        return sum((tally.counts(objective) for tally in by_run.values()), EligibleTurns())


def was_heard(turn: Turn) -> bool:
    """Return whether any part of an answer reached the caller: a sound, or on a wire without audio a word."""
    if turn.first_audio_perf_ns is not None or METRICS[HEADLINE].value(turn) is not None:
        return True
    has_text = turn.llm_first_token_perf_ns is not None or turn.asr_final_perf_ns is not None
    return is_withheld(turn, HEADLINE) and has_text


def is_unanswered(turn: Turn) -> bool:
    """Return whether the turn ended without an answer, for no reason of its caller's or of ours."""
    return turn.outcome in UNANSWERED or (_is_broken_off(turn) and not was_heard(turn))


def _is_broken_off(turn: Turn) -> bool:
    """Return whether the endpoint broke off its reply by itself and gave no other: its caller continued to wait."""
    return turn.outcome == "interrupted" and turn.failure_kind == "interrupted"


def _decided(good: bool) -> Judgment:
    return Judgment.GOOD if good else Judgment.BAD


def has_value(objective: Objective, turn: Turn) -> bool:
    """Return whether a turn has a value of the objective's metric, and the wire shows it."""
    metric = objective.metric
    return metric is not None and not is_withheld(turn, metric) and METRICS[metric].value(turn) is not None


def _stated(objective: Objective, turn: Turn) -> bool | None:
    """Return whether the turn is good by what the endpoint states about it; None if it states nothing."""
    if objective.kind == "fallback":
        return None if turn.fallback is None and turn.route is None else turn.fallback is None
    return turn.cache_hit


def _judge_outcome(objective: Objective, turn: Turn) -> Judgment:
    if turn.outcome in _UNDECIDED:
        return _UNDECIDED[turn.outcome]
    if turn.outcome == "cut":
        return Judgment.CUT
    if turn.outcome == "interrupted" and not was_heard(turn):
        return Judgment.BAD if _is_broken_off(turn) else Judgment.INTERRUPTED
    return _decided(turn.outcome in objective.outcomes)


def _judge_metric(objective: Objective, turn: Turn) -> Judgment | None:
    if objective.metric is None or objective.threshold is None:
        raise ValueError(f"objective {objective.name} has no metric or no threshold")
    metric = METRICS[objective.metric]
    value = metric.value(turn)
    is_contradicted = metric.name in turn.contradicted_metrics
    if is_withheld(turn, metric.name):
        return None
    if value is None and not is_contradicted and _has_nothing_to_measure(metric, turn):
        return None
    if turn.outcome in _UNDECIDED:
        return _UNDECIDED[turn.outcome]
    if turn.outcome == "cut" and not is_contradicted:
        return _judge_cut(metric, objective.threshold, turn, value)
    if is_unanswered(turn) and metric.name not in NOT_OF_AN_ANSWER:
        return Judgment.BAD
    if is_contradicted:
        return Judgment.CONTRADICTED
    if value is not None:
        return _judge_value(metric, objective.threshold, turn, value)
    return _judge_missing(metric, objective.threshold, turn)


def _judge_value(metric: Metric, threshold: float, turn: Turn, value: float) -> Judgment:
    """Judge a value by its interval; if that is not known, by the value alone."""
    meets = _meets(metric, threshold, metric_bounds(turn, metric) or (value, value))
    if meets is not None:
        return _decided(meets)
    measured = measured_bounds(turn, metric)
    is_ours = measured is None or _meets(metric, threshold, measured) is None
    return Judgment.GENERATOR if is_ours else Judgment.SPEECH


def _meets(metric: Metric, threshold: float, bounds: Bounds) -> bool | None:
    """Return whether a value between two bounds meets the threshold; None if only one of them does."""
    worst, best = bounds if metric.higher_is_better else (-bounds[1], -bounds[0])
    wanted = threshold if metric.higher_is_better else -threshold
    return True if worst >= wanted else False if best < wanted else None


def _has_nothing_to_measure(metric: Metric, turn: Turn) -> bool:
    """Return whether a turn without a value of the metric has nothing to measure."""
    if metric.name == CONNECT:
        return turn.turn_index != 0
    return metric.is_undefined(turn)


def _judge_missing(metric: Metric, threshold: float, turn: Turn) -> Judgment:
    if turn.outcome == "interrupted" and not was_heard(turn):
        return Judgment.BAD if _waited_beyond(metric, threshold, turn) else Judgment.INTERRUPTED
    if turn.source == "service":
        return Judgment.NOT_STATED
    if metric.name == CONNECT and turn.outcome == "error":
        return Judgment.BAD
    # No answer, or an agent that talked on: that there is no value is itself what is bad.
    return Judgment.BAD if metric.name in (HEADLINE, "barge_in_stop") else Judgment.NO_VALUE


def _judge_cut(metric: Metric, threshold: float, turn: Turn, value: float | None) -> Judgment:
    if value is None:
        if metric.name == CONNECT and turn.speech_start_perf_ns is not None:
            return Judgment.CUT  # it was connected
        if not _waited_beyond(metric, threshold, turn):
            return Judgment.CUT
        # After a first sound nothing but this stage is missing, which this endpoint may never show.
        return Judgment.BAD if turn.first_audio_perf_ns is None else Judgment.NO_VALUE
    judged = _judge_value(metric, threshold, turn, value)
    return Judgment.CUT if judged is Judgment.GOOD and metric.name not in SETTLED else judged


def _waited_beyond(metric: Metric, threshold: float, turn: Turn) -> bool:
    """Return whether the caller had certainly waited longer than the threshold for what had not come when the turn was
    ended: counted from the latest moment at which the wait can have begun, and without what our own lateness held
    up."""
    name = WAITED_FROM.get(metric.name)
    since = None if name is None else getattr(turn, f"{name}_perf_ns")
    if name is None or since is None or turn.hangup_perf_ns is None:
        return False
    if name in HELD_UP:
        bounds = timestamp_bounds(turn, name)
        since = (since if bounds is None else bounds[1]) + (getattr(turn, HELD_UP[name]) or 0)
    return turn.hangup_perf_ns - since > threshold


def matches(objective: Objective, turn: Turn) -> bool:
    """Return whether a turn has the dimensions that the objective is restricted to."""
    wanted = _dimensions_of(objective)
    return wanted == _ANY or all(asked in (None, of) for asked, of in zip(wanted, _dimensions_of(turn), strict=True))


_dimensions_of: Final = attrgetter(*OF_OBJECTIVES)
_ANY: Final = (None,) * len(OF_OBJECTIVES)
