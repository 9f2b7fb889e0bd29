"""One peer connection's parts that need no peer: when a frame counts as sent late, and what no peer may send."""

import asyncio
import time

import msgspec
import pytest

from loadtest.engine.local_limits import LocalLimits, no_port
from loadtest.engine.webrtc.messages import LinkKind, Lost
from loadtest.engine.webrtc.peer import MAX_MESSAGE_BYTES, CallerTrack, PeerCall
from loadtest.protocols.failure import Failure
from loadtest.protocols.webrtc_items import MakeOffer

MS = 1_000_000
FRAME = bytes(1920)


def test_frame_sent_long_after_handover_is_reported() -> None:
    late: list[int] = []

    async def run() -> None:
        track = CallerTrack(late.append)
        now = time.perf_counter_ns()
        track.feed(now - 30 * MS, FRAME)
        track.feed(now + 10_000 * MS, FRAME)  # never late, however slow this machine is
        first = await track.recv()
        assert late == [], "not before aiortc has sent it and asks for the next one"
        second = await track.recv()
        assert (first.pts, second.pts) == (0, 960)
        assert len(late) == 1
        track.feed(now, FRAME)
        await track.recv()

    asyncio.run(run())
    assert len(late) == 1, "the second was in time"
    assert late[0] >= 30 * MS


def reported(message: str | bytes) -> list[tuple[LinkKind, bytes]]:
    reports: list[tuple[LinkKind, bytes]] = []

    async def run() -> None:
        peer = PeerCall(lambda kind, stamp, bound, data: reports.append((kind, data)))
        peer._message(message)
        peer._message(message)

    asyncio.run(run())
    return reports


def test_messages_of_the_data_channel_are_passed_on() -> None:
    assert reported("a\ud800") == [(LinkKind.TEXT, b"a?")] * 2
    assert reported(b"\xff") == [(LinkKind.BINARY, b"\xff")] * 2
    assert reported("x" * MAX_MESSAGE_BYTES) == [(LinkKind.TEXT, b"x" * MAX_MESSAGE_BYTES)] * 2


def test_too_long_message_ends_its_call_once() -> None:
    ((kind, data),) = reported("x" * (MAX_MESSAGE_BYTES + 1))
    assert kind is LinkKind.LOST
    lost = msgspec.json.decode(data, type=Lost)
    assert lost.failure == Failure("protocol_violation", "too_long")
    assert "1048577 bytes" in lost.reason


@pytest.mark.parametrize("is_exhausted", [True, False])
def test_offer_without_candidate_fails_if_machine_has_no_socket(
    monkeypatch: pytest.MonkeyPatch, is_exhausted: bool
) -> None:
    """aiortc leaves out the candidates for which it could open no socket."""
    reports: list[tuple[LinkKind, bytes]] = []
    exhausted = no_port("for calls over WebRTC") if is_exhausted else None
    monkeypatch.setattr("aioice.ice.get_host_addresses", lambda use_ipv4, use_ipv6: [])
    monkeypatch.setattr(LocalLimits, "datagram_exhausted", lambda *_: exhausted)

    async def run() -> None:
        peer = PeerCall(lambda kind, stamp, bound, data: reports.append((kind, data)))
        await peer.offer(MakeOffer())
        await peer.close()

    asyncio.run(run())
    kind, data = reports[0]
    if not is_exhausted:
        assert kind is LinkKind.OFFER
        return
    assert kind is LinkKind.LOST
    assert msgspec.json.decode(data, type=Lost).failure == Failure("generator", "EADDRNOTAVAIL")
