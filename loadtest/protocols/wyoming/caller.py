"""A caller of Wyoming services (Home Assistant's wire): recognize, handle and synthesize, each over a TCP connection.

Servers of one stage, as Home Assistant has them, close their connection after each transcript or synthesis. It is
opened again by the time of the next turn. The address of a stage may be its own.

The caller itself is the agent between the services, as in the HTTP cascade: it ends its turn, hands the transcript to
the handle service and each sentence of the answer to speech synthesis. Between turns nothing is said to a recognizer:
the frames of that time are events of a type that Wyoming does not define, which servers ignore.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec
import orjson
from pydantic import AfterValidator

from loadtest.audio import pcm as samples
from loadtest.audio.pcm import Pcm16
from loadtest.errors import UsageError
from loadtest.protocols.address import parse_address
from loadtest.protocols.base import (
    CallerOptions,
    CallerProtocol,
    Capabilities,
    EventKind,
    Message,
    OpenRequest,
    Outgoing,
    ServiceLost,
    ServiceMessage,
    SpokenText,
    VoiceEvent,
)
from loadtest.protocols.error_objects import error_message
from loadtest.protocols.failure import Failure, code_of
from loadtest.protocols.foreign import message_type
from loadtest.protocols.json_fields import (
    Json,
    MalformedError,
    as_list,
    as_object,
    excerpt,
    optional_count,
    optional_object,
    optional_text,
    parse_object,
)
from loadtest.protocols.received import malformed, unhandled
from loadtest.protocols.stages.parts import StageName, not_observable
from loadtest.protocols.stages.reply import StageReply
from loadtest.protocols.wire_settings import (
    CALLER_ENDS_TURNS,
    WireSettings,
    faults_of_two,
    faults_without_effect,
    read_settings,
    refuse,
)


class WyomingEvent(msgspec.Struct, frozen=True, gc=False):
    """One event."""

    type: str
    data: Json
    payload: bytes


def event_header(kind: str, data: Mapping[str, Any], payload_bytes: int = 0) -> bytes:
    """Return what precedes the payload of an event. Members of the data whose value is None are left out."""
    members = {name: value for name, value in data.items() if value is not None}
    encoded = orjson.dumps(members) if members else b""
    header: dict[str, Any] = {"type": kind, "version": "1.10.2"}
    if encoded:
        header["data_length"] = len(encoded)
    if payload_bytes:
        header["payload_length"] = payload_bytes
    return orjson.dumps(header) + b"\n" + encoded


def parse_event(message: bytes) -> WyomingEvent:
    """Parse one whole event: its data is the line's own, and that which follows it. Raises MalformedError."""
    line, newline, rest = message.partition(b"\n")
    header = parse_object(line)
    data_bytes = optional_count(header, "data_length") or 0
    if not newline or len(rest) != data_bytes + (optional_count(header, "payload_length") or 0):
        raise MalformedError(f"not an event: {excerpt(message)}")
    data: dict[str, object] = dict(optional_object(header, "data") or {})
    if data_bytes:
        data |= parse_object(rest[:data_bytes])
    return WyomingEvent(message_type(header, "type", line), data, rest[data_bytes:])


WIRE: Final = "wyoming"
Stage = Literal["asr", "handle", "tts"]
# The settings that only one service is asked for.
_OF_STAGE: Final[Mapping[str, Stage]] = {
    "asr_url": "asr",
    "handle_url": "handle",
    "tts_url": "tts",
    "asr_model": "asr",
    "language": "asr",
    "voice": "tts",
    "speaker": "tts",
}


def _service_url(url: str) -> str:
    try:
        parse_address(url, "tcp")
    except UsageError as error:
        raise ValueError(str(error)) from None
    return url


ServiceUrl = Annotated[str, AfterValidator(_service_url)]


class WyomingSettings(WireSettings):
    """The settings of the wire wyoming."""

    stages: tuple[Stage, ...] = ("asr", "handle", "tts")
    # A stage without an address of its own is at the target.
    asr_url: ServiceUrl | None = None
    handle_url: ServiceUrl | None = None
    tts_url: ServiceUrl | None = None
    rate_hz: Literal[8000, 16000, 22050, 24000, 48000] = 16000
    language: str | None = None
    asr_model: str | None = None
    voice: str | None = None
    speaker: str | None = None

    def url(self, stage: Stage, target_url: str) -> str:
        """Return the address of one stage."""
        own: str | None = getattr(self, f"{stage}_url")
        return target_url if own is None else own


def wyoming_settings(options: CallerOptions) -> WyomingSettings:
    """Return the settings, completed by the neutral options. Raises UsageError with all faults."""
    faults = faults_without_effect(options, WIRE, {"silence_duration_ms": CALLER_ENDS_TURNS})
    settings = read_settings(WyomingSettings, options.settings, WIRE, known_faults=faults)
    only_asr = settings.stages == ("asr",)
    faults += [
        f"{WIRE}: the setting {name!r} is of {stage}, which is not among the stages; leave it out"
        for name, stage in _OF_STAGE.items()
        if name in settings.model_fields_set and stage not in settings.stages
    ]
    reasons = {} if "asr" in settings.stages else {"transcription_model": "asr is not a stage"}
    if not only_asr:
        reasons["model"] = "only its recognizer has a choice of models: the transcription model"
    faults += faults_without_effect(options, WIRE, reasons)
    models = {"transcription_model": options.transcription_model, "model": options.model if only_asr else None}
    faults += faults_of_two(WIRE, {**models, "asr_model": settings.asr_model})
    refuse(faults)
    model = settings.asr_model or models["transcription_model"] or models["model"]
    return settings.model_copy(update={"asr_model": model})


FRAME_MS: Final = 20
# Of no meaning to any service; official servers ignore types that they do not know.
UNSPOKEN: Final = "voiceprobe-unspoken"
_UNUSED: Final = frozenset(
    {"transcript-start", "transcript-stop", "synthesize-stopped", "pong", "voice-started", "voice-stopped"}
)
_METRICS_OF: Final[Mapping[Stage, StageName]] = {"asr": "asr", "handle": "llm", "tts": "tts"}
Handler = Callable[[Any, str, WyomingEvent], list[VoiceEvent]]


class WyomingCaller(CallerProtocol):
    """One conversation of a caller."""

    def __init__(self, options: CallerOptions) -> None:
        """Raises UsageError with all faults of the settings."""
        self._settings = settings = wyoming_settings(options)
        self._stages = frozenset(settings.stages)
        self.capabilities = Capabilities(
            input_rate_hz=settings.rate_hz,
            frame_ms=FRAME_MS,
            not_observable=not_observable(frozenset(_METRICS_OF[stage] for stage in settings.stages)),
            audio_heads=True,
            audio_is_text=False,
            transport="tcp",
            framing="event_lines",
            turn_controls=frozenset({"manual"}),
            names_questions=False,
        )
        self._voice = {"name": settings.voice, "speaker": settings.speaker}
        self._format = {"rate": settings.rate_hz, "width": 2, "channels": 1}
        payload_bytes = settings.rate_hz * FRAME_MS // 1000 * 2
        self._spoken_head = event_header("audio-chunk", self._format, payload_bytes)
        self._unspoken_head = event_header(UNSPOKEN, {}, payload_bytes)
        self._context: dict[str, str] | None = None
        self._owed: list[VoiceEvent] = []
        self._ready = False
        self._addresses: dict[str, str] = {}
        self._programs: dict[str, str | None] = {}  # of the services that have said what they offer
        self._source: str | None = None  # the service that the event which is handled came from
        self._speaks = False  # the caller's turn is open: frames are the utterance
        self._awaits_transcript = False
        self._turn = 0
        self._text = ""
        self._reply: StageReply | None = None
        self._streams = False  # the handle service sends its answer in pieces
        self._abandoned = 0  # syntheses of replies that were broken off, whose audio still comes

    # What is sent.

    def upgrade(self, target_url: str, traceparent: str | None) -> OpenRequest:
        """Keep the trace for the events that can carry it: there is no handshake."""
        self._context = None if traceparent is None else {"traceparent": traceparent}
        self._addresses = {stage: self._settings.url(stage, target_url) for stage in self._settings.stages}
        audio = "asr" if "asr" in self._stages else None
        return OpenRequest(target_url, services=dict(self._addresses), audio_service=audio)

    def opened(self) -> Sequence[Message]:
        """Ask each service what it offers."""
        return tuple(_to(stage, "describe") for stage in self._settings.stages)

    def awaited(self) -> str | None:
        """Return the event in which a server says what it offers."""
        return "info in answer to describe"

    def audio_message(self, pcm: Pcm16) -> bytes:
        """Return the samples: they are the payload of the event that `audio_head` begins."""
        return samples.to_bytes(pcm)

    def audio_head(self) -> bytes:
        """Return the line of a frame: a part of the utterance, or nothing that any service hears."""
        return self._spoken_head if self._speaks else self._unspoken_head

    def begin_turn(self, spoken: SpokenText) -> Sequence[Message]:
        """Begin to recognize, or take the text of the turn where no recognizer is part of the wire."""
        self._text = spoken.text
        if "asr" not in self._stages:
            return ()
        self._speaks = True
        request = {"name": self._settings.asr_model, "language": self._settings.language, "context": self._context}
        return (_to("asr", "transcribe", request), _to("asr", "audio-start", self._format))

    def end_turn(self) -> Sequence[Outgoing]:
        """End the utterance, or send its text to the first service."""
        self._speaks = False
        self._break_off()
        self._turn += 1
        if "asr" in self._stages:
            self._awaits_transcript = True
            self._send(_to("asr", "audio-stop"))
        else:
            self._answer(self._text)
        return self.pending()

    def interrupt(self, played_ms: int) -> Sequence[Message]:
        """Drop what still comes of the reply: a service accepts no request to stop."""
        del played_ms
        self._break_off()
        return ()

    def _answer(self, text: str) -> None:
        reply = self._reply = StageReply(f"reply-{self._turn}")
        self._streams = False
        if "handle" in self._stages:
            self._send(_to("handle", "transcript", {"text": text, "context": self._context}))
            return
        reply.waiting.append(text)
        reply.words_over = True
        self._speak(reply)

    def _speak(self, reply: StageReply) -> None:
        # A server that closes after each synthesis would not read a request behind speech that is not heard any more.
        text = reply.next_text() if "tts" in self._stages and not self._abandoned else None
        if text is None:
            return
        reply.speaking = f"synthesis-{reply.spoken}"
        voice = {name: value for name, value in self._voice.items() if value is not None}
        request = {"text": text, "voice": voice or None, "context": self._context}
        self._send(_to("tts", "synthesize", request))

    def _break_off(self) -> None:
        reply, self._reply = self._reply, None
        if reply is None:
            return
        if reply.speaking is not None:
            self._abandoned += 1
        if reply.started:
            self._owed.append(reply.done("cancel", "cancelled"))

    # What arrives.

    def receive(self, message: Message | ServiceLost) -> Sequence[VoiceEvent]:
        """Decode one whole event, or the loss of a service's connection; never raises."""
        events, self._owed = self._owed, []
        if isinstance(message, ServiceLost):
            return [*events, *self._lost(message)]
        self._source = message.service if isinstance(message, ServiceMessage) else None
        raw_type = ""
        try:
            event = parse_event(message.encode() if isinstance(message, str) else message)
            raw_type = event.type
            handler = self._handlers.get(raw_type)
            if handler is None:
                return [*events, *unhandled(raw_type, _UNUSED)]
            return [*events, *(handler(self, raw_type, event) or [VoiceEvent(EventKind.OTHER, raw_type)])]
        except MalformedError as error:
            return [*events, *malformed(raw_type, error)]

    def _info(self, raw_type: str, event: WyomingEvent) -> list[VoiceEvent]:
        if self._ready:
            return []
        # A server speaks for all services at its address.
        address = self._addresses.get(self._source or "")
        asked = self._stages if address is None else {s for s, url in self._addresses.items() if url == address}
        missing = sorted(stage for stage in asked if not event.data.get(stage))
        if missing:
            sentence = (
                f"the server offers no {' and no '.join(missing)}; set --protocol-option stages=[…] to what it offers, "
                f"or {' and '.join(f'{stage}_url' for stage in missing)} to a server that offers it"
            )
            failure = Failure("endpoint_error", "stage_missing")
            return [VoiceEvent(EventKind.ERROR, raw_type, message=sentence, fatal=True, failure=failure)]
        self._programs |= {stage: _name_of(event.data.get(stage)) for stage in sorted(asked)}
        if set(self._programs) < self._stages:
            return []
        self._ready = True
        metadata = {f"{stage}.program": name for stage, name in sorted(self._programs.items()) if name}
        return [VoiceEvent(EventKind.READY, raw_type, metadata=metadata)]

    def _lost(self, lost: ServiceLost) -> list[VoiceEvent]:
        """Handle the end of a service's connection: a fault only where something was due from it."""
        raw_type, reply = f"{lost.service}.closed", self._reply
        message = f"the {lost.service} service: {lost.reason}"
        if not self._ready or (lost.service == "asr" and self._speaks):
            return [VoiceEvent(EventKind.ERROR, raw_type, message=message, fatal=True, failure=lost.failure)]
        events: list[VoiceEvent] = []
        if lost.service == "tts" and self._abandoned:
            self._abandoned = 0  # nothing of it comes any more
            if reply is not None:
                self._speak(reply)
            return [VoiceEvent(EventKind.OTHER, raw_type)]
        if lost.service == "asr" and self._awaits_transcript:
            self._awaits_transcript = False
            reply = StageReply(f"reply-{self._turn}")
            events.append(VoiceEvent(EventKind.ASR_FAILED, raw_type, message=message, failure=lost.failure))
        elif reply is None or not self._is_due(reply, lost.service):
            reply = None
        if reply is None:
            return [VoiceEvent(EventKind.OTHER, raw_type)]
        self._reply = None
        return [*events, *reply.start(raw_type), reply.done(raw_type, "failed", message, lost.failure)]

    def _is_due(self, reply: StageReply, service: str) -> bool:
        """Return whether a running reply still needs something that was asked of a service."""
        return reply.speaking is not None if service == "tts" else service == "handle" and not reply.words_over

    def _partial(self, raw_type: str, event: WyomingEvent) -> list[VoiceEvent]:
        text = optional_text(event.data, "text")
        kind = EventKind.ASR_PARTIAL if text else EventKind.OTHER
        return [VoiceEvent(kind, raw_type, item_id=f"utterance-{self._turn}", text=text)]

    def _transcript(self, raw_type: str, event: WyomingEvent) -> list[VoiceEvent]:
        text = optional_text(event.data, "text") or ""
        self._awaits_transcript = False
        final = VoiceEvent(EventKind.ASR_FINAL, raw_type, item_id=f"utterance-{self._turn}", text=text)
        if text.strip() and self._stages & {"handle", "tts"}:
            self._answer(text)
            return [final]
        # Nothing more comes of this turn: the transcript is its result, or there is no answer to nothing.
        reply = StageReply(f"reply-{self._turn}")
        return [final, *reply.start(raw_type), reply.done(raw_type, "completed")]

    def _handled_start(self, raw_type: str, event: WyomingEvent) -> list[VoiceEvent]:
        del event
        self._streams = True
        return [] if self._reply is None else self._reply.start(raw_type)

    def _handled_piece(self, raw_type: str, event: WyomingEvent) -> list[VoiceEvent]:
        text, reply = optional_text(event.data, "text"), self._reply
        return [] if reply is None else self._words(reply, raw_type, text or "")

    def _handled(self, raw_type: str, event: WyomingEvent) -> list[VoiceEvent]:
        """Handle the whole answer. After pieces of it, it only repeats them."""
        reply = self._reply
        if reply is None or self._streams:
            return []
        events = self._words(reply, raw_type, optional_text(event.data, "text") or "")
        return [*events, *self._end_of_words(reply, raw_type)]

    def _handled_stop(self, raw_type: str, event: WyomingEvent) -> list[VoiceEvent]:
        del event
        return [] if self._reply is None else self._end_of_words(self._reply, raw_type)

    def _words(self, reply: StageReply, raw_type: str, text: str) -> list[VoiceEvent]:
        events = reply.start(raw_type)
        if not text:
            return events
        reply.add(text)
        self._speak(reply)
        return [*events, reply.event(EventKind.LLM_TEXT, raw_type, text=text)]

    def _end_of_words(self, reply: StageReply, raw_type: str) -> list[VoiceEvent]:
        reply.end_words()
        if "tts" not in self._stages:
            reply.waiting.clear()
        self._speak(reply)
        return self._conclude(reply, raw_type)

    def _audio(self, raw_type: str, event: WyomingEvent) -> list[VoiceEvent]:
        reply = self._reply
        rate_hz = optional_count(event.data, "rate")
        width, channels = optional_count(event.data, "width"), optional_count(event.data, "channels")
        if not rate_hz or width not in (None, 2) or channels not in (None, 1) or len(event.payload) % 2:
            raise MalformedError(f"audio of {rate_hz} Hz, {width} bytes and {channels} channels is not 16-bit mono")
        if reply is None or self._abandoned or not event.payload:
            return []
        reply.carried.add("audio")
        audio = reply.event(EventKind.AUDIO, raw_type, audio=event.payload, rate_hz=rate_hz)
        return [*reply.start(raw_type), audio]

    def _audio_stop(self, raw_type: str, event: WyomingEvent) -> list[VoiceEvent]:
        del event
        reply = self._reply
        if self._abandoned:
            self._abandoned -= 1
            if reply is not None:
                self._speak(reply)
            return []
        if reply is None:
            return []
        events = reply.start(raw_type)
        reply.speaking = None
        self._speak(reply)
        return [*events, *self._conclude(reply, raw_type)]

    def _audio_start(self, raw_type: str, event: WyomingEvent) -> list[VoiceEvent]:
        del event
        reply = self._reply
        if reply is None or self._abandoned:
            return []
        return [*reply.start(raw_type), reply.event(EventKind.SPEECH_SYNTHESIS_STARTED, raw_type)]

    def _error(self, raw_type: str, event: WyomingEvent) -> list[VoiceEvent]:
        message = error_message(event.data)
        failure = Failure("endpoint_error", code_of(event.data.get("code")))
        reply, events = self._reply, list[VoiceEvent]()
        if self._awaits_transcript:
            self._awaits_transcript = False
            reply = StageReply(f"reply-{self._turn}")
            events.append(VoiceEvent(EventKind.ASR_FAILED, raw_type, message=message, failure=failure))
        elif self._source == "asr":
            reply = None  # it has answered, and the reply does not need it any more
        if reply is None or not self._ready:
            return [VoiceEvent(EventKind.ERROR, raw_type, message=message, fatal=not self._ready, failure=failure)]
        self._reply = None
        return [*events, *reply.start(raw_type), reply.done(raw_type, "failed", message, failure)]

    def _ping(self, raw_type: str, event: WyomingEvent) -> list[VoiceEvent]:
        stage = self._source or self._settings.stages[0]
        del raw_type
        self._send(_to(stage, "pong", {"text": optional_text(event.data, "text")}))
        return []

    def _conclude(self, reply: StageReply, raw_type: str) -> list[VoiceEvent]:
        if not reply.complete:
            return []
        self._reply = None
        return reply.finish(raw_type)

    _handlers: ClassVar[Mapping[str, Handler]] = {
        "info": _info,
        "transcript-chunk": _partial,
        "transcript": _transcript,
        "handled-start": _handled_start,
        "handled-chunk": _handled_piece,
        "handled": _handled,
        "not-handled": _handled,
        "handled-stop": _handled_stop,
        "audio-start": _audio_start,
        "audio-chunk": _audio,
        "audio-stop": _audio_stop,
        "error": _error,
        "ping": _ping,
    }


def _to(stage: str, kind: str, data: Mapping[str, Any] = MappingProxyType({})) -> ServiceMessage:
    return ServiceMessage.of(stage, event_header(kind, data))


def _name_of(programs: object) -> str | None:
    """Return the name of the first of the programs that a server offers for a stage."""
    name = next(((as_object(program) or {}).get("name") for program in as_list(programs) or ()), None)
    return name if isinstance(name, str) else None
