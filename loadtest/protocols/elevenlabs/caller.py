"""The caller's side of a conversation with an ElevenLabs agent.

The wire has no responses. Text comes in parts (`agent_chat_response_part`), whole (`agent_response`) or both ways. An
interruption names an `event_id`: what comes late with an id up to it belongs to what was interrupted, and is not heard.
"""

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, Literal

import msgspec

from loadtest.audio import pcm as samples
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
from loadtest.protocols.cumulative_partials import CumulativePartials
from loadtest.protocols.elevenlabs import client_messages
from loadtest.protocols.elevenlabs.formats import FORMATS, USUAL
from loadtest.protocols.elevenlabs.names import CONTENT, IDENTIFIED, MAY_BE_EMPTY, UNUSED
from loadtest.protocols.elevenlabs.settings import checked_settings, not_observable
from loadtest.protocols.error_objects import error_message, violation
from loadtest.protocols.exact_messages import Count, ExactMessage, ExactReader
from loadtest.protocols.failure import Failure, code_of, retry_after_of_fields
from loadtest.protocols.foreign import message_type
from loadtest.protocols.json_fields import (
    Json,
    MalformedError,
    as_object,
    excerpt,
    optional_count,
    optional_text,
    parse_object,
    required_base64,
    required_text,
)
from loadtest.protocols.registry import register_built_in
from telemetry.model.semconv import META_MODEL

INTERRUPTED: Final = "interrupted"


class ConvaiReply:
    """The reply under way, if any. `closes` says whether the agent sends `agent_response_complete`."""

    def __init__(self, *, closes: bool) -> None:
        self._closes = closes
        self._open = False
        self._carried: set[Content] = set()
        self._interrupted_id = 0
        self._streamed = False  # text of the reply has come in parts, and not yet whole
        self._whole_id: int | None = None  # of the last text that came whole and not in parts before
        self._tool_called = False  # and the agent has said nothing since

    def is_void(self, event_id: int | None) -> bool:
        """Return whether something with this id was interrupted before it came."""
        return event_id is not None and event_id <= self._interrupted_id

    def audio(self, raw_type: str, pcm: bytes, rate_hz: int) -> list[VoiceEvent]:
        """A piece of audio."""
        self._open = True
        self._carried.add("audio")
        return [VoiceEvent(EventKind.AUDIO, raw_type, audio=pcm, rate_hz=rate_hz)]

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

    def tool_called(self) -> None:
        """The agent waits for the result of a tool before it says more."""
        self._tool_called = True

    def complete(self, raw_type: str, event_id: int | None) -> list[VoiceEvent]:
        """The agent has sent all of its reply."""
        if not self._closes or not self._open or self.is_void(event_id):
            return [VoiceEvent(EventKind.OTHER, raw_type)]
        return [self._done(raw_type, "completed", None)]

    def interrupted(self, raw_type: str, event_id: int) -> list[VoiceEvent]:
        """The caller spoke into the reply; its audio may have come long ago, and still be playing."""
        self._interrupted_id = event_id
        self._streamed = False
        events = [VoiceEvent(EventKind.CLEAR, raw_type)]
        if self._closes and self._open:
            events.append(self._done(raw_type, "cancelled", INTERRUPTED))
        return events

    def _text(self, kind: EventKind, raw_type: str, text: str) -> list[VoiceEvent]:
        self._open = True
        self._tool_called = False
        self._carried.add("text")
        return [VoiceEvent(kind, raw_type, text=text)]

    def _done(self, raw_type: str, status: str, why: str | None) -> VoiceEvent:
        owes = self._tool_called and status == "completed"
        if self._tool_called:
            self._carried.add("tool_call")
        carried = frozenset(self._carried)
        self._open = self._tool_called = False
        self._carried = set()
        return VoiceEvent(
            EventKind.RESPONSE_DONE, raw_type, status=status, carried=carried, owes_response=owes, message=why
        )


REMEMBERED: Final = 1024


class RepeatedMessages:
    """Distinguishes repeated messages from new ones.

    Whether an `event_id` names one message or a whole answer is not documented. Once two messages of a type have the
    same id and another content, its ids name no single message, and from then on none of this type counts as repeated.
    """

    def __init__(self) -> None:
        self._recent: dict[tuple[str, int], int] = {}
        self._before: dict[tuple[str, int], int] = {}
        self._shared: set[str] = set()

    def is_repeat(self, raw_type: str, event_id: int | None, message: Message) -> bool:
        """Return whether the same message was among at least the last `REMEMBERED` ones."""
        if event_id is None or raw_type not in IDENTIFIED or raw_type in self._shared:
            return False
        key, this = (raw_type, event_id), hash(message)
        seen = self._recent.get(key, self._before.get(key))
        if seen is None:
            if len(self._recent) >= REMEMBERED:
                self._before, self._recent = self._recent, {}
            self._recent[key] = this
            return False
        if seen != this:
            self._shared.add(raw_type)
            return False
        return True


class Alignment(ExactMessage):
    """The time of each spoken letter, which no caller needs."""

    chars: list[str]
    char_start_times_ms: list[Count]
    char_durations_ms: list[Count]


class AudioEvent(ExactMessage):
    """The content of the message."""

    audio_base_64: bytes
    event_id: Count
    alignment: Alignment | None = None


class AudioMessage(ExactMessage):
    """The message."""

    type: Literal["audio"]
    audio_event: AudioEvent


AUDIO_MESSAGES: Final = msgspec.json.Decoder(AudioMessage)


NAME: Final = "elevenlabs"
MS_NS: Final = 1_000_000
LONGEST_PING_MS: Final = 86_400_000
MAX_REMEMBERED_CALLS: Final = 1000
Handler = Callable[[Any, str, Json], list[VoiceEvent]]


@register_built_in(NAME)
class ElevenLabsCaller(AnsweringCaller):
    """One conversation. Implements `loadtest.protocols.base.CallerProtocol`."""

    def __init__(self, options: CallerOptions) -> None:
        """Raises UsageError, with one line for each fault of the settings and options."""
        super().__init__()
        self._options = options
        self._settings = settings = checked_settings(options, NAME)
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
        self._output: AudioFormat | None = None  # known once the agent has said it
        self._half = b""  # of a sample that the agent cut in two
        self._reply = ConvaiReply(closes=closes)
        self._repeats = RepeatedMessages()
        self._usual_audio = ExactReader(AUDIO_MESSAGES)
        self._partials = CumulativePartials()
        self._utterance = 0
        self._answered_calls: dict[str, None] = {}

    def upgrade(self, target_url: str, traceparent: str | None) -> OpenRequest:
        """Put the key into the header `xi-api-key`; the trace also goes with the first message."""
        self._traceparent = traceparent
        headers: list[tuple[str, str]] = []
        if self._options.token is not None:
            headers.append(("xi-api-key", self._options.token))
        if traceparent is not None:
            headers.append(("traceparent", traceparent))
        return OpenRequest(target_url, (*headers, *self._options.headers))

    def opened(self) -> Sequence[Message]:
        """State what is special to this conversation; the agent answers with its formats."""
        return (client_messages.initiation(self._options, self._settings, self._traceparent),)

    def awaited(self) -> str | None:
        """Return the message that opens the conversation."""
        return "conversation_initiation_metadata"

    def audio_message(self, pcm: Pcm16) -> bytes:
        """Return one frame; this message alone has no type."""
        return b'{"user_audio_chunk":"' + base64.b64encode(self._input.encode(pcm)) + b'"}'

    def receive(self, message: Message) -> Sequence[VoiceEvent]:
        """Decode one message; never raises."""
        if (usual := self._usual_audio.read(message)) is not None:
            content = usual.audio_event
            if self._repeats.is_repeat(usual.type, content.event_id, message):
                return [VoiceEvent(EventKind.DUPLICATE, usual.type)]
            if self._reply.is_void(content.event_id):
                return [VoiceEvent(EventKind.OTHER, usual.type)]
            return self._heard(usual.type, content.audio_base_64)
        raw_type = ""
        try:
            fields = parse_object(message)
            raw_type = message_type(fields, "type", message)
            handler = self._handlers.get(raw_type)
            if handler is None:
                return [VoiceEvent(EventKind.OTHER if raw_type in UNUSED else EventKind.UNKNOWN, raw_type)]
            content = _content(raw_type, fields)
            if self._repeats.is_repeat(raw_type, _event_id(content), message):
                return [VoiceEvent(EventKind.DUPLICATE, raw_type)]
            return handler(self, raw_type, content)
        except MalformedError as error:
            where = f"{raw_type}: " if raw_type else ""
            return [violation(raw_type, f"{where}{error}", "malformed_message")]

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
        self._output = FORMATS.get(output)
        if self._output is None:
            sentence = f"the agent speaks in {excerpt(output)}, which cannot be played"
            return [_wrong_format(raw_type, f"{sentence}; set its output to one of {', '.join(FORMATS)}")]
        return [VoiceEvent(EventKind.READY, raw_type, metadata={"session.id": conversation_id})]

    def _ping(self, raw_type: str, content: Json) -> list[VoiceEvent]:
        if "event_id" not in content:
            raise MalformedError("'event_id' is missing; nothing can answer this")
        self._pending.append(client_messages.pong(content["event_id"]))
        ping_ms = optional_count(content, "ping_ms")
        if not ping_ms or ping_ms > LONGEST_PING_MS:
            return [VoiceEvent(EventKind.OTHER, raw_type)]
        return [VoiceEvent(EventKind.SERVICE_REPORT, raw_type, service_ns={"ping": ping_ms * MS_NS})]

    def _error(self, raw_type: str, content: Json) -> list[VoiceEvent]:
        """An `error` comes when the connection is about to be closed; a `client_error` is only information."""
        code = code_of(content.get("error_type"), content.get("error_name"), content.get("code"))
        message = error_message({name: value for name, value in content.items() if name != "type"})
        failure = Failure("endpoint_error", code, retry_after_of_fields(content))
        return [
            VoiceEvent(EventKind.ERROR, raw_type, message=message, fatal=raw_type == "error", failure=failure),
        ]

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
        if self._reply.is_void(_required_id(content)):
            return [VoiceEvent(EventKind.OTHER, raw_type)]
        return self._heard(raw_type, required_base64(content, "audio_base_64"))

    def _heard(self, raw_type: str, data: bytes) -> list[VoiceEvent]:
        if self._output is None:
            return [violation(raw_type, f"{raw_type}: audio came before its format", "audio_before_format")]
        if self._output.encoding == "pcm16":
            data = self._half + data
            whole = len(data) // 2 * 2
            audio, self._half = data[:whole], data[whole:]
        else:
            audio = samples.to_bytes(self._output.decode(data))
        if not audio:
            return [VoiceEvent(EventKind.OTHER, raw_type)]
        return self._reply.audio(raw_type, audio, self._output.rate_hz)

    def _part(self, raw_type: str, content: Json) -> list[VoiceEvent]:
        return self._reply.part(raw_type, optional_text(content, "text") or "", _event_id(content))

    def _response(self, raw_type: str, content: Json) -> list[VoiceEvent]:
        return self._reply.whole(raw_type, required_text(content, "agent_response").strip(), _event_id(content))

    def _correction(self, raw_type: str, content: Json) -> list[VoiceEvent]:
        """Return what of an interrupted answer the agent takes for heard: no text that it says now."""
        required_text(content, "original_agent_response")
        return [VoiceEvent(EventKind.OTHER, raw_type, text=required_text(content, "corrected_agent_response").strip())]

    def _complete(self, raw_type: str, content: Json) -> list[VoiceEvent]:
        self._half = b""
        return self._reply.complete(raw_type, _event_id(content))

    def _interruption(self, raw_type: str, content: Json) -> list[VoiceEvent]:
        self._half = b""
        return self._reply.interrupted(raw_type, _required_id(content))

    def _tool_call(self, raw_type: str, content: Json) -> list[VoiceEvent]:
        name, call_id = required_text(content, "tool_name"), required_text(content, "tool_call_id")
        if call_id in self._answered_calls:
            return [VoiceEvent(EventKind.DUPLICATE, raw_type)]
        self._answered_calls[call_id] = None
        if len(self._answered_calls) > MAX_REMEMBERED_CALLS:
            del self._answered_calls[next(iter(self._answered_calls))]
        if content.get("expects_response") is False:
            return [VoiceEvent(EventKind.OTHER, raw_type)]
        answer, known = client_messages.tool_result(call_id, name, self._settings.tools)
        self._pending.append(answer)
        self._reply.tool_called()
        if known:
            return [VoiceEvent(EventKind.OTHER, raw_type)]
        sentence = f"the agent called the tool {excerpt(name)}, for which the settings have no result: add it to tools"
        return [violation(raw_type, sentence, "unknown_tool")]

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

    # On the class, not on each object: bound methods in an object would be a reference cycle that only the garbage
    # collector breaks.
    _handlers: ClassVar[Mapping[str, Handler]] = {
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
