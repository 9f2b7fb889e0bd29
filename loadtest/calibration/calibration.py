"""The result of a calibration: errors of the instrument against an endpoint that knows the truth, load by load. Pure.

An error is measured - true. What a run would report of voice-to-voice is wrong by the instrument's error and by that of
the annotation, which says where the speech ends in a clip. The endpoint shares neither, so `voice_to_voice` has both;
`annotation` is how much later than the truth the clips' annotation puts the end of the speech, and `instrument` is what
remains of the error of voice-to-voice without it.

Every turn states an interval in which its voice-to-voice lies (telemetry.model.bounds). A step (one load) is
trustworthy when the truth of 999 of 1,000 turns lies within it, no clip's annotation is off by more than it states, at
most 1 % of its turns, or two, are invalid, and at most 1 % were lost on the way to the store. A step with fewer than
100 turns is shown and not judged.

One process is tried first. Where it cannot keep up with a load because its core is taken, more of them are, as many as
the callers that one process was good for suggest; a larger load begins with the number that the last one wanted.

Errors of voice-to-voice within 1 ms, frames under 1 ms late and event stamps within 0.1 ms, all at p99, are goals: a
step that misses one says so and may still be trusted, because its turns say by how much their figures may be off.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from loadtest.calibration.annotation_errors import AnnotationError
from loadtest.reports.calibration_citing import in_processes
from loadtest.reports.run_outcome import SHORT_OF_CPU
from telemetry.model.bounds import measured_bounds
from telemetry.model.formatting import count, declared_milliseconds, fine_milliseconds, number
from telemetry.model.generator_health import is_not_as_recorded
from telemetry.model.metrics import HEADLINE, METRICS
from telemetry.model.stats import percentile, shown_percentile
from telemetry.model.turns import Turn

MS: Final = 1_000_000
# Of so many turns one may lie outside its stated interval; fewer turns allow none.
TURNS_PER_OUTSIDE: Final = 1_000
LOST_SHARE_LIMIT: Final = 0.01
# With a larger share of invalid turns, and more than so many of them, no objective of 99 % of the turns could be met at
# this load, whatever the service does.
INVALID_SHARE_LIMIT: Final = 0.01
INVALID_TURNS_LIMIT: Final = 2
VOICE_TO_VOICE_GOAL_NS: Final = 1 * MS
PACING_GOAL_NS: Final = 1 * MS
STAMPS_GOAL_NS: Final = MS // 10
ENOUGH_TURNS: Final = 100
# Beyond these it is the endpoint that could not keep up, and the step says nothing about the generator.
UNKNOWN_TRUTH_LIMIT: Final = 0.1
UNANSWERED_LIMIT: Final = 0.01
ENDPOINT_LAG_LIMIT_NS: Final = 5 * MS
RULE: Final = (
    "the true voice-to-voice of 999 of 1,000 turns within the stated interval, no annotation off by more than its clip"
    " states, at most 1 % of turns, or two, invalid, at most 1 % lost; further goals, all at p99: voice-to-voice"
    " within 1 ms, frames under 1 ms late, event stamps within 0.1 ms"
)

# Points that are the arrival of one event, in the order of a turn; each is a field of the turn and a send of the truth.
EVENTS: Final = ("asr_first_partial", "endpoint", "asr_final", "llm_first_token", "tts_first_chunk")
STAGES: Final = (
    "speech_start",
    "speech_end",
    *EVENTS,
    "leading_silence",
    "first_audio",
    "voice_to_voice",
    "annotation",
    "instrument",
    "reply_end",
    "underrun_total",
)
Verdict = Literal["trustworthy", "not trustworthy", "endpoint-limited", "too few turns"]
Truth = Mapping[str, Any]  # one row of the endpoint's log
# Both sides round moments of samples to ns.
_ROUNDING_NS: Final = 2
NO_ANNOTATION: Final[Mapping[str, AnnotationError]] = {}  # of clips whose annotation is the truth


@dataclass(frozen=True, slots=True)
class Sample:
    """One stage of one turn. `error_ns` is that of the point itself, or of the duration where the stage is one."""

    injected_ns: int
    measured_ns: int
    error_ns: int


@dataclass(frozen=True, slots=True)
class ErrorStats:
    """The size of the errors of one stage in ns, and their signed median; None where there are too few to say."""

    n: int
    median_ns: float | None
    p50_ns: float | None
    p95_ns: float | None
    p99_ns: float | None
    max_ns: float | None

    @property
    def bound_ns(self) -> float | None:
        """The bound of 99 of 100 errors; the largest where they are fewer than a hundred."""
        return self.max_ns if self.p99_ns is None else self.p99_ns


@dataclass(frozen=True, slots=True)
class StatedIntervals:
    """The intervals that turns state for their voice-to-voice, held against the truth: how many there are, in how many
    the truth lies, by how much it lies outside the worst of the others, and how wide they are. `not_stated` turns state
    none, which is not the same as exact."""

    n: int
    within: int
    not_stated: int
    outside_worst_ns: float
    width: ErrorStats

    @property
    def outside(self) -> int:
        """Number of wrong ones."""
        return self.n - self.within

    @property
    def share_within(self) -> float | None:
        """The share of them that are right."""
        return self.within / self.n if self.n else None

    @property
    def hold(self) -> bool:
        """Whether all are stated, and as many of them right as their number allows to be asked for."""
        return not self.not_stated and self.outside <= self.n // TURNS_PER_OUTSIDE


@dataclass(frozen=True, slots=True)
class ProcessorUsage:
    """The resources used while all callers were on the line: shares of one core, and ns of CPU a frame sent.

    `generator_cpu` is the mean of the generator's processes, which share the callers evenly.
    """

    generator_cpu: float | None
    endpoint_cpu: float | None
    cpu_per_frame_ns: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationStep:
    """One load. `turns` are those that began when all callers were on the line."""

    callers: int
    processes: int = 1  # that shared the callers
    attempt: int
    turns: int
    invalid: int
    not_as_recorded: int  # of the invalid ones: not said as recorded; the others are faults of the generator
    invalid_by_reason: Mapping[str, int]
    lost: int  # the endpoint answered them, and the store has not got them
    unanswered: int  # callers heard nothing
    unread: int  # the endpoint did not read in time: for it speech ended later than for the caller
    annotation_beyond: int  # valid turns whose clip's annotation is off by more than it states
    unknown_truth: int  # valid turns whose true voice-to-voice the endpoint cannot state exactly
    errors: Mapping[str, ErrorStats]
    intervals: StatedIntervals
    stamps: ErrorStats  # all event stamps together
    pacing: ErrorStats  # of each speech frame, as the endpoint sees it
    endpoint_lag: ErrorStats  # how late the endpoint was against its own plan
    usage: ProcessorUsage
    verdict: Verdict
    failed: tuple[str, ...]
    samples: Mapping[str, Sequence[Sample]] = field(default_factory=dict[str, Sequence[Sample]])
    planned_ns: Sequence[int] = ()  # of each voice-to-voice sample

    @property
    def error_ns(self) -> float | None:
        """The bound of the voice-to-voice error that is the instrument's own."""
        return self.errors["instrument"].bound_ns

    @property
    def fell_behind(self) -> bool:
        """Whether the generator did not keep up: what processor it had was not enough, or came late."""
        return _too_many_invalid(self.invalid, self.turns) or not self.intervals.hold

    @property
    def goals_missed(self) -> tuple[str, ...]:
        """The goals that a trustworthy step missed."""
        missed: list[str] = []
        if self.error_ns is not None and self.error_ns > VOICE_TO_VOICE_GOAL_NS:
            missed.append(
                f"voice-to-voice {fine_milliseconds(self.error_ns)} off at p99"
                f" (goal: {declared_milliseconds(VOICE_TO_VOICE_GOAL_NS)})"
            )
        if self.pacing.p99_ns is not None and self.pacing.p99_ns >= PACING_GOAL_NS:
            missed.append(
                f"frames {fine_milliseconds(self.pacing.p99_ns)} late at p99"
                f" (goal: under {declared_milliseconds(PACING_GOAL_NS)})"
            )
        if self.stamps.p99_ns is not None and self.stamps.p99_ns > STAMPS_GOAL_NS:
            missed.append(
                f"event stamps {fine_milliseconds(self.stamps.p99_ns)} off at p99"
                f" (goal: {declared_milliseconds(STAMPS_GOAL_NS)})"
            )
        return tuple(missed)


def error_stats(errors_ns: Sequence[int]) -> ErrorStats:
    """Statistics of errors, exact, from the raw values."""
    sizes = [abs(error_ns) for error_ns in errors_ns]
    return ErrorStats(
        len(sizes),
        percentile(errors_ns, 0.5),
        shown_percentile(sizes, "p50"),
        shown_percentile(sizes, "p95"),
        shown_percentile(sizes, "p99"),
        max(sizes, default=None),
    )


def samples_of(turn: Turn, truth: Truth, annotated: AnnotationError | None = None) -> dict[str, Sample]:
    """Each stage of a turn that both sides know, the endpoint for certain; `annotated` is its clip's own error."""
    known = _known_points(truth)
    start, end = known.get("speech_start"), known.get("speech_end")
    measured_end, measured_start = turn.speech_end_perf_ns, turn.speech_start_perf_ns
    samples: dict[str, Sample] = {}
    if start is None or end is None or measured_end is None or measured_start is None:
        return samples
    for name, moment in known.items():
        measured: int | None = getattr(turn, f"{name}_perf_ns")
        if measured is None:
            continue
        # What is sent while the caller speaks is counted from the beginning of the speech.
        from_start = name in ("speech_start", "speech_end", "asr_first_partial")
        since, measured_since = (start, measured_start) if from_start else (end, measured_end)
        samples[name] = Sample(moment - since, measured - measured_since, measured - moment)
    if "first_audio" in samples:
        heard = samples["first_audio"]
        error_ns = heard.measured_ns - heard.injected_ns
        samples["voice_to_voice"] = Sample(heard.injected_ns, heard.measured_ns, error_ns)
        late_ns = 0 if annotated is None else annotated.end_ns
        # Speech that is thought to end later makes the wait for the answer shorter.
        samples["instrument"] = Sample(heard.injected_ns, heard.measured_ns + late_ns, error_ns + late_ns)
    if annotated is not None:
        samples["annotation"] = Sample(0, annotated.end_ns, annotated.end_ns)
    if "reply_end" in samples:
        for name in ("leading_silence", "underrun_total"):
            injected, measured = truth.get(f"{name}_ns"), getattr(turn, f"{name}_ns")
            if injected is not None and measured is not None:
                samples[name] = Sample(injected, measured, measured - injected)
    return samples


def stated_intervals(
    turns: Sequence[Turn], truths: Mapping[str, Truth], annotation: Mapping[str, AnnotationError]
) -> StatedIntervals:
    """The intervals of the turns whose true voice-to-voice the endpoint knows, without what the annotation adds: how
    far that is off is known here, so that it can neither hide nor cause an error of the instrument. The endpoint knows
    its own sends as an interval, too: from just before the system call to just after it."""
    widths: list[int] = []
    within, not_stated, worst_ns = 0, 0, 0.0
    for turn, row in zip(turns, _rows_of(turns, truths), strict=True):
        annotated = annotation.get(turn.utterance_id or "")
        heard = samples_of(turn, row, annotated).get("instrument")
        if heard is None:
            continue
        stated = measured_bounds(turn, METRICS[HEADLINE])
        if stated is None:
            not_stated += 1
            continue
        late_ns = 0 if annotated is None else annotated.end_ns
        low_ns, high_ns = (bound_ns + late_ns for bound_ns in stated)
        widths.append(round(high_ns - low_ns))
        latest_ns = heard.injected_ns + row["first_audio_within_ns"]
        outside_ns = max(low_ns - latest_ns, heard.injected_ns - high_ns)
        if outside_ns <= _ROUNDING_NS:
            within += 1
        else:
            worst_ns = max(worst_ns, outside_ns)
    return StatedIntervals(len(widths), within, not_stated, worst_ns, error_stats(widths))


def _known_points(truth: Truth) -> dict[str, int]:
    """The moments that the endpoint knows for certain."""
    sent, unsure = truth["sent"], set(truth["unsure"])
    known = {name: sent[name] for name in EVENTS if name in sent and name not in unsure}
    return known | {
        name: truth[f"{name}_perf_ns"]
        for name in ("speech_start", "speech_end", "first_audio", "reply_end")
        if name not in unsure and truth[f"{name}_perf_ns"] is not None
    }


def steady_window_perf_ns(turns: Sequence[Turn], callers: int) -> tuple[int, int] | None:
    """Return from when the last of the callers began its first turn until one in twenty has heard all of its last
    reply; None where they never were that many."""
    begins: dict[str, int] = {}
    ends: dict[str, int] = {}
    for turn in turns:
        begins[turn.call_id] = min(turn.started_perf_ns, begins.get(turn.call_id, turn.started_perf_ns))
        ends[turn.call_id] = max(turn.reply_end_perf_ns or turn.started_perf_ns, ends.get(turn.call_id, 0))
    if len(begins) < callers:
        return None
    return sorted(begins.values())[callers - 1], sorted(ends.values())[callers // 20]


def steady_turns(turns: Sequence[Turn], callers: int) -> list[Turn]:
    """The turns that began while all callers were on the line: nothing is pooled over a ramp."""
    window = steady_window_perf_ns(turns, callers)
    return [] if window is None else [turn for turn in turns if window[0] <= turn.started_perf_ns <= window[1]]


def is_beyond(turn: Turn, annotated: AnnotationError | None) -> bool:
    """Return whether a clip's annotation is off by more than its turn states; one that states nothing has to be
    right."""
    if annotated is None:
        return False
    sides = (
        (annotated.start_ns, turn.speech_start_uncertainty_ns),
        (annotated.end_ns, turn.speech_end_uncertainty_ns),
    )
    return any(abs(error_ns) > (stated_ns or 0) for error_ns, stated_ns in sides)


def measure_step(
    callers: int,
    attempt: int,
    turns: Sequence[Turn],
    truths: Mapping[str, Truth],
    usage: ProcessorUsage,
    *,
    processes: int = 1,
    annotation: Mapping[str, AnnotationError] = NO_ANNOTATION,
) -> CalibrationStep:
    """One load, from the client turns of the store and the endpoint's log; `annotation` has the clips' own errors by
    utterance."""
    steady = steady_turns(turns, callers)
    ok = [turn for turn in steady if turn.outcome == "ok" and turn.response_id in truths]
    valid = [turn for turn in ok if not turn.endpoint_did_not_read]
    by_stage, planned, rows = join(valid, truths, annotation)
    stored = {turn.response_id for turn in turns}
    invalid_by_reason: dict[str, int] = {}
    for reason in (reason for turn in steady for reason in turn.invalid_reasons):
        invalid_by_reason[reason] = invalid_by_reason.get(reason, 0) + 1
    step = CalibrationStep(
        callers=callers,
        processes=processes,
        attempt=attempt,
        turns=len(steady),
        invalid=sum(turn.outcome == "invalid" for turn in steady),
        not_as_recorded=sum(is_not_as_recorded(turn.invalid_reasons) for turn in steady if turn.outcome == "invalid"),
        invalid_by_reason=invalid_by_reason,
        lost=sum(response_id not in stored for response_id in truths),
        unanswered=sum(turn.outcome_observed in ("no_reply", "timeout") for turn in steady),
        unread=len(ok) - len(valid),
        annotation_beyond=sum(is_beyond(turn, annotation.get(turn.utterance_id or "")) for turn in valid),
        unknown_truth=len(valid) - len(by_stage["voice_to_voice"]),
        errors={name: error_stats([sample.error_ns for sample in samples]) for name, samples in by_stage.items()},
        intervals=stated_intervals(valid, truths, annotation),
        stamps=error_stats([sample.error_ns for name in EVENTS for sample in by_stage[name]]),
        pacing=error_stats([late for row in _rows_of(steady, truths) for late in row["lateness_ns"]]),
        endpoint_lag=error_stats([lag for row in rows for lag in row["lags_ns"]]),
        usage=usage,
        verdict="too few turns",
        failed=(),
        samples=by_stage,
        planned_ns=planned,
    )
    verdict, failed = judge(step, len(truths))
    return replace(step, verdict=verdict, failed=failed)


def _rows_of(turns: Sequence[Turn], truths: Mapping[str, Truth]) -> list[Truth]:
    return [
        truths[response_id] for turn in turns if (response_id := turn.response_id) is not None and response_id in truths
    ]


def join(
    valid: Sequence[Turn], truths: Mapping[str, Truth], annotation: Mapping[str, AnnotationError]
) -> tuple[dict[str, list[Sample]], list[int], list[Truth]]:
    """Samples by stage, the planned voice-to-voice of each voice-to-voice sample, and the rows that were joined."""
    by_stage: dict[str, list[Sample]] = {name: [] for name in STAGES}
    planned: list[int] = []
    rows = _rows_of(valid, truths)
    for turn, row in zip(valid, rows, strict=True):
        samples = samples_of(turn, row, annotation.get(turn.utterance_id or ""))
        for name, sample in samples.items():
            by_stage[name].append(sample)
        if "voice_to_voice" in samples:
            planned.append(row["planned"]["voice_to_voice_ns"])
    return by_stage, planned, rows


def _too_many_invalid(invalid: int, total: int) -> bool:
    """Return whether a load spoils more turns than one pause of a busy machine does."""
    return invalid > INVALID_TURNS_LIMIT and invalid > INVALID_SHARE_LIMIT * total


def judge(step: CalibrationStep, answered: int) -> tuple[Verdict, tuple[str, ...]]:
    """Return whether a load can be trusted, and what failed. `answered` is how many turns the endpoint knows."""
    if step.turns < ENOUGH_TURNS:
        return "too few turns", ()
    if limits := _endpoint_limits(step):
        return "endpoint-limited", tuple(limits)
    failed: list[str] = []
    if _too_many_invalid(step.invalid, step.turns):
        reasons = ", ".join(sorted(step.invalid_by_reason))
        failed.append(f"{step.invalid} of {step.turns} turns invalid ({reasons})")
    failed += _interval_faults(step.intervals)
    if step.annotation_beyond:
        worst = step.errors["annotation"].max_ns
        failed.append(
            f"annotation off by more than it states on {step.annotation_beyond} of {step.turns} turns"
            f" (end of speech by up to {fine_milliseconds(worst)})"
        )
    if step.lost > LOST_SHARE_LIMIT * max(1, answered):
        failed.append(f"{step.lost} of {answered} turns lost")
    return ("not trustworthy", tuple(failed)) if failed else ("trustworthy", ())


def _interval_faults(intervals: StatedIntervals) -> list[str]:
    if intervals.hold:
        return []
    faults: list[str] = []
    if intervals.outside > intervals.n // TURNS_PER_OUTSIDE:
        faults.append(
            f"the true voice-to-voice of {intervals.outside} of {intervals.n} turns is outside its stated interval"
            f" (by up to {fine_milliseconds(intervals.outside_worst_ns)})"
        )
    if intervals.not_stated:
        faults.append(f"{intervals.not_stated} of {intervals.n + intervals.not_stated} turns state no interval")
    return faults


def _endpoint_limits(step: CalibrationStep) -> list[str]:
    limits: list[str] = []
    measured = step.errors["voice_to_voice"].n
    if step.unknown_truth > UNKNOWN_TRUTH_LIMIT * (measured + step.unknown_truth):
        limits.append(f"truth of {step.unknown_truth} of {measured + step.unknown_truth} turns not known exactly")
    if step.unanswered > UNANSWERED_LIMIT * step.turns:
        limits.append(f"{step.unanswered} of {step.turns} turns not answered")
    if step.unread > UNANSWERED_LIMIT * step.turns:
        limits.append(f"{step.unread} of {step.turns} turns not read in time")
    if step.endpoint_lag.p95_ns is not None and step.endpoint_lag.p95_ns > ENDPOINT_LAG_LIMIT_NS:
        limits.append(f"p95 {fine_milliseconds(step.endpoint_lag.p95_ns)} behind its plan")
    return limits


def best_attempts(steps: Sequence[CalibrationStep]) -> list[CalibrationStep]:
    """The step of each load that counts: a trustworthy attempt, which is the one with the fewest processes, before one
    that is not; a later before an earlier."""
    best: dict[int, CalibrationStep] = {}
    for step in steps:
        if step.callers not in best or best[step.callers].verdict != "trustworthy":
            best[step.callers] = step
    return [best[callers] for callers in sorted(best)]


def ceiling_of(steps: Sequence[CalibrationStep]) -> CalibrationStep | None:
    """The largest load that was trustworthy."""
    return next((step for step in reversed(best_attempts(steps)) if step.verdict == "trustworthy"), None)


def by_delay(step: CalibrationStep) -> dict[int, ErrorStats]:
    """The instrument's voice-to-voice errors of a step by the delay that was planned, in ns."""
    errors_ns: dict[int, list[int]] = {}
    for planned_ns, sample in zip(step.planned_ns, step.samples["instrument"], strict=True):
        errors_ns.setdefault(planned_ns, []).append(sample.error_ns)
    return {planned_ns: error_stats(errors_ns[planned_ns]) for planned_ns in sorted(errors_ns)}


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultCell:
    """One misbehavior of the endpoint, among callers of the others. For a connection that it stopped reading, what
    counts is that its caller said so and no other caller was affected."""

    behavior: str
    about: str
    turns: int
    invalid: int
    unanswered: int
    errors: Mapping[str, ErrorStats]
    intervals: StatedIntervals


def measure_fault(
    behavior: str,
    about: str,
    turns: Sequence[Turn],
    truths: Mapping[str, Truth],
    *,
    answered: bool,
    annotation: Mapping[str, AnnotationError] = NO_ANNOTATION,
) -> FaultCell:
    """One behavior, from its own connections' turns; those that were not `answered` belong to the one that stalls."""
    rows = {key: row for key, row in truths.items() if row["behavior"] == behavior}
    own = [turn for turn in turns if (turn.response_id in rows if answered else turn.response_id is None)]
    valid = [turn for turn in own if turn.outcome == "ok" and turn.response_id in rows]
    by_stage, _, _ = join(valid, rows, annotation)
    return FaultCell(
        behavior=behavior,
        about=about,
        turns=len(own),
        invalid=sum(turn.outcome == "invalid" for turn in own),
        unanswered=sum(turn.outcome_observed in ("no_reply", "timeout", "error") for turn in own),
        errors={name: error_stats([sample.error_ns for sample in samples]) for name, samples in by_stage.items()},
        intervals=stated_intervals(valid, rows, annotation),
    )


@dataclass(frozen=True, slots=True)
class ProcessRange:
    """The largest trustworthy load that wanted so many processes, and no fewer."""

    processes: int
    callers: int


def more_processes(steps: Sequence[CalibrationStep], most: int) -> int | None:
    """Return the number of processes with which to retry the load of the last, failed step; None if more do not help.

    That is at least one more than before, at most `most` and one for each caller.
    """
    last = steps[-1]
    most = min(most, last.callers)
    used = last.usage.generator_cpu
    if not last.fell_behind or last.verdict != "not trustworthy" or last.processes >= most:
        return None
    if used is not None and used < SHORT_OF_CPU:
        return None
    callers_per_process = max(
        (step.callers / step.processes for step in steps if step.verdict == "trustworthy"), default=0.0
    )
    suggested = math.ceil(last.callers / callers_per_process) if callers_per_process else 0
    return min(most, max(last.processes + 1, suggested))


def process_ranges(steps: Sequence[CalibrationStep]) -> list[ProcessRange]:
    """Return the range of each number of processes, fewest first; one that served no more than fewer did is omitted."""
    ranges: list[ProcessRange] = []
    good = [step for step in best_attempts(steps) if step.verdict == "trustworthy"]
    for processes in sorted({step.processes for step in good}):
        callers = max(step.callers for step in good if step.processes == processes)
        if not ranges or callers > ranges[-1].callers:
            ranges.append(ProcessRange(processes, callers))
    return ranges


def ranges_sentence(ranges: Sequence[ProcessRange], *, failed: int | None) -> str:
    """Return how many processes which load wants; `failed` callers were not trustworthy with any number that was
    tried."""
    parts = [
        f"up to {count(process_range.callers, 'caller')}: {in_processes(process_range.processes)}"
        for process_range in ranges
    ]
    if ranges and failed is not None:
        parts.append(f"{number(failed)} are not trustworthy here")
    return "; ".join(parts)
