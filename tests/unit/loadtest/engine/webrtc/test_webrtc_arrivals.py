"""When packets arrive and what of a stream is missing, against aiortc's own statistics."""

import asyncio
import socket
import time
from types import SimpleNamespace
from typing import Any

import pytest
from aiortc import rtcrtpreceiver
from hypothesis import given
from hypothesis import strategies as st

from loadtest.engine.webrtc.arrivals import CURRENT_PEER, PacketOrder, PeerStamps, StampedLoop

RATE_HZ = 48_000
MS = 1_000_000


class Keeper(asyncio.DatagramProtocol):
    def __init__(self, received: list[bytes]) -> None:
        self._received = received

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self._received.append(data)


def test_packets_in_order_lose_nothing_and_have_no_jitter() -> None:
    order = PacketOrder(RATE_HZ)
    lost = [order.add((65_530 + n) & 0xFFFF, (2**32 - 960 + 960 * n) & 0xFFFFFFFF, n * 20 * MS) for n in range(20)]
    assert lost == [0] * 20
    assert order.jitter_ns == 0


def test_missing_packets_are_counted_and_late_ones_left_out() -> None:
    order = PacketOrder(RATE_HZ)
    assert [order.add(sequence, sequence * 960, sequence) for sequence in (5, 6, 9, 8, 9, 10)] == [
        0,
        0,
        2,
        None,
        None,
        0,
    ]


@given(
    packets=st.lists(
        st.tuples(st.sampled_from([1, 1, 1, 1, 2, 5]), st.integers(-8, 30)),  # how far the number moves on, how late
        min_size=2,
        max_size=80,
    )
)
def test_loss_and_jitter_are_those_of_aiortc(packets: list[tuple[int, int]]) -> None:
    order, theirs = PacketOrder(RATE_HZ), rtcrtpreceiver.StreamStatistics(RATE_HZ)
    sequence = lost = 0
    clock = SimpleNamespace(time=lambda: 0.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rtcrtpreceiver, "time", clock)
        for moved, late_ms in packets:
            sequence += moved
            arrival_ns = sequence * 20 * MS + late_ms * MS + 1000 * MS
            clock.time = lambda at=arrival_ns: at / 1e9  # type: ignore[misc]
            theirs.add(SimpleNamespace(sequence_number=sequence, timestamp=sequence * 960))  # type: ignore[arg-type]
            lost += order.add(sequence, sequence * 960, arrival_ns) or 0
    assert lost == theirs.packets_lost
    # Theirs is in whole samples, and in sixteenths of them within.
    assert order.jitter_ns == pytest.approx(theirs.jitter * 1_000_000_000 / RATE_HZ, abs=3 * 1_000_000_000 / RATE_HZ)


def test_datagram_is_stamped_at_loop_wakeup_and_kept_by_number() -> None:
    stamps = PeerStamps()
    received: list[bytes] = []

    async def run() -> tuple[int, int]:
        CURRENT_PEER.set(stamps)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(lambda: Keeper(received), local_addr=("127.0.0.1", 0))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            header = bytes([128, 111]) + (4660).to_bytes(2, "big") + bytes(10)
            before = time.perf_counter_ns()
            sender.sendto(header, transport.get_extra_info("sockname"))
            while not received:  # noqa: ASYNC110 - each turn of the loop is what is tested
                await asyncio.sleep(0)
        transport.close()
        await asyncio.sleep(0)
        return before, time.perf_counter_ns()

    with asyncio.Runner(loop_factory=StampedLoop) as runner:
        before, after = runner.run(run())
    stamp, bound = stamps.packet_stamp(4660)
    assert before <= stamp <= after
    assert bound >= 0
    assert stamps.newest == (stamp, bound)


def test_datagram_that_waited_for_busy_loop_gives_its_wait() -> None:
    stamps = PeerStamps()

    async def run() -> int:
        CURRENT_PEER.set(stamps)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(lambda: Keeper([]), local_addr=("127.0.0.1", 0))
        newest = stamps.newest
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sent = time.perf_counter_ns()
            sender.sendto(b"early", transport.get_extra_info("sockname"))
            while time.perf_counter_ns() < sent + 20 * MS:  # the loop cannot look
                pass
            while stamps.newest == newest:  # noqa: ASYNC110 - the next turn of the loop is what is tested
                await asyncio.sleep(0)
        transport.close()
        await asyncio.sleep(0)
        return sent

    with asyncio.Runner(loop_factory=StampedLoop) as runner:
        sent = runner.run(run())
    stamp, bound = stamps.newest
    assert stamp - bound <= sent, "it may have come at any time since the loop looked"


def test_rtcp_and_other_datagrams_have_no_number() -> None:
    stamps = PeerStamps()
    for first, second in ((0, 111), (128, 200), (20, 254)):
        stamps.note(bytes([first, second, 0, 9]) + bytes(20), (first, 0))
    stamps.note(bytes([128, 111, 0, 8]) + bytes(20), (77, 1))
    stamps.note(bytes([0, 1]), (99, 2))
    assert stamps.packet_stamp(8) == (77, 1)
    assert stamps.packet_stamp(9) == (99, 2), "of none such: the newest"
