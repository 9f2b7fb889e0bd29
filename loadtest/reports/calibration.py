"""What a calibration says: errors of the instrument against an endpoint that knows the truth, load by load. Pure.

An error is measured - true. A rung (one load) is trustworthy when at most 1 % of its turns are invalid, 99 % of its
voice-to-voice errors are within 1 ms, and at most 1 % of its turns were lost on the way to the store. A rung with fewer
than 100 turns is shown and not judged.

Frames under 1 ms late and event stamps within 0.1 ms, both at p99, are goals: a rung that misses one says so and may
still be trusted, because figures count from when a frame was sent, not from when it was due. A lateness that could move
a figure makes the turn invalid.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from telemetry.stats import percentile, shown_percentile
from telemetry.store.answers import INVALID_SHARE_LIMIT
from telemetry.turns import Turn

MS: Final = 1_000_000
VOICE_TO_VOICE_LIMIT_NS: Final = 1 * MS
LOST_SHARE_LIMIT: Final = 0.01
PACING_GOAL_NS: Final = 1 * MS
STAMPS_GOAL_NS: Final = MS // 10
ENOUGH_TURNS: Final = 100
# Beyond these it is the endpoint that could not keep up, and the rung says nothing about the generator.
UNKNOWN_TRUTH_LIMIT: Final = 0.1
UNANSWERED_LIMIT: Final = 0.01
ENDPOINT_LAG_LIMIT_NS: Final = 5 * MS
RULE: Final = (
    "at most 1 % of turns invalid, p99 of the voice-to-voice error within 1 ms, at most 1 % of turns lost; goals beside"
    " it: frames under 1 ms late and event stamps within 0.1 ms at p99"
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
    "reply_end",
    "underrun_total",
)
Verdict = Literal["trustworthy", "not trustworthy", "endpoint-limited", "too few turns"]
Truth = Mapping[str, Any]  # one row of the endpoint's log


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
        """What 99 of 100 errors are within; the largest where they are fewer than a hundred."""
        return self.max_ns if self.p99_ns is None else self.p99_ns


@dataclass(frozen=True, slots=True)
class Usage:
    """What the processes used while all callers were on the line: shares of one core, and ns of CPU a frame sent."""

    generator_cpu: float | None
    endpoint_cpu: float | None
    cpu_per_frame_ns: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One load. `turns` are those that began when all callers were on the line."""

    callers: int
    attempt: int
    turns: int
    invalid: int
    invalid_by_reason: Mapping[str, int]
    lost: int  # the endpoint answered them, and the store has not got them
    unanswered: int  # callers heard nothing
    unknown_truth: int  # valid turns whose true voice-to-voice the endpoint cannot state exactly
    errors: Mapping[str, ErrorStats]
    stamps: ErrorStats  # all event stamps together
    pacing: ErrorStats  # of each speech frame, as the endpoint sees it
    endpoint_lag: ErrorStats  # how late the endpoint was against its own plan
    usage: Usage
    verdict: Verdict
    failed: tuple[str, ...]
    samples: Mapping[str, Sequence[Sample]] = field(default_factory=dict[str, Sequence[Sample]])
    planned_ns: Sequence[int] = ()  # of each voice-to-voice sample

    @property
    def error_ns(self) -> float | None:
        """The bound of the voice-to-voice error."""
        return self.errors["voice_to_voice"].bound_ns

    @property
    def goals_missed(self) -> tuple[str, ...]:
        """What a trustworthy rung could still do better."""
        missed: list[str] = []
        if self.pacing.p99_ns is not None and self.pacing.p99_ns >= PACING_GOAL_NS:
            missed.append(f"frames {_ms(self.pacing.p99_ns)} late at p99 (goal: under {PACING_GOAL_NS / MS:g} ms)")
        if self.stamps.p99_ns is not None and self.stamps.p99_ns > STAMPS_GOAL_NS:
            missed.append(f"event stamps {_ms(self.stamps.p99_ns)} off at p99 (goal: {STAMPS_GOAL_NS / MS:g} ms)")
        return tuple(missed)


def error_stats(errors_ns: Sequence[int]) -> ErrorStats:
    """Statistics of errors, exact, from the raw values."""
    sizes = [abs(each) for each in errors_ns]
    return ErrorStats(
        len(sizes),
        percentile(errors_ns, 0.5),
        shown_percentile(sizes, "p50"),
        shown_percentile(sizes, "p95"),
        shown_percentile(sizes, "p99"),
        max(sizes, default=None),
    )


def samples_of(turn: Turn, truth: Truth) -> dict[str, Sample]:
    """Each stage of a turn that both sides know, the endpoint for certain."""
    known = _known_points(truth)
    start, end = known.get("speech_start"), known.get("speech_end")
    measured_end, measured_start = turn.speech_end_perf_ns, turn.speech_start_perf_ns
    found: dict[str, Sample] = {}
    if start is None or end is None or measured_end is None or measured_start is None:
        return found
    for name, moment in known.items():
        measured: int | None = getattr(turn, f"{name}_perf_ns")
        if measured is None:
            continue
        # What is sent while the caller speaks is counted from the beginning of the speech.
        from_start = name in ("speech_start", "speech_end", "asr_first_partial")
        since, measured_since = (start, measured_start) if from_start else (end, measured_end)
        found[name] = Sample(moment - since, measured - measured_since, measured - moment)
    if "first_audio" in found:
        heard = found["first_audio"]
        error_ns = heard.measured_ns - heard.injected_ns
        found["voice_to_voice"] = Sample(heard.injected_ns, heard.measured_ns, error_ns)
    if "reply_end" in found:
        for name in ("leading_silence", "underrun_total"):
            injected, measured = truth.get(f"{name}_ns"), getattr(turn, f"{name}_ns")
            if injected is not None and measured is not None:
                found[name] = Sample(injected, measured, measured - injected)
    return found


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
    """From when the last of the callers began its first turn until one in twenty has heard all of its last reply; None
    where they never were that many."""
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


def measure_rung(callers: int, attempt: int, turns: Sequence[Turn], truths: Mapping[str, Truth], usage: Usage) -> Rung:
    """One load, from the client turns of the store and the endpoint's log."""
    steady = steady_turns(turns, callers)
    valid = [turn for turn in steady if turn.outcome == "ok" and turn.response_id in truths]
    by_stage, planned, rows = join(valid, truths)
    stored = {turn.response_id for turn in turns}
    invalid_by_reason: dict[str, int] = {}
    for reason in (reason for turn in steady for reason in turn.invalid_reasons):
        invalid_by_reason[reason] = invalid_by_reason.get(reason, 0) + 1
    rung = Rung(
        callers=callers,
        attempt=attempt,
        turns=len(steady),
        invalid=sum(turn.outcome == "invalid" for turn in steady),
        invalid_by_reason=invalid_by_reason,
        lost=sum(response_id not in stored for response_id in truths),
        unanswered=sum(turn.outcome_observed in ("no_reply", "timeout") for turn in steady),
        unknown_truth=len(valid) - len(by_stage["voice_to_voice"]),
        errors={name: error_stats([each.error_ns for each in found]) for name, found in by_stage.items()},
        stamps=error_stats([each.error_ns for name in EVENTS for each in by_stage[name]]),
        pacing=error_stats([late for row in _rows_of(steady, truths) for late in row["lateness_ns"]]),
        endpoint_lag=error_stats([lag for row in rows for lag in row["lags_ns"]]),
        usage=usage,
        verdict="too few turns",
        failed=(),
        samples=by_stage,
        planned_ns=planned,
    )
    verdict, failed = judge(rung, len(truths))
    return replace(rung, verdict=verdict, failed=failed)


def _rows_of(turns: Sequence[Turn], truths: Mapping[str, Truth]) -> list[Truth]:
    return [truths[each] for turn in turns if (each := turn.response_id) is not None and each in truths]


def join(valid: Sequence[Turn], truths: Mapping[str, Truth]) -> tuple[dict[str, list[Sample]], list[int], list[Truth]]:
    """Samples by stage, the planned voice-to-voice of each voice-to-voice sample, and the rows that were joined."""
    by_stage: dict[str, list[Sample]] = {name: [] for name in STAGES}
    planned: list[int] = []
    rows = _rows_of(valid, truths)
    for turn, row in zip(valid, rows, strict=True):
        found = samples_of(turn, row)
        for name, sample in found.items():
            by_stage[name].append(sample)
        if "voice_to_voice" in found:
            planned.append(row["planned"]["voice_to_voice_ns"])
    return by_stage, planned, rows


def judge(rung: Rung, answered: int) -> tuple[Verdict, tuple[str, ...]]:
    """Whether a load can be trusted, and what failed. `answered` is how many turns the endpoint knows."""
    if rung.turns < ENOUGH_TURNS:
        return "too few turns", ()
    if limits := _endpoint_limits(rung):
        return "endpoint-limited", tuple(limits)
    failed: list[str] = []
    if rung.invalid > INVALID_SHARE_LIMIT * rung.turns:
        reasons = ", ".join(sorted(rung.invalid_by_reason))
        failed.append(f"{rung.invalid} of {rung.turns} turns invalid ({reasons})")
    if rung.error_ns is None or rung.error_ns > VOICE_TO_VOICE_LIMIT_NS:
        failed.append(f"voice-to-voice error {_ms(rung.error_ns)}")
    if rung.lost > LOST_SHARE_LIMIT * max(1, answered):
        failed.append(f"{rung.lost} of {answered} turns lost")
    return ("not trustworthy", tuple(failed)) if failed else ("trustworthy", ())


def _endpoint_limits(rung: Rung) -> list[str]:
    limits: list[str] = []
    measured = rung.errors["voice_to_voice"].n
    if rung.unknown_truth > UNKNOWN_TRUTH_LIMIT * (measured + rung.unknown_truth):
        limits.append(f"truth of {rung.unknown_truth} of {measured + rung.unknown_truth} turns not known exactly")
    if rung.unanswered > UNANSWERED_LIMIT * rung.turns:
        limits.append(f"{rung.unanswered} of {rung.turns} turns not answered")
    if rung.endpoint_lag.p95_ns is not None and rung.endpoint_lag.p95_ns > ENDPOINT_LAG_LIMIT_NS:
        limits.append(f"p95 {_ms(rung.endpoint_lag.p95_ns)} behind its plan")
    return limits


def _ms(value_ns: float | None) -> str:
    return "not known" if value_ns is None else f"{value_ns / MS:.2f} ms"


def best_attempts(rungs: Sequence[Rung]) -> list[Rung]:
    """The rung of each load that counts: a trustworthy attempt before one that is not, a later before an earlier."""
    best: dict[int, Rung] = {}
    for rung in rungs:
        if rung.callers not in best or best[rung.callers].verdict != "trustworthy":
            best[rung.callers] = rung
    return [best[callers] for callers in sorted(best)]


def ceiling_of(rungs: Sequence[Rung]) -> Rung | None:
    """The largest load that was trustworthy."""
    return next((rung for rung in reversed(best_attempts(rungs)) if rung.verdict == "trustworthy"), None)


def by_delay(rung: Rung) -> dict[int, ErrorStats]:
    """Voice-to-voice errors of a rung by the delay that was planned, in ns."""
    found: dict[int, list[int]] = {}
    for planned_ns, sample in zip(rung.planned_ns, rung.samples["voice_to_voice"], strict=True):
        found.setdefault(planned_ns, []).append(sample.error_ns)
    return {planned_ns: error_stats(found[planned_ns]) for planned_ns in sorted(found)}


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultCell:
    """One misbehaviour of the endpoint, among callers of the others. For a connection that it stopped reading, what
    counts is that its caller said so and nobody else noticed."""

    behaviour: str
    about: str
    turns: int
    invalid: int
    unanswered: int
    errors: Mapping[str, ErrorStats]


def measure_fault(
    behaviour: str, about: str, turns: Sequence[Turn], truths: Mapping[str, Truth], answered: bool
) -> FaultCell:
    """One behaviour, from its own connections' turns; those that were not `answered` belong to the one that stalls."""
    rows = {key: row for key, row in truths.items() if row["behaviour"] == behaviour}
    own = [turn for turn in turns if (turn.response_id in rows if answered else turn.response_id is None)]
    by_stage, _, _ = join([turn for turn in own if turn.outcome == "ok" and turn.response_id in rows], rows)
    return FaultCell(
        behaviour=behaviour,
        about=about,
        turns=len(own),
        invalid=sum(turn.outcome == "invalid" for turn in own),
        unanswered=sum(turn.outcome_observed in ("no_reply", "timeout", "error") for turn in own),
        errors={name: error_stats([each.error_ns for each in found]) for name, found in by_stage.items()},
    )
