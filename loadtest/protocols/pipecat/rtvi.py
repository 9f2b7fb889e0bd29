"""RTVI 2, the messages of a Pipecat bot, whatever carries them: JSON in, normalized events out.

Source: pipecat 1.14.0, processors/frameworks/rtvi/{models,observer,processor}.py (protocol 2.2.0).

Several messages come under more than one name (a deprecated one, and raw text that a bot may switch on); the name that
comes first in a session counts, and the others are ignored. Texts "as spoken" (bot-output, tts-raw-text) are not the
language model's output, and are ignored as well.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

from loadtest.protocols.audio_format import HIGHEST_RATE_HZ, LOWEST_RATE_HZ
from loadtest.protocols.base import EventKind, VoiceEvent
from loadtest.protocols.cumulative_partials import CumulativePartials
from loadtest.protocols.error_objects import error_message, violation
from loadtest.protocols.failure import Failure, code_of, retry_after_of_fields
from loadtest.protocols.foreign import message_type
from loadtest.protocols.json_fields import (
    Json,
    MalformedError,
    as_object,
    optional_object,
    optional_text,
    parse_object,
    required_text,
)
from loadtest.protocols.pipecat import metrics
from loadtest.protocols.pipecat.client_messages import READY_ID, TRACE_ID
from loadtest.protocols.pipecat.rtvi_reply import RtviReply
from loadtest.protocols.usage import text_pairs

LABEL: Final = "rtvi-ai"
MAJOR: Final = "2"
# Messages that no caller needs. Those about the voice activity detector come twice for each edge, and the turns that
# the bot makes of them have messages of their own.
_NOT_NEEDED: Final = frozenset(
    {
        "bot-audio-level",
        "bot-llm-marker",
        "bot-output",
        "bot-transcription",
        "bot-tts-audio",
        "bot-tts-text",
        "llm-function-call",
        "llm-function-call-in-progress",
        "llm-function-call-stopped",
        "server-response",
        "system-log",
        "tts-raw-text",
        "ui-command",
        "ui-job-group",
        "user-audio-level",
        "user-llm-text",
        "user-mute-started",
        "user-mute-stopped",
        "vad-user-started-speaking",
        "vad-user-stopped-speaking",
    }
)
# The first argument is the session.
Handler = Callable[[Any, str, Json], list[VoiceEvent]]


class RtviSession:
    """One conversation's RTVI messages."""

    def __init__(self, reply: RtviReply | None = None) -> None:
        self.ready = False
        self._reply = reply or RtviReply()
        self._chosen: dict[str, str] = {}  # which of several names counts
        self._partials = CumulativePartials()
        self._segment = 0  # of the caller's speech: what one final transcript covers

    def receive(self, message: str | bytes) -> list[VoiceEvent]:
        """Decode one message; never raises."""
        raw_type = ""
        try:
            fields = parse_object(message)
            raw_type = message_type(fields, "type", message)
            if fields.get("label") != LABEL:
                return [VoiceEvent(EventKind.UNKNOWN, raw_type)]  # of the bot's own
            handler = self._handlers.get(raw_type)
            if handler is not None:
                return handler(
                    self, raw_type, optional_object(fields, "data") or {} if raw_type in _WITH_DATA else fields
                )
            return [VoiceEvent(EventKind.OTHER if raw_type in _NOT_NEEDED else EventKind.UNKNOWN, raw_type)]
        except MalformedError as error:
            where = f"{raw_type}: " if raw_type else ""
            return [violation(raw_type, f"{where}{error}", "malformed_message")]

    def audio(self, raw_type: str, pcm: bytes, rate_hz: int, channels: int) -> list[VoiceEvent]:
        """Account for a piece of the bot's audio: 16-bit little-endian samples, interleaved."""
        if not LOWEST_RATE_HZ <= rate_hz <= HIGHEST_RATE_HZ:
            sentence = f"audio at {rate_hz} Hz; between {LOWEST_RATE_HZ} and {HIGHEST_RATE_HZ} Hz is possible"
            return [violation(raw_type, sentence, "audio_format")]
        if len(pcm) % (2 * channels):
            sentence = f"{len(pcm)} bytes of audio end inside a 16-bit sample of {channels} channel(s)"
            return [violation(raw_type, sentence, "odd_audio")]
        if not pcm:
            return [VoiceEvent(EventKind.OTHER, raw_type)]
        return self._reply.audio(raw_type, pcm if channels == 1 else _first_channel(pcm, channels), rate_hz)

    def interrupted(self, raw_type: str) -> list[VoiceEvent]:
        """Account for an interruption that was announced in another way than by a message."""
        return self._reply.interrupted(raw_type)

    def _is_twin(self, what: str, raw_type: str) -> bool:
        """Return whether the same is sent under another name, which came first."""
        return self._chosen.setdefault(what, raw_type) != raw_type

    # Session.

    def _bot_ready(self, raw_type: str, data: Json) -> list[VoiceEvent]:
        if self.ready:
            return [VoiceEvent(EventKind.OTHER, raw_type)]
        self.ready = True
        version = optional_text(data, "version")
        about = optional_object(data, "about") or {}
        named = {
            "rtvi.version": version,
            "bot.library": about.get("library"),
            "bot.version": about.get("library_version"),
        }
        identity = {name: value for name, value in named.items() if isinstance(value, str)}
        events = [VoiceEvent(EventKind.READY, raw_type, metadata=identity)]
        if version is not None and version.partition(".")[0] not in (MAJOR, "1"):
            sentence = f"the bot speaks RTVI {version}, of which nothing is known here; RTVI 1 and {MAJOR} are"
            events.append(violation(raw_type, sentence, "rtvi_version"))
        return events

    def _error(self, raw_type: str, data: Json) -> list[VoiceEvent]:
        fatal = data.get("fatal") is True
        message = error_message(data)
        failure = Failure("endpoint_error", code_of(data.get("code")), retry_after_of_fields(data))
        return [VoiceEvent(EventKind.ERROR, raw_type, message=message, fatal=fatal, failure=failure)]

    def _error_response(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        """A message of ours was refused. Bots that do not know what `trace` is may refuse that one."""
        answered = fields.get("id")
        data = optional_object(fields, "data") or {}
        if isinstance(answered, str) and answered.startswith(TRACE_ID):
            return [VoiceEvent(EventKind.OTHER, raw_type, message=optional_text(data, "error"))]
        code = "client_ready" if answered == READY_ID else "refused_message"
        message = optional_text(data, "error") or "a message was refused without a reason"
        return [VoiceEvent(EventKind.ERROR, raw_type, message=message, failure=Failure("endpoint_error", code))]

    # The caller's speech.

    def _user_started(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        return [VoiceEvent(EventKind.SPEECH_STARTED, raw_type)]

    def _user_stopped(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        self._reply.turn_closed()
        return [VoiceEvent(EventKind.SPEECH_STOPPED, raw_type)]

    def _user_input(self, raw_type: str, data: Json) -> list[VoiceEvent]:
        if data.get("input_type") != "transcription":
            return [VoiceEvent(EventKind.OTHER, raw_type)]  # a backchannel, or what was typed
        return self._transcript(raw_type, data)

    def _transcript(self, raw_type: str, data: Json) -> list[VoiceEvent]:
        text = required_text(data, "text")
        final = data.get("final")
        if not isinstance(final, bool):
            raise MalformedError("'final' is missing or no boolean")
        if self._is_twin("transcript", raw_type):
            return [VoiceEvent(EventKind.OTHER, raw_type, text=text)]
        if final:
            self._segment += 1
            return [VoiceEvent(EventKind.ASR_FINAL, raw_type, text=text)]
        added = self._partials.addition(str(self._segment), text)
        return [VoiceEvent(EventKind.ASR_PARTIAL if added else EventKind.OTHER, raw_type, text=added)]

    # The reply.

    def _llm_started(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        return self._reply.llm_started(raw_type)

    def _llm_stopped(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        return self._reply.llm_stopped(raw_type)

    def _llm_text(self, raw_type: str, data: Json) -> list[VoiceEvent]:
        text = required_text(data, "text")
        if self._is_twin("text", raw_type):
            return [VoiceEvent(EventKind.OTHER, raw_type, text=text)]
        return self._reply.text(raw_type, text)

    def _tts_started(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        return self._reply.synthesis_started(raw_type)

    def _tts_stopped(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        return self._reply.synthesis_stopped(raw_type)

    def _bot_started(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        return self._reply.speaking_started(raw_type)

    def _bot_stopped(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        return self._reply.speaking_stopped(raw_type)

    def _interrupted(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        return self._reply.interrupted(raw_type)

    def _tool_called(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        return self._reply.tool_called(raw_type)

    # What the bot reports of itself.

    def _metrics(self, raw_type: str, data: Json) -> list[VoiceEvent]:
        service_ns, usage = metrics.latencies_ns(data), metrics.usage(data)
        kind = EventKind.SERVICE_REPORT if service_ns or usage else EventKind.OTHER
        return [VoiceEvent(kind, raw_type, service_ns=service_ns, usage=usage)]

    def _server_message(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        """Messages of the bot's own code: an object may name cache, route, fallback or model."""
        pairs = text_pairs(as_object(fields.get("data")))
        return [VoiceEvent(EventKind.SERVICE_REPORT if pairs else EventKind.OTHER, raw_type, metadata=pairs)]

    # On the class, not on each object: bound methods in an object would be a reference cycle that only the garbage
    # collector breaks.
    _handlers: ClassVar[Mapping[str, Handler]] = {
        "bot-ready": _bot_ready,
        "error": _error,
        "error-response": _error_response,
        "user-started-speaking": _user_started,
        "user-stopped-speaking": _user_stopped,
        "user-input": _user_input,
        "stt-raw-text": _transcript,
        "user-transcription": _transcript,
        "bot-llm-started": _llm_started,
        "bot-llm-stopped": _llm_stopped,
        "llm-raw-text": _llm_text,
        "bot-llm-text": _llm_text,
        "bot-tts-started": _tts_started,
        "bot-tts-stopped": _tts_stopped,
        "bot-started-speaking": _bot_started,
        "bot-stopped-speaking": _bot_stopped,
        "bot-interrupted": _interrupted,
        "llm-function-call-started": _tool_called,
        "metrics": _metrics,
        "server-message": _server_message,
    }


_WITH_DATA: Final = frozenset(
    {
        "bot-ready",
        "error",
        "llm-raw-text",
        "bot-llm-text",
        "metrics",
        "stt-raw-text",
        "user-input",
        "user-transcription",
    }
)


def _first_channel(pcm: bytes, channels: int) -> bytes:
    step = 2 * channels
    mono = bytearray(len(pcm) // channels)
    mono[0::2], mono[1::2] = pcm[0::step], pcm[1::step]
    return bytes(mono)
