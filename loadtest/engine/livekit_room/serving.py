"""The process for rooms: `python -m loadtest.engine.livekit_room.serving FD`. FD is the number of its socket.

It ends when the engine's end is closed, whatever ended the engine.
"""

import asyncio
import logging
import sys
from collections.abc import Iterable
from functools import partial
from importlib.metadata import version
from typing import Any, Final

import msgspec

from loadtest.engine.livekit_room.call import RoomCall
from loadtest.engine.webrtc.link_service import LinkService
from loadtest.engine.webrtc.messages import Command, LinkKind
from loadtest.protocols.room_items import JoinRoom

_ENDING_S: Final = 2.0


class RoomService(LinkService):
    """Calls by LiveKit's SDK, each a participant of a room."""

    def __init__(self) -> None:
        super().__init__(version("livekit").encode())
        self._calls: dict[int, RoomCall] = {}

    def perform(self, command: Command) -> None:
        """See `LinkService`."""
        number, kind = command.call, command.kind
        if kind == LinkKind.JOIN:
            call = self._calls[number] = RoomCall(partial(self.report, number))
            self.start(number, call.join(msgspec.json.decode(command.data, type=JoinRoom)))
        elif kind == LinkKind.FRAME and number in self._calls:
            self._calls[number].frame(command.data)
        elif kind == LinkKind.CLOSE and number in self._calls:
            self.start(number, self._calls.pop(number).close())
        elif kind == LinkKind.CLOSE:
            self.report_closed(number)

    def endings(self) -> Iterable[Any]:
        """Leave all rooms."""
        return [call.close() for call in self._calls.values()]


def main() -> None:
    """Serve until the engine is gone."""
    logging.basicConfig(level=logging.CRITICAL, format="voiceprobe's process for LiveKit: %(message)s")
    asyncio.run(RoomService().serve(int(sys.argv[1]), _ENDING_S))


if __name__ == "__main__":
    main()
