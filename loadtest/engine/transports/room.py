"""A room of a LiveKit server, joined by LiveKit's own SDK in a process of its own."""

from collections.abc import Sequence

import msgspec

from loadtest.engine.transports.webrtc import WebRtcTransport
from loadtest.engine.webrtc.messages import LinkKind
from loadtest.protocols.base import Message, Outgoing
from loadtest.protocols.failure import Failure
from loadtest.protocols.room_items import JoinRoom, RoomItem, RoomJoined
from loadtest.protocols.webrtc_items import WebRtcItem


class RoomTransport(WebRtcTransport):
    """One call's room. The SDK negotiates by itself, so that no request is made here.

    Raises UsageError without LiveKit's SDK, and InstrumentError if the process does not start.
    """

    joined = False

    def send(self, message: Outgoing) -> None:
        """Join a room. Raises TypeError for anything else: nothing is said to an agent but audio."""
        if not isinstance(message, JoinRoom):
            raise TypeError(f"a room is joined, and nothing else: not {type(message).__name__}")
        if self._call is not None and self.is_open:
            self._process.send(LinkKind.JOIN, self._call, msgspec.json.encode(message))

    def arrived(self, stamp_perf_ns: int, lag_bound_ns: int, items: Sequence[WebRtcItem | RoomItem | Message]) -> None:
        """Pass on what came from the room."""
        self.joined = self.joined or any(isinstance(item, RoomJoined) for item in items)
        super().arrived(stamp_perf_ns, lag_bound_ns, items)

    def no_session_reason(self, waited_s: float, awaited: str | None = None) -> tuple[str, Failure]:
        """Explain why there is no session after `waited_s` seconds."""
        del awaited
        if self.joined:
            sentence = f"the room was joined, but no agent was ready in it within {waited_s:g} s"
            return sentence, Failure("timeout", "session")
        return f"the room of the LiveKit server was not joined within {waited_s:g} s", Failure("timeout", "connect")
