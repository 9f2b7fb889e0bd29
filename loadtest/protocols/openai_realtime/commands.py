"""A client's decoded requests to the endpoint.

`event_id` is the client's own id of the event, if it sent one, for requests that can still be refused: an error in
response repeats it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from loadtest.protocols.base import Pcm16
from loadtest.protocols.openai_realtime.session_config import Modality


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
