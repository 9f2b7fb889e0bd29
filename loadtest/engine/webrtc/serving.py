"""The WebRTC process: `python -m loadtest.engine.webrtc.serving FD`, where FD is its end of the engine's socket.

It ends when the engine's end is closed, whatever ended the engine.
"""

import asyncio
import gc
import logging
import sys
from collections.abc import Iterable
from functools import partial
from typing import Any, Final

import aiortc
import msgspec

from loadtest.engine.webrtc.arrivals import StampedLoop
from loadtest.engine.webrtc.link_service import LinkService
from loadtest.engine.webrtc.messages import Command, LinkKind, Started
from loadtest.engine.webrtc.opus import RATE_HZ, OpusDecoder, OpusEncoder
from loadtest.engine.webrtc.peer import PeerCall
from loadtest.protocols.webrtc_items import KeepAlive, MakeOffer

_ENDING_S: Final = 1.0


class Service(LinkService):
    """Calls by aiortc, each a peer connection."""

    def __init__(self) -> None:
        super().__init__(msgspec.json.encode(Started(aiortc.__version__)))
        self._peers: dict[int, PeerCall] = {}

    def perform(self, command: Command) -> None:
        """See `LinkService`."""
        call, kind = command.call, command.kind
        if kind == LinkKind.MAKE_OFFER:
            peer = self._peers[call] = PeerCall(partial(self.report, call))
            self.start(call, peer.offer(msgspec.json.decode(command.data, type=MakeOffer)))
            return
        peer = self._peers.get(call)
        if peer is None:
            if kind == LinkKind.CLOSE:
                self.report_closed(call)
        elif kind == LinkKind.FRAME:
            peer.frame(command.data)
        elif kind == LinkKind.TEXT:
            peer.text(command.data.decode())
        elif kind == LinkKind.ANSWER:
            self.start(call, peer.answer(command.data.decode()))
        elif kind == LinkKind.KEEP_ALIVE:
            peer.keep_alive(msgspec.json.decode(command.data, type=KeepAlive))
        elif kind == LinkKind.CLOSE:
            self.start(call, self._close(call, peer))

    async def _close(self, call: int, peer: PeerCall) -> None:
        await peer.close()
        self._peers.pop(call, None)

    def endings(self) -> Iterable[Any]:
        """Close all peer connections."""
        return [peer.close() for peer in self._peers.values()]


def _discard(kind: LinkKind, stamp_perf_ns: int, lag_bound_ns: int, data: bytes) -> None:
    """Report nothing."""


async def warm_up() -> None:
    """Do once what loads libraries and takes long the first time, before any call depends on it."""
    (packet,) = OpusEncoder().encode(bytes(2 * RATE_HZ // 50))
    OpusDecoder().decode(bytes(packet))
    peer = PeerCall(_discard)
    await peer.offer(MakeOffer())
    await peer.close()


async def _serve(descriptor: int) -> None:
    await warm_up()
    gc.collect()
    gc.freeze()  # what is loaded stays: a collection that looks at it would delay every caller's audio
    await Service().serve(descriptor, _ENDING_S)


def main() -> None:
    """Serve until the engine is gone."""
    logging.basicConfig(level=logging.ERROR, format="voiceprobe's WebRTC process: %(message)s")
    with asyncio.Runner(loop_factory=StampedLoop) as runner:
        runner.run(_serve(int(sys.argv[1])))


if __name__ == "__main__":
    main()
