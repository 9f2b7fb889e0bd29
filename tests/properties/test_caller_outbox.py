"""Whatever a socket takes of what it is offered, the peer reads everything once and in order."""

from hypothesis import given
from hypothesis import strategies as st

from loadtest.caller.outbox import Bytes, Outbox

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
def test_what_was_given_is_what_was_taken_and_what_still_waits(
    steps: list[bytes | str], offers: list[int | None]
) -> None:
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
