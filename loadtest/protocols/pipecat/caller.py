"""The caller's side of Pipecat's WebSocket transports.

`PipecatCaller` speaks protobuf (`/ws-client` of Pipecat's runner), `PipecatEvalCaller` the JSON of its evaluation
transport (`/ws`). Both carry RTVI, and both pace the bot's audio about as fast as it is played. The bot's code decides
what settings do not.

Source of the protobuf, one `Frame` in each binary message: pipecat 1.14.0, src/pipecat/frames/frames.proto. Fields and
frames that it does not define are ignored.
"""

import base64
from collections.abc import Sequence
from typing import Annotated, Final, Literal

import pydantic

from loadtest.audio import pcm as pcm_codec
from loadtest.audio.pcm import Pcm16
from loadtest.protocols.base import (
    CallerOptions,
    CallerProtocol,
    Capabilities,
    EventKind,
    Message,
    OpenRequest,
    SpokenText,
    VoiceEvent,
)
from loadtest.protocols.error_objects import violation
from loadtest.protocols.headers import bearer_headers
from loadtest.protocols.json_fields import (
    Json,
    MalformedError,
    excerpt,
    optional_count,
    optional_object,
    parse_object,
    required_base64,
)
from loadtest.protocols.pipecat.rtvi import LABEL, VERSION, RtviSession, client_ready, disconnect, eval_connect, trace
from loadtest.protocols.received import malformed
from loadtest.protocols.transports.protobuf import BYTES, COUNT, LONG, STRING, Fields, decoded, message_class
from loadtest.protocols.wire_settings import WireSettings, checked_settings, faults_of_options

RtviVersion = Annotated[str, pydantic.Field(pattern=r"^[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}$")]


class PipecatSettings(WireSettings):
    """The `[protocol]` table of a scenario."""

    # Pipecat does not resample what it receives: audio at another rate than the bot's spoils recognition silently.
    input_rate_hz: Literal[8000, 16000, 24000, 48000] = 16000
    rtvi_version: RtviVersion = VERSION


def faults_of_the_bot(options: CallerOptions, wire: str) -> list[str]:
    """Return a sentence for each option that has no effect on a bot."""
    return faults_of_options(options, wire, "the bot", "the bot's code")


_NAMED: Final[Fields] = {"id": (1, LONG), "name": (2, STRING)}
_Frame: Final = message_class(
    "Frame",
    {
        "TextFrame": {**_NAMED, "text": (3, STRING)},
        "AudioRawFrame": {**_NAMED, "audio": (3, BYTES), "sample_rate": (4, COUNT), "num_channels": (5, COUNT)},
        "TranscriptionFrame": {
            **_NAMED,
            "text": (3, STRING),
            "user_id": (4, STRING),
            "timestamp": (5, STRING),
        },
        "MessageFrame": {"data": (1, STRING)},
        "InterruptionFrame": _NAMED,
    },
    {
        "Frame": {
            "text": (1, "TextFrame"),
            "audio": (2, "AudioRawFrame"),
            "transcription": (3, "TranscriptionFrame"),
            "message": (4, "MessageFrame"),
            "interruption": (5, "InterruptionFrame"),
        }
    },
)


def audio_frame(pcm: bytes, rate_hz: int) -> bytes:
    """Encode mono 16-bit little-endian samples."""
    return _Frame(audio={"audio": pcm, "sample_rate": rate_hz, "num_channels": 1}).SerializeToString()


def message_frame(data: str) -> bytes:
    """Encode a JSON text."""
    return _Frame(message={"data": data}).SerializeToString()


FRAME_MS: Final = 20
EVAL_AUDIO: Final = "eval-bot-audio"


class PipecatCaller(CallerProtocol):
    """One conversation over protobuf."""

    name = "pipecat"
    audio_is_text = False

    def __init__(self, options: CallerOptions) -> None:
        """Raises UsageError for settings and options that this wire does not have."""
        self._options = options
        self._settings = checked_settings(PipecatSettings, options, self.name, faults_of_the_bot(options, self.name))
        self._session = RtviSession()
        self._traceparent: str | None = None
        self._turns = 0
        self.capabilities = Capabilities(
            input_rate_hz=self._settings.input_rate_hz,
            frame_ms=FRAME_MS,
            not_observable={},
            audio_is_text=self.audio_is_text,
            turn_controls=frozenset({"server"}),
        )

    def upgrade(self, target_url: str, traceparent: str | None) -> OpenRequest:
        """Put the token and the trace into headers, which the bot's code can read from its WebSocket."""
        self._traceparent = traceparent
        headers = bearer_headers(self._options.token, traceparent)
        return OpenRequest(target_url, (*headers, *self._options.headers))

    def opened(self) -> Sequence[Message]:
        """State the version of RTVI; the bot is ready when it has answered."""
        return (self.encoded(client_ready(self._settings.rtvi_version)),)

    def receive(self, message: Message) -> Sequence[VoiceEvent]:
        """Decode one message; never raises."""
        if isinstance(message, str):
            sentence = f"a text message on a wire of binary ones: {excerpt(message)}"
            return [violation("text", sentence, "malformed_message")]
        try:
            kind, fields = decoded(_Frame, message, "a Pipecat frame")
        except MalformedError as error:
            return malformed("binary", error)
        if kind == "audio":
            return self._session.audio(kind, fields.audio, fields.sample_rate, fields.num_channels or 1)
        if kind == "message":
            return self._session.receive(fields.data)
        if kind == "interruption":
            return self._session.interrupted(kind)
        # Text and transcriptions also come as RTVI messages, with the moment at which they were made.
        return [VoiceEvent(EventKind.UNKNOWN if kind is None else EventKind.OTHER, kind or "frame")]

    def awaited(self) -> str | None:
        """Return the message that says that the bot is ready."""
        return "bot-ready in answer to client-ready"

    def audio_message(self, pcm: Pcm16) -> bytes:
        """Return an AudioRawFrame with one frame at the input rate."""
        return audio_frame(pcm_codec.to_bytes(pcm), self.capabilities.input_rate_hz)

    def begin_turn(self, spoken: SpokenText) -> Sequence[Message]:
        """Send the trace of this turn to the bot's code, if there is one."""
        del spoken
        self._turns += 1
        if self._traceparent is None:
            return ()
        return (self.encoded(trace(self._traceparent, self._turns)),)

    def goodbye(self) -> Sequence[Message]:
        """Ask the bot to end its pipeline."""
        return (self.encoded(disconnect()),)

    def encoded(self, message: str) -> Message:
        """Return an RTVI message as this wire carries it."""
        return message_frame(message)


class PipecatEvalCaller(PipecatCaller):
    """One conversation over the JSON of Pipecat's evaluation transport."""

    name = "pipecat-eval"
    audio_is_text = True

    def opened(self) -> Sequence[Message]:
        """Choose the transport, then state the version of RTVI."""
        return (eval_connect(), *super().opened())

    def receive(self, message: Message) -> Sequence[VoiceEvent]:
        """Decode one message; never raises."""
        audio_at = message.find(EVAL_AUDIO) if isinstance(message, str) else message.find(EVAL_AUDIO.encode())
        return self._session.receive(message) if audio_at < 0 else self._perhaps_audio(message)

    def _perhaps_audio(self, message: Message) -> Sequence[VoiceEvent]:
        """Decode a message that contains the name of the audio's type, perhaps only in a text."""
        try:
            fields = parse_object(message)
            if fields.get("type") != EVAL_AUDIO or fields.get("label") != LABEL:
                return self._session.receive(message)
            data: Json = optional_object(fields, "data") or {}
            pcm, rate_hz = required_base64(data, "audio"), optional_count(data, "sampleRate")
        except MalformedError as error:
            return malformed(EVAL_AUDIO, error)
        return self._session.audio(EVAL_AUDIO, pcm, rate_hz or 0, 1)

    def audio_message(self, pcm: Pcm16) -> bytes:
        """Return `raw-audio` with one frame at the input rate."""
        encoded = base64.b64encode(pcm_codec.to_bytes(pcm))
        data = b'"data":{"sampleRate":%d,"numChannels":1,"base64Audio":"' % self.capabilities.input_rate_hz
        return b'{"label":"rtvi-ai","type":"raw-audio","id":"audio",' + data + encoded + b'"}}'

    def encoded(self, message: str) -> Message:
        """Return an RTVI message as this wire carries it."""
        return message
