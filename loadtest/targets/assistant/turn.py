"""One turn of a call: what serves it, and the record of it as response metadata and as a span of the service."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import orjson

from loadtest.distributions import random_source
from loadtest.targets.assistant.clock import Clock
from loadtest.targets.assistant.config import AssistantConfig
from loadtest.targets.assistant.endpointing import EnergyVad, SpeechStopped, Vad
from loadtest.targets.assistant.interfaces import AsrEngine, Llm, PromptCache, TtsEngine
from loadtest.targets.assistant.llm import SpeculativeStart
from loadtest.targets.assistant.questions import SimilarQuestions
from telemetry.model import semconv
from telemetry.model.turns import Turn

META_INJECTED: Final = "voice.injected"
META_WORK: Final = "voice.work"
META_SPEECH_END: Final = "speech_end_audio_ns"
_MAX_PAIRS: Final = 16
_MAX_KEY_CHARS: Final = 64
_MAX_VALUE_CHARS: Final = 512
_INJECTED: Final = ("endpointing", "asr", "llm", "tts", "leading_silence")  # what adds up to voice to voice
# What a turn of telemetry has under the same names.
_SAME_IN_TURN: Final = (
    *("turn_index", "started_unix_ns", "started_perf_ns", "speech_start_perf_ns", "speech_end_perf_ns"),
    *("speech_end_audio_ns", "endpoint_perf_ns", "asr_first_partial_perf_ns", "asr_final_perf_ns"),
    *("llm_first_token_perf_ns", "llm_first_sentence_perf_ns", "llm_last_token_perf_ns", "tts_first_chunk_perf_ns"),
    *("tts_last_chunk_perf_ns", "first_audio_perf_ns", "reply_end_perf_ns", "leading_silence_ns", "reply_audio_ns"),
    *(f"injected_{stage}_ns" for stage in _INJECTED),
    *("cohort", "route", "cache_tier", "cache_hit", "fallback", "model", "intent", "response_id", "outcome_reason"),
)


@dataclass(frozen=True, slots=True)
class ServedVariant:
    """The settings of the calls of one cohort, and the engines that serve them."""

    config: AssistantConfig
    clock: Clock
    asr: AsrEngine
    llm: Llm
    tts: TtsEngine
    cache: PromptCache | None = None
    cache_space: str = ""  # answers are found again by those of the same space alone
    similar: SimilarQuestions | None = None
    open_vad: Callable[[int], Vad] = EnergyVad  # gets the rate of a session's audio


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

    def injected(self) -> dict[str, int]:
        """Return the drawn and the actual times in ns; unknown values are left out.

        The planned voice-to-voice time is the sum of the injected delays if every stage is scripted; the actual one is
        from the arrival of the last speech sample to the first audible sample sent.
        """
        drawn: list[int | None] = [getattr(self, f"injected_{stage}_ns") for stage in _INJECTED]
        known = [delay for delay in drawn if delay is not None]
        times = {
            **{f"{stage}_ns": delay for stage, delay in zip(_INJECTED, drawn, strict=True)},
            "llm_ttft_ns": self.injected_llm_ttft_ns,
            "planned_v2v_ns": sum(known) if len(known) == len(drawn) else None,
            "actual_v2v_ns": _between(self.speech_end_perf_ns, self.first_audio_perf_ns),
            "first_chunk_late_ns": _between(self.first_chunk_due_perf_ns, self.tts_first_chunk_perf_ns),
            "reply_audio_ns": self.reply_audio_ns,
        }
        return {name: time for name, time in times.items() if time is not None}

    def metadata(self) -> dict[str, str]:
        """Return what is known about the turn as response metadata."""
        work = {**self.work, **({} if self.hop_ns is None else {"hop_ms": self.hop_ns / 1e6})}
        pairs = {
            META_INJECTED: orjson.dumps(self.injected()).decode(),
            META_SPEECH_END: None if self.speech_end_audio_ns is None else str(self.speech_end_audio_ns),
            semconv.META_COHORT: self.cohort,
            semconv.META_CACHE_TIER: self.cache_tier,
            semconv.META_CACHE_HIT: None if self.cache_hit is None else str(self.cache_hit).lower(),
            semconv.META_ROUTE: self.route,
            semconv.META_FALLBACK: self.fallback,
            semconv.META_MODEL: self.model,
            semconv.META_INTENT: self.intent,
            META_WORK: orjson.dumps(work).decode() if work else None,
            "voice.fault": self.fault,
        }
        return {key: value[:_MAX_VALUE_CHARS] for key, value in pairs.items() if value is not None}

    def as_turn(self, *, run_id: str, call_id: str, outcome: semconv.Outcome) -> Turn:
        """Return the turn as the service measured it."""
        return Turn(
            run_id=run_id,
            call_id=call_id,
            source="service",
            outcome=outcome,
            llm_tokens=self.tokens or None,
            llm_chunks=self.tokens or None,
            llm_chunk_gaps_ns=tuple(self.token_gaps_ns),
            service_reported=() if self.hop_ns is None else ("hop",),
            service_reported_ns=() if self.hop_ns is None else (self.hop_ns,),
            **{name: getattr(self, name) for name in _SAME_IN_TURN},
        )


@dataclass(frozen=True, slots=True)
class ServedTurn:
    """One turn of one call: what serves it, and the record of what happened in it."""

    variant: ServedVariant
    call_id: str
    record: TurnRecord

    def source(self, stage: str) -> random.Random:
        """Return the seeded source of this turn's draws for one stage."""
        return random_source(self.variant.config.seed, self.call_id, self.record.turn_index, stage)

    def hop_ns(self, name: str) -> int:
        """Draw the declared cost of one call between hosts, and record it; 0 where everything is on one."""
        if self.variant.config.hop is None:
            return 0
        drawn_ns = self.variant.config.hop.draw_ns(self.source(name))
        self.record.hop_ns = (self.record.hop_ns or 0) + drawn_ns
        return drawn_ns


def merge_metadata(requested: dict[str, str], own: dict[str, str]) -> dict[str, str]:
    """Merge the caller's pairs into the assistant's own, which take precedence.

    The protocol allows 16 pairs, keys of 64 and values of 512 characters.
    """
    merged = dict(own)
    for key, value in requested.items():
        if len(merged) < _MAX_PAIRS and len(key) <= _MAX_KEY_CHARS and len(value) <= _MAX_VALUE_CHARS:
            merged.setdefault(key, value)
    return merged


def _between(earlier_ns: int | None, later_ns: int | None) -> int | None:
    return None if earlier_ns is None or later_ns is None else later_ns - earlier_ns
