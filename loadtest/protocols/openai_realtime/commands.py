"""What a client asks of the endpoint, decoded. `event_id` is the client's own name for its event, if it gave one: an
error that answers it repeats it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from loadtest.protocols.base import Pcm16
from loadtest.protocols.openai_realtime.session_config import Modality, SessionConfig


@dataclass(frozen=True, slots=True)
class UpdateSession:
    """The whole configuration from now on; answer with `session_updated`."""

    config: SessionConfig
    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class AppendAudio:
    """Caller's audio, decoded to PCM16 at the session's input rate."""

    pcm: Pcm16
    rate_hz: int
    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class Commit:
    """The audio so far is the caller's turn; an error if there is none."""

    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class Clear:
    """Forget the audio so far; answer with `cleared`."""

    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class CreateResponse:
    """Answer now. None leaves what the session says."""

    metadata: Mapping[str, str] = field(default_factory=dict)
    instructions: str | None = None
    modality: Modality | None = None
    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class CancelResponse:
    """Stop answering; None is whichever response is under way."""

    response_id: str | None
    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class Truncate:
    """The caller heard only so much of an item; answer with `truncated`."""

    item_id: str
    content_index: int
    audio_end_ms: int
    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class AddUserText:
    """A typed message of the caller; answer with `user_text_item`."""

    item_id: str
    text: str
    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class Retrieve:
    """The client asks for an item as it is now: send `reply`."""

    reply: str
    item_id: str
    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """Forget an item that the conversation has; answer with `deleted`."""

    item_id: str
    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class ClearOutput:
    """Stop the speech of the reply; answer with `output_cleared`."""

    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """The event cannot be understood or is not offered: send `reply`, the session goes on."""

    reply: str
    message: str


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
