"""The endpoint's side of OpenAI Realtime, for the reference assistant.

Client events go in, commands come out, and methods create the server events to answer with. It stores no audio and
makes no decisions; the assistant decides when to speak.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, cast

from loadtest.audio.pcm import Pcm16
from loadtest.protocols.base import Message
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
from loadtest.protocols.openai_realtime.names import ServerEvent
from loadtest.protocols.openai_realtime.service_session import (
    Encoder,
    InvalidSessionError,
    MakeId,
    Modality,
    ServiceReply,
    SessionConfig,
    parse_modalities,
)
from loadtest.protocols.received import text_pairs
from telemetry.model.recent import RecentDict


@dataclass(frozen=True, slots=True)
class UpdateSession:
    """The session's configuration has changed; answer with `updated`."""


@dataclass(frozen=True, slots=True)
class AppendAudio:
    """The caller's audio, decoded to PCM16 at the session's input rate."""

    pcm: Pcm16


@dataclass(frozen=True, slots=True)
class Commit:
    """The audio so far is the caller's turn; answer with an error if there is no audio."""

    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class Clear:
    """Discard the audio so far; answer with `cleared`."""


@dataclass(frozen=True, slots=True)
class CreateResponse:
    """Respond now. None means the session's setting."""

    metadata: Mapping[str, str] = field(default_factory=dict)
    instructions: str | None = None
    modality: Modality | None = None
    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class CancelResponse:
    """Cancel a response; None means the current one."""

    response_id: str | None
    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class Truncate:
    """The caller heard only the beginning of an item; answer with `truncated`."""

    item_id: str
    content_index: int
    audio_end_ms: int
    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class AddUserText:
    """A text message from the caller; answer with `user_text_item`."""

    item_id: str
    text: str


@dataclass(frozen=True, slots=True)
class Retrieve:
    """The client requests an item in its current form: send `reply`."""

    reply: str


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete an existing item of the conversation; answer with `deleted`."""

    item_id: str
    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class ClearOutput:
    """Stop the reply's audio; answer with `output_cleared`."""

    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """The event is invalid or not supported: send `reply`; the session continues."""

    reply: str


Command = (
    UpdateSession
    | AppendAudio
    | Commit
    | Clear
    | CreateResponse
    | CancelResponse
    | Truncate
    | AddUserText
    | Retrieve
    | Delete
    | ClearOutput
    | Refused
)


MAX_ITEMS: Final = 1000
_WITH_ITEM: Final = frozenset({ServerEvent.ITEM_ADDED, ServerEvent.ITEM_DONE, ServerEvent.OUTPUT_ITEM_DONE})
_WITH_TRANSCRIPT: Final = frozenset({ServerEvent.TRANSCRIPTION_COMPLETED, ServerEvent.ITEM_TRUNCATED})


class Items:
    """The items, kept up to date from the events that are sent."""

    def __init__(self) -> None:
        self._items = RecentDict[str, dict[str, object]](MAX_ITEMS)

    def note(self, event: ServerEvent, fields: Mapping[str, object]) -> None:
        """Record an event that is about to be sent."""
        if event in _WITH_ITEM:
            item = cast("dict[str, object]", fields["item"])
            self._items[str(item["id"])] = dict(item)
        elif event in _WITH_TRANSCRIPT:
            # Truncating deletes the transcript, because it was not heard completely.
            self._set_transcript(str(fields["item_id"]), fields.get("transcript"))

    def get(self, item_id: str) -> Json | None:
        """Return the current form of an item, or None if there is no item with that id."""
        return self._items.get(item_id)

    def remove(self, item_id: str) -> None:
        """Remove an item, if it is there."""
        self._items.pop(item_id, None)

    @property
    def last_id(self) -> str | None:
        """The newest item's id."""
        return next(reversed(self._items), None)

    def _set_transcript(self, item_id: str, transcript: object) -> None:
        item = self._items.get(item_id)
        if item is not None:
            parts = cast("list[dict[str, object]]", item["content"])
            item["content"] = [part | {"transcript": transcript} for part in parts]


MAX_APPEND_BYTES: Final = 15 * 2**20
# Events of this protocol that are not supported here.
NOT_SUPPORTED: Final = frozenset({"transcription_session.update"})


class ServiceSession:
    """One client's session.

    `make_id("item")` returns a new id with that prefix; `beta` is whether the client requested the beta.
    """

    def __init__(self, make_id: MakeId, *, beta: bool = False, config: SessionConfig | None = None) -> None:
        self.config = config or SessionConfig()
        self.session_id = make_id("sess")
        self.conversation_id = make_id("conv")
        self._make_id = make_id
        self._items = Items()
        self._encoder = Encoder(make_id, beta=beta, note=self._items.note)
        self._handlers: Mapping[str, Callable[[Json, str | None], Command]] = {
            "session.update": self._update,
            "input_audio_buffer.append": self._append,
            "input_audio_buffer.commit": lambda _, event_id: Commit(event_id),
            "input_audio_buffer.clear": lambda _, __: Clear(),
            "response.create": self._create,
            "response.cancel": lambda fields, event_id: CancelResponse(optional_text(fields, "response_id"), event_id),
            "conversation.item.truncate": self._truncate,
            "conversation.item.create": self._item_create,
            "conversation.item.retrieve": self._retrieve,
            "conversation.item.delete": self._delete,
            "output_audio_buffer.clear": lambda _, event_id: ClearOutput(event_id),
        }

    def receive(self, message: Message) -> list[Command]:
        """Decode one client message into commands. Never raises: an invalid or unsupported event is `Refused`."""
        event_id: str | None = None
        try:
            fields = parse_object(message)
            given = fields.get("event_id")
            event_id = given if isinstance(given, str) else None
            kind = required_text(fields, "type")
            handler = self._handlers.get(kind)
            if handler is None:
                reason = "is not supported here" if kind in NOT_SUPPORTED else "is not an event of this protocol"
                return [self._refuse(f"{excerpt(kind)} {reason}", event_id, code="unknown_event", param="type")]
            return [handler(fields, event_id)]
        except InvalidSessionError as error:
            return [self._refuse(str(error), event_id, code="invalid_value", param=error.param)]
        except MalformedError as error:
            return [self._refuse(str(error), event_id, code="invalid_event")]

    def _update(self, fields: Json, event_id: str | None) -> Command:
        session = optional_object(fields, "session")
        if session is None:
            raise InvalidSessionError("'session' is missing; it should be an object", "session")
        self.config = self.config.updated(session)
        return UpdateSession()

    def _append(self, fields: Json, event_id: str | None) -> Command:
        data = required_base64(fields, "audio")
        if len(data) > MAX_APPEND_BYTES:
            raise MalformedError(f"'audio' has {len(data)} bytes; one event may carry at most {MAX_APPEND_BYTES}")
        try:
            samples = self.config.input_format.decode(data)
        except ValueError as error:
            raise MalformedError(f"'audio': {error}") from None
        return AppendAudio(samples)

    def _create(self, fields: Json, event_id: str | None) -> Command:
        response = optional_object(fields, "response") or {}
        modality: Modality | None = None
        for key in ("output_modalities", "modalities"):
            if response.get(key) is not None:
                modality = parse_modalities(response[key], f"response.{key}")
        return CreateResponse(
            metadata=text_pairs(optional_object(response, "metadata")),
            instructions=optional_text(response, "instructions"),
            modality=modality,
            event_id=event_id,
        )

    def _truncate(self, fields: Json, event_id: str | None) -> Command:
        end_ms = optional_count(fields, "audio_end_ms")
        if end_ms is None:
            raise MalformedError("'audio_end_ms' is missing; it should be a whole number")
        index = optional_count(fields, "content_index") or 0
        return Truncate(required_text(fields, "item_id"), index, end_ms, event_id)

    def _item_create(self, fields: Json, event_id: str | None) -> Command:
        item = optional_object(fields, "item")
        if item is None:
            raise MalformedError("'item' is missing; it should be an object")
        if item.get("type") != "message" or item.get("role") != "user":
            raise MalformedError("only messages with the role 'user' can be added here")
        texts: list[str] = []
        for part in as_list(item.get("content")) or []:
            content = as_object(part) or {}
            if content.get("type") != "input_text":
                raise MalformedError("only content of the type 'input_text' can be added here")
            texts.append(required_text(content, "text"))
        if not texts:
            raise MalformedError("'item.content' is empty; it should contain a part of the type 'input_text'")
        item_id = optional_text(item, "id") or self._make_id("item")
        return AddUserText(item_id, "".join(texts))

    def _retrieve(self, fields: Json, event_id: str | None) -> Command:
        item_id = required_text(fields, "item_id")
        item = self._items.get(item_id)
        if item is None:
            return self._no_such_item(item_id, event_id)
        return Retrieve(self._encoder(ServerEvent.ITEM_RETRIEVED, item=item))

    def _delete(self, fields: Json, event_id: str | None) -> Command:
        item_id = required_text(fields, "item_id")
        return Delete(item_id, event_id) if self.has_item(item_id) else self._no_such_item(item_id, event_id)

    def _no_such_item(self, item_id: str, event_id: str | None) -> Refused:
        message = f"the conversation has no item {excerpt(item_id)}"
        return self._refuse(message, event_id, code="item_not_found", param="item_id")

    def _refuse(self, message: str, event_id: str | None, *, code: str, param: str | None = None) -> Refused:
        return Refused(self.error(message, event_id=event_id, code=code, param=param))

    def has_item(self, item_id: str) -> bool:
        """Return whether the conversation has this item."""
        return self._items.get(item_id) is not None

    @property
    def last_item_id(self) -> str | None:
        """The newest item of the conversation."""
        return self._items.last_id

    # Server events.

    def created(self) -> str:
        """Create `session.created`, the first message of every session."""
        return self._session_event(ServerEvent.SESSION_CREATED)

    def updated(self) -> str:
        """Create `session.updated`, the answer to `UpdateSession`."""
        return self._session_event(ServerEvent.SESSION_UPDATED)

    def speech_started(self, item_id: str, audio_start_ms: int) -> str:
        """The caller began to speak, `audio_start_ms` into the session's audio (prefix padding included)."""
        return self._encoder(ServerEvent.SPEECH_STARTED, item_id=item_id, audio_start_ms=audio_start_ms)

    def speech_stopped(self, item_id: str, audio_end_ms: int) -> str:
        """The caller's turn ended, `audio_end_ms` into the session's audio."""
        return self._encoder(ServerEvent.SPEECH_STOPPED, item_id=item_id, audio_end_ms=audio_end_ms)

    def committed(self, item_id: str, previous_item_id: str | None) -> str:
        """The caller's audio became an item."""
        return self._encoder(ServerEvent.COMMITTED, item_id=item_id, previous_item_id=previous_item_id)

    def cleared(self) -> str:
        """The caller's audio was discarded."""
        return self._encoder(ServerEvent.CLEARED)

    def user_audio_item(self, item_id: str, previous_item_id: str | None) -> list[str]:
        """The caller's turn as an item, added and done (its transcript follows separately)."""
        return self._user_item(item_id, previous_item_id, {"type": "input_audio", "transcript": None})

    def user_text_item(self, item_id: str, previous_item_id: str | None, text: str) -> list[str]:
        """A text message as an item, added and done."""
        return self._user_item(item_id, previous_item_id, {"type": "input_text", "text": text})

    def transcription_delta(self, item_id: str, delta: str) -> str:
        """The next part of the transcript."""
        return self._encoder(ServerEvent.TRANSCRIPTION_DELTA, item_id=item_id, content_index=0, delta=delta)

    def transcription_completed(self, item_id: str, transcript: str, audio_s: float) -> str:
        """The complete transcript; `audio_s` is how much audio was transcribed."""
        usage = {"type": "duration", "seconds": audio_s}
        ids = {"item_id": item_id, "content_index": 0}
        return self._encoder(ServerEvent.TRANSCRIPTION_COMPLETED, **ids, transcript=transcript, usage=usage)

    def reply(
        self,
        *,
        previous_item_id: str | None = None,
        metadata: Mapping[str, str] | None = None,
        modality: Modality | None = None,
    ) -> ServiceReply:
        """Create a new response: send its `created()`, deltas and `done()`."""
        return ServiceReply(
            self._encoder,
            self.config,
            metadata=metadata or {},
            modality=modality or self.config.modality,
            previous_item_id=previous_item_id,
            conversation_id=self.conversation_id,
        )

    def truncated(self, item_id: str, content_index: int, audio_end_ms: int) -> str:
        """The item now ends where the caller stopped listening."""
        ids = {"item_id": item_id, "content_index": content_index}
        return self._encoder(ServerEvent.ITEM_TRUNCATED, **ids, audio_end_ms=audio_end_ms)

    def deleted(self, item_id: str) -> str:
        """The item is no longer part of the conversation."""
        self._items.remove(item_id)
        return self._encoder(ServerEvent.ITEM_DELETED, item_id=item_id)

    def output_cleared(self, response_id: str) -> str:
        """No more audio of this response is sent."""
        return self._encoder(ServerEvent.OUTPUT_CLEARED, response_id=response_id)

    def error(
        self,
        message: str,
        *,
        event_id: str | None = None,
        code: str | None = None,
        param: str | None = None,
        error_type: str = "invalid_request_error",
    ) -> str:
        """An error; the session continues. `event_id` is that of the client event that caused it."""
        error = {"type": error_type, "code": code, "message": message, "param": param, "event_id": event_id}
        return self._encoder(ServerEvent.ERROR, error=error)

    def _session_event(self, event: ServerEvent) -> str:
        return self._encoder(event, session=self.config.rendered(self.session_id, beta=self._encoder.beta))

    def _user_item(self, item_id: str, previous_item_id: str | None, content: Mapping[str, object]) -> list[str]:
        item = {
            "id": item_id,
            "object": "realtime.item",
            "type": "message",
            "role": "user",
            "status": "completed",
            "content": [content],
        }
        fields = {"previous_item_id": previous_item_id, "item": item}
        return [
            self._encoder(ServerEvent.ITEM_ADDED, **fields),
            *self._encoder.ga_only(ServerEvent.ITEM_DONE, **fields),
        ]
