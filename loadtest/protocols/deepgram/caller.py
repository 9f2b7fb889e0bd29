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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Any, ClassVar, Final, Literal
from urllib.parse import urlsplit, urlunsplit

import orjson
from pydantic import AfterValidator, Field

from loadtest.audio import g711
from loadtest.audio.pcm import Pcm16
from loadtest.protocols.audio_format import FILE_HEADERS, ODD_AUDIO, AudioFormat, Encoding, SampleStream
from loadtest.protocols.base import (
    CallerOptions,
    CallerProtocol,
    Capabilities,
    EventKind,
    Message,
    OpenRequest,
    TurnControl,
    VoiceEvent,
)
from loadtest.protocols.error_objects import error_message, violation
from loadtest.protocols.failure import SECOND_NS, Failure, code_of
from loadtest.protocols.headers import bearer_headers
from loadtest.protocols.json_fields import (
    Json,
    MalformedError,
    as_list,
    as_object,
    excerpt,
    optional_text,
    required_text,
)
from loadtest.protocols.received import LONGEST_S, Handler, JsonMessages, ReplyUnderWay
from loadtest.protocols.wire_settings import (
    OF_PARTIALS,
    OF_TEXT,
    WireSettings,
    read_settings,
    refuse,
    result_of,
    result_text,
    unknown_tool,
    withheld,
)

WIRE: Final = "deepgram-agent"
INPUT_RATE_HZ: Final = 16_000
OUTPUT_RATE_HZ: Final = 24_000
TRACE_TAG: Final = "traceparent"
# What the agent does where neither the agent's settings nor an option says anything else.
LISTENING_MODEL: Final = "flux-general-en"
THINKING_MODEL: Final = "gpt-4o-mini"
SPEAKING_MODEL: Final = "aura-2-thalia-en"
# Models of the second version of Deepgram's recognition, the one whose turns a caller can end.
_FLUX: Final = "flux"
# Above what the recognizer can reach: it then leaves the end of turns to the caller.
_NEVER_ENDS: Final = 1.0
EncodingName = Literal["linear16", "mulaw", "alaw"]
_ENCODINGS: Final[Mapping[EncodingName, Encoding]] = {"linear16": "pcm16", "mulaw": "pcmu", "alaw": "pcma"}
_NAMES: Final = {encoding: name for name, encoding in _ENCODINGS.items()}
# The neutral options, and the part of the agent that each is in.
_PARTS: Final = {"transcription_model": "listen", "model": "think"}


def _agent(agent: str | dict[str, Any]) -> str | dict[str, Any]:
    if not agent:
        raise ValueError("give the agent's id, or its settings")
    if isinstance(agent, dict):
        faults = [
            f"{part} must be {'an object' if part == 'listen' else 'an object, or a list of objects'}"
            for part in ("listen", "think", "speak")
            if part in agent and not _is_part(agent[part], may_be_list=part != "listen")
        ]
        if faults:
            raise ValueError("; ".join(faults))
    return agent


def _is_part(value: object, *, may_be_list: bool) -> bool:
    if may_be_list and isinstance(value, list):
        return bool(value) and all(isinstance(entry, dict) for entry in value)  # pyright: ignore[reportUnknownVariableType]
    return isinstance(value, dict)


class DeepgramSettings(WireSettings):
    """The `[protocol]` table of a scenario."""

    # The id of an agent that is configured at Deepgram, or what the message `Settings` has as `agent`.
    agent: Annotated[str | dict[str, Any], AfterValidator(_agent)] | None = None
    input_encoding: EncodingName = "linear16"
    output_encoding: EncodingName = "linear16"
    input_rate_hz: Literal[8000, 16000, 24000, 48000] | None = None  # None: 16 kHz, or G.711's
    output_rate_hz: Literal[8000, 16000, 24000, 32000, 48000] | None = None  # None: 24 kHz, or G.711's
    tools: dict[str, Any] = Field(default_factory=dict)  # the result of each function by its name; "*" is any other
    tags: tuple[str, ...] = ()  # of the request, in Deepgram's usage reports
    history: bool | None = None  # whether the service also repeats the conversation in messages of its own
    experimental: bool | None = None
    mip_opt_out: bool | None = None  # out of Deepgram's Model Improvement Program
    auth: Literal["token", "bearer"] = "token"  # an API key, or a temporary token


@dataclass(frozen=True, slots=True)
class DeepgramSession:
    """The requests of one caller."""

    settings: DeepgramSettings
    input_format: AudioFormat
    output_format: AudioFormat
    agent: str | dict[str, Any]
    turn_controls: frozenset[TurnControl]

    def message(self, traceparent: str | None) -> dict[str, Any]:
        """Return the message `Settings`. The trace is a tag: the wire has no other place for it."""
        settings = self.settings
        tags = [*settings.tags, *(() if traceparent is None else (f"{TRACE_TAG}={traceparent}",))]
        optional = {
            "tags": tags or None,
            "experimental": settings.experimental,
            "flags": None if settings.history is None else {"history": settings.history},
            "mip_opt_out": settings.mip_opt_out,
        }
        raw = {**_declared(self.output_format), "container": "none"}
        audio = {"input": _declared(self.input_format), "output": raw}
        chosen = {name: value for name, value in optional.items() if value is not None}
        return {"type": "Settings", **chosen, "audio": audio, "agent": self.agent}


def _declared(chosen: AudioFormat) -> dict[str, Any]:
    return {"encoding": _NAMES[chosen.encoding], "sample_rate": chosen.rate_hz}


def checked_session(options: CallerOptions) -> DeepgramSession:
    """Return what a caller asks for. Raises UsageError with one line for each fault."""
    faults: list[str] = []
    if options.silence_duration_ms is not None:
        faults.append(
            f"{WIRE}: the silence that ends a turn cannot be set; set eot_threshold or eot_timeout_ms of the agent's "
            "listen.provider"
        )
    settings = read_settings(DeepgramSettings, options.settings, WIRE, known_faults=faults)
    input_format = _format(settings.input_encoding, settings.input_rate_hz or INPUT_RATE_HZ)
    output_format = _format(settings.output_encoding, settings.output_rate_hz or OUTPUT_RATE_HZ)
    faults += _rate_fault("input_rate_hz", settings.input_rate_hz, input_format)
    faults += _rate_fault("output_rate_hz", settings.output_rate_hz, output_format)
    faults += _agent_faults(options, settings.agent)
    agent = settings.agent if isinstance(settings.agent, str) else _whole_agent(options, settings.agent or {})
    turn_controls: frozenset[TurnControl] = frozenset({"server", "manual"} if _can_force(agent) else {"server"})
    if options.turn_control not in turn_controls:
        faults.append(
            f"{WIRE}: only Flux, version v2 of the agent's listen.provider, leaves the end of turns to the caller"
        )
    refuse(faults)
    return DeepgramSession(
        settings=settings,
        input_format=input_format,
        output_format=output_format,
        agent=agent,
        turn_controls=turn_controls,
    )


def _format(name: EncodingName, rate_hz: int) -> AudioFormat:
    encoding = _ENCODINGS[name]
    return AudioFormat(encoding, rate_hz if encoding == "pcm16" else g711.RATE_HZ)


def _rate_fault(name: str, rate_hz: int | None, chosen: AudioFormat) -> list[str]:
    if rate_hz in (None, chosen.rate_hz):
        return []
    encoding = _NAMES[chosen.encoding]
    return [f"{WIRE}: the setting {name!r} is {rate_hz}, but {encoding} always has {chosen.rate_hz} Hz; leave it out"]


def _agent_faults(options: CallerOptions, agent: str | dict[str, Any] | None) -> list[str]:
    """Return the neutral options that the agent's settings have decided already."""
    given = [name for name in _PARTS if getattr(options, name) is not None]
    if isinstance(agent, str):
        return [
            f"{WIRE}: the wire cannot set {name!r} of an agent that is configured at Deepgram; leave it out"
            for name in given
        ]
    return [
        f"{WIRE}: {name!r} and the agent's {_PARTS[name]!r} exclude each other; leave one of them out"
        for name in given
        if _PARTS[name] in (agent or {})
    ]


def _whole_agent(options: CallerOptions, agent: dict[str, Any]) -> dict[str, Any]:
    """Return the agent with what it does not say itself."""
    listening = options.transcription_model or LISTENING_MODEL
    version = "v2" if listening.startswith(_FLUX) else "v1"
    usual = {
        "listen": {"provider": {"type": "deepgram", "version": version, "model": listening}},
        "think": {"provider": {"type": "open_ai", "model": options.model or THINKING_MODEL}},
        "speak": {"provider": {"type": "deepgram", "model": SPEAKING_MODEL}},
    }
    whole = {**usual, **agent}
    if options.turn_control == "manual" and _can_force(whole):
        whole["listen"] = {**whole["listen"], "provider": {"eot_threshold": _NEVER_ENDS, **_provider(whole)}}
    return whole


def _can_force(agent: str | Mapping[str, Any]) -> bool:
    """Return whether the caller can end its turns. Of an agent that is configured at Deepgram only the service
    knows."""
    if isinstance(agent, str):
        return True
    return _provider(agent).get("version") == "v2"


def _provider(agent: Mapping[str, Any]) -> Mapping[str, object]:
    """Return what recognizes the caller's speech."""
    return as_object(agent["listen"].get("provider")) or {}


MAX_CALLS: Final = 1000  # remembered at once
INTERRUPTED: Final = "the service heard the caller speak"


class DeepgramReply(ReplyUnderWay):
    """The reply under way, if any."""

    def __init__(self, output_format: AudioFormat) -> None:
        super().__init__()
        self._samples = SampleStream(output_format)
        self._spoken = False  # words of the reply have come
        self._calls: set[str] = set()  # functions called since the last words: more words follow their results
        self._unplayed = False  # audio has come since the client last dropped all of it
        self._stale = False  # audio that comes now was under way when the reply was broken off
        self._owes_end = False  # of a reply that was broken off

    def begin(self, raw_type: str) -> list[VoiceEvent]:
        """The first sign of a reply begins it."""
        self._stale = False
        return super().begin(raw_type)

    def called(self, raw_type: str, call_ids: Sequence[str]) -> list[VoiceEvent]:
        """The agent calls functions: it goes on with their results."""
        events = self.begin(raw_type)
        self.carried.add("tool_call")
        self._calls.update(islice(call_ids, MAX_CALLS - len(self._calls)))
        return events

    def uncalled(self, call_ids: Sequence[str]) -> None:
        """The agent needs the results of these calls no longer."""
        self._calls.difference_update(call_ids)

    def words(self, raw_type: str, text: str, *, fills_wait: bool) -> list[VoiceEvent]:
        """A sentence of the reply, which is sent when it is spoken. Words that fill a wait answer nothing."""
        if not text:
            return []
        if not fills_wait:
            self._calls.clear()
        text = f" {text}" if self._spoken else text
        self._spoken = True
        return self.piece(EventKind.SPOKEN_TEXT, raw_type, "text", text=text)

    def audio(self, data: bytes) -> list[VoiceEvent]:
        """A piece of audio; what was under way when the reply was broken off is no part of any."""
        if self._stale or not data:
            return [VoiceEvent(EventKind.OTHER, AUDIO)]
        first = "audio" not in self.carried
        events = self.begin(AUDIO)
        if first and data.startswith(FILE_HEADERS):
            sentence = f"the audio begins like a file, with {data[:4]!r}; it must be raw audio"
            events.append(violation(AUDIO, sentence, "audio_header"))
        self.carried.add("audio")
        if pcm := self._samples.feed(data):
            self._unplayed = True
            events.append(VoiceEvent(EventKind.AUDIO, AUDIO, audio=pcm, rate_hz=self._samples.format.rate_hz))
        return events or [VoiceEvent(EventKind.OTHER, AUDIO)]

    def audio_done(self, raw_type: str) -> list[VoiceEvent]:
        """All audio of a reply has been sent: of the one under way, or of the one that was broken off before it."""
        if self._owes_end and "audio" not in self.carried:
            self._owes_end = self._stale = False
            return []
        if not self.is_open:
            return []
        events = [VoiceEvent(EventKind.AUDIO_DONE, raw_type)]
        if self._samples.half:
            events.append(violation(raw_type, ODD_AUDIO, "odd_audio"))
        self._owes_end = False
        return [*events, self._end(raw_type, "completed")]

    def interrupted(self, raw_type: str) -> list[VoiceEvent]:
        """The service heard the caller: nothing that it has sent is to be played any more."""
        events = [VoiceEvent(EventKind.CLEAR, raw_type)] if self._unplayed else []
        self._unplayed = False
        if self.is_open:
            self._owes_end = self._stale = True
            events.append(self._end(raw_type, "cancelled", INTERRUPTED))
        return events

    def asked(self) -> None:
        """The caller's question is closed: what comes from now on answers it."""
        self._stale = False

    def _end(self, raw_type: str, status: str, why: str | None = None) -> VoiceEvent:
        self.owes_response = bool(self._calls)
        self._spoken, self._calls, self._samples.half = False, set(), b""
        return self.done(raw_type, status, why)


FRAME_MS: Final = 20
PATH: Final = "/v1/agent/converse"
AUDIO: Final = "audio"
NOT_OBSERVABLE: Final = withheld(
    (("endpointing",), "this wire does not say when the service closed the caller's turn"),
    (OF_PARTIALS, "this wire has no partial transcripts"),
    (OF_TEXT, "this wire sends the words of a reply with their speech, not when they were generated"),
)
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


class DeepgramCaller(JsonMessages, CallerProtocol):
    """One conversation of a caller with an agent."""

    unused = frozenset(
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

    def __init__(self, options: CallerOptions) -> None:
        """Raises UsageError with one line for each fault of the settings and options."""
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
        scheme = f"{self._session.settings.auth.capitalize()} "
        headers = bearer_headers(self._options.token, traceparent, scheme=scheme)
        return OpenRequest(urlunsplit(parts), (*headers, *self._options.headers))

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
        if isinstance(message, bytes) and not message.startswith(b"{"):
            return self._reply.audio(message)
        events = super().receive(message)
        if isinstance(message, bytes) and events[0].kind is EventKind.ERROR and not events[0].raw_type:
            return self._reply.audio(message)  # its first byte happens to be an opening brace
        return events

    # Session.

    def _welcome(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        del raw_type
        if not self._settings_sent:
            self._settings_sent = True
            self._request_id = optional_text(fields, "request_id")
            settings = self._session.message(self._traceparent)
            self._send(orjson.dumps(settings).decode())
        return []

    def _applied(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        del fields
        if self._ready:
            return []
        self._ready = True
        identity = {} if self._request_id is None else {"session.id": self._request_id}
        return [VoiceEvent(EventKind.READY, raw_type, metadata=identity)]

    def _error(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        """Every error ends the session; what the session survives is a warning."""
        is_fatal = raw_type == "Error"
        message = error_message({name: value for name, value in fields.items() if name != "type"})
        if is_fatal and not self._ready:
            message = f"the session was refused: {message}"
        failure = Failure("endpoint_error", code_of(fields.get("code"), None if is_fatal else "warning"))
        return [VoiceEvent(EventKind.ERROR, raw_type, message=message, fatal=is_fatal, failure=failure)]

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
        events, text = self._reply.begin(raw_type), optional_text(fields, "content")
        return [*events, VoiceEvent(EventKind.REASONING_TEXT, raw_type, text=text)] if text else events

    def _started_speaking(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        """The service says that it begins to speak, and what took it how long."""
        service_ns = _latencies_ns(raw_type, fields, _LATENCIES)
        started = VoiceEvent(EventKind.SPEECH_SYNTHESIS_STARTED, raw_type, service_ns=service_ns)
        return [*self._reply.begin(raw_type), started]

    def _latency_report(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        """One latency or several; the service sends many of these in a turn, and some while the caller speaks."""
        service_ns = _latencies_ns(raw_type, fields, _REPORTED)
        return [VoiceEvent(EventKind.SERVICE_REPORT, raw_type, service_ns=service_ns)] if service_ns else []

    def _audio_done(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        del fields
        return self._reply.audio_done(raw_type)

    def _functions_called(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        calls = _functions(fields)
        events = self._reply.called(raw_type, [call_id for call_id, _, _ in calls])
        for call_id, name, client_side in calls:
            if not client_side:
                continue  # the service calls it itself
            result = result_of(self._session.settings.tools, name)
            if result is None:
                events.append(unknown_tool(raw_type, name))
                continue
            content = result_text(result)
            answer = {"type": "FunctionCallResponse", "id": call_id, "name": name, "content": content}
            self._send(orjson.dumps(answer).decode())
        return events

    def _functions_cancelled(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        del raw_type
        self._reply.uncalled([call_id for call_id, _, _ in _functions(fields)])
        return []

    handlers: ClassVar[Mapping[str, Handler]] = {
        "Welcome": _welcome,
        "SettingsApplied": _applied,
        "Error": _error,
        "Warning": _error,
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


def _functions(fields: Json) -> list[tuple[str, str, bool]]:
    """Return the id and the name of each call, and whether the client makes it. Raises MalformedError."""
    listed = as_list(fields.get("functions"))
    if listed is None:
        raise MalformedError("'functions' is not a list")
    calls: list[tuple[str, str, bool]] = []
    for entry in listed:
        call = as_object(entry)
        if call is None:
            raise MalformedError(f"'functions' contains {excerpt(repr(entry))}, which is not an object")
        calls.append((required_text(call, "id"), required_text(call, "name"), call.get("client_side") is True))
    return calls


def _latencies_ns(raw_type: str, fields: Json, names: Sequence[str]) -> dict[str, int]:
    """Return the latencies in a message by `MESSAGE.FIELD`. Raises MalformedError for what is no latency in seconds."""
    latencies_ns: dict[str, int] = {}
    for name in names:
        value = fields.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LONGEST_S:
            raise MalformedError(f"{name!r} is {excerpt(repr(value))}; it should be a number of seconds")
        latencies_ns[f"{raw_type}.{name}"] = math.floor(value * SECOND_NS + 0.5)
    return latencies_ns
