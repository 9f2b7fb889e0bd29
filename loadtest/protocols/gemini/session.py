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
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar, Final

import orjson

from loadtest.protocols.audio_format import HIGHEST_RATE_HZ, LOWEST_RATE_HZ
from loadtest.protocols.base import CallerProtocol, Content, EventKind, Message, SpokenText, VoiceEvent
from loadtest.protocols.error_objects import error_message
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
from loadtest.protocols.received import (
    CumulativePartials,
    Handler,
    ReplyUnderWay,
    malformed,
)
from loadtest.protocols.wire_settings import result_of, unknown_tool

INTERRUPTED: Final = "interrupted"
# The service waits for the caller: it has nothing to say yet, and nothing failed.
_WAITS: Final = "NEED_MORE_INPUT"
_UNSPECIFIED: Final = "TURN_COMPLETE_REASON_UNSPECIFIED"


class LiveReply(ReplyUnderWay):
    """The reply under way, if any."""

    def __init__(self) -> None:
        super().__init__()
        self._ended = False  # a reply has ended, and the turn has not been completed since

    def piece(self, kind: EventKind, raw_type: str, content: Content, **fields: Any) -> list[VoiceEvent]:
        """A piece of content: `kind` is OTHER where it is no part of what is measured."""
        self.owes_response = False
        return super().piece(kind, raw_type, content, **fields)

    def tool_called(self, raw_type: str) -> list[VoiceEvent]:
        """The model calls a tool; the answer comes when it has the result."""
        began = self.begin(raw_type)
        self.carried.add("tool_call")
        self.owes_response = True
        return began

    def interrupted(self, raw_type: str) -> list[VoiceEvent]:
        """The caller's speech stops the reply, or what is still played of one that has been generated."""
        done = [self.done(raw_type, "cancelled", INTERRUPTED)] if self.is_open else []
        self._ended = True
        return [VoiceEvent(EventKind.CLEAR, raw_type), *done]

    def generation_complete(self, raw_type: str) -> list[VoiceEvent]:
        """All of the reply has been sent."""
        if not self.is_open:
            return []
        self._ended = True
        return [self.done(raw_type)]

    def turn_complete(self, raw_type: str, reason: str | None, *, goes_on: bool) -> list[VoiceEvent]:
        """The service's turn is over; with `goes_on`, only a part of it, and more follows without another question."""
        before, self._ended = self._ended, False
        reason = None if reason == _UNSPECIFIED else reason
        if not self.is_open and before and not goes_on:
            return []
        began = self.begin(raw_type)
        self.owes_response = self.owes_response or goes_on
        if reason is None:
            return [*began, self.done(raw_type)]
        if self.carried & {"audio", "text"} or reason == _WAITS:
            return [*began, self.done(raw_type, "incomplete", reason)]
        return [*began, self.done(raw_type, "failed", reason, Failure("endpoint_error", code_of(reason)))]


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
    decoded = [as_object(entry) for entry in entries]
    if None in decoded:
        raise MalformedError(f"{key!r} contains what is no object: {excerpt(repr(value))}")
    return [named(entry) for entry in decoded if entry is not None]


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
# The service answers before it has said all: what it thinks meanwhile follows as another part of the same turn.
_IN_PROGRESS: Final = "IN_PROGRESS"
# Members of a message and of `serverContent` that no caller needs.
_NOT_NEEDED: Final = frozenset({"sessionResumptionUpdate", "voiceActivityDetectionSignal"})
_NOT_NEEDED_CONTENT: Final = frozenset(
    {"groundingMetadata", "interactionStatus", "turnCompleteReason", "urlContextMetadata", "waitingForInput"}
)


class LiveSession(CallerProtocol):
    """One conversation's messages."""

    def __init__(self, settings: GeminiSettings) -> None:
        self._settings = settings
        self._ready = False
        self._reply = LiveReply()
        self._transcript = InputTranscript()
        self._turn = 0  # of the caller
        self._answered_turn = 0  # the caller's turn in which the reply under way began

    def begin_turn(self, spoken: SpokenText) -> Sequence[Message]:
        """Note that the caller begins to speak; send nothing."""
        del spoken
        self._turn += 1
        self._transcript.begin("begin_turn", replying=self._reply.is_open)
        return ()

    def receive(self, message: Message) -> list[VoiceEvent]:
        """Decode one message, text or binary; never raises."""
        try:
            fields = named(parse_object(message))
        except MalformedError as error:
            return malformed("", error)
        if "error" in fields or ("code" in fields and "message" in fields):
            return self._error(fields)
        events = self._transcript.take_left() + self._members(fields, self._handlers, _NOT_NEEDED, "")
        return events or [VoiceEvent(EventKind.OTHER, "empty")]

    def _members(
        self, fields: Json, handlers: Mapping[str, Handler], not_needed: frozenset[str], within: str
    ) -> list[VoiceEvent]:
        """Return the events of the members, in the order in which they count. A malformed one does not spoil others."""
        events: list[VoiceEvent] = []
        for name in (
            *(name for name in handlers if name in fields),
            *(name for name in fields if name not in handlers),
        ):
            raw_type = within + name
            handler = handlers.get(name)
            if handler is None:
                kind = EventKind.OTHER if name in not_needed else EventKind.UNKNOWN
                events.append(VoiceEvent(kind, raw_type))
                continue
            was_open = self._reply.is_open
            try:
                events += handler(self, raw_type, fields) or [VoiceEvent(EventKind.OTHER, raw_type)]
            except MalformedError as error:
                events += malformed(raw_type, error)
            if self._reply.is_open and not was_open:
                self._answered_turn = self._turn
        return events

    # Session.

    def _setup_complete(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        session_id = optional_text(member(fields, raw_type), "sessionId")
        if self._ready:
            return []
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
        failure = Failure("endpoint_error", "go_away")
        return [VoiceEvent(EventKind.ERROR, raw_type, message=sentence, failure=failure)]

    def _usage(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        counts = usage(member(fields, raw_type))
        return [VoiceEvent(EventKind.SERVICE_REPORT, raw_type, usage=counts)] if counts else []

    # The caller's speech.

    def _voice_activity(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        activity = member(fields, raw_type)
        # The service's name of this member; clients of the vendor call it `voiceActivityType`.
        kind = optional_text(activity, "type") or optional_text(activity, "voiceActivityType")
        event_kind = _ACTIVITIES.get(kind or "") if self._settings.voice_activity else None
        return [VoiceEvent(event_kind or EventKind.OTHER, raw_type, item_id=self._transcript.item_id)]

    def _interim(self, raw_type: str, content: Json) -> list[VoiceEvent]:
        transcription = member(content, "interimInputTranscription")
        return self._transcript.interim(raw_type, optional_text(transcription, "text") or "")

    def _input(self, raw_type: str, content: Json) -> list[VoiceEvent]:
        transcription = member(content, "inputTranscription")
        text = optional_text(transcription, "text") or ""
        return self._transcript.piece(raw_type, text, finished=flag(transcription, "finished"))

    # The reply.

    def _server_content(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        return self._members(member(fields, raw_type), self._content_handlers, _NOT_NEEDED_CONTENT, f"{raw_type}.")

    def _model_turn(self, raw_type: str, content: Json) -> list[VoiceEvent]:
        parts = objects(member(content, "modelTurn"), "parts")
        return [event for part in parts for event in self._part(raw_type, part)]

    def _part(self, raw_type: str, part: Json) -> list[VoiceEvent]:
        if "inlineData" in part:
            blob = member(part, "inlineData")
            mime_type = required_text(blob, "mimeType")
            # What is no audio need not be base64 either.
            return [] if rate_of(mime_type) is None else self._speech(raw_type, mime_type, _bytes(blob))
        text = optional_text(part, "text")
        if not text:
            return []
        if flag(part, "thought"):
            return [*self._reply.begin(raw_type), VoiceEvent(EventKind.REASONING_TEXT, raw_type, text=text)]
        measured = self._settings.replies == "text"
        return self._reply.piece(EventKind.LLM_TEXT if measured else EventKind.OTHER, raw_type, "text", text=text)

    def _speech(self, raw_type: str, mime_type: str, pcm: bytes) -> list[VoiceEvent]:
        rate_hz = rate_of(mime_type)
        if rate_hz is None or not pcm:
            return []
        if len(pcm) % 2:
            raise MalformedError(f"{len(pcm)} bytes of audio end inside a 16-bit sample")
        return self._reply.piece(EventKind.AUDIO, raw_type, "audio", audio=pcm, rate_hz=rate_hz)

    def _output(self, raw_type: str, content: Json) -> list[VoiceEvent]:
        text = optional_text(member(content, "outputTranscription"), "text")
        return [VoiceEvent(EventKind.OTHER, raw_type, text=text)]

    def _interrupted(self, raw_type: str, content: Json) -> list[VoiceEvent]:
        return self._reply.interrupted(raw_type) if flag(content, "interrupted") else []

    def _generation_complete(self, raw_type: str, content: Json) -> list[VoiceEvent]:
        if not flag(content, "generationComplete"):
            return []
        return [*self._transcribed(raw_type), *self._reply.generation_complete(raw_type)]

    def _turn_complete(self, raw_type: str, content: Json) -> list[VoiceEvent]:
        if not flag(content, "turnComplete"):
            return []
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
            return []
        events = self._reply.tool_called(raw_type)
        responses: list[dict[str, Any]] = []
        for name, call_id in calls:
            result = result_of(self._settings.tools, name)
            if result is None:
                events.append(unknown_tool(raw_type, name))
                continue
            response = result if isinstance(result, dict) else {"output": result}
            responses.append({**({} if call_id is None else {"id": call_id}), "name": name, "response": response})
        if responses:
            self._send(orjson.dumps({"toolResponse": {"functionResponses": responses}}).decode())
        return events

    def _tool_call_cancellation(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        if as_list(member(fields, raw_type).get("ids", [])) is None:
            raise MalformedError("'ids' is no array")
        self._reply.owes_response = False  # the model no longer waits
        return []

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


def _bytes(blob: Json) -> bytes:
    """Return the data of a blob, in either alphabet of base64, as every reader of protobuf's JSON takes it."""
    try:
        return required_base64(blob, "data")
    except MalformedError:
        data = required_text(blob, "data")
        return required_base64({"data": data.translate(_STANDARD) + "=" * (-len(data) % 4)}, "data")
