"""Every number this project reports: one name, one unit, one definition, one function.

A metric's value on a turn is None when a point it needs is unknown or when the wire withholds it; it is never 0 in
place of unknown, and never clamped. Durations are integer nanoseconds of one process's monotonic clock.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from telemetry.model.turns import Turn

Unit = Literal["ns", "ratio", "count", "per_s"]

POINTS: Final[dict[str, str]] = {
    "speech_start": "the first speech sample of the utterance leaves the caller's mouth",
    "speech_end": "the last speech sample of the utterance leaves the caller's mouth",
    "endpoint": "the endpoint says that it closed the caller's turn",
    "asr_first_partial": "first interim transcript event of this turn",
    "asr_final": "the event with the final transcript",
    "llm_first_token": "first piece of answer text; reasoning text is kept apart",
    "llm_first_sentence": "first sentence boundary in the answer text",
    "llm_last_token": "last piece of answer text",
    "tts_first_chunk": "arrival of the first reply-audio chunk",
    "tts_last_chunk": "arrival of the last reply-audio chunk",
    "first_audio": "the first audible sample of the reply is played",
    "reply_end": "the last audible sample of the reply is played",
    "hangup": "the caller hung up",
}


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: `value(turn)` is None where it was not measured. `column` is its name in the store."""

    name: str
    unit: Unit
    definition: str
    value: Callable[[Turn], int | float | None]
    higher_is_better: bool = False
    # The bound of the caller's speech whose annotation error is this metric's own (telemetry.model.stated_error). None
    # for talk_over too: it also counts backchannels, and a turn does not carry how well their clips are annotated.
    counts_from: Literal["speech_start", "speech_end"] | None = None

    @property
    def column(self) -> str:
        """The store's column: the unit is in the name."""
        return f"{self.name}_{self.unit}" if self.unit in ("ns", "per_s") else self.name


def point(turn: Turn, name: str) -> int | None:
    """The monotonic moment of a point in ns, or None. Raises AttributeError for a name not in POINTS."""
    return getattr(turn, f"{name}_perf_ns")


def is_withheld(turn: Turn, metric: str) -> bool:
    """Whether this wire cannot show the metric on this turn, with the reason in `turn.withheld`."""
    return any(entry.partition(":")[0] == metric for entry in turn.withheld)


def _between(name: str, later: str, earlier: str) -> Callable[[Turn], int | None]:
    def value(turn: Turn) -> int | None:
        a, b = point(turn, earlier), point(turn, later)
        return None if a is None or b is None or is_withheld(turn, name) else b - a

    return value


def _field(field: str) -> Callable[[Turn], int | None]:
    def value(turn: Turn) -> int | None:
        return getattr(turn, field)

    return value


def _llm_ttft(turn: Turn) -> int | None:
    final, first = turn.asr_final_perf_ns, turn.llm_first_token_perf_ns
    if final is None or first is None or first < final:
        return None  # the service answers beside its transcription: the difference says nothing
    return first - final


def _stream_ns(turn: Turn) -> int | None:
    first, last = turn.llm_first_token_perf_ns, turn.llm_last_token_perf_ns
    return None if first is None or last is None or last <= first else last - first


def _tokens(turn: Turn) -> int | None:
    return turn.llm_tokens if turn.llm_tokens is not None else turn.llm_chunks


def _tokens_per_s(turn: Turn) -> float | None:
    tokens, stream_ns = _tokens(turn), _stream_ns(turn)
    return None if tokens is None or tokens < 2 or stream_ns is None else (tokens - 1) * 1e9 / stream_ns


def _tokens_per_s_wall(turn: Turn) -> float | None:
    tokens, last = _tokens(turn), turn.llm_last_token_perf_ns
    begin = turn.asr_final_perf_ns if turn.asr_final_perf_ns is not None else turn.speech_end_perf_ns
    if tokens is None or last is None or begin is None or last <= begin:
        return None
    return tokens * 1e9 / (last - begin)


def _tokens_per_chunk(turn: Turn) -> float | None:
    return None if not turn.llm_tokens or not turn.llm_chunks else turn.llm_tokens / turn.llm_chunks


def _first_sentence(turn: Turn) -> int | None:
    sentence, end = turn.llm_first_sentence_perf_ns, turn.speech_end_perf_ns
    return None if sentence is None or end is None else sentence - end


def _audio_rtfx(turn: Turn) -> float | None:
    first, last = turn.tts_first_chunk_perf_ns, turn.tts_last_chunk_perf_ns
    if turn.reply_audio_ns is None or first is None or last is None or last <= first:
        return None
    return turn.reply_audio_ns / (last - first)


def _wer(turn: Turn) -> float | None:
    if turn.wer_errors is None or not turn.wer_reference_words:
        return None
    return turn.wer_errors / turn.wer_reference_words


_ALL: Final[tuple[Metric, ...]] = (
    Metric(
        "voice_to_voice",
        "ns",
        "first_audio - speech_end: the full round trip a caller waits; negative when the agent talks over",
        _between("voice_to_voice", "first_audio", "speech_end"),
        counts_from="speech_end",
    ),
    Metric(
        "endpointing",
        "ns",
        "endpoint - speech_end: the wait until the endpoint says that the caller has finished",
        _between("endpointing", "endpoint", "speech_end"),
        counts_from="speech_end",
    ),
    Metric(
        "asr_partial_latency",
        "ns",
        "asr_first_partial - speech_start; withheld where partials come on a fixed cadence",
        _between("asr_partial_latency", "asr_first_partial", "speech_start"),
        counts_from="speech_start",
    ),
    Metric(
        "asr_final_latency",
        "ns",
        "asr_final - speech_end; includes the endpointing wait",
        _between("asr_final_latency", "asr_final", "speech_end"),
        counts_from="speech_end",
    ),
    Metric(
        "llm_first_token_latency",
        "ns",
        "llm_first_token - speech_end",
        _between("llm_first_token_latency", "llm_first_token", "speech_end"),
        counts_from="speech_end",
    ),
    Metric("llm_ttft", "ns", "llm_first_token - asr_final, only where the final transcript came first", _llm_ttft),
    Metric(
        "tts_first_chunk_latency",
        "ns",
        "tts_first_chunk - llm_first_token",
        _between("tts_first_chunk_latency", "tts_first_chunk", "llm_first_token"),
    ),
    Metric(
        "leading_silence", "ns", "silence before the first audible sample of the reply", _field("leading_silence_ns")
    ),
    Metric(
        "connect",
        "ns",
        "TCP + TLS + upgrade + session ready; never part of a turn; in open arrivals from the intended start",
        _field("connect_ns"),
    ),
    Metric(
        "barge_in_stop",
        "ns",
        "the caller's first interrupting speech sample until the agent's last audible sample is played, on the turn "
        "that interrupts; the turn interrupted after its first audible sample was answered, and stays in its figures",
        _field("barge_in_stop_ns"),
        counts_from="speech_start",
    ),
    Metric("talk_over", "ns", "total time in which both spoke", _field("talk_over_ns")),
    Metric("underrun_worst", "ns", "longest starvation of a real-time player", _field("underrun_worst_ns")),
    Metric("underrun_total", "ns", "all starvation of a real-time player", _field("underrun_total_ns")),
    Metric("underrun_count", "count", "how often a real-time player starved", _field("underrun_count")),
    Metric(
        "audio_rtfx",
        "ratio",
        "seconds of reply audio / seconds to deliver them",
        _audio_rtfx,
        higher_is_better=True,
    ),
    Metric(
        "tokens_per_s",
        "per_s",
        "(tokens - 1) / (last - first content); pieces of text where the endpoint counts no tokens",
        _tokens_per_s,
        higher_is_better=True,
    ),
    Metric(
        "tokens_per_s_wall",
        "per_s",
        "tokens / wall time from the final transcript (or speech_end) to the last token",
        _tokens_per_s_wall,
        higher_is_better=True,
    ),
    Metric("tokens_per_chunk", "ratio", "tokens the endpoint counts / pieces of text that arrived", _tokens_per_chunk),
    Metric(
        "time_to_first_sentence",
        "ns",
        "llm_first_sentence - speech_end: the earliest a sentence-fed TTS could start",
        _first_sentence,
        counts_from="speech_end",
    ),
    Metric("wer", "ratio", "word errors / words of the clip's text, after the documented normalization", _wer),
)

METRICS: Final[dict[str, Metric]] = {metric.name: metric for metric in _ALL}

# The one metric of a call instead of a turn: its first turn carries the value.
CONNECT: Final = "connect"
# About something else than the answer to the caller: a turn that got no answer lacks no value of these.
NOT_OF_AN_ANSWER: Final = frozenset({CONNECT, "barge_in_stop", "talk_over"})

# The inter-chunk gaps of the answer text are a list per turn: its percentiles are taken over all gaps of all turns.
ITL: Final = "itl"
ITL_DEFINITION: Final = "gap between two pieces of answer text; percentiles over all gaps of all turns"
METRIC_NAMES: Final[tuple[str, ...]] = (*METRICS, ITL)

# A percentile needs this many values before it is a figure (measurement: a p95 from fewer than 20 turns, a p99 from
# fewer than 100, is "too few").
MIN_COUNT_FOR: Final[dict[str, int]] = {"p50": 1, "p95": 20, "p99": 100}
