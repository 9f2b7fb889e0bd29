"""Synthetic turns, spans and points, seeded: to fill a store for tests of what reads it.

`exchange` builds one client turn (and its service twin) from the stage lengths given; `synthetic_run` a whole run with
cohorts, cache hits, fallbacks, abandoned, failed and invalid turns; `fill_store` writes them.
"""

import random
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from telemetry.model import semconv
from telemetry.model.generator_health import gauge_metric
from telemetry.model.turn_spans import SpanRow
from telemetry.model.turns import Turn
from telemetry.store.schema import Batch, PointRow
from telemetry.store.writer import StoreWriter

MS = 1_000_000
SECOND = 1_000_000_000
START_UNIX_NS = 1_790_000_000 * SECOND


@dataclass
class Run:
    """Everything a synthetic run sent."""

    turns: list[Turn] = field(default_factory=list)
    spans: list[SpanRow] = field(default_factory=list)
    points: list[PointRow] = field(default_factory=list)

    @property
    def batch(self) -> Batch:
        return Batch(self.turns, self.spans, self.points)


def client_turn(index: int = 0, *, voice_to_voice_ms: float | None = 500.0, **changes: object) -> Turn:
    """One client turn of its own call; `voice_to_voice_ms=None` leaves it without a reply. `changes` are fields."""
    speech_end = 3_000 * MS
    turn = Turn(
        run_id="run-1",
        call_id=f"call-{index}",
        turn_index=0,
        source="client",
        outcome="ok",
        trace_id=f"{index + 1:032x}",
        span_id=f"{index + 1:016x}",
        process_id="worker-1",
        sequence=index,
        started_unix_ns=START_UNIX_NS + index * SECOND,
        started_perf_ns=0,
        speech_start_perf_ns=1_000 * MS,
        speech_end_perf_ns=speech_end,
        speech_end_audio_ns=2_000 * MS,
        response_id=f"resp-{index}",
    )
    if voice_to_voice_ms is None:
        turn = msgspec.structs.replace(turn, outcome="no_reply")
    else:
        turn = msgspec.structs.replace(turn, first_audio_perf_ns=speech_end + round(voice_to_voice_ms * MS))
    return msgspec.structs.replace(turn, **changes)


def exchange(
    index: int,
    *,
    run_id: str = "run-1",
    started_unix_ns: int | None = None,
    endpointing_ms: float = 200.0,
    asr_ms: float = 60.0,
    llm_ms: float = 150.0,
    tts_ms: float = 80.0,
    leading_silence_ms: float = 20.0,
    network_ms: float = 6.0,
    **changes: object,
) -> tuple[Turn, Turn]:
    """The client's and the service's view of one turn; the client hears everything `network_ms` later."""
    begin = 1_000 * MS
    speech_start, speech_end = begin + 300 * MS, begin + 2_300 * MS
    endpoint = speech_end + round(endpointing_ms * MS)
    final = endpoint + round(asr_ms * MS)
    token = final + round(llm_ms * MS)
    chunk = token + round(tts_ms * MS)
    audible = chunk + round(leading_silence_ms * MS)
    gaps = tuple(round((18 + (index * 7 + i * 3) % 11) * MS) for i in range(12))
    last_token = token + sum(gaps)
    shared: dict[str, object] = {
        "run_id": run_id,
        "call_id": f"{run_id}-call-{index // 3}",
        "turn_index": index % 3,
        "outcome": "ok",
        "trace_id": f"{random.Random(f'{run_id}{index // 3}').getrandbits(128):032x}",
        "speech_end_audio_ns": 2_300 * MS,
        "scenario": "default",
        "utterance_id": f"utterance-{index % 40}",
        "domain": ("music", "weather", "home", "calendar")[index % 4],
        "length_class": semconv.LENGTH_CLASSES[index % 3],
        "speech_ns": 2_000 * MS,
        "protocol": "openai-realtime",
        "target": "ws://127.0.0.1:8080/v1/realtime",
        "route": "cloud",
        "model": "scripted",
        "response_id": f"{run_id}-resp-{index}",
        "llm_tokens": 13,
        "llm_input_tokens": 50,
        "llm_cached_tokens": index % 3,
        "llm_chunks": 13,
        "llm_chunk_gaps_ns": gaps,
        "leading_silence_ns": round(leading_silence_ms * MS),
        "reply_audio_ns": 1_800 * MS,
        "injected_endpointing_ns": round(endpointing_ms * MS),
        "injected_llm_ns": round(llm_ms * MS),
        "injected_tts_ns": round(tts_ms * MS),
    }
    at = START_UNIX_NS + index * SECOND if started_unix_ns is None else started_unix_ns

    def seen(delay_ns: int, clock_ns: int, **own: object) -> Turn:
        shift = clock_ns + delay_ns
        fields: dict[str, object] = {
            "started_unix_ns": at,
            "started_perf_ns": clock_ns + begin,
            "speech_start_perf_ns": clock_ns + speech_start,
            "speech_end_perf_ns": clock_ns + speech_end,
            "endpoint_perf_ns": shift + endpoint,
            "asr_first_partial_perf_ns": shift + speech_start + 400 * MS,
            "asr_final_perf_ns": shift + final,
            "llm_first_token_perf_ns": shift + token,
            "llm_first_sentence_perf_ns": shift + token + 90 * MS,
            "llm_last_token_perf_ns": shift + last_token,
            "tts_first_chunk_perf_ns": shift + chunk,
            "tts_last_chunk_perf_ns": shift + chunk + 600 * MS,
            "first_audio_perf_ns": shift + audible,
            "reply_end_perf_ns": shift + audible + 1_700 * MS,
        }
        return msgspec.convert(shared | fields | own | changes, Turn)

    client = seen(
        round(network_ms * MS),
        5 * SECOND,
        source="client",
        span_id=f"{random.Random(f'c{run_id}{index}').getrandbits(64):016x}",
        process_id=f"{run_id}-worker-{index % 2}",
        sequence=index // 2,
        connect_ns=4 * MS,
        underrun_worst_ns=0,
        underrun_total_ns=0,
        underrun_count=0,
        talk_over_ns=0,
        wer_errors=index % 7 // 5,
        wer_reference_words=8,
        wer_reference_characters=8 if index % 3 == 0 else 0,
        onset_preset="rms-10ms",
        frame_lateness_worst_ns=round((0.2 + index % 5 * 0.1) * MS),
        drift_worst_ns=round(0.5 * MS),
        loop_lag_worst_ns=round(0.8 * MS),
        receive_lag_worst_ns=round(0.3 * MS),
        unsent_bytes_at_speech_end=0,
        send_blocked_worst_ns=0,
        rtp_packets_received=150 + index % 7,
        rtp_packets_lost=index % 3,
        rtp_jitter_worst_ns=(1 + index % 4) * MS,
        start_late_ns=round(1.5 * MS),
        receive_stamp="kernel",
        pacer="timerfd",
    )
    service = seen(
        0,
        77 * SECOND,
        source="service",
        span_id=f"{random.Random(f's{run_id}{index}').getrandbits(64):016x}",
        process_id=f"{run_id}-assistant",
        sequence=index,
    )
    return client, service


def _without_reply(client: Turn, outcome: semconv.Outcome, reason: str) -> Turn:
    gone = (
        "first_audio",
        "reply_end",
        "tts_first_chunk",
        "tts_last_chunk",
        "llm_first_token",
        "llm_first_sentence",
        "llm_last_token",
    )
    return msgspec.structs.replace(
        client,
        outcome=outcome,
        outcome_reason=reason,
        llm_chunk_gaps_ns=(),
        leading_silence_ns=None,
        **{f"{name}_perf_ns": None for name in gone},
    )


def synthetic_run(run_id: str = "run-1", turns: int = 240, *, seed: int = 1, ended: bool = True) -> Run:
    """A run of `turns` client turns, one a second: cohorts `control` and `streaming`, a third from the cache, some
    fallbacks, 2 % without a reply, one in 80 invalid, the service's side of each, stage spans and generator health."""
    rng, run = random.Random(seed), Run()
    for index in range(turns):
        streaming, hit = (index // 3) % 2 == 1, rng.random() < 0.33
        changes: dict[str, object] = {
            "cohort": "streaming" if streaming else "control",
            "cache_hit": hit,
            "noise_profile": "babble" if index % 6 == 5 else "none",
        }
        if hit:
            changes |= {"cache_tier": rng.choice(("edge", "central")), "route": "cache"}
        elif rng.random() < 0.05:
            changes |= {"fallback": "rule", "route": "rule"}
        client, service = exchange(
            index,
            run_id=run_id,
            endpointing_ms=rng.gauss(200, 10),
            asr_ms=rng.gauss(60, 8),
            llm_ms=8.0 if hit else rng.lognormvariate(5.0, 0.4) * (0.7 if streaming else 1.0),
            tts_ms=rng.gauss(80, 12),
            network_ms=rng.uniform(4, 9),
            **changes,
        )
        if index % 80 == 40:
            client = msgspec.structs.replace(
                client,
                outcome="invalid",
                outcome_observed="ok",
                invalid_reasons=("frame_lateness",),
                frame_lateness_worst_ns=23 * MS,
            )
        elif index % 50 == 25:
            client = _without_reply(client, "abandoned" if index % 100 == 25 else "timeout", "no reply within 4 s")
        run.turns += [client, service]
        run.spans += stage_spans(client)
    run.spans.append(run_span(run_id, START_UNIX_NS, "start"))
    if ended:
        run.spans.append(run_span(run_id, START_UNIX_NS + turns * SECOND, "end"))
    run.points = generator_points(run_id, turns)
    return run


def stage_spans(turn: Turn) -> list[SpanRow]:
    """The stages of a turn as spans below it, for a waterfall."""

    def wall(perf_ns: int) -> int:
        return turn.started_unix_ns + perf_ns - turn.started_perf_ns

    stages = (
        (semconv.SPAN_ASR, turn.speech_start_perf_ns, turn.asr_final_perf_ns),
        (semconv.SPAN_LLM, turn.asr_final_perf_ns, turn.llm_last_token_perf_ns),
        (semconv.SPAN_TTS, turn.llm_first_token_perf_ns, turn.tts_last_chunk_perf_ns),
    )
    return [
        SpanRow(
            trace_id=turn.trace_id,
            span_id=f"{int(turn.span_id, 16) ^ place:016x}",
            parent_span_id=turn.span_id,
            name=name,
            service="voiceprobe",
            start_unix_ns=wall(begin),
            end_unix_ns=wall(end),
            attributes={"voice.call.call_id": turn.call_id},
        )
        for place, (name, begin, end) in enumerate(stages, start=1)
        if begin is not None and end is not None
    ]


def run_span(run_id: str, at_unix_ns: int, phase: str) -> SpanRow:
    """Make the span with which a generator declares its run."""
    return SpanRow(
        trace_id=f"{random.Random(run_id).getrandbits(128):032x}",
        span_id=f"{random.Random(run_id + phase).getrandbits(64):016x}",
        parent_span_id=None,
        name=semconv.SPAN_RUN,
        service="voiceprobe",
        start_unix_ns=at_unix_ns,
        end_unix_ns=at_unix_ns,
        attributes={
            "voice.run.run_id": run_id,
            "voice.run.phase": phase,
            "voice.run.users": "8",
            "voice.run.target": "ws://127.0.0.1:8080/v1/realtime",
            "voice.run.protocol": "openai-realtime",
        },
    )


def generator_points(run_id: str, turns: int) -> list[PointRow]:
    """Health of two workers, once a second over the run."""
    points: list[PointRow] = []
    for second in range(turns + 1):
        for worker in range(2):
            values = {
                gauge_metric("cpu_ratio"): 0.2 + second % 7 * 0.02,
                gauge_metric("loop_lag_worst_ns"): 0.9 * MS,
                gauge_metric("frame_lateness_worst_ns"): 0.6 * MS,
                gauge_metric("calls_in_flight"): float(1 + second % 4),
                gauge_metric("gc_pause_worst_ns"): 0.4 * MS,
                gauge_metric("clock_offset_drift_ns"): -1000.0 * second,
                gauge_metric("unsent_worst_bytes"): 0.0,
                gauge_metric("frames_held_up"): 0.0,
                semconv.METRIC_TURNS_EMITTED: float((second + 1 - worker) // 2),
            }
            points += [
                PointRow(
                    name=name,
                    unix_ns=START_UNIX_NS + second * SECOND,
                    value=value,
                    attributes={"run_id": run_id, "process_id": f"{run_id}-worker-{worker}"},
                    service="voiceprobe",
                )
                for name, value in values.items()
            ]
    return points


def fill_store(directory: Path, *runs: Run, keep_text: bool = False) -> Path:
    """Write runs into a store, each as one append; gives the directory."""
    with StoreWriter(directory, keep_text=keep_text) as writer:
        for run in runs:
            writer.append(run.batch)
    return directory


def mixed_turns(seed: int, turns: int) -> list[Turn]:
    """A run in three phases with turns that differ in all that figures tell apart."""
    dice, other, limits = random.Random(seed), random.Random(seed + 1_000), random.Random(seed + 2_000)
    made: list[Turn] = []
    for place, turn in enumerate(synthetic_run(turns=turns, seed=seed).turns):
        phase = ("up", "steady", None)[min(2, place * 5 // (2 * turns))]
        changes: dict[str, object] = {
            "phase": phase,
            "phase_kind": {"up": "ramp", "steady": "hold"}.get(phase or ""),
            "speech_end_uncertainty_ns": dice.choice((None, 0, 15 * MS, 40 * MS)) if dice.random() < 0.3 else 5 * MS,
            "speech_start_uncertainty_ns": dice.choice((None, 3 * MS)),
        }
        if turn.source == "client":
            changes["noise_profile"] = other.choice(("clean", "street", "a\x1fb", None))
            changes["length_class"] = other.choice(("short", "long"))
            changes["channel_profile"] = other.choice(("g711", "", None))
            changes["route"] = other.choice(("cloud", "cache", None))
        if dice.random() < 0.15:
            changes["outcome"] = dice.choice(("interrupted", "cut", "error", "no_reply"))
            changes["hangup_perf_ns"] = turn.started_perf_ns + dice.choice((2_400, 2_900, 3_400)) * MS
            changes |= {"failure_kind": dice.choice((None, "tcp")), "failure_code": dice.choice(("503", None))}
            changes |= {"outcome_reason": f"reason {place}", "cut_by": dice.choice((None, "stop"))}
        elif other.random() < 0.1:
            changes["outcome_reason"] = f"cut short ({other.choice(('content_filter', 'length'))})"
        if dice.random() < 0.1:
            changes |= {"first_audio_perf_ns": None, "asr_final_perf_ns": None}
        if dice.random() < 0.05:
            changes |= {"withheld_metrics": ("voice_to_voice",), "withheld_reasons": ("not on this wire",)}
        if dice.random() < 0.05:
            changes |= {"cohort": None, "turn_kind": "silence", "silence_ns": 3 * MS, "reprompted": True}
        if dice.random() < 0.05:
            changes |= {"retry_after_ns": 5 * MS, "retry_wait_ns": 6 * MS, "unknown_events": 2}
            changes |= {"unknown_event_names": ("b", "a"), "connect_ns": None, "barge_in_at_ns": MS}
        if turn.source == "service" and dice.random() < 0.1:
            continue
        if turn.source == "service" and dice.random() < 0.1:
            changes |= {"response_id": None}
        if turn.source == "client" and dice.random() < 0.05:
            changes |= {"response_id": None}
        made.append(_prevented_or(msgspec.structs.replace(turn, **changes), limits))
    dice.shuffle(made)
    return made


def _prevented_or(turn: Turn, dice: random.Random) -> Turn:
    """Return some turns of callers as the load generator's own limits prevented them, and the others as they are."""
    if turn.source != "client" or dice.random() >= 0.05:
        return turn
    cause = {"failure_kind": "generator", "failure_code": dice.choice(("EMFILE", "EADDRNOTAVAIL"))}
    reason = {"outcome_reason": f"limit {turn.span_id}", "invalid_reasons": ("out of open files",)}
    return msgspec.structs.replace(turn, outcome="invalid", outcome_observed="error", **cause, **reason)
