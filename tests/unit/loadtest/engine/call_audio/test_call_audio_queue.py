"""The queue never waits: what the other side does not take is dropped, and said so."""

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.engine.call_audio.keeper import CallAudioQueue
from loadtest.engine.call_audio.messages import KeeperDeframer, KeeperMessage, KeeperMessageKind, head, ns_of

K = KeeperMessageKind
AUDIO = b"\1\2" * 2_400  # 100 ms at 24 kHz


def received(stream: socket.socket, queue: CallAudioQueue) -> list[KeeperMessage]:
    """Everything that is sent until the queue is empty."""
    deframer, messages = KeeperDeframer(), list[KeeperMessage]()
    stream.settimeout(5.0)
    while not queue.is_empty:
        queue.send_slice()
        messages += deframer.feed(stream.recv(1 << 20))
    return messages


@given(st.lists(st.tuples(st.sampled_from(list(K)), st.binary(max_size=300)), max_size=20), st.integers(1, 97))
def test_messages_are_cut_out_however_the_stream_is_split(messages: list[tuple[K, bytes]], size: int) -> None:
    sent = [KeeperMessage(kind, 3, 4, 24_000, -5, payload) for kind, payload in messages]
    stream = b"".join(head(message) + bytes(message.payload) for message in sent)
    deframer = KeeperDeframer()
    deframed = [message for at in range(0, len(stream), size) for message in deframer.feed(stream[at : at + size])]
    assert deframed == sent


def test_bytes_that_are_no_message_are_refused() -> None:
    with pytest.raises(ValueError, match="is not one of ours"):
        list(KeeperDeframer().feed(b"\xff" * 100))


def test_messages_arrive_whole_through_nearly_full_socket() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_608)
        queue = CallAudioQueue(ours)
        sent = [KeeperMessage(K.PLAYED, 1, 1, 24_000, number, bytes([number]) * 5_000) for number in range(40)]
        for message in sent:
            queue.put(message)
        assert received(theirs, queue) == sent
        assert (queue.waiting_bytes, queue.dropped_ns) == (0, 0)
        queue.close()


def test_audio_over_queue_limit_is_dropped_and_reported_in_place() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        queue = CallAudioQueue(ours, most_bytes=20_000)
        for number in range(10):
            queue.put(KeeperMessage(K.PLAYED, 1, 2, 24_000, number * 100_000_000, AUDIO))
        queue.put(KeeperMessage(K.SPOKE, 1, 0, 24_000, 5, AUDIO))  # mapped: it takes no memory
        assert queue.dropped_ns == 600_000_000
        messages = received(theirs, queue)
        assert [message.kind for message in messages] == [K.PLAYED] * 4 + [K.LOST] * 6 + [K.SPOKE]
        lost = [
            (message.call, message.playback, message.at, ns_of(message.payload))
            for message in messages
            if message.kind == K.LOST
        ]
        assert lost == [(1, 2, number * 100_000_000, 100_000_000) for number in range(4, 10)]
        queue.close()


def test_dead_keeper_process_is_named_and_nothing_is_queued() -> None:
    ours, theirs = socket.socketpair()
    queue = CallAudioQueue(ours)
    theirs.close()
    queue.put(KeeperMessage(K.PLAYED, 1, 1, 24_000, 0, AUDIO))
    queue.send_slice()
    queue.put(KeeperMessage(K.PLAYED, 1, 1, 24_000, 0, AUDIO))
    assert queue.failure == "Broken pipe"
    assert (queue.waiting_bytes, queue.is_empty, queue.dropped_ns) == (0, True, 100_000_000)
    queue.close()
