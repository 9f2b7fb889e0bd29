"""The provider's side of a streamed telephone call: whole messages in, normalized events out.

The provider opens the connection, streams the caller's audio without a break, plays what the agent sends, and answers
the agent's marks when the audio before them has been played. The wire has no words for anything else: when the agent
heard the end of a turn, what it understood and whether its reply is complete cannot be seen here.
"""

import re
import secrets
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from typing import Annotated, Final

import msgspec
from pydantic import AfterValidator, Field

from loadtest.audio import g711
from loadtest.audio.pcm import Pcm16
from loadtest.errors import UsageError
from loadtest.protocols.address import parse_address
from loadtest.protocols.audio_format import FILE_HEADERS, AudioFormat, SampleStream
from loadtest.protocols.base import (
    CallerOptions,
    CallerProtocol,
    Capabilities,
    CountedHead,
    EventKind,
    Message,
    OpenRequest,
    PriorRequest,
    SpokenText,
    VoiceEvent,
)
from loadtest.protocols.error_objects import violation
from loadtest.protocols.http_items import HttpAnswer
from loadtest.protocols.json_fields import (
    Json,
    excerpt,
    optional_text,
    required_base64,
    required_object,
)
from loadtest.protocols.received import JsonMessages
from loadtest.protocols.telephony.webhook import WEBHOOKS
from loadtest.protocols.telephony.wires import (
    PAYLOAD_END,
    WIRES,
    StreamedCall,
    TelephonyWire,
    encoded,
    media_head,
    upgrade_headers,
)
from loadtest.protocols.telephony.wires import Message as WireMessage
from loadtest.protocols.wire_settings import (
    OF_PARTIALS,
    OF_TEXT,
    OF_THE_AGENT,
    OF_TRANSCRIPTS,
    WireSettings,
    read_settings,
    refuse,
)

_E164: Final = re.compile(r"\+[1-9][0-9]{1,14}")
_DIGITS: Final = re.compile(r"[0-9*#A-D]+")
TRACE_PARAMETER: Final = "traceparent"
TRACE_BYTES: Final = 55


def _number(text: str) -> str:
    if _E164.fullmatch(text) is None:
        raise ValueError("give a telephone number such as +15005550006")
    return text


def _digits(text: str) -> str:
    if _DIGITS.fullmatch(text) is None:
        raise ValueError("give the keys of a telephone: 0 to 9, *, # and A to D")
    return text


def _webhook(url: str) -> str:
    try:
        parse_address(url, "http")
    except UsageError:
        raise ValueError("give the address of a voice webhook such as http://127.0.0.1:7860/") from None
    return url


Number = Annotated[str, AfterValidator(_number)]


class TelephonySettings(WireSettings):
    """The settings of the wires twilio, telnyx, plivo, exotel and vonage."""

    from_number: Number = "+15005550006"
    to_number: Number = "+15005550001"
    account_id: str = "AC00000000000000000000000000000000"
    parameters: dict[str, str] = Field(default_factory=dict)
    encoding: str | None = None  # as the provider calls it; None: its usual one
    rate_hz: int | None = None  # of PCM; None: the provider's usual one
    dtmf: Annotated[str, AfterValidator(_digits)] | None = None  # keys pressed before the caller's first turn
    # Asked before the stream is opened, as the provider does: its answer says which stream. None: the target is it.
    webhook: Annotated[str, AfterValidator(_webhook)] | None = None
    # A mark whose name fits this pattern (`*` is anything) ends the reply. None: silence ends it.
    reply_end_mark: str | None = Field(default=None, min_length=1)

    def encoding_of(self, wire: TelephonyWire) -> str:
        """Return the provider's name for the encoding."""
        return next(iter(wire.encodings)) if self.encoding is None else self.encoding

    def format_of(self, wire: TelephonyWire) -> AudioFormat:
        """Return the format of the caller's audio."""
        kind = wire.encodings[self.encoding_of(wire)]
        if kind != "pcm16":
            return AudioFormat(kind, g711.RATE_HZ)
        return AudioFormat(kind, wire.rates_hz[0] if self.rate_hz is None else self.rate_hz)


def telephony_settings(options: CallerOptions, wire: TelephonyWire) -> TelephonySettings:
    """Return the settings of a wire. Raises UsageError with one line for each fault."""
    faults = [
        f"{wire.name}: a telephone call cannot choose {name.replace('_', ' ')}: leave it out"
        for name in OF_THE_AGENT
        if getattr(options, name) is not None
    ]
    if options.turn_control == "manual":
        faults.append(f"{wire.name}: on a telephone call the agent detects the end of turns: leave out manual turns")
    settings = read_settings(TelephonySettings, options.settings, wire.name, known_faults=faults)
    faults += _faults(settings, wire)
    faults += _parameter_faults(settings.parameters, wire)
    refuse(faults)
    return settings


def _faults(settings: TelephonySettings, wire: TelephonyWire) -> list[str]:
    faults: list[str] = []
    if settings.webhook is not None and wire.name not in WEBHOOKS:
        known = ", ".join(WEBHOOKS)
        faults.append(
            f"{wire.name}: this provider's webhook is not supported; those of {known} are: leave out 'webhook'"
        )
    kind = wire.encodings.get(settings.encoding_of(wire))
    if kind is None:
        known = ", ".join(wire.encodings)
        faults.append(f"{wire.name}: the encoding {settings.encoding!r} is unknown; known: {known}")
    elif settings.rate_hz is not None:
        known_hz = wire.rates_hz if kind == "pcm16" else (g711.RATE_HZ,)
        if settings.rate_hz not in known_hz:
            rates = ", ".join(str(rate) for rate in known_hz)
            faults.append(f"{wire.name}: rate_hz {settings.rate_hz} is not a rate of this encoding; known: {rates}")
    return faults


def _parameter_faults(parameters: Mapping[str, str], wire: TelephonyWire) -> list[str]:
    faults: list[str] = []
    if TRACE_PARAMETER in parameters:
        faults.append(f"{wire.name}: the callers set the parameter {TRACE_PARAMETER} themselves: leave it out")
    for name, value in parameters.items():
        if any(char in name + value for char in wire.reserved):
            shown = " ".join(wire.reserved)
            faults.append(
                f"{wire.name}: the parameter {name!r} contains a character that separates parameters: {shown}"
            )
        if not name:
            faults.append(f"{wire.name}: a parameter has no name")
    size = sum(len(f"{name}{value}".encode()) for name, value in parameters.items())
    size += len(TRACE_PARAMETER) + TRACE_BYTES
    if wire.most_parameter_bytes is not None and size > wire.most_parameter_bytes:
        most = f"{wire.provider} carries at most {wire.most_parameter_bytes} bytes of parameters"
        faults.append(f"{wire.name}: {most}; with the trace these have {size}: shorten them")
    return faults


WHY: Final = "a telephone call carries audio only: the agent's stages cannot be seen on this wire"
NOT_OBSERVABLE: Final[Mapping[str, str]] = dict.fromkeys(("endpointing", *OF_PARTIALS, *OF_TRANSCRIPTS, *OF_TEXT), WHY)


class TelephonyCaller(JsonMessages, CallerProtocol):
    """One telephone call."""

    def __init__(self, wire: TelephonyWire, options: CallerOptions) -> None:
        """Raises UsageError, with one line for each fault of the settings."""
        self._wire = wire
        self.type_key = wire.type_key
        self._options = options
        self._settings = settings = telephony_settings(options, wire)
        self._format = settings.format_of(wire)
        self.capabilities = Capabilities(
            input_rate_hz=self._format.rate_hz,
            frame_ms=wire.frame_ms,
            not_observable=NOT_OBSERVABLE,
            audio_is_text=not wire.binary_audio,
            audio_heads=wire.media_head is not None,
            turn_controls=frozenset({"server"}),
            reply_end="silence" if settings.reply_end_mark is None else "event",
            ready_when_open=True,
        )
        self._call: StreamedCall | None = None
        self._traceparent: str | None = None
        self._numbers = array("q", (1,))  # of the next message; the frames' head counts on in it
        self._head: CountedHead | None = None
        self._keys = settings.dtmf or ""
        self._marks: list[str] = []
        self._void_marks: Counter[str] = Counter()  # cleared, and not to be answered
        self._samples = SampleStream(self._format)  # of the agent's audio
        self._in_reply = False
        self._answers: list[WireMessage] = []

    def upgrade(self, target_url: str, traceparent: str | None) -> OpenRequest:
        """Begin the call. Its ids are made of the trace's, so that the agent's log can be found from a trace."""
        wire, settings = self._wire, self._settings
        digits = secrets.token_hex(16) if traceparent is None else traceparent.split("-")[1]
        self._traceparent = traceparent
        trace = {} if traceparent is None else {TRACE_PARAMETER: traceparent}
        stream_id, call_id = wire.ids(digits)
        self._call = StreamedCall(
            digits=digits,
            stream_id=stream_id,
            call_id=call_id,
            account_id=settings.account_id,
            from_number=settings.from_number,
            to_number=settings.to_number,
            encoding=settings.encoding_of(wire),
            format=self._format,
            parameters={**settings.parameters, **trace},
        )
        if settings.webhook is not None:
            request = WEBHOOKS[wire.name].request(settings.webhook, self._call, self._options.token, traceparent)
            return OpenRequest(settings.webhook, prior=PriorRequest(request, self._as_the_webhook_says))
        return self._opening(self._call, target_url)

    def _as_the_webhook_says(self, answer: HttpAnswer) -> OpenRequest:
        """Return how to open the stream that the webhook names. Raises OpeningRefused if it names none."""
        url = self._settings.webhook or ""
        target = WEBHOOKS[self._wire.name].stream(answer, url)
        call = self._streamed_call
        call = self._call = replace(call, parameters={**call.parameters, **target.parameters})
        return self._opening(call, target.url)

    def _opening(self, call: StreamedCall, url: str) -> OpenRequest:
        wire = self._wire
        pattern = media_head(wire, call)
        if pattern is not None:
            self._head = CountedHead(pattern, (1, 1, 0), (1, 1, wire.frame_ms))
            self._numbers = self._head.numbers
        headers = upgrade_headers(wire.name, url, self._options.token, call.digits)
        trace = [(TRACE_PARAMETER, self._traceparent)] if self._traceparent is not None else []
        return OpenRequest(url, (*headers, *trace, *self._options.headers))

    def opened(self) -> Sequence[Message]:
        """Send that the call is connected, and its description."""
        call = self._streamed_call
        greeting = self._wire.greeting
        first = () if greeting is None else (encoded(greeting(self._options.token)),)
        return (*first, encoded(self._numbered(self._wire.start(call))))

    def audio_message(self, pcm: Pcm16) -> bytes:
        """Return one frame: the end of a media message, or binary audio."""
        audio = self._format.encode(pcm)
        # A JSON text of bytes is their base64, in quotes; the message's beginning ends with the opening quote.
        return audio if self._wire.binary_audio else msgspec.json.encode(audio)[1:-1] + PAYLOAD_END

    def audio_head(self) -> bytes | None:
        """Return the beginning of the next media message: its number, and the place of its audio in the call."""
        return None if self._head is None else self._head.next()

    def counted_head(self) -> CountedHead | None:
        """Return the beginning of media messages, if they have one."""
        return self._head

    def pending(self) -> Sequence[Message]:
        """Return the answer to a clear message where the provider gives one, numbered when it is sent."""
        if not self._answers:
            return ()
        answers, self._answers = self._answers, []
        return [self._message(fields) for fields in answers]

    def begin_turn(self, spoken: SpokenText) -> Sequence[Message]:
        """Before the first turn, press the keys that the settings ask for."""
        del spoken
        keys, self._keys = self._keys, ""
        return [self._message(self._wire.dtmf(key)) for key in keys]

    def played(self, mark: str) -> Sequence[Message]:
        """Answer a mark whose audio has been played, or cleared where the provider answers that as well."""
        if self._void_marks[mark]:
            self._void_marks[mark] -= 1
            return ()
        if mark in self._marks:
            self._marks.remove(mark)
        return (self._message(self._wire.mark_answer(mark)),)

    def goodbye(self) -> Sequence[Message]:
        """Send that the call is over, if the provider does so."""
        stop = self._wire.stop
        return () if stop is None else (self._message(stop(self._streamed_call)),)

    def receive(self, message: Message) -> Sequence[VoiceEvent]:
        """Decode one message; never raises."""
        if isinstance(message, bytes):
            if self._wire.binary_audio:
                return self._audio("binary", message, self._format)
            if not message.startswith(b"{"):
                sentence = f"a binary message of {len(message)} bytes: {self._wire.provider} takes text only"
                return [violation("binary", sentence, "stray_binary")]
        return super().receive(message)

    def _declared(self, media: Json) -> AudioFormat:
        """Return the format of the agent's audio. Raises MalformedError if a message states what is not played."""
        return self._format if self._wire.declared_format is None else self._wire.declared_format(media)

    def handle(self, raw_type: str, fields: Json, message: Message) -> list[VoiceEvent]:
        """Return the events of a request of this type. May raise MalformedError."""
        del message
        wire = self._wire
        request = wire.requests.get(raw_type)
        if request is None:
            return [VoiceEvent(EventKind.UNKNOWN, raw_type)]
        stream_id = None if wire.stream_key is None else optional_text(fields, wire.stream_key)
        if stream_id is not None and self._call is not None and stream_id != self._call.stream_id:
            sentence = f"{raw_type}: {wire.stream_key} is {excerpt(stream_id)}, which is not this call's stream"
            return [violation(raw_type, sentence, "wrong_stream")]
        if request == "audio":
            media = required_object(fields, "media")
            declared = self._declared(media)
            return self._audio(raw_type, required_base64(media, "payload"), declared)
        if request == "mark":
            return self._mark(raw_type, wire.mark_name(fields))
        if request == "clear":
            return self._clear(raw_type)
        return []

    def _audio(self, raw_type: str, data: bytes, declared: AudioFormat) -> list[VoiceEvent]:
        events: list[VoiceEvent] = []
        if data.startswith(FILE_HEADERS):
            sentence = f"{raw_type}: the audio begins like a file, with {data[:4]!r}; it must be raw audio"
            events.append(violation(raw_type, sentence, "audio_header"))
        self._samples.format = declared
        audio = self._samples.feed(data)
        if not audio:
            return [*events, VoiceEvent(EventKind.OTHER, raw_type)]
        self._in_reply = self._settings.reply_end_mark is not None
        events.append(VoiceEvent(EventKind.AUDIO, raw_type, audio=audio, rate_hz=declared.rate_hz))
        return events

    def _mark(self, raw_type: str, name: str) -> list[VoiceEvent]:
        self._marks.append(name)
        events = [VoiceEvent(EventKind.MARK, raw_type, text=name)]
        pattern = self._settings.reply_end_mark
        if pattern is not None and self._in_reply and fnmatchcase(name, pattern):
            events.append(self._done(raw_type, "completed"))
        return events

    def _clear(self, raw_type: str) -> list[VoiceEvent]:
        if not self._wire.marks_outlive_clear:
            self._void_marks.update(self._marks)
            self._marks.clear()
        if self._wire.clear_answer is not None:
            self._answers.append(self._wire.clear_answer)
        self._samples.half = b""
        events = [VoiceEvent(EventKind.CLEAR, raw_type)]
        if self._in_reply:
            events.append(self._done(raw_type, "cancelled"))
        return events

    def _done(self, raw_type: str, status: str) -> VoiceEvent:
        self._in_reply = False
        return VoiceEvent(EventKind.RESPONSE_DONE, raw_type, status=status, carried=frozenset({"audio"}))

    @property
    def _streamed_call(self) -> StreamedCall:
        if self._call is None:
            raise RuntimeError("upgrade begins the call")
        return self._call

    def _message(self, fields: WireMessage) -> str:
        """Encode a message with its number and the stream's id."""
        key = self._wire.stream_key
        return encoded(self._numbered(fields if key is None else {**fields, key: self._streamed_call.stream_id}))

    def _numbered(self, fields: WireMessage) -> WireMessage:
        if self._wire.sequence_key is None:
            return fields
        number = self._numbers[0]
        self._numbers[0] = number + 1
        return {**fields, self._wire.sequence_key: str(number) if self._wire.sequence_is_text else number}


twilio, telnyx, plivo, exotel, vonage = (
    partial(TelephonyCaller, WIRES[name]) for name in ("twilio", "telnyx", "plivo", "exotel", "vonage")
)
