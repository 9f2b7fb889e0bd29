"""The items of a protocol over the rooms of a LiveKit server, other than audio. Pure.

LiveKit's SDK makes the connection; which room is joined, and what its items mean, is the protocol's responsibility.
"""

import msgspec


class JoinRoom(msgspec.Struct, frozen=True, gc=False):
    """Join a room, and publish the caller's microphone.

    With `api_key`, `secret` is the key's secret and signs a token for this room; without it, `secret` is a token that
    is used as it is. `agent_name` requests an agent by name, with `agent_metadata`.
    """

    url: str
    secret: str
    api_key: str | None
    room: str
    identity: str
    attributes: dict[str, str]
    metadata: str
    agent_name: str | None
    agent_metadata: str

    def __repr__(self) -> str:
        """Show no secret."""
        return f"JoinRoom(room={self.room!r})"


class RoomJoined(msgspec.Struct, frozen=True, gc=False, tag="joined"):
    """The room is joined, and the microphone is published."""


class AgentState(msgspec.Struct, frozen=True, gc=False, tag="state"):
    """The attribute `lk.agent.state` of an agent in the room."""

    state: str


class RoomTranscript(msgspec.Struct, frozen=True, gc=False, tag="transcript"):
    """A text of the topic `lk.transcription`: all that was recognized so far of a segment of the caller's speech."""

    segment_id: str
    text: str
    is_final: bool


class AgentLeft(msgspec.Struct, frozen=True, gc=False, tag="left"):
    """The agent has left the room."""


RoomItem = RoomJoined | AgentState | RoomTranscript | AgentLeft
