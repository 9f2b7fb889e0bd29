"""Stores for the dashboard's tests, filled through the real writer with seeded turns of a made-up service."""

import random
import zlib
from dataclasses import dataclass
from pathlib import Path

from telemetry.model import semconv
from telemetry.model.generator_health import gauge_metric
from telemetry.model.turn_spans import SpanEvent, SpanRow
from telemetry.model.turns import Turn
from telemetry.store.schema import Batch, PointRow
from telemetry.store.writer import StoreWriter

MS = 1_000_000
S = 1_000_000_000


@dataclass(frozen=True)
class Scene:
    """Content for a store. Turns end at `newest_unix_ns`, evenly spread before it."""

    turns: int
    newest_unix_ns: int
    run_id: str = "run-4c1d"
    spacing_ns: int = 1 * S
    cohorts: tuple[str, ...] = ("A", "B")
    service: bool = True
    ended: bool = False
    seed: int = 7
    invalid_share: float = 0.004
    declared: tuple[tuple[str, str], ...] = (("corpus", "recorded, 62 utterances"), ("users", "12"))

    @property
    def mark(self) -> int:
        """Tells the ids of one run from those of another."""
        return zlib.crc32(self.run_id.encode())


def client_turn(rng: random.Random, scene: Scene, i: int) -> Turn:
    """One turn as the caller heard it, from seeded delays."""
    spoken = round(rng.uniform(1.1, 7.5) * S)
    cohort = scene.cohorts[i // 4 % len(scene.cohorts)] if scene.cohorts else None
    slower = 60 * MS if cohort == "B" else 0
    cached = rng.random() < 0.31
    endpointing = round(rng.gauss(210, 9) * MS)
    asr = round(rng.gauss(95, 18) * MS)
    llm = round((25 if cached else rng.lognormvariate(5.05, 0.42)) * MS) + slower
    tts = round(rng.gauss(92, 14) * MS)
    silence = round(rng.uniform(8, 30) * MS)
    fallback = "rule" if llm > 480 * MS else None
    began = 1_000 * S + i * scene.spacing_ns
    end = began + 300 * MS + spoken
    first_audio = end + endpointing + asr + llm + tts + silence + round(rng.uniform(1, 4) * MS)
    draw = rng.random()
    outcome: semconv.Outcome = "ok"
    if draw < scene.invalid_share:
        outcome = "invalid"
    elif draw < 0.012:
        outcome = "abandoned"
    elif draw < 0.016:
        outcome = "no_reply"
    heard = outcome in ("ok", "invalid")
    started_unix_ns = scene.newest_unix_ns - (scene.turns - i) * scene.spacing_ns
    return Turn(
        run_id=scene.run_id,
        call_id=f"call-{i // 4}",
        turn_index=i % 4,
        source="client",
        outcome=outcome,
        outcome_observed="ok" if outcome == "invalid" else None,
        outcome_reason="patience ran out after 2.4 s" if outcome == "abandoned" else None,
        trace_id=f"{scene.mark:08x}{i // 4 + 1:024x}",
        span_id=f"{scene.mark:08x}{i + 1:08x}",
        process_id="worker-1",
        sequence=i,
        started_unix_ns=started_unix_ns,
        started_perf_ns=began,
        speech_start_perf_ns=began + 300 * MS,
        speech_end_perf_ns=end,
        endpoint_perf_ns=end + endpointing + 1 * MS,
        asr_first_partial_perf_ns=began + 700 * MS,
        asr_final_perf_ns=end + endpointing + asr + 1 * MS,
        llm_first_token_perf_ns=end + endpointing + asr + llm + 1 * MS if heard else None,
        llm_first_sentence_perf_ns=end + endpointing + asr + llm + 60 * MS if heard else None,
        llm_last_token_perf_ns=end + endpointing + asr + llm + 400 * MS if heard else None,
        tts_first_chunk_perf_ns=first_audio - silence if heard else None,
        first_audio_perf_ns=first_audio if heard else None,
        tts_last_chunk_perf_ns=first_audio + 900 * MS if heard else None,
        reply_end_perf_ns=first_audio + 2_100 * MS if heard else None,
        hangup_perf_ns=None if heard else end + 2_400 * MS,
        speech_end_audio_ns=300 * MS + spoken,
        leading_silence_ns=silence if heard else None,
        underrun_worst_ns=0 if heard else None,
        underrun_count=0 if heard else None,
        llm_chunks=12 if heard else None,
        llm_chunk_gaps_ns=(30 * MS,) * 11 if heard else (),
        scenario="ask",
        utterance_id=f"utt-{i % 62:02d}",
        speaker="f1",
        domain="home",
        length_class="short" if spoken < 2 * S else "medium" if spoken < 6 * S else "long",
        speech_ns=spoken,
        noise_profile="babble" if i % 3 == 0 else "clean",
        snr_asked_db=10.0 if i % 3 == 0 else None,
        snr_obtained_db=10.1 if i % 3 == 0 else None,
        protocol="openai-realtime",
        target="ws://127.0.0.1:8080/v1/realtime",
        cohort=cohort,
        route="cache" if cached else "rule" if fallback else "cloud",
        cache_tier=("device", "edge", "central")[i % 3] if cached else None,
        cache_hit=cached,
        fallback=fallback,
        model="responder-1",
        response_id=f"resp-{i}",
        onset_preset="rms-10ms",
        withheld_metrics=("asr_partial_latency",),
        withheld_reasons=("partials come on a fixed cadence",),
        frame_lateness_worst_ns=round(rng.uniform(0.05, 0.9) * MS) if outcome != "invalid" else 14 * MS,
        drift_worst_ns=round(rng.uniform(0.05, 0.6) * MS),
        unsent_bytes_at_speech_end=0,
        send_blocked_worst_ns=0,
        loop_lag_worst_ns=round(rng.uniform(0.1, 1.9) * MS),
        receive_lag_worst_ns=round(rng.uniform(0.02, 0.4) * MS),
        start_late_ns=0,
        receive_stamp="kernel",
        pacer="timerfd",
        invalid_reasons=("frame lateness",) if outcome == "invalid" else (),
    )


def service_turn(client: Turn, sequence: int) -> Turn:
    """The same turn as the service reports it of itself: on its own clock, 1 ms of network on either side."""
    shift = 77_000 * S
    points = {
        name: moment + shift - 1 * MS
        for name in (
            "endpoint_perf_ns",
            "asr_final_perf_ns",
            "llm_first_token_perf_ns",
            "llm_first_sentence_perf_ns",
            "llm_last_token_perf_ns",
            "tts_first_chunk_perf_ns",
            "first_audio_perf_ns",
        )
        if (moment := getattr(client, name)) is not None
    }
    assert client.speech_end_perf_ns is not None
    return Turn(
        run_id=client.run_id,
        call_id=client.call_id,
        turn_index=client.turn_index,
        source="service",
        outcome="ok" if client.outcome == "invalid" else client.outcome,
        trace_id=client.trace_id,
        span_id=client.span_id[::-1],
        process_id="assistant-1",
        sequence=sequence,
        started_unix_ns=client.started_unix_ns,
        started_perf_ns=client.started_perf_ns + shift,
        speech_end_perf_ns=client.speech_end_perf_ns + shift + 21 * MS,
        speech_end_audio_ns=(client.speech_end_audio_ns or 0) + 20 * MS,
        response_id=client.response_id,
        cohort=client.cohort,
        **points,
    )


def call_span(turn: Turn) -> list[SpanRow]:
    """The speech recognition span of a turn with its partial transcripts as events."""
    assert turn.speech_start_perf_ns is not None
    assert turn.asr_final_perf_ns is not None
    offset = turn.started_unix_ns - turn.started_perf_ns
    start = turn.speech_start_perf_ns + offset
    return [
        SpanRow(
            trace_id=turn.trace_id,
            span_id=f"{turn.span_id[8:]}{turn.span_id[:8]}",
            parent_span_id=turn.span_id,
            name=semconv.SPAN_ASR,
            service="voiceprobe-generator",
            start_unix_ns=start,
            end_unix_ns=turn.asr_final_perf_ns + offset,
            attributes={},
            events=tuple(SpanEvent(semconv.EVENT_ASR_PARTIAL, start + k * 300 * MS) for k in range(1, 4)),
        )
    ]


def run_span(scene: Scene, phase: str) -> SpanRow:
    """Make the generator's declaration of its run, sent at the start and at the end."""
    first = scene.newest_unix_ns - (scene.turns + 1) * scene.spacing_ns
    return SpanRow(
        trace_id=f"{scene.mark:08x}" * 4,
        span_id=f"{scene.mark:08x}{phase:0>8}",
        parent_span_id=None,
        name=semconv.SPAN_RUN,
        service="voiceprobe-generator",
        start_unix_ns=first,
        end_unix_ns=scene.newest_unix_ns if phase == "end" else first,
        attributes={
            semconv.RUN_PREFIX + "run_id": scene.run_id,
            semconv.RUN_PREFIX + "phase": phase,
            semconv.RUN_PREFIX + "process_id": "worker-1",
            semconv.RUN_PREFIX + "target": "ws://127.0.0.1:8080/v1/realtime",
            semconv.RUN_PREFIX + "protocol": "openai-realtime",
            **{semconv.RUN_PREFIX + name: value for name, value in scene.declared},
        },
    )


def health(scene: Scene) -> list[PointRow]:
    """A generator's own gauges, once every five turns."""
    points: list[PointRow] = []
    for i in range(0, scene.turns, 5):
        moment = scene.newest_unix_ns - (scene.turns - i) * scene.spacing_ns
        attributes: dict[str, object] = {"run_id": scene.run_id, "process_id": "worker-1"}
        values = {
            gauge_metric("cpu_ratio"): 0.19,
            gauge_metric("loop_lag_worst_ns"): 1.4 * MS,
            gauge_metric("calls_in_flight"): float(min(12, 2 + i // 20)),
            semconv.METRIC_TURNS_EMITTED: float(i),
        }
        points += [PointRow(name, moment, value, attributes, "voiceprobe-generator") for name, value in values.items()]
    return points


def turns_of(scene: Scene) -> list[Turn]:
    """The client turns of a scene."""
    rng = random.Random(scene.seed)
    return [client_turn(rng, scene, i) for i in range(scene.turns)]


def fill(directory: Path, scene: Scene) -> list[Turn]:
    """Write a scene into a store; gives the client turns it wrote."""
    clients = turns_of(scene)
    answered = [turn for turn in clients if turn.outcome in ("ok", "invalid")] if scene.service else []
    services = [service_turn(turn, sequence) for sequence, turn in enumerate(answered)]
    spans = [run_span(scene, "start"), *([run_span(scene, "end")] if scene.ended else [])]
    for turn in clients[-400:]:
        spans += call_span(turn)
    with StoreWriter(directory) as writer:
        step = max(1, len(clients) // 3)
        for begin in range(0, len(clients), step):
            writer.append(Batch(turns=clients[begin : begin + step]))
        writer.append(Batch(turns=services, spans=spans, points=health(scene)))
    return clients
