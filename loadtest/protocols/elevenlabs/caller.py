"""The caller's side of a conversation with an ElevenLabs agent.

The wire has no responses. Text comes in parts (`agent_chat_response_part`), whole (`agent_response`) or both ways. An
interruption names an `event_id`: what comes late with an id up to it belongs to what was interrupted, and is not heard.
"""

import base64
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import orjson

from loadtest.audio.pcm import Pcm16
from loadtest.protocols.audio_format import SampleStream
from loadtest.protocols.base import (
    CallerOptions,
    CallerProtocol,
    Capabilities,
    EventKind,
    Message,
    OpenRequest,
    VoiceEvent,
)
from loadtest.protocols.elevenlabs.settings import (
    CONTENT,
    FORMATS,
    IDENTIFIED,
    MAY_BE_EMPTY,
    TRACE_VARIABLE,
    UNUSED,
    USUAL,
    elevenlabs_settings,
    not_observable,
)
from loadtest.protocols.error_objects import error_message, violation
from loadtest.protocols.failure import Failure, code_of, retry_after_of_fields
from loadtest.protocols.headers import bearer_headers
from loadtest.protocols.json_fields import (
    Json,
    MalformedError,
    as_object,
    excerpt,
    optional_count,
    optional_text,
    required_base64,
    required_text,
)
from loadtest.protocols.received import (
    CumulativePartials,
    Handler,
    JsonMessages,
    RepeatDetector,
    ReplyUnderWay,
)
from loadtest.protocols.wire_settings import merged, result_of, result_text, unknown_tool
from telemetry.model.recent import RecentDict
from telemetry.model.semconv import META_MODEL

INTERRUPTED: Final = "interrupted"


class ConvaiReply(ReplyUnderWay):
    """The reply under way, if any. `closes` says whether the agent sends `agent_response_complete`."""

    announces = False

    def __init__(self, *, closes: bool) -> None:
        super().__init__()
        self._closes = closes
        self._interrupted_id = 0
        self._streamed = False  # text of the reply has come in parts, and not yet whole
        self._whole_id: int | None = None  # of the last text that came whole and not in parts before

    def is_void(self, event_id: int | None) -> bool:
        """Return whether something with this id was interrupted before it came."""
        return event_id is not None and event_id <= self._interrupted_id

    def part(self, raw_type: str, text: str, event_id: int | None) -> list[VoiceEvent]:
        """A piece of text."""
        comes_again = event_id is not None and event_id == self._whole_id
        if not text or comes_again or self.is_void(event_id):
            return [VoiceEvent(EventKind.OTHER, raw_type, text=text)]
        self._streamed = True
        return self._text(EventKind.LLM_TEXT, raw_type, text)

    def whole(self, raw_type: str, text: str, event_id: int | None) -> list[VoiceEvent]:
        """All text of an answer, with the first of its audio; it may have come in parts before."""
        if not text or self.is_void(event_id):
            return [VoiceEvent(EventKind.OTHER, raw_type, text=text)]
        streamed, self._streamed = self._streamed, False
        if streamed:
            return [VoiceEvent(EventKind.OTHER, raw_type, text=text)]
        self._whole_id = event_id
        return self._text(EventKind.SPOKEN_TEXT, raw_type, text)

    def _text(self, kind: EventKind, raw_type: str, text: str) -> list[VoiceEvent]:
        self.owes_response = False
        return self.piece(kind, raw_type, "text", text=text)

    def complete(self, raw_type: str, event_id: int | None) -> list[VoiceEvent]:
        """The agent has sent all of its reply."""
        if not self._closes or not self.is_open or self.is_void(event_id):
            return []
        return [self._end(raw_type, "completed", None)]

    def interrupted(self, raw_type: str, event_id: int) -> list[VoiceEvent]:
        """The caller spoke into the reply; its audio may have come long ago, and still be playing."""
        self._interrupted_id = event_id
        self._streamed = False
        events = [VoiceEvent(EventKind.CLEAR, raw_type)]
        if self._closes and self.is_open:
            events.append(self._end(raw_type, "cancelled", INTERRUPTED))
        return events

    def _end(self, raw_type: str, status: str, why: str | None) -> VoiceEvent:
        if self.owes_response:
            self.carried.add("tool_call")
        return self.done(raw_type, status, why)


MS_NS: Final = 1_000_000
LONGEST_PING_MS: Final = 86_400_000
MAX_REMEMBERED_CALLS: Final = 1000


class ElevenLabsCaller(JsonMessages, CallerProtocol):
    """One conversation."""

    unused = UNUSED

    def __init__(self, options: CallerOptions) -> None:
        """Raises UsageError, with one line for each fault of the settings and options."""
        self._options = options
        self._settings = settings = elevenlabs_settings(options)
        self._input = FORMATS[settings.user_input_audio_format]
        closes = "agent_response_complete" in settings.client_events
        self.capabilities = Capabilities(
            input_rate_hz=self._input.rate_hz,
            frame_ms=settings.frame_ms,
            not_observable=not_observable(settings.client_events),
            turn_controls=frozenset({"server"}),
            reply_end="event" if closes else "silence",
        )
        self._traceparent: str | None = None
        self._conversation_id: str | None = None
        self._output: SampleStream | None = None  # known once the agent has said its format
        self._reply = ConvaiReply(closes=closes)
        self._repeats = RepeatDetector()
        self._partials = CumulativePartials()
        self._utterance = 0
        self._answered_calls = RecentDict[str, None](MAX_REMEMBERED_CALLS)

    def upgrade(self, target_url: str, traceparent: str | None) -> OpenRequest:
        """Put the key into the header `xi-api-key`; the trace also goes with the first message."""
        self._traceparent = traceparent
        headers = bearer_headers(self._options.token, traceparent, name="xi-api-key", scheme="")
        return OpenRequest(target_url, (*headers, *self._options.headers))

    def opened(self) -> Sequence[Message]:
        """State what the agent is to know of this caller, and what differs from its configuration.

        The members are those that the vendor's own client sends; the agent answers with its formats.
        """
        options, settings = self._options, self._settings
        trace = {} if self._traceparent is None else {TRACE_VARIABLE: self._traceparent}
        model = options.model
        overrides: dict[str, Any] = {} if model is None else {"agent": {"prompt": {"llm": model}}}
        message = {
            "type": "conversation_initiation_client_data",
            "custom_llm_extra_body": settings.custom_llm_extra_body | (trace if settings.trace_in_llm_body else {}),
            "conversation_config_override": merged(overrides, settings.overrides),
            "dynamic_variables": {**settings.dynamic_variables, **trace},
            **({} if settings.user_id is None else {"user_id": settings.user_id}),
            **settings.initiation,
        }
        return (_encoded(message),)

    def awaited(self) -> str | None:
        """Return the message that opens the conversation."""
        return "conversation_initiation_metadata"

    def audio_message(self, pcm: Pcm16) -> bytes:
        """Return one frame; this message alone has no type."""
        return b'{"user_audio_chunk":"' + base64.b64encode(self._input.encode(pcm)) + b'"}'

    def handle(self, raw_type: str, fields: Json, message: Message) -> Sequence[VoiceEvent]:
        """Return the events of a message of this type, from its content. May raise MalformedError."""
        if raw_type not in self.handlers:
            return super().handle(raw_type, fields, message)
        content = _content(raw_type, fields)
        event_id = _event_id(content) if raw_type in IDENTIFIED else None
        if event_id is not None and self._repeats.is_repeat(str(event_id), hash(message), raw_type):
            return [VoiceEvent(EventKind.DUPLICATE, raw_type)]
        return super().handle(raw_type, content, message)

    # Session.

    def _metadata(self, raw_type: str, content: Json) -> list[VoiceEvent]:
        conversation_id = required_text(content, "conversation_id")
        if self._conversation_id is not None:
            if conversation_id == self._conversation_id:
                return [VoiceEvent(EventKind.DUPLICATE, raw_type)]
            sentence = f"{raw_type}: a second conversation, {excerpt(conversation_id)}, began on the same connection"
            return [violation(raw_type, sentence, "second_conversation")]
        output = optional_text(content, "agent_output_audio_format") or USUAL
        taken = optional_text(content, "user_input_audio_format") or USUAL
        self._conversation_id = conversation_id
        sent = self._settings.user_input_audio_format
        if taken != sent:
            sentence = f"the agent takes {excerpt(taken)} and the callers send {sent!r}"
            mend = "set --protocol-option user_input_audio_format=… to the agent's"
            return [_wrong_format(raw_type, f"{sentence}: {mend}")]
        if output in FORMATS:
            self._output = SampleStream(FORMATS[output])
        else:
            sentence = f"the agent speaks in {excerpt(output)}, which cannot be played"
            return [_wrong_format(raw_type, f"{sentence}; set its output to one of {', '.join(FORMATS)}")]
        return [VoiceEvent(EventKind.READY, raw_type, metadata={"session.id": conversation_id})]

    def _ping(self, raw_type: str, content: Json) -> list[VoiceEvent]:
        if "event_id" not in content:
            raise MalformedError("'event_id' is missing; nothing can answer this")
        self._send(_encoded({"type": "pong", "event_id": content["event_id"]}))
        ping_ms = optional_count(content, "ping_ms")
        if not ping_ms or ping_ms > LONGEST_PING_MS:
            return []
        return [VoiceEvent(EventKind.SERVICE_REPORT, raw_type, service_ns={"ping": ping_ms * MS_NS})]

    def _error(self, raw_type: str, content: Json) -> list[VoiceEvent]:
        """An `error` comes when the connection is about to be closed; a `client_error` is only information."""
        code = code_of(content.get("error_type"), content.get("error_name"), content.get("code"))
        message = error_message({name: value for name, value in content.items() if name != "type"})
        failure = Failure("endpoint_error", code, retry_after_of_fields(content))
        return [VoiceEvent(EventKind.ERROR, raw_type, message=message, fatal=raw_type == "error", failure=failure)]

    # The caller's speech.

    def _tentative(self, raw_type: str, content: Json) -> list[VoiceEvent]:
        added = self._partials.addition(str(self._utterance), required_text(content, "user_transcript"))
        return [VoiceEvent(EventKind.ASR_PARTIAL if added else EventKind.OTHER, raw_type, text=added)]

    def _transcript(self, raw_type: str, content: Json) -> list[VoiceEvent]:
        text = required_text(content, "user_transcript").strip()
        self._utterance += 1
        return [VoiceEvent(EventKind.ASR_FINAL, raw_type, text=text)]

    # The reply.

    def _audio(self, raw_type: str, content: Json) -> list[VoiceEvent]:
        return self._heard(raw_type, _required_id(content), required_base64(content, "audio_base_64"))

    def _heard(self, raw_type: str, event_id: int, data: bytes) -> list[VoiceEvent]:
        if self._reply.is_void(event_id):
            return []
        if self._output is None:
            return [violation(raw_type, f"{raw_type}: audio came before its format", "audio_before_format")]
        audio = self._output.feed(data)
        rate_hz = self._output.format.rate_hz
        return self._reply.piece(EventKind.AUDIO, raw_type, "audio", audio=audio, rate_hz=rate_hz) if audio else []

    def _part(self, raw_type: str, content: Json) -> list[VoiceEvent]:
        return self._reply.part(raw_type, optional_text(content, "text") or "", _event_id(content))

    def _response(self, raw_type: str, content: Json) -> list[VoiceEvent]:
        return self._reply.whole(raw_type, required_text(content, "agent_response").strip(), _event_id(content))

    def _correction(self, raw_type: str, content: Json) -> list[VoiceEvent]:
        """Return what of an interrupted answer the agent takes for heard: no text that it says now."""
        required_text(content, "original_agent_response")
        return [VoiceEvent(EventKind.OTHER, raw_type, text=required_text(content, "corrected_agent_response").strip())]

    def _complete(self, raw_type: str, content: Json) -> list[VoiceEvent]:
        self._forget_half()
        return self._reply.complete(raw_type, _event_id(content))

    def _interruption(self, raw_type: str, content: Json) -> list[VoiceEvent]:
        self._forget_half()
        return self._reply.interrupted(raw_type, _required_id(content))

    def _forget_half(self) -> None:
        if self._output is not None:
            self._output.half = b""

    def _tool_call(self, raw_type: str, content: Json) -> list[VoiceEvent]:
        name, call_id = required_text(content, "tool_name"), required_text(content, "tool_call_id")
        if call_id in self._answered_calls:
            return [VoiceEvent(EventKind.DUPLICATE, raw_type)]
        self._answered_calls[call_id] = None
        if content.get("expects_response") is False:
            return []
        result = result_of(self._settings.tools, name)
        text = f"Tool '{name}' is not registered" if result is None else result_text(result)
        answer = {"type": "client_tool_result", "tool_call_id": call_id, "result": text, "is_error": result is None}
        self._send(_encoded(answer))
        self._reply.owes_response = True
        return [unknown_tool(raw_type, name)] if result is None else []

    # What the agent reports of itself.

    def _usage(self, raw_type: str, content: Json) -> list[VoiceEvent]:
        counts = {name: optional_count(content, name) for name in ("context_tokens", "context_limit_tokens")}
        usage = {name: count for name, count in counts.items() if count is not None}
        model = optional_text(content, "model")
        metadata = {META_MODEL: model} if model else {}
        return [VoiceEvent(EventKind.SERVICE_REPORT, raw_type, usage=usage, metadata=metadata)]

    def _guardrail(self, raw_type: str, content: Json) -> list[VoiceEvent]:
        name = optional_text(content, "guardrail_name") or "triggered"
        return [VoiceEvent(EventKind.SERVICE_REPORT, raw_type, metadata={"guardrail": name})]

    handlers: ClassVar[Mapping[str, Handler]] = {
        "conversation_initiation_metadata": _metadata,
        "audio": _audio,
        "user_transcript": _transcript,
        "tentative_user_transcript": _tentative,
        "agent_response": _response,
        "agent_response_correction": _correction,
        "agent_chat_response_part": _part,
        "agent_response_complete": _complete,
        "interruption": _interruption,
        "ping": _ping,
        "client_tool_call": _tool_call,
        "context_usage": _usage,
        "guardrail_triggered": _guardrail,
        "error": _error,
        "client_error": _error,
    }


def _encoded(message: Mapping[str, Any]) -> str:
    return orjson.dumps(message).decode()


def _content(raw_type: str, fields: Json) -> Json:
    """Return the content of a message. Raises MalformedError where it must be there and is not."""
    member = CONTENT[raw_type]
    content = as_object(fields.get(member))
    if content is not None:
        return content
    if raw_type in MAY_BE_EMPTY and fields.get(member) is None:
        return fields
    raise MalformedError(f"{member!r} is missing or no object")


def _event_id(content: Json) -> int | None:
    """Return the number of an event; None where there is none. The vendor's client takes it as a text, too."""
    value = content.get("event_id")
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return int(value)
    except ValueError:
        return None


def _required_id(content: Json) -> int:
    event_id = _event_id(content)
    if event_id is None:
        raise MalformedError(f"'event_id' is {excerpt(repr(content.get('event_id')))}; it should be a number")
    return event_id


def _wrong_format(raw_type: str, sentence: str) -> VoiceEvent:
    """The conversation cannot go on: what is said or heard would be noise."""
    failure = Failure("protocol_violation", "audio_format")
    return VoiceEvent(EventKind.ERROR, raw_type, message=f"{raw_type}: {sentence}", fatal=True, failure=failure)
