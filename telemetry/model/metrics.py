"""Every number this project reports: one name, one unit, one definition, one function, one format.

A metric's value on a turn is None if a timestamp it needs is unknown or the wire withholds it; it is never 0 in place
of unknown, and never clamped. Durations are integer nanoseconds of one process's monotonic clock.
"""

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, Literal

from telemetry.model import formatting
from telemetry.model.turns import Turn

Unit = Literal["ns", "ratio", "count", "per_s"]
Side = Literal["lower", "upper"]
# Where people see a metric besides the places that show all of them.
View = Literal[
    "terminal",  # a row of the terminal's table of stages, where anything was measured
    "terminal-always",  # likewise, and also where nothing was: its absence is then seen
    "page",  # a row of the page's table of stages
    "cohorts",  # the figures of each cohort, in JSON
    "phases",  # the figures of each phase of a run
]

TIMESTAMPS: Final[dict[str, str]] = {
    "speech_start": "the first speech sample of the utterance leaves the caller's mouth",
    "speech_end": "the last speech sample of the utterance leaves the caller's mouth",
    "endpoint": "the endpoint says that it closed the caller's turn",
    "asr_first_partial": "first interim transcript event of this turn",
    "asr_final": "the event with the final transcript",
    "llm_first_token": "first piece of answer text; reasoning text is kept apart",
    "llm_first_sentence": "first sentence boundary in the answer text; of a text without one, its last piece",
    "llm_last_token": "last piece of answer text",
    "tts_first_chunk": "arrival of the first reply-audio chunk",
    "tts_last_chunk": "arrival of the last reply-audio chunk",
    "first_audio": "the first audible sample of the reply is played",
    "reply_end": "the last audible sample of the reply is played",
    "hangup": "the caller hung up",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricDefinition:
    """A metric and its presentation: terminal, page, JSON, Prometheus and the reference all use this definition."""

    name: str
    label: str  # the name for people
    unit: Unit
    definition: str
    views: tuple[View, ...] = ()  # JSON, Prometheus and the reference show every metric
    is_share: bool = False  # a ratio that is a share of a whole, shown as a percentage
    higher_is_better: bool = False

    @property
    def phrase(self) -> str:
        """The display name within a sentence: `voice to voice`, `LLM first token`."""
        is_acronym = self.label[:2].isupper()
        return self.label if is_acronym else f"{self.label[0].lower()}{self.label[1:]}"

    @property
    def kind(self) -> str:
        """The kind of its figures, as `formatting.figure` reads it."""
        return "share" if self.is_share else self.unit

    @property
    def column(self) -> str:
        """The store's column: the unit is in the name."""
        return f"{self.name}{self._unit_suffix}"

    def bound_column(self, side: Side) -> str:
        """The store's column of the lower or the upper bound of its value on a turn (telemetry.model.bounds)."""
        return f"{self.name}_{side}{self._unit_suffix}"

    @property
    def _unit_suffix(self) -> str:
        return f"_{self.unit}" if self.unit in ("ns", "per_s") else ""

    def format(self, value: float | None, *, unit: bool = True) -> str:
        """A formatted figure of this metric; a dash for None."""
        return formatting.figure(value, self.kind, unit=unit)


def _is_never(turn: Turn) -> bool:
    del turn
    return False


def _was_not_kept_talking(turn: Turn) -> bool:
    return turn.barge_in_end != "never_stopped"


def _is_always(turn: Turn) -> bool:
    del turn
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric(MetricDefinition):
    """A metric with at most one value per turn: `value(turn)` is None if it was not measured."""

    value: Callable[[Turn], int | float | None]
    # The bound of the caller's speech that it is measured from. None for talk_over, which depends on both.
    counts_from: Literal["speech_start", "speech_end"] | None = None
    # Whether a turn without a value has nothing to measure, as opposed to a stage that never came.
    is_undefined: Callable[[Turn], bool] = _is_never


ITL: Final = "itl"
_MOST_TOKENS_PER_CHUNK: Final = 2
_FEWEST_LARGE_CHUNKS: Final = 20


def timestamp(turn: Turn, name: str) -> int | None:
    """A timestamp of the turn in monotonic ns, or None. Raises AttributeError for a name not in TIMESTAMPS."""
    return getattr(turn, f"{name}_perf_ns")


def known_timestamps(turn: Turn) -> dict[str, int]:
    """The timestamps that the turn has, by their names."""
    return {name: at_ns for name, at_ns in zip(TIMESTAMPS, _moments_of(turn), strict=True) if at_ns is not None}


_moments_of: Final = attrgetter(*(f"{name}_perf_ns" for name in TIMESTAMPS))


def is_withheld(turn: Turn, metric: str) -> bool:
    """Return whether this wire cannot show the metric on this turn; the reason is in `turn.withheld_reasons`."""
    return metric in turn.withheld_metrics


def _between(name: str, later: str, earlier: str) -> Callable[[Turn], int | None]:
    moments = attrgetter(f"{earlier}_perf_ns", f"{later}_perf_ns")

    def value(turn: Turn) -> int | None:
        a, b = moments(turn)
        return None if a is None or b is None or is_withheld(turn, name) else b - a

    return value


def _field(name: str, field: str) -> Callable[[Turn], int | None]:
    def value(turn: Turn) -> int | None:
        return None if is_withheld(turn, name) else getattr(turn, field)

    return value


def _llm_ttft(turn: Turn) -> int | None:
    final, first = turn.asr_final_perf_ns, turn.llm_first_token_perf_ns
    if final is None or first is None or first < final:
        return None  # the service answers in parallel with its transcription: the difference says nothing
    return first - final


def _is_answered_otherwise(turn: Turn) -> bool:
    return turn.asr_final_perf_ns is not None and turn.llm_first_token_perf_ns is not None


def _has_text(turn: Turn) -> bool:
    return turn.llm_first_token_perf_ns is not None


def _has_transcript(turn: Turn) -> bool:
    return turn.asr_final_perf_ns is not None  # the clip has no text to compare it with


def _has_audio(turn: Turn) -> bool:
    return turn.tts_first_chunk_perf_ns is not None


def _stream_ns(turn: Turn) -> int | None:
    first, last = turn.llm_first_token_perf_ns, turn.llm_last_token_perf_ns
    return None if first is None or last is None or last <= first else last - first


def _tokens_per_s(turn: Turn) -> float | None:
    tokens, chunks, stream_ns = turn.llm_tokens, turn.llm_chunks, _stream_ns(turn)
    if tokens is None or tokens < 2 or stream_ns is None:
        return None
    # The tokens of the first piece have come before the time begins: of a few whole sentences they are too many.
    if chunks is not None and tokens > _MOST_TOKENS_PER_CHUNK * chunks and chunks < _FEWEST_LARGE_CHUNKS:
        return None
    return (tokens - 1) * 1e9 / stream_ns


def _tokens_per_s_wall(turn: Turn) -> float | None:
    if is_withheld(turn, "tokens_per_s_wall"):
        return None
    tokens, last = turn.llm_tokens, turn.llm_last_token_perf_ns
    begin = turn.asr_final_perf_ns if turn.asr_final_perf_ns is not None else turn.speech_end_perf_ns
    if tokens is None or last is None or begin is None or last <= begin:
        return None
    return tokens * 1e9 / (last - begin)


def _tokens_per_chunk(turn: Turn) -> float | None:
    return None if not turn.llm_tokens or not turn.llm_chunks else turn.llm_tokens / turn.llm_chunks


def _prompt_cached(turn: Turn) -> float | None:
    given, cached = turn.llm_input_tokens, turn.llm_cached_tokens
    return None if not given or cached is None or not 0 <= cached <= given else cached / given


def _first_sentence(turn: Turn) -> int | None:
    sentence, end = turn.llm_first_sentence_perf_ns, turn.speech_end_perf_ns
    return None if sentence is None or end is None else sentence - end


def _audio_rtfx(turn: Turn) -> float | None:
    first, last = turn.tts_first_chunk_perf_ns, turn.tts_last_chunk_perf_ns
    if turn.reply_audio_ns is None or first is None or last is None or last <= first:
        return None
    return turn.reply_audio_ns / (last - first)


def _packet_loss(turn: Turn) -> float | None:
    received, lost = turn.rtp_packets_received, turn.rtp_packets_lost
    return None if received is None or lost is None or not received + lost else lost / (received + lost)


def _wer(turn: Turn) -> float | None:
    if turn.wer_errors is None or not turn.wer_reference_words:
        return None
    return turn.wer_errors / turn.wer_reference_words


_ALL: Final[tuple[MetricDefinition, ...]] = (
    Metric(
        name="voice_to_voice",
        label="Voice to voice",
        unit="ns",
        definition=("first_audio - speech_end: the full round trip a caller waits; negative when the agent talks over"),
        views=("terminal-always", "page", "cohorts", "phases"),
        value=_between("voice_to_voice", "first_audio", "speech_end"),
        counts_from="speech_end",
    ),
    Metric(
        name="endpointing",
        label="Endpointing",
        unit="ns",
        definition="endpoint - speech_end: the wait until the endpoint says that the caller has finished",
        views=("terminal", "page"),
        value=_between("endpointing", "endpoint", "speech_end"),
        counts_from="speech_end",
    ),
    Metric(
        name="asr_partial_latency",
        label="ASR first partial",
        unit="ns",
        definition="asr_first_partial - speech_start; withheld where partials come on a fixed cadence",
        views=("terminal-always", "page"),
        value=_between("asr_partial_latency", "asr_first_partial", "speech_start"),
        counts_from="speech_start",
    ),
    Metric(
        name="asr_final_latency",
        label="ASR final",
        unit="ns",
        definition="asr_final - speech_end; includes the endpointing wait",
        views=("terminal-always", "page", "cohorts", "phases"),
        value=_between("asr_final_latency", "asr_final", "speech_end"),
        counts_from="speech_end",
    ),
    Metric(
        name="llm_first_token_latency",
        label="LLM first token",
        unit="ns",
        definition="llm_first_token - speech_end",
        views=("terminal-always", "page", "cohorts", "phases"),
        value=_between("llm_first_token_latency", "llm_first_token", "speech_end"),
        counts_from="speech_end",
    ),
    Metric(
        name="llm_ttft",
        label="LLM after transcript",
        unit="ns",
        definition="llm_first_token - asr_final, only where the final transcript came first",
        views=("terminal",),
        value=_llm_ttft,
        is_undefined=_is_answered_otherwise,
    ),
    # A list of gaps per turn: its percentiles are taken over all gaps of all turns.
    MetricDefinition(
        name=ITL,
        label="Gap between text pieces",
        unit="ns",
        definition="gap between two pieces of answer text; percentiles over all gaps of all turns",
        views=("terminal",),
    ),
    Metric(
        name="tts_first_chunk_latency",
        label="TTS first chunk",
        unit="ns",
        definition="tts_first_chunk - llm_first_token",
        views=("terminal-always", "page", "cohorts", "phases"),
        value=_between("tts_first_chunk_latency", "tts_first_chunk", "llm_first_token"),
    ),
    Metric(
        name="leading_silence",
        label="Leading silence",
        unit="ns",
        definition="silence before the first audible sample of the reply",
        views=("terminal", "page"),
        value=_field("leading_silence", "leading_silence_ns"),
    ),
    Metric(
        name="time_to_first_sentence",
        label="First sentence",
        unit="ns",
        definition="llm_first_sentence - speech_end: the earliest a sentence-fed TTS could start",
        views=("terminal", "page"),
        value=_first_sentence,
        counts_from="speech_end",
    ),
    Metric(
        name="connect",
        label="Connect",
        unit="ns",
        definition=(
            "TCP + TLS + upgrade + session ready; never part of a turn; in open arrivals from the intended start"
        ),
        views=("terminal", "phases"),
        value=_field("connect", "connect_ns"),
    ),
    Metric(
        name="barge_in_stop",
        label="Barge-in stop",
        unit="ns",
        definition=(
            "the caller's first interrupting speech sample until the agent's last audible sample is played, "
            "on the turn that interrupts, where the endpoint broke its reply off; the turn interrupted after its first "
            "audible sample was answered, and stays in its figures"
        ),
        views=("terminal",),
        value=_field("barge_in_stop", "barge_in_stop_ns"),
        is_undefined=_was_not_kept_talking,
        counts_from="speech_start",
    ),
    Metric(
        name="talk_over",
        label="Talk-over",
        unit="ns",
        definition="total time in which both spoke",
        views=("terminal",),
        value=_field("talk_over", "talk_over_ns"),
        is_undefined=_is_always,
    ),
    Metric(
        name="underrun_worst",
        label="Worst underrun",
        unit="ns",
        definition="longest starvation of a real-time player",
        views=("terminal", "page"),
        value=_field("underrun_worst", "underrun_worst_ns"),
    ),
    Metric(
        name="underrun_total",
        label="All underruns",
        unit="ns",
        definition="all starvation of a real-time player",
        value=_field("underrun_total", "underrun_total_ns"),
    ),
    Metric(
        name="underrun_count",
        label="Underruns",
        unit="count",
        definition="how often a real-time player starved",
        value=_field("underrun_count", "underrun_count"),
    ),
    Metric(
        name="packet_loss",
        label="Packet loss",
        unit="ratio",
        definition=(
            "packets of the endpoint's audio that were missing when a later one came / all packets of the turn, "
            "where audio comes by RTP"
        ),
        views=("terminal",),
        value=_packet_loss,
        is_share=True,
    ),
    Metric(
        name="jitter",
        label="Jitter",
        unit="ns",
        definition="worst interarrival jitter of the endpoint's audio (RFC 3550), where audio comes by RTP",
        views=("terminal",),
        value=_field("jitter", "rtp_jitter_worst_ns"),
    ),
    Metric(
        name="tokens_per_s",
        label="Tokens per second",
        unit="per_s",
        definition=(
            "(tokens - 1) / (last - first content), where the endpoint counts its tokens and sends them one by one "
            "(at most 2 in a piece of text, or 20 pieces)"
        ),
        views=("terminal",),
        value=_tokens_per_s,
        is_undefined=_has_text,
        higher_is_better=True,
    ),
    Metric(
        name="tokens_per_s_wall",
        label="Tokens per second, wall",
        unit="per_s",
        definition=(
            "tokens, as the endpoint counts them / wall time from the final transcript (or speech_end) to the last one"
        ),
        value=_tokens_per_s_wall,
        is_undefined=_has_text,
        higher_is_better=True,
    ),
    Metric(
        name="tokens_per_chunk",
        label="Tokens per chunk",
        unit="ratio",
        definition="tokens the endpoint counts / pieces of text that arrived",
        value=_tokens_per_chunk,
    ),
    Metric(
        name="prompt_cached",
        label="Prompt from cache",
        unit="ratio",
        definition=(
            "tokens of the prompt that came from the provider's prompt cache / tokens of the prompt, as the endpoint "
            "counts them; no hit of a cache of answers"
        ),
        views=("terminal",),
        value=_prompt_cached,
        is_share=True,
        higher_is_better=True,
    ),
    Metric(
        name="audio_rtfx",
        label="Audio delivered per second",
        unit="ratio",
        definition=(
            "seconds of reply audio / seconds from the arrival of its first chunk to that of its last: how fast it was "
            "delivered, not how fast it was synthesized"
        ),
        value=_audio_rtfx,
        is_undefined=_has_audio,
        higher_is_better=True,
    ),
    Metric(
        name="wer",
        label="Word error rate",
        unit="ratio",
        definition="word errors / words of the clip's text, after the documented normalization; of a text in a script "
        "without spaces between words (Chinese, Japanese, Thai, Lao, Khmer, Burmese), character errors / characters",
        views=("terminal",),
        value=_wer,
        is_undefined=_has_transcript,
        is_share=True,
    ),
)

# In the order in which a turn passes them: the order of every table.
DEFINITIONS: Final[dict[str, MetricDefinition]] = {metric.name: metric for metric in _ALL}
METRIC_NAMES: Final[tuple[str, ...]] = tuple(DEFINITIONS)
METRICS: Final[dict[str, Metric]] = {metric.name: metric for metric in _ALL if isinstance(metric, Metric)}


def shown_in(*views: View) -> tuple[str, ...]:
    """The names of the metrics that one of the views shows, in order."""
    return tuple(metric.name for metric in _ALL if set(views) & set(metric.views))


# The figure that represents a turn: the first tile, the timeline, the slowest turns, the capacity.
HEADLINE: Final = "voice_to_voice"
# The one metric of a call instead of a turn: its first turn carries the value.
CONNECT: Final = "connect"
# About something else than the answer to the caller: a turn that got no answer lacks no value of these.
NOT_OF_AN_ANSWER: Final = frozenset({CONNECT, "barge_in_stop", "talk_over"})

# A percentile needs this many values before it is a figure (measurement: a p95 from fewer than 20 turns, a p99 from
# fewer than 100, is "too few").
MIN_COUNT_FOR: Final[dict[str, int]] = {"p50": 1, "p95": 20, "p99": 100}
