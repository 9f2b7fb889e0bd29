"""The provider's side of a streamed telephone call: whole messages in, normalized events out.

The provider opens the connection, streams the caller's audio without a break, plays what the agent sends, and answers
the agent's marks when the audio before them has been played. The wire has no words for anything else: when the agent
heard the end of a turn, what it understood and whether its reply is complete cannot be seen here.
"""

import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from loadtest.audio import pcm
from loadtest.protocols.audio_format import AudioFormat
from loadtest.protocols.base import (
    AnsweringCaller,
    CallerOptions,
    Capabilities,
    EventKind,
    Message,
    OpenRequest,
    Pcm16,
    PriorRequest,
    SpokenText,
    VoiceEvent,
)
from loadtest.protocols.error_objects import violation
from loadtest.protocols.exact_messages import ExactReader
from loadtest.protocols.foreign import message_type
from loadtest.protocols.http_items import HttpAnswer
from loadtest.protocols.json_fields import (
    Json,
    MalformedError,
    excerpt,
    optional_text,
    parse_object,
    required_base64,
)
from loadtest.protocols.stage_metrics import OF_PARTIALS, OF_TEXT, OF_TRANSCRIPTS
from loadtest.protocols.telephony import signature
from loadtest.protocols.telephony.media import MEDIA, MediaMessage
from loadtest.protocols.telephony.settings import TRACE_PARAMETER, parameters_of, telephony_settings
from loadtest.protocols.telephony.webhook import WEBHOOKS
from loadtest.protocols.telephony.wire import PAYLOAD_END, StreamedCall, TelephonyWire, encoded, required_object
from loadtest.protocols.telephony.wire import Message as Fields

WHY: Final = "a telephone call carries audio only: the agent's stages cannot be seen on this wire"
NOT_OBSERVABLE: Final[Mapping[str, str]] = dict.fromkeys(("endpointing", *OF_PARTIALS, *OF_TRANSCRIPTS, *OF_TEXT), WHY)
# Audio that begins like a file: no provider accepts a header, and it would be played as noise.
_FILE_HEADERS: Final = (b"RIFF", b"ID3", b"OggS")


class TelephonyCaller(AnsweringCaller):
    """One telephone call. Implements `loadtest.protocols.base.CallerProtocol`."""

    def __init__(self, wire: TelephonyWire, options: CallerOptions) -> None:
        """Raises UsageError, with one line for each fault of the settings."""
        super().__init__()
        self._wire = wire
        self._options = options
        self._settings = settings = telephony_settings(options, wire)
        self._format = settings.format_of(wire)
        self._media = None if wire.binary_audio else ExactReader(MEDIA[wire.name])
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
        self._head: bytes | None = None
        self._frame_ms = wire.frame_ms
        self._sequence = self._chunk = 0
        self._keys = settings.dtmf or ""
        self._marks: list[str] = []
        self._void_marks: Counter[str] = Counter()  # cleared, and not to be answered
        self._half = b""  # of a sample that the agent cut in two
        self._in_reply = False

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
            parameters={**parameters_of(self._options, settings), **trace},
        )
        if settings.webhook is not None:
            request = WEBHOOKS[wire.name].request(settings.webhook, self._call, self._options.token, traceparent)
            return OpenRequest(settings.webhook, prior=PriorRequest(request, self._as_the_webhook_says))
        return self._opening(self._call, target_url)

    def _as_the_webhook_says(self, answer: HttpAnswer) -> OpenRequest:
        """Return how to open the stream that the webhook names. Raises OpeningRefused if it names none."""
        url = self._settings.webhook or ""
        target = WEBHOOKS[self._wire.name].stream(answer, url)
        call = self._of_call
        call = self._call = replace(call, parameters={**call.parameters, **target.parameters})
        return self._opening(call, target.url)

    def _opening(self, call: StreamedCall, url: str) -> OpenRequest:
        wire = self._wire
        self._head = None if wire.media_head is None else wire.media_head(call)
        headers = signature.upgrade_headers(wire.name, url, self._options.token, call.digits)
        trace = [(TRACE_PARAMETER, self._traceparent)] if self._traceparent is not None else []
        return OpenRequest(url, (*headers, *trace, *self._options.headers))

    def opened(self) -> Sequence[Message]:
        """Say that the call is connected, and what it is."""
        call = self._of_call
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
        if self._head is None:
            return None
        at = self._chunk
        self._sequence += 1
        self._chunk = at + 1
        return self._head % (self._sequence, at + 1, at * self._frame_ms)

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
        """Say that the call is over, where the provider does."""
        stop = self._wire.stop
        return () if stop is None else (self._message(stop(self._of_call)),)

    def receive(self, message: Message) -> Sequence[VoiceEvent]:
        """Decode one message; never raises."""
        if isinstance(message, bytes):
            if self._wire.binary_audio:
                return self._audio("binary", message, self._format)
            if not message.startswith(b"{"):
                sentence = f"a binary message of {len(message)} bytes: {self._wire.provider} takes text only"
                return [violation("binary", sentence, "stray_binary")]
        raw_type = ""
        try:
            if self._media is not None and (usual := self._media.read(message)) is not None and self._is_ours(usual):
                raw_type = usual.event
                return self._audio(raw_type, usual.media.payload, self._declared(usual.media.declared))
            fields = parse_object(message)
            raw_type = message_type(fields, self._wire.type_key, message)
            return self._request(raw_type, fields)
        except MalformedError as error:
            where = f"{raw_type}: " if raw_type else ""
            return [violation(raw_type, f"{where}{error}", "malformed_message")]

    def _is_ours(self, usual: MediaMessage) -> bool:
        """Whether a message is audio of this call's stream."""
        own = usual.stream_id is None or self._call is None or usual.stream_id == self._call.stream_id
        return own and self._wire.requests.get(usual.event) == "audio"

    def _declared(self, media: Json) -> AudioFormat:
        """Return the format of the agent's audio. Raises MalformedError if a message states what is not played."""
        return self._format if self._wire.declared_format is None else self._wire.declared_format(media)

    def _request(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
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
        return [VoiceEvent(EventKind.OTHER, raw_type)]

    def _audio(self, raw_type: str, data: bytes, declared: AudioFormat) -> list[VoiceEvent]:
        events: list[VoiceEvent] = []
        if data.startswith(_FILE_HEADERS):
            sentence = f"{raw_type}: the audio begins like a file, with {data[:4]!r}; it must be raw audio"
            events.append(violation(raw_type, sentence, "audio_header"))
        if declared.encoding == "pcm16":
            data = self._half + data
            whole = len(data) // 2 * 2
            audio, self._half = data[:whole], data[whole:]
        else:
            audio = pcm.to_bytes(declared.decode(data))
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
            self._pending.append(self._message(self._wire.clear_answer))
        self._half = b""
        events = [VoiceEvent(EventKind.CLEAR, raw_type)]
        if self._in_reply:
            events.append(self._done(raw_type, "cancelled"))
        return events

    def _done(self, raw_type: str, status: str) -> VoiceEvent:
        self._in_reply = False
        return VoiceEvent(EventKind.RESPONSE_DONE, raw_type, status=status, carried=frozenset({"audio"}))

    @property
    def _of_call(self) -> StreamedCall:
        if self._call is None:
            raise RuntimeError("upgrade begins the call")
        return self._call

    def _message(self, fields: Fields) -> str:
        """Encode a message with its number and the stream's id."""
        key = self._wire.stream_key
        return encoded(self._numbered(fields if key is None else {**fields, key: self._of_call.stream_id}))

    def _numbered(self, fields: Fields) -> Fields:
        if self._wire.sequence_key is None:
            return fields
        self._sequence += 1
        number = str(self._sequence) if self._wire.sequence_is_text else self._sequence
        return {**fields, self._wire.sequence_key: number}
