"""The client turns of three runs, from a seed: cohorts, phases, outcomes, caches, profiles, bounds and evidence."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from telemetry.model import semconv
from telemetry.model.turns import Turn

MS: Final = 1_000_000
SECOND: Final = 1_000_000_000
MINUTE: Final = 60 * SECOND
MORNING_UNIX_NS: Final = 1_794_391_200 * SECOND  # 2026-11-11 10:00 UTC
TURNS_OF_A_CALL: Final = 3
_TURN_EVERY_NS: Final = 9 * SECOND
# Of the turns that end otherwise than answered: what of it is recorded, and how often.
_ENDS: Final[tuple[tuple[dict[str, object], float], ...]] = (
    ({"outcome": "no_reply", "failure_kind": "no_reply", "failure_code": "empty"}, 0.015),
    ({"outcome": "timeout", "failure_kind": "timeout", "failure_code": "reply_not_heard"}, 0.015),
    ({"outcome": "abandoned", "failure_kind": "abandoned", "outcome_reason": "patience of 4 s"}, 0.012),
    ({"outcome": "error", "failure_kind": "http_status", "failure_code": "503", "retry_after_ns": 2 * SECOND}, 0.012),
    ({"outcome": "error", "failure_kind": "endpoint_error", "failure_code": "overloaded"}, 0.008),
    ({"outcome": "interrupted", "failure_kind": "interrupted"}, 0.008),
    ({"outcome": "cut", "cut_by": "end of the run"}, 0.012),
)
_INVALID: Final[tuple[tuple[dict[str, object], float], ...]] = (
    ({"invalid_reasons": ("frame lateness",), "frame_lateness_worst_ns": 83 * MS}, 0.012),
    ({"invalid_reasons": ("drift",), "drift_worst_ns": 27 * MS}, 0.006),
    ({"invalid_reasons": ("frame lateness", "clock step"), "frame_lateness_worst_ns": 71 * MS}, 0.004),
    ({"invalid_reasons": ("generator",), "failure_kind": "generator", "failure_code": "EMFILE"}, 0.004),
)
_OF_A_REPLY: Final = (
    *("llm_first_token", "llm_first_sentence", "llm_last_token"),
    *("tts_first_chunk", "tts_last_chunk", "first_audio", "reply_end"),
)
_EARLIER: Final = tuple(name for name in Turn.__struct_fields__ if name.endswith("_earlier_ns"))


@dataclass(frozen=True, slots=True)
class CallerRun:
    """A run of callers: `phases` are pairs of a name and its kind, each for an equal share of the calls."""

    run_id: str
    calls: int
    begins_unix_ns: int
    call_every_ns: int
    cohorts: tuple[str, ...]
    phases: tuple[tuple[str, semconv.PhaseKind], ...]
    workers: int
    protocol: str
    target: str
    extra: bool = False  # with users, RTP and word errors in other units than words

    @property
    def ends_unix_ns(self) -> int:
        """When its last call is over."""
        return self.begins_unix_ns + self.calls * self.call_every_ns + 30 * SECOND


RUNS: Final = (
    CallerRun(
        "morning", 160, MORNING_UNIX_NS, 5 * SECOND, ("control", "streaming"),
        (("warm-up", "ramp"), ("steady", "hold"), ("peak", "spike"), ("after", "recovery")),
        2, "openai-realtime", "ws://assistant.example.com/v1/realtime",
    ),
    CallerRun(
        "evening", 100, MORNING_UNIX_NS + 480 * MINUTE, 3 * SECOND, ("control",),
        (("ramp-up", "ramp"), ("long", "soak")),
        3, "twilio", "wss://phone.example.com/media",
    ),
    CallerRun(
        "canary", 84, MORNING_UNIX_NS + 540 * MINUTE, 4 * SECOND, ("stable", "stable", "stable", "fast"),
        (("steady", "hold"),), 1, "webrtc", "https://assistant.example.com/offer", extra=True,
    ),
)  # fmt: skip


def turns_of(run: CallerRun) -> list[list[Turn]]:
    """The client turns of each call of a run."""
    rng = random.Random(run.run_id)
    sequences = [0] * run.workers
    calls: list[list[Turn]] = []
    for call in range(run.calls):
        worker = call % run.workers
        turns = [_numbered(turn, run, worker, sequences) for turn in _call(rng, run, call)]
        calls.append(turns)
    return calls


def _numbered(turn: Turn, run: CallerRun, worker: int, sequences: list[int]) -> Turn:
    number = sequences[worker]
    # Every hundredth number is of a turn that never arrives.
    sequences[worker] += 2 if number % 100 == 57 else 1
    return msgspec.structs.replace(turn, process_id=f"{run.run_id}-worker-{worker}", sequence=number)


def _call(rng: random.Random, run: CallerRun, call: int) -> Iterator[Turn]:
    phase, kind = run.phases[call * len(run.phases) // run.calls]
    noise, snr_db = rng.choice((("clean", None), ("babble", 10.0), ("babble", 5.0), ("street", 15.0)))
    shared: dict[str, object] = {
        "run_id": run.run_id,
        "call_id": f"{run.run_id}-call-{call}",
        "trace_id": f"{rng.getrandbits(128):032x}",
        "source": "client",
        "cohort": run.cohorts[call % len(run.cohorts)],
        "phase": phase,
        "phase_kind": kind,
        "noise_profile": noise,
        "snr_asked_db": snr_db,
        "snr_obtained_db": None if snr_db is None else snr_db + round(rng.gauss(0, 0.2), 3),
        "channel_profile": rng.choice(("clean", "g711")),
        "audio_variant": rng.randrange(4),
        "scenario": "default",
        "conversation": rng.choice(("music", "bank")),
        "protocol": run.protocol,
        "target": run.target,
        "region": rng.choice(("eu-west", "us-east")),
        "model": rng.choice(("large", "small")),
        "start_late_ns": call % 5 * MS,
    }
    if run.extra:
        shared["user_id"] = f"user-{rng.randrange(40)}" if rng.random() < 0.9 else None
    begins = run.begins_unix_ns + call * run.call_every_ns
    for index in range(TURNS_OF_A_CALL):
        at_unix_ns = begins + index * _TURN_EVERY_NS + rng.randrange(SECOND)
        turn = _turn(rng, shared | {"turn_index": index, "started_unix_ns": at_unix_ns}, run)
        yield turn
        if turn.outcome in ("error", "cut", "abandoned"):
            return


def _turn(rng: random.Random, shared: dict[str, object], run: CallerRun) -> Turn:
    fields = shared | _spoken(rng) | _answer(rng, slower_ms=35.0 if shared["phase_kind"] == "spike" else 0.0)
    fields |= _evidence(rng) | _behavior(rng)
    if shared["turn_index"] == 0:
        fields |= {"connect_ns": round(rng.uniform(8, 60) * MS), "connect_earlier_ns": 90_000}
        fields |= {"retry_wait_ns": 2 * SECOND} if rng.random() < 0.05 else {}
        if rng.random() < 0.03:
            return without_reply(
                msgspec.convert(_on_the_turn_clock(fields | {"connect_ns": None}), Turn),
                outcome="error",
                failure_kind="tcp",
                failure_code="ECONNREFUSED",
                outcome_reason="connection refused",
            )
    if run.protocol == "twilio":
        fields |= {"withheld_metrics": ("asr_partial_latency",), "withheld_reasons": ("partials come at a fixed rate",)}
        fields |= {"asr_first_partial_perf_ns": None, "llm_tokens": None}
    if run.extra:
        fields |= {"rtp_packets_received": rng.randrange(140, 190), "rtp_packets_lost": rng.randrange(4)}
        fields |= {"rtp_jitter_worst_ns": rng.randrange(1, 9 * MS), "wer_reference_characters": rng.choice((0, 8))}
    turn = msgspec.convert(_on_the_turn_clock(fields), Turn)
    return without_reply(turn) if turn.turn_kind == "silence" else _ended(rng, turn)


def _on_the_turn_clock(fields: dict[str, Any]) -> dict[str, object]:
    """The fields with the moments of the speech and of the answer, on the monotonic clock of the turn's process."""
    after_ms: dict[str, float] = fields.pop("after_ms")
    speech_start = fields["started_perf_ns"] + 300 * MS
    speech_end = speech_start + fields["speech_ns"]
    moments = {f"{name}_perf_ns": speech_end + round(ms * MS) for name, ms in after_ms.items()}
    moments |= {"speech_start_perf_ns": speech_start, "speech_end_perf_ns": speech_end}
    moments |= {"asr_first_partial_perf_ns": speech_start + fields["speech_ns"] // 3 + 120 * MS}
    return moments | {"speech_end_audio_ns": 300 * MS + fields["speech_ns"]} | fields


def _spoken(rng: random.Random) -> dict[str, object]:
    utterance = rng.randrange(40)
    speech_ns = rng.randrange(900 * MS, 7_000 * MS)
    return {
        "span_id": f"{rng.getrandbits(64):016x}",
        "outcome": "ok",
        "turn_kind": "question",
        "started_perf_ns": rng.randrange(10**12, 10**13),
        "utterance_id": f"utterance-{utterance}",
        "speaker": f"speaker-{utterance % 7}",
        "domain": ("music", "weather", "home", "calendar")[utterance % 4],
        "length_class": "short" if speech_ns < 2 * SECOND else "medium" if speech_ns <= 6 * SECOND else "long",
        "speech_ns": speech_ns,
        "speech_level_dbov": round(rng.gauss(-26, 2), 2),
        "response_id": f"resp-{rng.getrandbits(48):012x}" if rng.random() < 0.8 else None,
        "expected_intent": f"intent-{utterance % 5}",
        "intent": f"intent-{utterance % 5 if rng.random() < 0.9 else 9}" if rng.random() < 0.7 else None,
        "transcript_pii": "turn the lights on" if rng.random() < 0.1 else None,
    }


def _answer(rng: random.Random, slower_ms: float) -> dict[str, object]:
    """Draw an answer, its moments in ms from the end of the speech."""
    hit = rng.random() < 0.3
    route = "cache" if hit else rng.choice(("local", "cloud", "cloud"))
    fields: dict[str, object] = {"cache_hit": hit if rng.random() < 0.9 else None}
    if hit:
        fields["cache_tier"] = rng.choice(semconv.CACHE_TIERS)
    elif rng.random() < 0.08:
        fields["fallback"], route = rng.choice(semconv.FALLBACKS), "rule"
    fields["route"] = route
    endpoint = rng.gauss(210, 25)
    final = endpoint + rng.gauss(70, 14)
    token = final + (9.0 + rng.random() if hit else rng.lognormvariate(5.0, 0.5)) + slower_ms
    chunk = token + max(5.0, rng.gauss(90, 20))
    silence = abs(rng.gauss(20, 8))
    gaps = tuple(rng.randrange(9 * MS, 40 * MS) for _ in range(rng.randrange(4, 9)))
    after_ms = {
        "endpoint": endpoint,
        "asr_final": final,
        "llm_first_token": token,
        "llm_first_sentence": token + rng.uniform(40, 120),
        "llm_last_token": token + sum(gaps) / MS,
        "tts_first_chunk": chunk,
        "tts_last_chunk": chunk + rng.uniform(300, 900),
        "first_audio": chunk + silence,
        "reply_end": chunk + silence + rng.uniform(900, 2_500),
    }
    tokens = len(gaps) + 1
    return fields | {
        "after_ms": after_ms,
        "leading_silence_ns": round(silence * MS),
        "llm_chunk_gaps_ns": gaps,
        "llm_chunks": tokens,
        "llm_tokens": tokens + rng.randrange(3),
        "llm_input_tokens": rng.randrange(40, 400),
        "llm_cached_tokens": rng.randrange(40),
        "reply_audio_ns": rng.randrange(800 * MS, 2_400 * MS),
        "underrun_worst_ns": 0 if rng.random() < 0.85 else rng.randrange(160 * MS),
        "underrun_total_ns": 0 if rng.random() < 0.85 else rng.randrange(200 * MS, 300 * MS),
        "underrun_count": rng.randrange(3),
        "talk_over_ns": rng.choice((0, 0, rng.randrange(300 * MS))),
        "endpoint_headers": ("llm.server",),
        "endpoint_header_values": (rng.choice(("a", "b")),),
    }


def _evidence(rng: random.Random) -> dict[str, object]:
    fields: dict[str, object] = {name: rng.randrange(400_000) for name in _EARLIER if not name.startswith("connect")}
    fields |= {
        "speech_start_later_ns": rng.randrange(90_000),
        "speech_end_later_ns": rng.randrange(90_000),
        "speech_start_uncertainty_ns": rng.choice((0, 12 * MS)),
        "speech_end_uncertainty_ns": rng.choice((0, 0, 25 * MS, None)),
        "stamp_error_ns": 2_000,
        "held_up_ns": rng.choice((0, rng.randrange(30 * MS))),
        "held_up_speaking_ns": rng.choice((0, rng.randrange(10 * MS))),
        "frame_lateness_worst_ns": rng.randrange(4 * MS),
        "drift_worst_ns": rng.randrange(2 * MS),
        "loop_lag_worst_ns": rng.randrange(3 * MS),
        "receive_lag_worst_ns": rng.randrange(1 * MS),
        "arrival_uncertainty_worst_ns": rng.randrange(1 * MS),
        "unsent_bytes_at_speech_end": rng.choice((0, 0, 640)),
        "send_blocked_worst_ns": rng.choice((0, rng.randrange(50 * MS))),
        "endpoint_did_not_read": True if rng.random() < 0.02 else None,
        "wer_errors": rng.choice((0, 0, 0, 1, 2)),
        "wer_reference_words": rng.randrange(4, 12),
        "onset_preset": "rms-10ms",
        "receive_stamp": "kernel",
        "pacer": "timerfd",
        "unknown_events": rng.choice((None, 0, 1)),
        "unknown_event_names": (),
        "duplicate_events": rng.choice((None, 0, 2)),
        "injected_endpointing_ns": rng.choice((None, 200 * MS)),
    }
    if rng.random() < 0.03:
        fields |= {"contradicted_metrics": ("llm_ttft",), "contradicted_causes": ("out_of_order",)}
    if rng.random() < 0.05:
        fields |= {"service_latency_reports": 1, "service_reported": ("ttft",), "service_reported_ns": (111 * MS,)}
    if rng.random() < 0.03:
        fields["outcome_reason"] = rng.choice(("the endpoint spoke first", "an item was truncated"))
    return fields


def _behavior(rng: random.Random) -> dict[str, object]:
    fields: dict[str, object] = {"patience_ns": rng.choice((None, 4 * SECOND)), "cut_short": rng.choice((None, True))}
    which = rng.random()
    if which < 0.06:
        end = rng.choice(("stopped", "ended_by_itself", "never_stopped", "cannot_tell"))
        fields |= {"turn_kind": "barge_in", "barge_in_end": end, "barge_in_at_ns": rng.randrange(SECOND)}
        fields |= {"barge_in_recovered": rng.random() < 0.7}
        fields |= {"barge_in_stop_ns": rng.randrange(60 * MS, 700 * MS)} if end == "stopped" else {}
    elif which < 0.08:
        fields |= {"turn_kind": "barge_in", "barge_in_reason": "the reply was over"}
    elif which < 0.12:
        fields |= {"turn_kind": "silence", "silence_ns": 5 * SECOND, "reprompted": rng.random() < 0.5}
    elif which < 0.18:
        fields["backchannel_stopped"] = rng.random() < 0.3
    return fields


def _ended(rng: random.Random, turn: Turn) -> Turn:
    """The turn as it ended, which is answered for most."""
    which = rng.random()
    for changes, share in _ENDS:
        if (which := which - share) < 0:
            return without_reply(turn, **changes)
    for changes, share in _INVALID:
        if (which := which - share) < 0:
            return msgspec.structs.replace(turn, outcome="invalid", outcome_observed="ok", **changes)
    if which < 0.02:  # answered, and one stage was never shown
        return msgspec.structs.replace(turn, asr_final_perf_ns=None)
    return turn


def without_reply(turn: Turn, **changes: object) -> Turn:
    """The turn without anything of a reply."""
    hung_up = turn.started_perf_ns + 11 * SECOND if changes.get("outcome") in ("abandoned", "cut") else None
    return msgspec.structs.replace(
        turn,
        leading_silence_ns=None,
        llm_chunk_gaps_ns=(),
        llm_tokens=None,
        llm_chunks=None,
        reply_audio_ns=None,
        hangup_perf_ns=hung_up,
        **{f"{name}_perf_ns": None for name in _OF_A_REPLY},
        **changes,
    )
