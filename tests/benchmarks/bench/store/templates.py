"""Turns, spans and points of a made-up service, from which the rows of a generated store are drawn.

They are made as objects, a few thousand of them, so that every derived column comes from its one definition.
"""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import numpy as np

from telemetry.model import semconv
from telemetry.model.generator_health import GAUGES, gauge_metric
from telemetry.model.metrics import TIMESTAMPS, timestamp
from telemetry.model.turn_spans import SpanEvent, SpanRow
from telemetry.model.turns import Turn
from telemetry.store.schema import ArrowTable, PointRow, points_table, spans_table, turns_table

MS: Final = 1_000_000
SECOND: Final = 1_000_000_000
TURNS_OF_A_CALL: Final = 3
# The newest run of a generated store, and the one with the most turns.
LARGE_RUN: Final = "large"
CALLS: Final = 1_200
# Of the calls; the others are control's.
_CANARY_SHARE: Final = 0.25
_RESOURCE: Final[dict[str, object]] = {
    "service.name": "voiceprobe",
    "service.version": "1.0.0",
    "host.name": "worker-7.example.com",
    "telemetry.sdk.name": "opentelemetry",
    "telemetry.sdk.language": "python",
}
_OF_EVERY_SPAN: Final[Mapping[str, object]] = {semconv.ATTR_SCHEMA: semconv.SCHEMA_VERSION}
_OUTCOMES: Final[tuple[tuple[semconv.Outcome, semconv.FailureKind | None, str | None, float], ...]] = (
    ("ok", None, None, 0.965),
    ("timeout", "timeout", "reply_not_heard", 0.01),
    ("no_reply", "no_reply", "empty", 0.008),
    ("abandoned", "abandoned", None, 0.006),
    ("error", "http_status", "503", 0.005),
    ("invalid", None, None, 0.006),
)
# How much earlier what arrived may have come than it was stamped.
_EARLIER: Final = tuple(name for name in Turn.__struct_fields__ if name.endswith("_earlier_ns"))

Integers = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class TemplateSide:
    """The turns of one side, call after call with three turns each, and the spans of each turn.

    `first_span` and `span_count` say which rows of `spans` belong to a turn. A span's time is counted from the
    beginning of its turn; the first span of a turn is the turn's own.
    """

    turns: ArrowTable
    spans: ArrowTable
    first_span: Integers
    span_count: Integers


@dataclass(frozen=True, slots=True)
class Templates:
    """Both sides of the same calls, and the span of a call."""

    client: TemplateSide
    service: TemplateSide
    call_span: ArrowTable


def make_templates(seed: int, calls: int = CALLS) -> Templates:
    """The templates of a seed, for so many calls."""
    rng = random.Random(seed)
    pairs = [pair for call in range(calls) for pair in _call(rng, call)]
    return Templates(
        client=_side([client for client, _ in pairs]),
        service=_side([service for _, service in pairs]),
        call_span=spans_table([_span(None, semconv.SPAN_CALL, 0, 30 * SECOND)]),
    )


def gauge_points(run_id: str, process_id: str, at_unix_ns: list[int]) -> ArrowTable:
    """The health of a process of the generator, at each of these moments."""
    attributes: dict[str, object] = {"run_id": run_id, "process_id": process_id}
    return points_table(
        [
            PointRow(gauge_metric(gauge), at_ns, 0.25 if gauge == "cpu_ratio" else 1.0, attributes, "voiceprobe")
            for at_ns in at_unix_ns
            for gauge in GAUGES
        ]
    )


def run_span(run_id: str, at_unix_ns: int, phase: str, ids: tuple[str, str], worker: int = 0) -> SpanRow:
    """What a process of the generator declares of its run; `ids` are the trace's and the span's."""
    attributes: dict[str, object] = {
        semconv.ATTR_SCHEMA: semconv.SCHEMA_VERSION,
        f"{semconv.RUN_PREFIX}run_id": run_id,
        f"{semconv.RUN_PREFIX}phase": phase,
        f"{semconv.RUN_PREFIX}process_id": f"{run_id}-worker-{worker}",
        f"{semconv.RUN_PREFIX}users": 500,
    }
    span = _span(None, semconv.SPAN_RUN, at_unix_ns, at_unix_ns, attributes)
    return replace(span, trace_id=ids[0], span_id=ids[1])


def _call(rng: random.Random, call: int) -> Iterator[tuple[Turn, Turn]]:
    cohort = "canary" if rng.random() < _CANARY_SHARE else "control"
    profile = rng.choice(("clean", "clean", "babble", "street"))
    for turn_index in range(TURNS_OF_A_CALL):
        utterance = rng.randrange(200)
        shared: dict[str, object] = {
            "turn_index": turn_index,
            "cohort": cohort,
            "noise_profile": profile,
            "channel_profile": "g711",
            "utterance_id": f"utterance-{utterance}",
            "speaker": f"speaker-{utterance % 24}",
            "domain": ("music", "weather", "home", "calendar", "navigation")[utterance % 5],
            "length_class": semconv.LENGTH_CLASSES[utterance % 3],
            "model": rng.choice(("large", "small")),
            "region": rng.choice(("eu-west", "us-east")),
        }
        yield _exchange(rng, shared, call)


def _exchange(rng: random.Random, shared: dict[str, object], call: int) -> tuple[Turn, Turn]:
    """One turn as the client heard it, and as the service reports it."""
    hit = rng.random() < 0.3
    answer = rng.choice(("local", "cloud"))
    shared |= {"cache_hit": hit, "route": "cache" if hit else answer}
    if hit:
        shared["cache_tier"] = rng.choice(semconv.CACHE_TIERS)
    elif rng.random() < 0.03:
        shared |= {"fallback": "rule", "route": "rule"}
    faster = 0.85 if shared["cohort"] == "canary" else 1.0
    endpoint = round(rng.gauss(220, 25) * MS)
    final = endpoint + round(rng.gauss(70, 12) * MS)
    token = final + (12 * MS if hit else round(rng.lognormvariate(5.1, 0.45) * faster * MS))
    chunk = token + round(rng.gauss(90, 15) * MS)
    audible = chunk + round(abs(rng.gauss(20, 8)) * MS)
    speech = round(rng.uniform(900, 3_500)) * MS
    gaps = tuple(round(rng.uniform(12, 34) * MS) for _ in range(rng.randrange(8, 20)))
    ends = {
        "endpoint": endpoint,
        "asr_first_partial": 400 * MS - speech,
        "asr_final": final,
        "llm_first_token": token,
        "llm_first_sentence": token + 90 * MS,
        "llm_last_token": token + sum(gaps),
        "tts_first_chunk": chunk,
        "tts_last_chunk": chunk + 600 * MS,
        "first_audio": audible,
        "reply_end": audible + 1_700 * MS,
    }

    def seen(delay_ns: int, **own: object) -> Turn:
        spoken = 300 * MS + speech
        fields: dict[str, object] = {f"{name}_perf_ns": spoken + after + delay_ns for name, after in ends.items()}
        fields |= {"speech_start_perf_ns": 300 * MS, "speech_end_perf_ns": spoken, "speech_end_audio_ns": spoken}
        fields |= {"speech_ns": speech, "llm_chunk_gaps_ns": gaps, "llm_tokens": len(gaps) + 1}
        fields |= {"llm_chunks": len(gaps) + 1, "reply_audio_ns": 1_800 * MS, "scenario": "default"}
        fields |= {"protocol": "openai-realtime", "target": "wss://assistant.example.com/v1/realtime"}
        fields |= {"run_id": "", "call_id": "", "outcome": "ok", "started_unix_ns": 0, "started_perf_ns": 0}
        return msgspec.convert(fields | shared | own, Turn)

    evidence = _evidence(rng, call) | {"leading_silence_ns": audible - chunk}
    if shared["turn_index"] == 0:
        evidence["connect_ns"] = round(rng.uniform(8, 40) * MS)
    client = seen(round(rng.uniform(4, 30) * MS), source="client", **evidence)
    return _with_outcome(rng, client), seen(0, source="service")


def _evidence(rng: random.Random, call: int) -> dict[str, object]:
    """What only the client knows of a turn."""
    return {
        "phase": "hold",
        "phase_kind": "hold",
        "turn_kind": "question",
        "talk_over_ns": 0,
        "underrun_worst_ns": 0,
        "underrun_total_ns": 0,
        "underrun_count": 0,
        "wer_errors": int(rng.random() < 0.15),
        "wer_reference_words": 8,
        "onset_preset": "rms-10ms",
        "speech_start_uncertainty_ns": 15 * MS,
        "speech_end_uncertainty_ns": 20 * MS,
        "speech_start_later_ns": 60_000,
        "speech_end_later_ns": 60_000,
        **dict.fromkeys(_EARLIER, 150_000),
        "stamp_error_ns": 2_000,
        "held_up_ns": round(rng.expovariate(2) * MS),
        "held_up_speaking_ns": round(rng.expovariate(2) * MS),
        "frame_lateness_worst_ns": round(rng.expovariate(2) * MS),
        "drift_worst_ns": round(rng.expovariate(2) * MS),
        "loop_lag_worst_ns": round(rng.expovariate(1) * MS),
        "receive_lag_worst_ns": round(rng.expovariate(3) * MS),
        "unsent_bytes_at_speech_end": 0,
        "send_blocked_worst_ns": 0,
        "start_late_ns": call % 5 * MS,
        "receive_stamp": "kernel",
        "pacer": "timerfd",
    }


def _with_outcome(rng: random.Random, client: Turn) -> Turn:
    (outcome, kind, code, _) = rng.choices(_OUTCOMES, [each[-1] for each in _OUTCOMES])[0]
    if outcome == "invalid":
        return msgspec.structs.replace(client, outcome=outcome, outcome_observed="ok", invalid_reasons=("loop_lag",))
    if outcome == "ok":
        return client
    gone = ("first_audio", "reply_end", "tts_first_chunk", "tts_last_chunk", "llm_first_token", "llm_first_sentence")
    return msgspec.structs.replace(
        client,
        outcome=outcome,
        failure_kind=kind,
        failure_code=code,
        leading_silence_ns=None,
        llm_chunk_gaps_ns=(),
        llm_last_token_perf_ns=None,
        **{f"{name}_perf_ns": None for name in gone},
    )


def _side(turns: list[Turn]) -> TemplateSide:
    spans = [list(_spans_of(turn)) for turn in turns]
    counts = np.array([len(each) for each in spans], np.int64)
    return TemplateSide(
        turns=turns_table(turns),
        spans=spans_table([span for each in spans for span in each]),
        first_span=np.cumsum(counts) - counts,
        span_count=counts,
    )


def _spans_of(turn: Turn) -> Iterator[SpanRow]:
    """The turn's own span and those of its stages."""
    known = [at for name in TIMESTAMPS if (at := timestamp(turn, name)) is not None]
    yield _span(turn, semconv.SPAN_TURN, 0, max(known))
    stages = (
        (semconv.SPAN_ASR, turn.speech_start_perf_ns, turn.asr_final_perf_ns, ()),
        (semconv.SPAN_LLM, turn.asr_final_perf_ns, turn.llm_last_token_perf_ns, (turn.llm_first_token_perf_ns,)),
        (semconv.SPAN_TTS, turn.llm_first_token_perf_ns, turn.tts_last_chunk_perf_ns, ()),
    )
    for name, begin, end, tokens in stages:
        if begin is not None and end is not None:
            events = tuple(SpanEvent(semconv.EVENT_LLM_FIRST_TOKEN, at) for at in tokens if at is not None)
            attributes: dict[str, object] = {
                f"{semconv.CALL_PREFIX}source": turn.source,
                f"{semconv.TURN_PREFIX}turn_index": turn.turn_index,
            }
            if name == semconv.SPAN_LLM:
                attributes |= {semconv.GEN_AI_OPERATION_NAME: "chat", semconv.GEN_AI_REQUEST_MODEL: turn.model}
            yield replace(_span(turn, name, begin, end, attributes), events=events)


def _span(
    turn: Turn | None, name: str, begin_ns: int, end_ns: int, attributes: Mapping[str, object] = _OF_EVERY_SPAN
) -> SpanRow:
    """A span of a turn, or of a call or run where there is none, without ids."""
    service = "voiceprobe" if turn is None or turn.source == "client" else "assistant"
    return SpanRow(
        trace_id="",
        span_id="",
        parent_span_id=None if turn is None else "",
        name=name,
        service=service,
        start_unix_ns=begin_ns,
        end_unix_ns=end_ns,
        attributes=attributes,
        kind="Client" if name == semconv.SPAN_CALL else "Internal",
        scope_name=semconv.SCOPE,
        scope_version="1.0.0",
        resource_attributes=_RESOURCE | {"service.name": service},
    )
