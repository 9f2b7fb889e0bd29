"""The record of one turn while it is in progress, and its output as response metadata and as a span of the service."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import orjson

from loadtest.targets.assistant.clock import Clock
from loadtest.targets.assistant.cohorts import Assignment
from loadtest.targets.assistant.endpointing import SpeechStopped
from loadtest.targets.assistant.llm.begun import SpeculativeStart
from telemetry.model import semconv
from telemetry.model.turns import Turn

if TYPE_CHECKING:  # without an OTLP endpoint, not loading the SDK makes the assistant start faster
    from telemetry.export.instrumentation import CallTrace
    from telemetry.export.sdk import Telemetry

META_INJECTED: Final = "voice.injected"
META_WORK: Final = "voice.work"
META_SPEECH_END: Final = "speech_end_audio_ns"
_MAX_PAIRS: Final = 16
_MAX_KEY_CHARS: Final = 64
_MAX_VALUE_CHARS: Final = 512


@dataclass(slots=True)
class TurnRecord:
    """One turn. Times are ns of the assistant's monotonic clock; None is unknown. `injected_*` are drawn delays."""

    turn_index: int
    started_perf_ns: int
    started_unix_ns: int
    speech_start_perf_ns: int | None = None
    speech_end_perf_ns: int | None = None
    speech_end_audio_ns: int | None = None
    endpoint_perf_ns: int | None = None
    asr_first_partial_perf_ns: int | None = None
    asr_final_perf_ns: int | None = None
    llm_first_token_perf_ns: int | None = None
    llm_first_sentence_perf_ns: int | None = None
    llm_last_token_perf_ns: int | None = None
    tts_first_chunk_perf_ns: int | None = None
    tts_last_chunk_perf_ns: int | None = None
    first_audio_perf_ns: int | None = None
    reply_end_perf_ns: int | None = None
    reply_audio_ns: int | None = None
    leading_silence_ns: int | None = None
    hop_ns: int | None = None  # declared cost of the calls between hosts
    start: SpeculativeStart | None = None  # what was begun on partial transcripts
    work: dict[str, float] = field(default_factory=dict[str, float])  # what the answer took, by name
    tokens: int = 0
    token_gaps_ns: list[int] = field(default_factory=list[int])

    injected_endpointing_ns: int | None = None
    injected_asr_ns: int | None = None
    injected_llm_ttft_ns: int | None = None
    injected_llm_ns: int | None = None
    injected_tts_ns: int | None = None
    injected_leading_silence_ns: int | None = None
    first_chunk_due_perf_ns: int | None = None

    transcript: str | None = None
    cohort: str | None = None
    route: semconv.Route | None = None
    cache_tier: semconv.CacheTier | None = None
    cache_hit: bool | None = None
    fallback: semconv.Fallback | None = None
    model: str | None = None
    intent: str | None = None
    fault: str | None = None
    item_id: str | None = None  # of the caller's utterance
    response_id: str | None = None
    outcome_reason: str | None = None

    def mark_speech(self, stopped: SpeechStopped, first_partial_perf_ns: int | None) -> None:
        """Record the bounds of the caller's speech."""
        self.speech_start_perf_ns = stopped.speech_start_perf_ns
        self.speech_end_perf_ns = stopped.speech_end_perf_ns
        self.speech_end_audio_ns = stopped.speech_end_audio_ns
        self.asr_first_partial_perf_ns = first_partial_perf_ns

    def token_sent(self, now_perf_ns: int) -> None:
        """Record that a text delta was sent."""
        if self.llm_last_token_perf_ns is not None:
            self.token_gaps_ns.append(now_perf_ns - self.llm_last_token_perf_ns)
        else:
            self.llm_first_token_perf_ns = now_perf_ns
        self.llm_last_token_perf_ns = now_perf_ns
        self.tokens += 1

    @property
    def planned_voice_to_voice_ns(self) -> int | None:
        """The sum of the injected delays; None unless every stage is scripted."""
        parts = (
            self.injected_endpointing_ns,
            self.injected_asr_ns,
            self.injected_llm_ns,
            self.injected_tts_ns,
            self.injected_leading_silence_ns,
        )
        known = [part for part in parts if part is not None]
        return sum(known) if len(known) == len(parts) else None

    @property
    def voice_to_voice_ns(self) -> int | None:
        """The actual time from the arrival of the last speech sample to the first audible sample sent."""
        if self.first_audio_perf_ns is None or self.speech_end_perf_ns is None:
            return None
        return self.first_audio_perf_ns - self.speech_end_perf_ns

    def injected_json(self) -> str:
        """Return the drawn and the actual times in ns, as compact JSON; unknown values are left out."""
        sent, due = self.tts_first_chunk_perf_ns, self.first_chunk_due_perf_ns
        values = {
            "endpointing_ns": self.injected_endpointing_ns,
            "asr_ns": self.injected_asr_ns,
            "llm_ttft_ns": self.injected_llm_ttft_ns,
            "llm_ns": self.injected_llm_ns,
            "tts_ns": self.injected_tts_ns,
            "leading_silence_ns": self.injected_leading_silence_ns,
            "planned_v2v_ns": self.planned_voice_to_voice_ns,
            "actual_v2v_ns": self.voice_to_voice_ns,
            "first_chunk_late_ns": None if sent is None or due is None else sent - due,
            "reply_audio_ns": self.reply_audio_ns,
        }
        return orjson.dumps({name: value for name, value in values.items() if value is not None}).decode()

    def _work_json(self) -> str | None:
        hops = {} if self.hop_ns is None else {"hop_ms": self.hop_ns / 1e6}
        work = {**self.work, **hops}
        return orjson.dumps(work).decode() if work else None

    def metadata(self) -> dict[str, str]:
        """Return what is known about the turn as response metadata."""
        hit = None if self.cache_hit is None else str(self.cache_hit).lower()
        end = None if self.speech_end_audio_ns is None else str(self.speech_end_audio_ns)
        pairs = {
            META_INJECTED: self.injected_json(),
            META_SPEECH_END: end,
            semconv.META_COHORT: self.cohort,
            semconv.META_CACHE_TIER: self.cache_tier,
            semconv.META_CACHE_HIT: hit,
            semconv.META_ROUTE: self.route,
            semconv.META_FALLBACK: self.fallback,
            semconv.META_MODEL: self.model,
            semconv.META_INTENT: self.intent,
            META_WORK: self._work_json(),
            "voice.fault": self.fault,
        }
        return {key: value[:_MAX_VALUE_CHARS] for key, value in pairs.items() if value is not None}

    def as_turn(self, *, run_id: str, call_id: str, outcome: semconv.Outcome) -> Turn:
        """Return the turn as the service measured it."""
        return Turn(
            run_id=run_id,
            call_id=call_id,
            turn_index=self.turn_index,
            source="service",
            outcome=outcome,
            started_unix_ns=self.started_unix_ns,
            started_perf_ns=self.started_perf_ns,
            speech_start_perf_ns=self.speech_start_perf_ns,
            speech_end_perf_ns=self.speech_end_perf_ns,
            speech_end_audio_ns=self.speech_end_audio_ns,
            endpoint_perf_ns=self.endpoint_perf_ns,
            asr_first_partial_perf_ns=self.asr_first_partial_perf_ns,
            asr_final_perf_ns=self.asr_final_perf_ns,
            llm_first_token_perf_ns=self.llm_first_token_perf_ns,
            llm_first_sentence_perf_ns=self.llm_first_sentence_perf_ns,
            llm_last_token_perf_ns=self.llm_last_token_perf_ns,
            tts_first_chunk_perf_ns=self.tts_first_chunk_perf_ns,
            tts_last_chunk_perf_ns=self.tts_last_chunk_perf_ns,
            first_audio_perf_ns=self.first_audio_perf_ns,
            reply_end_perf_ns=self.reply_end_perf_ns,
            leading_silence_ns=self.leading_silence_ns,
            reply_audio_ns=self.reply_audio_ns,
            llm_tokens=self.tokens or None,
            llm_chunks=self.tokens or None,
            llm_chunk_gaps_ns=tuple(self.token_gaps_ns),
            injected_endpointing_ns=self.injected_endpointing_ns,
            injected_asr_ns=self.injected_asr_ns,
            injected_llm_ns=self.injected_llm_ns,
            injected_tts_ns=self.injected_tts_ns,
            injected_leading_silence_ns=self.injected_leading_silence_ns,
            cohort=self.cohort,
            route=self.route,
            cache_tier=self.cache_tier,
            cache_hit=self.cache_hit,
            fallback=self.fallback,
            model=self.model,
            intent=self.intent,
            response_id=self.response_id,
            service_reported=() if self.hop_ns is None else ("hop",),
            service_reported_ns=() if self.hop_ns is None else (self.hop_ns,),
            outcome_reason=self.outcome_reason,
        )


def merge_metadata(requested: dict[str, str], own: dict[str, str]) -> dict[str, str]:
    """Merge the caller's pairs into the assistant's own, which take precedence.

    The protocol allows 16 pairs, keys of 64 and values of 512 characters.
    """
    fits = {
        key: value for key, value in requested.items() if len(key) <= _MAX_KEY_CHARS and len(value) <= _MAX_VALUE_CHARS
    }
    merged = dict(own)
    for key, value in fits.items():
        if len(merged) < _MAX_PAIRS:
            merged.setdefault(key, value)
    return merged


@dataclass(frozen=True, slots=True)
class CallIdentity:
    """The identity of a call. `traceparent` is the caller's, from the upgrade request."""

    call_id: str
    run_id: str
    traceparent: str | None


class CallReport:
    """Emits the turns of one call; without telemetry it does nothing."""

    def __init__(
        self, telemetry: Telemetry | None, clock: Clock, identity: CallIdentity, assignment: Assignment
    ) -> None:
        self._clock = clock
        self._identity = identity
        self._trace: CallTrace | None = None
        if telemetry is not None:
            from telemetry.export.instrumentation import CallTrace

            self._trace = CallTrace(
                telemetry,
                run_id=identity.run_id,
                call_id=identity.call_id,
                source="service",
                started_unix_ns=clock.unix_ns(),
                started_perf_ns=clock.perf_ns(),
                attributes={} if assignment.cohort is None else {"cohort": assignment.cohort},
                parent_traceparent=identity.traceparent,
            )
            if assignment.flag:
                self._trace.add_event(semconv.EVENT_FEATURE_FLAG, assignment.flag, clock.unix_ns())

    def turn(self, record: TurnRecord, outcome: semconv.Outcome) -> None:
        """Emit a turn that is over."""
        if self._trace is not None:
            identity = self._identity
            self._trace.emit(record.as_turn(run_id=identity.run_id, call_id=identity.call_id, outcome=outcome))

    def end(self) -> None:
        """End the call's trace."""
        if self._trace is not None:
            self._trace.end(self._clock.perf_ns(), {})
