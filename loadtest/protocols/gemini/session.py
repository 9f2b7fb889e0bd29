"""One conversation's messages from Gemini Live: JSON in, normalized events out.

Source: google-genai 3.4.0, types.LiveServerMessage and the converters of its client. A message can have several
members, and a `serverContent` too: content counts before what ends it. Output transcription is not the language model's
text: it comes in parallel with the audio, in no fixed order.

A reply is all content from the first piece, or from a tool call, up to `generationComplete`. `turnComplete` comes
later, when the service assumes that the reply has been played, and ends only what nothing else has ended. An
interrupted reply has no `generationComplete`. A turn that is completed without any content is a reply that holds
nothing.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Final

import msgspec
import orjson

from loadtest.protocols.audio_format import HIGHEST_RATE_HZ, LOWEST_RATE_HZ
from loadtest.protocols.base import Content, EventKind, VoiceEvent
from loadtest.protocols.cumulative_partials import CumulativePartials
from loadtest.protocols.error_objects import error_message, violation
from loadtest.protocols.exact_messages import ExactMessage, ExactReader
from loadtest.protocols.failure import Failure, code_of, retry_after_of_fields
from loadtest.protocols.gemini.settings import GeminiSettings
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
    required_base64,
    required_text,
)
from loadtest.protocols.tool_results import result_of

INTERRUPTED: Final = "interrupted"
# The service waits for the caller: it has nothing to say yet, and nothing failed.
_WAITS: Final = "NEED_MORE_INPUT"
_UNSPECIFIED: Final = "TURN_COMPLETE_REASON_UNSPECIFIED"


class LiveReply:
    """The reply under way, if any. Every method returns the events that a member of a message makes."""

    def __init__(self) -> None:
        self.is_open = False
        self._carried: set[Content] = set()
        self._owes_response = False  # a tool was called, and no content has come since
        self._ended = False  # a reply has ended, and the turn has not been completed since

    def audio(self, raw_type: str, pcm: bytes, rate_hz: int) -> list[VoiceEvent]:
        """A piece of speech."""
        return [*self._content(raw_type, "audio"), VoiceEvent(EventKind.AUDIO, raw_type, audio=pcm, rate_hz=rate_hz)]

    def text(self, raw_type: str, text: str, kind: EventKind) -> list[VoiceEvent]:
        """A piece of the answer's text: `kind` is OTHER where it is no part of what is measured."""
        return [*self._content(raw_type, "text"), VoiceEvent(kind, raw_type, text=text)]

    def reasoning(self, raw_type: str, text: str) -> list[VoiceEvent]:
        """A piece of what the model thinks before it answers."""
        return [*self._begin(raw_type), VoiceEvent(EventKind.REASONING_TEXT, raw_type, text=text)]

    def tool_called(self, raw_type: str) -> list[VoiceEvent]:
        """The model calls a tool; the answer comes when it has the result."""
        began = self._begin(raw_type)
        self._carried.add("tool_call")
        self._owes_response = True
        return began

    def tool_cancelled(self) -> None:
        """The model no longer waits for the results of its tools."""
        self._owes_response = False

    def interrupted(self, raw_type: str) -> list[VoiceEvent]:
        """The caller's speech stops the reply, or what is still played of one that has been generated."""
        events = [VoiceEvent(EventKind.CLEAR, raw_type)]
        if self.is_open:
            events.append(self._done(raw_type, "cancelled", INTERRUPTED))
        self._ended = True
        return events

    def generation_complete(self, raw_type: str) -> list[VoiceEvent]:
        """All of the reply has been sent."""
        if not self.is_open:
            return [VoiceEvent(EventKind.OTHER, raw_type)]
        self._ended = True
        return [self._done(raw_type, "completed", None)]

    def turn_complete(self, raw_type: str, reason: str | None, *, goes_on: bool) -> list[VoiceEvent]:
        """The service's turn is over; with `goes_on`, only a part of it, and more follows without another question."""
        before, self._ended = self._ended, False
        reason = None if reason == _UNSPECIFIED else reason
        if not self.is_open and before and not goes_on:
            return [VoiceEvent(EventKind.OTHER, raw_type)]
        began = self._begin(raw_type)
        self._owes_response = self._owes_response or goes_on
        if reason is None:
            return [*began, self._done(raw_type, "completed", None)]
        spoke = bool(self._carried & {"audio", "text"})
        return [*began, self._done(raw_type, "incomplete" if spoke or reason == _WAITS else "failed", reason)]

    def _content(self, raw_type: str, what: Content) -> list[VoiceEvent]:
        began = self._begin(raw_type)
        self._owes_response = False
        self._carried.add(what)
        return began

    def _begin(self, raw_type: str) -> list[VoiceEvent]:
        if self.is_open:
            return []
        self.is_open = True
        return [VoiceEvent(EventKind.RESPONSE_STARTED, raw_type)]

    def _done(self, raw_type: str, status: str, why: str | None) -> VoiceEvent:
        event = VoiceEvent(
            EventKind.RESPONSE_DONE,
            raw_type,
            status=status,
            carried=frozenset(self._carried),
            owes_response=self._owes_response and status == "completed",
            message=why,
            failure=Failure("endpoint_error", code_of(why)) if status == "failed" else None,
        )
        self.is_open = self._owes_response = False
        self._carried = set()
        return event


# The counts of tokens by our names: of their totals, and of the lists that part them by modality.
_TOTALS: Final = (
    ("promptTokenCount", "input_tokens"),
    ("responseTokenCount", "output_tokens"),
    ("candidatesTokenCount", "output_tokens"),
    ("totalTokenCount", "total_tokens"),
    ("cachedContentTokenCount", "cached_tokens"),
    ("thoughtsTokenCount", "reasoning_tokens"),
    ("toolUsePromptTokenCount", "tool_tokens"),
)
_DETAILS: Final = (
    ("promptTokensDetails", "input"),
    ("responseTokensDetails", "output"),
    ("candidatesTokensDetails", "output"),
    ("cacheTokensDetails", "cached"),
)
_MODALITIES: Final = frozenset({"TEXT", "AUDIO", "IMAGE", "VIDEO", "DOCUMENT"})


def named(fields: Json) -> Json:
    """Return an object's members under their names with capitals; members that are null count as missing."""
    if not any("_" in name or value is None for name, value in fields.items()):
        return fields
    return {_capitalized(name): value for name, value in fields.items() if value is not None}


def _capitalized(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word[:1].upper() + word[1:] for word in rest)


def objects(fields: Json, key: str) -> list[Json]:
    """Return the objects in the array at `key`. Raises MalformedError for anything else; a missing array is empty."""
    value = fields.get(key)
    if value is None:
        return []
    entries = as_list(value)
    if entries is None:
        raise MalformedError(f"{key!r} is {excerpt(repr(value))}; it should be an array")
    found = [as_object(entry) for entry in entries]
    if None in found:
        raise MalformedError(f"{key!r} contains what is no object: {excerpt(repr(value))}")
    return [named(entry) for entry in found if entry is not None]


def member(fields: Json, key: str) -> Json:
    """Return the object at `key`, empty if it is missing. Raises MalformedError for another type."""
    return named(optional_object(fields, key) or {})


def flag(fields: Json, key: str) -> bool:
    """Return the boolean at `key`, False if it is missing. Raises MalformedError for another type."""
    value = fields.get(key, False)
    if isinstance(value, bool):
        return value
    raise MalformedError(f"{key!r} is {excerpt(repr(value))}; it should be true or false")


def usage(fields: Json) -> dict[str, int]:
    """Return the counts of tokens, also by modality: output_tokens, cached_tokens, input_audio_tokens, …

    Raises MalformedError for a count that is not a whole number. What is missing is left out, never 0.
    """
    counts: dict[str, int] = {}
    for theirs, ours in _TOTALS:
        count = optional_count(fields, theirs)
        if count is not None:
            counts[ours] = count
    for theirs, ours in _DETAILS:
        for entry in objects(fields, theirs):
            modality, count = entry.get("modality"), optional_count(entry, "tokenCount")
            if modality in _MODALITIES and count is not None:
                counts[f"{ours}_{str(modality).lower()}_tokens"] = count
    return counts


class InputTranscript:
    """The transcript of the caller's question under way. Each has a name of its own, `item_id`."""

    def __init__(self) -> None:
        self._count = 1
        self._text = ""
        self._left: VoiceEvent | None = None  # of the question before, whose reply the caller has interrupted
        self._closed = False  # the reply is complete: what still comes is the rest of its question
        self._interim = False
        self._partials = CumulativePartials()

    @property
    def item_id(self) -> str:
        """The name of the question."""
        return f"question-{self._count}"

    def begin(self, raw_type: str, *, replying: bool) -> None:
        """The caller begins another question, perhaps while the reply to the one before goes on."""
        if self._text and replying:
            self._left = self._final(raw_type, self._text, dated_by_partial=True)
        self._reset()

    def take_left(self) -> list[VoiceEvent]:
        """The transcript of a question that ended unmarked because the caller began another one."""
        if self._left is None:
            return []
        left, self._left = self._left, None
        return [left]

    def interim(self, raw_type: str, whole: str) -> list[VoiceEvent]:
        """All that was heard so far; it replaces what was heard before."""
        added = self._partials.addition(self.item_id, whole)
        self._interim = self._interim or bool(whole)
        kind = EventKind.ASR_PARTIAL if added else EventKind.OTHER
        return [VoiceEvent(kind, raw_type, item_id=self.item_id, text=added)]

    def piece(self, raw_type: str, text: str, *, finished: bool) -> list[VoiceEvent]:
        """A piece that follows the pieces before it, or the whole transcript after interim ones."""
        self._text += text
        if (finished or self._interim or self._closed) and self._text:
            event = self._final(raw_type, self._text)
            self._reset(closed=self._closed)
            return [event]
        kind = EventKind.ASR_PARTIAL if text else EventKind.OTHER
        return [VoiceEvent(kind, raw_type, item_id=self.item_id, text=text)]

    def answered(self, raw_type: str) -> list[VoiceEvent]:
        """The reply to the question is complete: pieces that nothing has marked as the last are the transcript."""
        events = [self._final(raw_type, self._text, dated_by_partial=True)] if self._text else []
        self._reset(closed=True)
        return events

    def _final(self, raw_type: str, text: str, *, dated_by_partial: bool = False) -> VoiceEvent:
        return VoiceEvent(
            EventKind.ASR_FINAL,
            raw_type,
            item_id=self.item_id,
            text=text.strip(),
            dated_by_partial=dated_by_partial,
        )

    def _reset(self, *, closed: bool = False) -> None:
        self._count += 1
        self._text, self._closed, self._interim = "", closed, False


OUTPUT_RATE_HZ: Final = 24_000  # of audio whose type does not say it
_RATE: Final = re.compile(r";\s*rate=(\d{1,7})\s*(?:;|$)")


class SpeechData(ExactMessage, rename="camel"):
    """The audio, and what it is."""

    mime_type: str
    data: bytes


class SpeechPart(ExactMessage, rename="camel"):
    """One of the parts of a turn."""

    inline_data: SpeechData


class SpeechTurn(ExactMessage, rename="camel"):
    """The parts of a turn."""

    parts: Annotated[list[SpeechPart], msgspec.Meta(min_length=1)]
    role: str | None = None


class SpeechContent(ExactMessage, rename="camel"):
    """The content that the service generates."""

    model_turn: SpeechTurn


class SpeechMessage(ExactMessage, rename="camel"):
    """The message."""

    server_content: SpeechContent


SPEECH_MESSAGES: Final = msgspec.json.Decoder(SpeechMessage)


@lru_cache(maxsize=64)
def rate_of(mime_type: str) -> int | None:
    """Return the rate of PCM in Hz, None for what is no audio. Raises MalformedError for audio in another encoding."""
    kind = mime_type.lower()
    if not kind.startswith("audio/"):
        return None
    if kind.partition(";")[0].strip() not in ("audio/pcm", "audio/l16"):
        raise MalformedError(f"audio of the type {excerpt(mime_type)}; only audio/pcm is known")
    rate = _RATE.search(kind)
    rate_hz = OUTPUT_RATE_HZ if rate is None else int(rate[1])
    if not LOWEST_RATE_HZ <= rate_hz <= HIGHEST_RATE_HZ:
        raise MalformedError(f"audio at {rate_hz} Hz; {LOWEST_RATE_HZ} to {HIGHEST_RATE_HZ} Hz is possible")
    return rate_hz


# The characters of URL-safe base64, which some gateways write, and those that they replace.
_STANDARD: Final = str.maketrans("-_", "+/")
_SPEECH: Final = "serverContent.modelTurn"
# The service answers before it has said all: what it thinks meanwhile follows as another part of the same turn.
_IN_PROGRESS: Final = "IN_PROGRESS"
# Members of a message and of `serverContent` that no caller needs.
_NOT_NEEDED: Final = frozenset({"sessionResumptionUpdate", "voiceActivityDetectionSignal"})
_NOT_NEEDED_CONTENT: Final = frozenset(
    {"groundingMetadata", "interactionStatus", "turnCompleteReason", "urlContextMetadata", "waitingForInput"}
)
# The first argument is the session.
Handler = Callable[[Any, str, Json], list[VoiceEvent]]


class LiveSession:
    """The state of one conversation. `answers` are the messages that wait to be sent."""

    def __init__(self, settings: GeminiSettings) -> None:
        self.answers: list[str] = []
        self._settings = settings
        self._ready = False
        self._reply = LiveReply()
        self._speech_reader = ExactReader(SPEECH_MESSAGES)
        self._transcript = InputTranscript()
        self._turn = 0  # of the caller
        self._answered_turn = 0  # the caller's turn in which the reply under way began

    def begin_turn(self) -> None:
        """The caller begins to speak."""
        self._turn += 1
        self._transcript.begin("begin_turn", replying=self._reply.is_open)

    def receive(self, message: str | bytes) -> list[VoiceEvent]:
        """Decode one message, text or binary; never raises."""
        if self._reply.is_open and (speech := self._speech_reader.read(message)) is not None:
            return [*self._transcript.take_left(), *self._more_speech(speech.server_content.model_turn.parts)]
        try:
            fields = named(parse_object(message))
        except MalformedError as error:
            return [violation("", str(error), "malformed_message")]
        if "error" in fields or ("code" in fields and "message" in fields):
            return self._error(fields)
        events = self._transcript.take_left()
        for name in _in_order(fields, self._handlers):
            events += self._members(name, fields, self._handlers, _NOT_NEEDED, "")
        return events or [VoiceEvent(EventKind.OTHER, "empty")]

    def _members(
        self, name: str, fields: Json, handlers: Mapping[str, Handler], not_needed: frozenset[str], within: str
    ) -> list[VoiceEvent]:
        """Return the events of one member. One that is malformed does not spoil the others."""
        raw_type = within + name
        handler = handlers.get(name)
        if handler is None:
            return [VoiceEvent(EventKind.OTHER if name in not_needed else EventKind.UNKNOWN, raw_type)]
        was_open = self._reply.is_open
        try:
            events = handler(self, raw_type, fields)
        except MalformedError as error:
            events = [violation(raw_type, f"{raw_type}: {error}", "malformed_message")]
        if self._reply.is_open and not was_open:
            self._answered_turn = self._turn
        return events

    # Session.

    def _setup_complete(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        session_id = optional_text(member(fields, raw_type), "sessionId")
        if self._ready:
            return [VoiceEvent(EventKind.OTHER, raw_type)]
        self._ready = True
        return [VoiceEvent(EventKind.READY, raw_type, metadata={"session.id": session_id} if session_id else {})]

    def _error(self, fields: Json) -> list[VoiceEvent]:
        """The service, or a proxy in front of it, refuses: clients of the vendor end the session."""
        error = as_object(fields.get("error")) or fields
        failure = Failure(
            "endpoint_error", code_of(error.get("status"), error.get("code"), "error"), retry_after_of_fields(error)
        )
        message = error_message(fields.get("error", error))
        return [VoiceEvent(EventKind.ERROR, "error", message=message, fatal=True, failure=failure)]

    def _go_away(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        left = optional_text(member(fields, raw_type), "timeLeft")
        sentence = f"the service announces that it closes the connection{f' in {left}' if left else ' soon'}"
        return [
            VoiceEvent(EventKind.ERROR, raw_type, message=sentence, failure=Failure("endpoint_error", "go_away")),
        ]

    def _usage(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        counts = usage(member(fields, raw_type))
        kind = EventKind.SERVICE_REPORT if counts else EventKind.OTHER
        return [VoiceEvent(kind, raw_type, usage=counts)]

    # The caller's speech.

    def _voice_activity(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        activity = member(fields, raw_type)
        # The service's name of this member; clients of the vendor call it `voiceActivityType`.
        kind = optional_text(activity, "type") or optional_text(activity, "voiceActivityType")
        found = _ACTIVITIES.get(kind or "") if self._settings.voice_activity else None
        return [VoiceEvent(found or EventKind.OTHER, raw_type, item_id=self._transcript.item_id)]

    def _interim(self, raw_type: str, content: Json) -> list[VoiceEvent]:
        transcription = member(content, "interimInputTranscription")
        return self._transcript.interim(raw_type, optional_text(transcription, "text") or "")

    def _input(self, raw_type: str, content: Json) -> list[VoiceEvent]:
        transcription = member(content, "inputTranscription")
        text = optional_text(transcription, "text") or ""
        return self._transcript.piece(raw_type, text, finished=flag(transcription, "finished"))

    # The reply.

    def _server_content(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        content = member(fields, raw_type)
        events: list[VoiceEvent] = []
        for name in _in_order(content, self._content_handlers):
            events += self._members(name, content, self._content_handlers, _NOT_NEEDED_CONTENT, f"{raw_type}.")
        return events

    def _model_turn(self, raw_type: str, content: Json) -> list[VoiceEvent]:
        events: list[VoiceEvent] = []
        for part in objects(member(content, "modelTurn"), "parts"):
            events += self._part(raw_type, part)
        return events

    def _part(self, raw_type: str, part: Json) -> list[VoiceEvent]:
        if "inlineData" in part:
            return self._inline(raw_type, member(part, "inlineData"))
        text = optional_text(part, "text")
        if not text:
            return [VoiceEvent(EventKind.OTHER, raw_type)]
        if flag(part, "thought"):
            return self._reply.reasoning(raw_type, text)
        measured = self._settings.replies == "text"
        return self._reply.text(raw_type, text, EventKind.LLM_TEXT if measured else EventKind.OTHER)

    def _inline(self, raw_type: str, blob: Json) -> list[VoiceEvent]:
        mime_type = required_text(blob, "mimeType")
        # What is no audio need not be base64 either.
        return _nothing(raw_type) if rate_of(mime_type) is None else self._speech(raw_type, mime_type, _bytes(blob))

    def _speech(self, raw_type: str, mime_type: str, pcm: bytes) -> list[VoiceEvent]:
        rate_hz = rate_of(mime_type)
        if rate_hz is None or not pcm:
            return _nothing(raw_type)
        if len(pcm) % 2:
            raise MalformedError(f"{len(pcm)} bytes of audio end inside a 16-bit sample")
        return self._reply.audio(raw_type, pcm, rate_hz)

    def _more_speech(self, parts: Sequence[SpeechPart]) -> list[VoiceEvent]:
        """The parts of a message that carries nothing else, while a reply is under way."""
        pieces = [part.inline_data for part in parts]
        try:
            return [event for each in pieces for event in self._speech(_SPEECH, each.mime_type, each.data)]
        except MalformedError as error:
            return [violation(_SPEECH, f"{_SPEECH}: {error}", "malformed_message")]

    def _output(self, raw_type: str, content: Json) -> list[VoiceEvent]:
        text = optional_text(member(content, "outputTranscription"), "text")
        return [VoiceEvent(EventKind.OTHER, raw_type, text=text)]

    def _interrupted(self, raw_type: str, content: Json) -> list[VoiceEvent]:
        return self._reply.interrupted(raw_type) if flag(content, "interrupted") else _nothing(raw_type)

    def _generation_complete(self, raw_type: str, content: Json) -> list[VoiceEvent]:
        if not flag(content, "generationComplete"):
            return _nothing(raw_type)
        return [*self._transcribed(raw_type), *self._reply.generation_complete(raw_type)]

    def _turn_complete(self, raw_type: str, content: Json) -> list[VoiceEvent]:
        if not flag(content, "turnComplete"):
            return _nothing(raw_type)
        goes_on = content.get("interactionStatus") == _IN_PROGRESS
        reason = optional_text(content, "turnCompleteReason")
        return [*self._transcribed(raw_type), *self._reply.turn_complete(raw_type, reason, goes_on=goes_on)]

    def _transcribed(self, raw_type: str) -> list[VoiceEvent]:
        """The transcript of the question whose reply is complete now, if nothing has marked its last piece."""
        answers_question = self._reply.is_open and self._answered_turn == self._turn
        return self._transcript.answered(raw_type) if answers_question else []

    # Tools.

    def _tool_call(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        calls = [
            (required_text(call, "name"), optional_text(call, "id"))
            for call in objects(member(fields, raw_type), "functionCalls")
        ]
        if not calls:
            return _nothing(raw_type)
        events = self._reply.tool_called(raw_type)
        responses: list[dict[str, Any]] = []
        for name, call_id in calls:
            result = result_of(self._settings.tools, name)
            if result is None:
                sentence = f"the endpoint called the tool {name!r}, for which the settings have no result"
                events.append(violation(raw_type, f"{sentence}: add it to tools", "unknown_tool"))
                continue
            response = result if isinstance(result, dict) else {"output": result}
            responses.append({**({} if call_id is None else {"id": call_id}), "name": name, "response": response})
        if responses:
            self.answers.append(orjson.dumps({"toolResponse": {"functionResponses": responses}}).decode())
        return events or _nothing(raw_type)

    def _tool_call_cancellation(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        if as_list(member(fields, raw_type).get("ids", [])) is None:
            raise MalformedError("'ids' is no array")
        self._reply.tool_cancelled()
        return _nothing(raw_type)

    # On the class, not on each object: bound methods in an object would be a reference cycle that only the garbage
    # collector breaks. In the order in which the members of one message count.
    _handlers: ClassVar[Mapping[str, Handler]] = {
        "setupComplete": _setup_complete,
        "usageMetadata": _usage,
        "voiceActivity": _voice_activity,
        "toolCall": _tool_call,
        "toolCallCancellation": _tool_call_cancellation,
        "serverContent": _server_content,
        "goAway": _go_away,
    }
    _content_handlers: ClassVar[Mapping[str, Handler]] = {
        "modelTurn": _model_turn,
        "interimInputTranscription": _interim,
        "inputTranscription": _input,
        "outputTranscription": _output,
        "interrupted": _interrupted,
        "generationComplete": _generation_complete,
        "turnComplete": _turn_complete,
    }


_ACTIVITIES: Final[Mapping[str, EventKind]] = {
    "ACTIVITY_START": EventKind.SPEECH_STARTED,
    "ACTIVITY_END": EventKind.SPEECH_STOPPED,
}


def _in_order(fields: Json, handlers: Mapping[str, Handler]) -> list[str]:
    """The names of members in the order in which they count; those that need no handling last."""
    if len(fields) == 1:
        return list(fields)
    return [name for name in handlers if name in fields] + [name for name in fields if name not in handlers]


def _nothing(raw_type: str) -> list[VoiceEvent]:
    return [VoiceEvent(EventKind.OTHER, raw_type)]


def _bytes(blob: Json) -> bytes:
    """Return the data of a blob, in either alphabet of base64, as every reader of protobuf's JSON takes it."""
    try:
        return required_base64(blob, "data")
    except MalformedError:
        data = required_text(blob, "data")
        return required_base64({"data": data.translate(_STANDARD) + "=" * (-len(data) % 4)}, "data")
