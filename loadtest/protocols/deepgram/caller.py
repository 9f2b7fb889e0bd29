"""The caller's side of Deepgram's Voice Agent: whole messages in, normalized events out.

The service waits for `Settings`, which the caller sends when it has been welcomed; audio may follow when the service
has applied them. Audio is binary both ways, in the formats of the settings. A reply's audio comes faster than it is
played, sentence by sentence, and its words come with its audio: they say nothing of the language model, whose latency
only the service reports. KeepAlive is not needed: a caller streams without a break.

Source: deepgram-sdk 7.17.0, agent/v1/types, and the vendor's documents of its messages.

A reply is everything from the first sign of it (a thought, a call of a function, words or audio) to `AgentAudioDone`,
which ends what is sent, long before it has been played. `UserStartedSpeaking` breaks the reply off: the client drops
whatever it has not played. The service then sends `AgentAudioDone` for the reply that it broke off, or nothing.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, ClassVar, Final
from urllib.parse import urlsplit, urlunsplit

import orjson

from loadtest.protocols.audio_format import AudioFormat
from loadtest.protocols.base import (
    AnsweringCaller,
    CallerOptions,
    Capabilities,
    Content,
    EventKind,
    Message,
    OpenRequest,
    Pcm16,
    VoiceEvent,
)
from loadtest.protocols.deepgram.settings import checked_session
from loadtest.protocols.error_objects import error_message, violation
from loadtest.protocols.failure import Failure, code_of
from loadtest.protocols.foreign import message_type
from loadtest.protocols.json_fields import (
    Json,
    MalformedError,
    as_list,
    as_object,
    excerpt,
    optional_text,
    parse_object,
    required_text,
)
from loadtest.protocols.registry import register_built_in
from loadtest.protocols.stage_metrics import OF_TEXT
from loadtest.protocols.tool_results import result_of, result_text

MAX_CALLS: Final = 1000  # remembered at once
INTERRUPTED: Final = "the service heard the caller speak"
# Audio that begins like a file. It would be played as noise: raw audio is asked for.
_FILE_HEADERS: Final = (b"RIFF", b"OggS", b"ID3", b"fLaC")


class DeepgramReply:
    """The reply under way, if any. Every method returns the events that the message makes."""

    def __init__(self, output_format: AudioFormat) -> None:
        self._format = output_format
        self._open = False
        self._carried: set[Content] = set()
        self._spoken = False  # words of the reply have come
        self._calls: set[str] = set()  # functions called since the last words: more words follow their results
        self._half = b""  # of a sample that was cut in two
        self._unplayed = False  # audio has come since the client last dropped all of it
        self._stale = False  # audio that comes now was under way when the reply was broken off
        self._owes_end = False  # of a reply that was broken off

    def thought(self, raw_type: str, text: str) -> list[VoiceEvent]:
        """The agent thinks."""
        events = self._begin(raw_type)
        return [*events, VoiceEvent(EventKind.REASONING_TEXT, raw_type, text=text)] if text else events

    def called(self, raw_type: str, call_ids: Iterable[str]) -> list[VoiceEvent]:
        """The agent calls functions: it goes on with their results."""
        events = self._begin(raw_type)
        self._carried.add("tool_call")
        self._calls.update(islice(call_ids, MAX_CALLS - len(self._calls)))
        return events

    def uncalled(self, raw_type: str, call_ids: Iterable[str]) -> list[VoiceEvent]:
        """The agent needs the results of these calls no longer."""
        self._calls.difference_update(call_ids)
        return [VoiceEvent(EventKind.OTHER, raw_type)]

    def words(self, raw_type: str, text: str, *, fills_wait: bool) -> list[VoiceEvent]:
        """A sentence of the reply, which is sent when it is spoken. Words that fill a wait answer nothing."""
        if not text:
            return [VoiceEvent(EventKind.OTHER, raw_type)]
        events = self._begin(raw_type)
        if not fills_wait:
            self._calls.clear()
        text = f" {text}" if self._spoken else text
        self._spoken = True
        self._carried.add("text")
        return [*events, VoiceEvent(EventKind.SPOKEN_TEXT, raw_type, text=text)]

    def speaking(self, raw_type: str, **reported: Any) -> list[VoiceEvent]:
        """The service says that it begins to speak, and what took it how long."""
        events = self._begin(raw_type)
        return [*events, VoiceEvent(EventKind.SPEECH_SYNTHESIS_STARTED, raw_type, **reported)]

    def audio(self, raw_type: str, data: bytes) -> list[VoiceEvent]:
        """A piece of audio; what was under way when the reply was broken off is no part of any."""
        if self._stale or not data:
            return [VoiceEvent(EventKind.OTHER, raw_type)]
        first = "audio" not in self._carried
        events = self._begin(raw_type)
        if first and data.startswith(_FILE_HEADERS):
            sentence = f"the audio begins like a file, with {data[:4]!r}; it must be raw audio"
            events.append(violation(raw_type, sentence, "audio_header"))
        self._carried.add("audio")
        pcm = self._decoded(data)
        if pcm:
            self._unplayed = True
            rate_hz = self._format.rate_hz
            events.append(VoiceEvent(EventKind.AUDIO, raw_type, audio=pcm, rate_hz=rate_hz))
        return events or [VoiceEvent(EventKind.OTHER, raw_type)]

    def _decoded(self, data: bytes) -> bytes:
        if self._format.encoding != "pcm16":
            return self._format.decode(data).tobytes()
        data = self._half + data
        whole = len(data) // 2 * 2
        self._half = data[whole:]
        return data[:whole]

    def audio_done(self, raw_type: str) -> list[VoiceEvent]:
        """All audio of a reply has been sent: of the one under way, or of the one that was broken off before it."""
        if self._owes_end and "audio" not in self._carried:
            self._owes_end = self._stale = False
            return [VoiceEvent(EventKind.OTHER, raw_type)]
        if not self._open:
            return [VoiceEvent(EventKind.OTHER, raw_type)]
        events = [VoiceEvent(EventKind.AUDIO_DONE, raw_type)]
        if self._half:
            sentence = "the audio ended inside a sample: an odd number of bytes of 16-bit PCM"
            events.append(violation(raw_type, sentence, "odd_audio"))
        self._owes_end = False
        return [*events, self._done(raw_type, "completed", None)]

    def interrupted(self, raw_type: str) -> list[VoiceEvent]:
        """The service heard the caller: nothing that it has sent is to be played any more."""
        events: list[VoiceEvent] = []
        if self._unplayed:
            self._unplayed = False
            events.append(VoiceEvent(EventKind.CLEAR, raw_type))
        if self._open:
            self._owes_end = self._stale = True
            events.append(self._done(raw_type, "cancelled", INTERRUPTED))
        return events

    def asked(self) -> None:
        """The caller's question is closed: what comes from now on answers it."""
        self._stale = False

    def _begin(self, raw_type: str) -> list[VoiceEvent]:
        self._stale = False
        if self._open:
            return []
        self._open = True
        return [VoiceEvent(EventKind.RESPONSE_STARTED, raw_type)]

    def _done(self, raw_type: str, status: str, why: str | None) -> VoiceEvent:
        event = VoiceEvent(
            EventKind.RESPONSE_DONE,
            raw_type,
            status=status,
            carried=frozenset(self._carried),
            owes_response=bool(self._calls) and status == "completed",
            message=why,
        )
        self._open = self._spoken = False
        self._carried = set()
        self._calls = set()
        self._half = b""
        return event


FRAME_MS: Final = 20
PATH: Final = "/v1/agent/converse"
SECOND_NS: Final = 1_000_000_000
LONGEST_S: Final = 86_400.0
AUDIO: Final = "audio"
_SCHEMES: Final = {"token": "Token", "bearer": "Bearer"}
_NO_PARTIALS: Final = "this wire has no partial transcripts"
_NO_END_OF_TURN: Final = "this wire does not say when the service closed the caller's turn"
_TEXT_WITH_SPEECH: Final = "this wire sends the words of a reply with their speech, not when they were generated"
NOT_OBSERVABLE: Final[Mapping[str, str]] = {
    "endpointing": _NO_END_OF_TURN,
    "asr_partial_latency": _NO_PARTIALS,
    **dict.fromkeys(OF_TEXT, _TEXT_WITH_SPEECH),
}
# The fields of the messages in which the service reports its latencies, in seconds.
_LATENCIES: Final = ("total_latency", "tts_latency", "ttt_latency")
_REPORTED: Final = (
    "stt_latency",
    "ttt_token_latency",
    "ttt_text_latency",
    "ttt_tool_latency",
    "ttt_thinking_latency",
    "tts_latency",
    "total_latency",
)
# Messages that no caller needs.
_NOT_NEEDED: Final = frozenset(
    {
        "__customFromThinkProvider",
        "FrustrationDetected",
        "FunctionCallResponse",
        "History",
        "ListenUpdated",
        "PromptUpdated",
        "SpeakUpdated",
        "ThinkLiveUpdated",
        "ThinkUpdated",
    }
)
# The first argument is the conversation.
Handler = Callable[[Any, str, Json], list[VoiceEvent]]


@register_built_in("deepgram-agent")
class DeepgramCaller(AnsweringCaller):
    """One conversation of a caller with an agent. Implements `loadtest.protocols.base.CallerProtocol`."""

    def __init__(self, options: CallerOptions) -> None:
        """Raises UsageError with one line for each fault of the settings and options."""
        super().__init__()
        self._options = options
        self._session = checked_session(options)
        self.capabilities = Capabilities(
            input_rate_hz=self._session.input_format.rate_hz,
            frame_ms=FRAME_MS,
            not_observable=NOT_OBSERVABLE,
            audio_is_text=False,
            turn_controls=self._session.turn_controls,
        )
        self._reply = DeepgramReply(self._session.output_format)
        self._traceparent: str | None = None
        self._request_id: str | None = None
        self._settings_sent = False
        self._ready = False

    def upgrade(self, target_url: str, traceparent: str | None) -> OpenRequest:
        """Complete the URL by its path; put the key and the trace into headers."""
        self._traceparent = traceparent
        parts = urlsplit(target_url)
        if parts.path in ("", "/"):
            parts = parts._replace(path=PATH)
        headers: list[tuple[str, str]] = []
        if self._options.token is not None:
            scheme = _SCHEMES[self._session.settings.auth]
            headers.append(("Authorization", f"{scheme} {self._options.token}"))
        if traceparent is not None:
            headers.append(("traceparent", traceparent))
        return OpenRequest(urlunsplit(parts), (*headers, *self._options.headers))

    def opened(self) -> Sequence[Message]:
        """Return nothing: `Welcome` must come first."""
        return ()

    def awaited(self) -> str | None:
        """Return the message that greets, or accepts the settings."""
        return "SettingsApplied in answer to Settings" if self._settings_sent else "Welcome"

    def audio_message(self, pcm: Pcm16) -> bytes:
        """Return one frame in the input format: nothing but audio."""
        return self._session.input_format.encode(pcm)

    def end_turn(self) -> Sequence[Message]:
        """Under manual turn control, end the turn on what has been recognized."""
        return () if self._options.turn_control == "server" else ('{"type":"ForceEndTurn"}',)

    def receive(self, message: Message) -> Sequence[VoiceEvent]:
        """Decode one message; never raises."""
        raw_type = ""
        is_binary = isinstance(message, bytes)
        if is_binary and not message.startswith(b"{"):
            return self._reply.audio(AUDIO, message)
        try:
            fields = parse_object(message)
            raw_type = message_type(fields, "type", message)
            handler = self._handlers.get(raw_type)
            if handler is not None:
                return handler(self, raw_type, fields)
            return [VoiceEvent(EventKind.OTHER if raw_type in _NOT_NEEDED else EventKind.UNKNOWN, raw_type)]
        except MalformedError as error:
            if is_binary and not raw_type:
                return self._reply.audio(AUDIO, message)  # its first byte happens to be an opening brace
            where = f"{raw_type}: " if raw_type else ""
            return [violation(raw_type, f"{where}{error}", "malformed_message")]

    # Session.

    def _welcome(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        if not self._settings_sent:
            self._settings_sent = True
            self._request_id = optional_text(fields, "request_id")
            settings = self._session.message(self._traceparent, self._options.metadata)
            self._pending.append(orjson.dumps(settings).decode())
        return [VoiceEvent(EventKind.OTHER, raw_type)]

    def _applied(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        del fields
        if self._ready:
            return [VoiceEvent(EventKind.OTHER, raw_type)]
        self._ready = True
        identity = {} if self._request_id is None else {"session.id": self._request_id}
        return [VoiceEvent(EventKind.READY, raw_type, metadata=identity)]

    def _error(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        """Every error ends the session; what the session survives is a warning."""
        failure = Failure("endpoint_error", code_of(fields.get("code")))
        message = _described(fields)
        if not self._ready:
            message = f"the session was refused: {message}"
        return [VoiceEvent(EventKind.ERROR, raw_type, message=message, fatal=True, failure=failure)]

    def _warning(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        failure = Failure("endpoint_error", code_of(fields.get("code"), "warning"))
        message = _described(fields)
        return [VoiceEvent(EventKind.ERROR, raw_type, message=message, failure=failure)]

    def _injection_refused(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        failure = Failure("endpoint_error", "injection_refused")
        message = optional_text(fields, "message") or "an injected message was refused"
        return [VoiceEvent(EventKind.ERROR, raw_type, message=message, failure=failure)]

    # The caller's speech.

    def _user_started(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        """The service heard the caller: what it was saying, and what of it was not played yet, is void."""
        del fields
        return [*self._reply.interrupted(raw_type), VoiceEvent(EventKind.SPEECH_STARTED, raw_type)]

    def _text(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        role, content = required_text(fields, "role"), required_text(fields, "content")
        if role == "user":
            self._reply.asked()
            return [VoiceEvent(EventKind.ASR_FINAL, raw_type, text=content)]
        if role == "assistant":
            fills_wait = fields.get("conversational_behavior") == "filler"
            return self._reply.words(raw_type, content, fills_wait=fills_wait)
        raise MalformedError(f"'role' is {excerpt(role)}; it should be user or assistant")

    # The reply.

    def _thinking(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        return self._reply.thought(raw_type, optional_text(fields, "content") or "")

    def _started_speaking(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        return self._reply.speaking(raw_type, service_ns=_latencies_ns(raw_type, fields, _LATENCIES))

    def _latency_report(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        """One latency or several; the service sends many of these in a turn, and some while the caller speaks."""
        service_ns = _latencies_ns(raw_type, fields, _REPORTED)
        kind = EventKind.SERVICE_REPORT if service_ns else EventKind.OTHER
        return [VoiceEvent(kind, raw_type, service_ns=service_ns)]

    def _audio_done(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        del fields
        return self._reply.audio_done(raw_type)

    def _functions_called(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        calls = _functions(fields)
        events = self._reply.called(raw_type, [call_id for call_id, _, _ in calls])
        results = self._session.settings.tools
        for call_id, name, client_side in calls:
            if not client_side:
                continue  # the service calls it itself
            result = result_of(results, name)
            if result is None:
                sentence = f"the agent called the function {name!r}, for which the settings have no result"
                events.append(violation(raw_type, f"{sentence}: add it to tools", "unknown_tool"))
                continue
            content = result_text(result)
            answer = {"type": "FunctionCallResponse", "id": call_id, "name": name, "content": content}
            self._pending.append(orjson.dumps(answer).decode())
        return events or [VoiceEvent(EventKind.OTHER, raw_type)]

    def _functions_cancelled(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        return self._reply.uncalled(raw_type, [call_id for call_id, _, _ in _functions(fields)])

    # On the class, not on each object: bound methods in an object would be a reference cycle that only the garbage
    # collector breaks.
    _handlers: ClassVar[Mapping[str, Handler]] = {
        "Welcome": _welcome,
        "SettingsApplied": _applied,
        "Error": _error,
        "Warning": _warning,
        "InjectionRefused": _injection_refused,
        "UserStartedSpeaking": _user_started,
        "ConversationText": _text,
        "AgentThinking": _thinking,
        "AgentStartedSpeaking": _started_speaking,
        "LatencyReport": _latency_report,
        "AgentAudioDone": _audio_done,
        "FunctionCallRequest": _functions_called,
        "FunctionCallCancelled": _functions_cancelled,
    }


def _described(fields: Json) -> str:
    """Return what an error or a warning says."""
    return error_message({name: value for name, value in fields.items() if name != "type"})


def _functions(fields: Json) -> list[tuple[str, str, bool]]:
    """Return the id and the name of each call, and whether the client makes it. Raises MalformedError."""
    listed = as_list(fields.get("functions"))
    if listed is None:
        raise MalformedError("'functions' is not a list")
    found: list[tuple[str, str, bool]] = []
    for each in listed:
        call = as_object(each)
        if call is None:
            raise MalformedError(f"'functions' contains {excerpt(repr(each))}, which is not an object")
        found.append((required_text(call, "id"), required_text(call, "name"), call.get("client_side") is True))
    return found


def _latencies_ns(raw_type: str, fields: Json, names: Sequence[str]) -> dict[str, int]:
    """Return the latencies in a message by `MESSAGE.FIELD`. Raises MalformedError for what is no latency in seconds."""
    found: dict[str, int] = {}
    for name in names:
        value = fields.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LONGEST_S:
            raise MalformedError(f"{name!r} is {excerpt(repr(value))}; it should be a number of seconds")
        found[f"{raw_type}.{name}"] = math.floor(value * SECOND_NS + 0.5)
    return found
