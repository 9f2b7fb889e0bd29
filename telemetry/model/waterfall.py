"""One turn on one clock: what the caller heard and what the service reported, in ns from the end of the speech.

Times of two hosts are never subtracted. The service's points are placed by the audio itself: both sides say at which
sample of the session they believe that speech ended, so the service's own end of speech is known on the caller's
clock. The stages and `unexplained` are those of the store's stage budget, for a single turn.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from telemetry.model import semconv
from telemetry.model.metrics import METRICS, TIMESTAMPS, timestamp
from telemetry.model.turn_spans import SpanRow
from telemetry.model.turns import Turn

Origin = Literal["speech_end", "started"]
# The periods of a turn in the order in which they come, each with its name for people.
BAR_LABELS: Final[dict[str, str]] = {
    "speech": "caller speaks",
    "endpointing": "endpointing",
    "asr": "ASR",
    "llm": "LLM first token",
    "tts": "TTS first chunk",
    "unexplained": "unexplained",
    "leading_silence": "leading silence",
    "playing": "reply plays",
}
BAR_NAMES: Final = tuple(BAR_LABELS)
SIDE_LABELS: Final = {"client": "heard by the caller", "service": "reported by the service"}
PARTIAL: Final = "asr_partial"


@dataclass(frozen=True, slots=True)
class Bar:
    """A period of one side; `end_ns` is never before `start_ns`."""

    name: str
    source: semconv.Source
    start_ns: int
    end_ns: int

    @property
    def length_ns(self) -> int:
        """The length."""
        return self.end_ns - self.start_ns


@dataclass(frozen=True, slots=True)
class Mark:
    """A point in time of one side: a timestamp of the turn, or a partial transcript."""

    name: str
    source: semconv.Source
    at_ns: int


@dataclass(frozen=True, slots=True)
class Waterfall:
    """`unexplained_ns` is voice-to-voice minus every known stage: network, playout and the error of the instrument; it
    may be negative, then no bar is given for it. `service_offset_ns` is how much later than the caller the service
    believes that speech ended; None when it does not say, then both ends are taken as one."""

    origin: Origin
    bars: tuple[Bar, ...]
    marks: tuple[Mark, ...]
    client_voice_to_voice_ns: int | None
    service_voice_to_voice_ns: int | None
    unexplained_ns: int | None
    service_offset_ns: int | None

    @property
    def origin_label(self) -> str:
        """The meaning of 0, as text."""
        return "the end of the caller's speech" if self.origin == "speech_end" else "the beginning of the turn"


def waterfall(client: Turn | None, service: Turn | None, spans: Iterable[SpanRow] = ()) -> Waterfall:
    """Lay out one turn. `spans` are those of its trace: only the partial transcripts of the caller's are used.

    Raises ValueError when neither side is given.
    """
    if client is None and service is None:
        raise ValueError("a waterfall needs at least one side of the turn")
    bars: list[Bar] = []
    marks: list[Mark] = []
    sides = [turn for turn in (client, service) if turn is not None]
    origin: Origin = "speech_end" if sides[0].speech_end_perf_ns is not None else "started"
    offset_ns = _service_offset(client, service)
    for turn in sides:
        zero = _zero(turn, origin)
        if zero is None:
            continue  # this side does not say when the speech ended: nothing relates it to the other
        shift = (offset_ns or 0) if turn.source == "service" and client is not None else 0
        bars += [_moved(bar, shift - zero) for bar in _bars(turn)]
        marks += [
            _mark(turn, name, at, shift - zero) for name in TIMESTAMPS if (at := timestamp(turn, name)) is not None
        ]
    if client is not None and (zero := _zero(client, origin)) is not None:
        marks += _partials(client, spans, zero)
    unexplained_ns = _unexplained(client, service, offset_ns)
    bars += _unexplained_bar(client, unexplained_ns)
    return Waterfall(
        origin=origin,
        bars=tuple(sorted(bars, key=lambda bar: (BAR_NAMES.index(bar.name), bar.source))),
        marks=tuple(sorted(marks, key=lambda mark: (mark.at_ns, mark.name))),
        client_voice_to_voice_ns=_voice_to_voice(client),
        service_voice_to_voice_ns=_voice_to_voice(service),
        unexplained_ns=unexplained_ns,
        service_offset_ns=offset_ns,
    )


def _zero(turn: Turn, origin: Origin) -> int | None:
    return turn.speech_end_perf_ns if origin == "speech_end" else turn.started_perf_ns


def _voice_to_voice(turn: Turn | None) -> int | None:
    value = None if turn is None else METRICS["voice_to_voice"].value(turn)
    return None if value is None else int(value)


def _service_offset(client: Turn | None, service: Turn | None) -> int | None:
    if client is None or service is None or client.speech_end_audio_ns is None or service.speech_end_audio_ns is None:
        return None
    return service.speech_end_audio_ns - client.speech_end_audio_ns


def _chain(turn: Turn) -> list[tuple[str, int | None, int | None]]:
    """The stages from the end of the speech to the first audio, each with its beginning and end, None when unknown."""
    end, endpoint, token = turn.speech_end_perf_ns, turn.endpoint_perf_ns, turn.llm_first_token_perf_ns
    chunk, final = turn.tts_first_chunk_perf_ns, turn.asr_final_perf_ns
    listened = endpoint if endpoint is not None else end
    # A transcript that came after the first token was not on the way to it.
    is_unordered = final is None or listened is None or final < listened or (token is not None and final > token)
    transcribed = listened if is_unordered else final
    return [
        ("endpointing", end, endpoint),
        ("asr", listened, None if is_unordered else final),
        ("llm", transcribed, token),
        ("tts", token, chunk),
    ]


def _bars(turn: Turn) -> list[Bar]:
    first, silence = turn.first_audio_perf_ns, turn.leading_silence_ns
    stretches = [
        ("speech", turn.speech_start_perf_ns, turn.speech_end_perf_ns),
        *_chain(turn),
        ("leading_silence", None if first is None or silence is None else first - silence, first),
        ("playing", first, turn.reply_end_perf_ns),
    ]
    return [
        Bar(name, turn.source, start, end)
        for name, start, end in stretches
        if start is not None and end is not None and end >= start
    ]


def _unexplained(client: Turn | None, service: Turn | None, offset_ns: int | None) -> int | None:
    total = _voice_to_voice(client)
    if client is None or total is None:
        return None
    by_service = service is not None and _voice_to_voice(service) is not None
    known = sum(
        end - start
        for _, start, end in _chain(service if service is not None and by_service else client)
        if start is not None and end is not None
    )
    return total - known - ((offset_ns or 0) if by_service else 0) - (client.leading_silence_ns or 0)


def _unexplained_bar(client: Turn | None, unexplained_ns: int | None) -> list[Bar]:
    """The bar before the leading silence: the rest between the last known stage and the reply's first sample."""
    if client is None or unexplained_ns is None or unexplained_ns <= 0:
        return []
    if client.first_audio_perf_ns is None or client.speech_end_perf_ns is None:
        return []
    end_ns = client.first_audio_perf_ns - client.speech_end_perf_ns - (client.leading_silence_ns or 0)
    return [Bar("unexplained", "client", end_ns - unexplained_ns, end_ns)]


def _moved(bar: Bar, by_ns: int) -> Bar:
    return Bar(bar.name, bar.source, bar.start_ns + by_ns, bar.end_ns + by_ns)


def _mark(turn: Turn, name: str, at_perf_ns: int, by_ns: int) -> Mark:
    return Mark(name, turn.source, at_perf_ns + by_ns)


def _partials(client: Turn, spans: Iterable[SpanRow], zero_perf_ns: int) -> list[Mark]:
    # Spans under the caller's turn carry the caller's own wall clock, which its turn ties to the monotonic one.
    by_ns = client.started_perf_ns - client.started_unix_ns - zero_perf_ns
    return [
        Mark(PARTIAL, "client", event.unix_ns + by_ns)
        for span in spans
        if span.parent_span_id == client.span_id and client.span_id
        for event in span.events
        if event.name == semconv.EVENT_ASR_PARTIAL
    ]
