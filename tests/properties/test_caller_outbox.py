"""Whatever a socket takes of what it is offered, the peer reads everything once and in order."""

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.conversation.evidence import Evidence
from loadtest.engine.outbox import Bytes, Outbox

# None: the socket is full. A number: it takes at most so many bytes of this offer.
OFFERS = st.one_of(st.none(), st.integers(0, 12))
STEPS = st.lists(st.one_of(st.binary(min_size=1, max_size=20), st.just("flush")), max_size=40)


class StubbornSocket:
    """Takes what the given numbers say, and nothing when they have run out; like a socket, it cannot take nothing."""

    def __init__(self, offers: list[int | None]) -> None:
        self.offers = offers
        self.taken = b""

    def send(self, data: Bytes) -> int:
        most = self.offers.pop(0) if self.offers else None
        if not most:
            raise BlockingIOError
        self.taken += bytes(data[:most])
        return min(most, len(data))


@given(STEPS, st.lists(OFFERS, max_size=60))
def test_given_bytes_are_those_taken_and_those_waiting(steps: list[bytes | str], offers: list[int | None]) -> None:
    socket = StubbornSocket(offers)
    outbox = Outbox(socket.send)
    given_bytes = b""
    ends: list[tuple[int, int]] = []  # (end of a held-up message in the stream, what `drained_bytes` must reach)
    for step in steps:
        if isinstance(step, bytes):
            given_bytes += step
            if not outbox.push(step):
                ends.append((len(given_bytes), outbox.queued_bytes))
        else:
            assert outbox.flush() == (outbox.waiting_bytes == 0)
        assert given_bytes.startswith(socket.taken)
        assert len(given_bytes) - len(socket.taken) == outbox.waiting_bytes
        for end, until in ends:
            assert (outbox.drained_bytes >= until) == (len(socket.taken) >= end)
    socket.offers = [1000] * len(steps)
    assert outbox.flush()
    assert socket.taken == given_bytes


@given(STEPS, st.lists(OFFERS, max_size=60))
def test_encrypted_data_is_sent_whole_in_order_of_encryption(
    steps: list[bytes | str], offers: list[int | None]
) -> None:
    """The key of a record is that of its place: what was encrypted first must be sent first."""
    socket, sealed = StubbornSocket(offers), list[bytes]()

    def seal(data: bytes) -> bytes:
        sealed.append(b"(%d:%b)" % (len(sealed), data))
        return sealed[-1]

    outbox = Outbox(socket.send, seal)
    given_bytes, taken_at_once = b"", True
    for step in steps:
        if isinstance(step, bytes):
            given_bytes += step
            taken_at_once = outbox.push(step)
        elif not outbox.waiting_bytes:
            assert outbox.push_wire(b"") is True
        else:
            taken_at_once = outbox.flush()
        assert taken_at_once == (outbox.waiting_bytes == 0)
        assert b"".join(sealed).startswith(socket.taken)
        whole = sum(len(sealed_part) for sealed_part in sealed)
        assert (len(socket.taken) == whole) or outbox.waiting_bytes
    socket.offers = [100_000] * len(steps)
    assert outbox.flush()
    assert socket.taken == b"".join(sealed)
    assert b"".join(part.split(b":", 1)[1][:-1] for part in sealed) == given_bytes


def test_unread_frames_cost_a_reference_each_and_no_encryption() -> None:
    frame, sealed = bytes(1300), list[bytes]()

    def seal(data: bytes) -> bytes:
        sealed.append(data)
        return data

    outbox = Outbox(StubbornSocket([]).send, seal)
    for _ in range(3000):  # a minute of speech
        outbox.push(frame)
    assert outbox.waiting_bytes == 3000 * len(frame)
    assert sum(len(data) for data in sealed) == len(frame), "the first was offered to the socket"
    assert all(part is frame for part in outbox._parts)


def test_one_flush_takes_no_more_than_its_turn() -> None:
    frame, socket = bytes(1300), StubbornSocket([None])
    outbox = Outbox(socket.send)
    for _ in range(1000):
        outbox.push(frame)
    socket.offers = [10**6] * 10
    assert not outbox.flush()
    assert 60_000 < len(socket.taken) < 2 * 65_536 + len(frame)
    assert len(socket.offers) >= 8, "many small messages go in few system calls"


def test_bytes_of_the_wire_do_not_overtake_what_waits() -> None:
    outbox = Outbox(StubbornSocket([]).send, bytes)
    outbox.push(b"waits")
    with pytest.raises(ValueError, match="outbox is not empty"):
        outbox.push_wire(b"handshake")


@given(
    st.lists(st.tuples(st.integers(0, 300), st.integers(1, 40), st.one_of(st.none(), st.integers(1, 200)))),
)
def test_lateness_is_own_then_of_socket_and_nothing_counts_twice(
    steps: list[tuple[int, int, int | None]],
) -> None:
    """Whatever parts of frames a socket takes and whenever: taken - due = (offered - due) + (taken - offered)."""
    socket = StubbornSocket([])
    outbox, evidence = Outbox(socket.send), Evidence()
    now_ms, held = 0, deque[tuple[int, int, int, int]]()  # due, offered, until, end of the frame in the stream
    own, blocked, given_bytes = list[int](), list[int](), 0
    for own_ms, size, room in steps:
        due_ms, now_ms = now_ms, now_ms + own_ms
        socket.offers = [room, room]
        given_bytes += size
        own.append(own_ms)
        evidence.pacing.lateness_ns.append(own_ms)
        if not outbox.push(bytes(size)):
            held.append((due_ms, now_ms, outbox.queued_bytes, given_bytes))
        now_ms += 20
        outbox.flush()
        while held and held[0][2] <= outbox.drained_bytes:
            due_of_it, offered, _, end = held.popleft()
            assert len(socket.taken) >= end
            evidence.note_blocked(now_ms - offered)
            blocked.append(now_ms - offered)
            assert now_ms - due_of_it == (offered - due_of_it) + blocked[-1]
        assert all(end > len(socket.taken) for _, _, _, end in held), "a frame that was taken waits no longer"
    assert evidence.pacing.worst_ns == max(own, default=None), "the socket adds nothing to our own lateness"
    assert evidence.blocked_worst_ns == max(blocked, default=0), "nor do we to what the socket did not take"
