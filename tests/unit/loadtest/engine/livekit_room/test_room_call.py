"""A call in a room by LiveKit's real SDK, as far as it runs without a server, and what it makes of the SDK's events."""

import asyncio
import socket
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from livekit import rtc

from loadtest.engine.livekit_room.call import QUEUE_MS, RATE_HZ, RoomCall, cause_of, exhaustion_in
from loadtest.engine.webrtc.messages import HANDED_OVER, PACKET, LinkKind, Lost
from loadtest.protocols.failure import Failure
from loadtest.protocols.room_items import AgentLeft, AgentState, RoomItem, RoomTranscript
from tests.unit.loadtest.engine.livekit_room.test_room_token import join

AGENT = SimpleNamespace(kind=rtc.ParticipantKind.PARTICIPANT_KIND_AGENT, identity="agent")
OTHER = SimpleNamespace(kind=rtc.ParticipantKind.PARTICIPANT_KIND_STANDARD, identity="another")


class Room:
    """A call, and what it reports."""

    def __init__(self) -> None:
        self.reported: list[tuple[LinkKind, bytes]] = []
        self.call = RoomCall(lambda kind, stamp, bound, data: self.reported.append((kind, data)))

    @property
    def items(self) -> list[RoomItem]:
        return [msgspec.json.decode(data, type=RoomItem) for kind, data in self.reported if kind is LinkKind.ROOM]

    @property
    def lost(self) -> list[Lost]:
        return [msgspec.json.decode(data, type=Lost) for kind, data in self.reported if kind is LinkKind.LOST]


def test_server_that_refuses_connection_fails_call_once() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"ws://127.0.0.1:{free.getsockname()[1]}"  # nothing listens

        async def run() -> Room:
            room = Room()
            await room.call.join(join(url=url))
            await room.call.close()
            return room

        room = asyncio.run(run())
    (lost,) = room.lost
    assert lost.failure == Failure("tcp", "ECONNREFUSED")
    assert lost.reason.startswith("the room of the LiveKit server cannot be joined: ")
    assert [kind for kind, _ in room.reported] == [LinkKind.LOST, LinkKind.CLOSED]


def test_microphone_takes_frames_without_waiting_for_its_queue() -> None:
    """The SDK's real audio source plays them out in real time: it never holds more than its queue."""

    async def run() -> tuple[float, int]:
        source = rtc.AudioSource(RATE_HZ, 1, queue_size_ms=QUEUE_MS)
        pcm = bytes(2 * RATE_HZ // 50)
        for _ in range(5):
            await source.capture_frame(rtc.AudioFrame(pcm, RATE_HZ, 1, len(pcm) // 2))
        held_s = source.queued_duration
        await source.aclose()
        return held_s, len(pcm)

    held_s, size = asyncio.run(run())
    assert held_s <= QUEUE_MS / 1000 + 0.02
    assert size == 1920


def test_frames_are_handed_to_the_microphone_in_order() -> None:
    captured: list[tuple[bytes, int, int, int]] = []

    class Source:
        async def capture_frame(self, frame: Any) -> None:
            captured.append((bytes(frame.data), frame.sample_rate, frame.num_channels, frame.samples_per_channel))

    async def run() -> Room:
        room = Room()
        call: Any = room.call
        call._source = Source()
        for sample in (1, 2, 3):
            call.frame(HANDED_OVER.pack(0) + bytes([sample, 0]) * 960)
        sending = asyncio.create_task(call._send_frames())
        while len(captured) < 3:  # noqa: ASYNC110 - nothing says so
            await asyncio.sleep(0)
        sending.cancel()
        return room

    room = asyncio.run(run())
    assert captured == [(bytes([sample, 0]) * 960, 48_000, 1, 960) for sample in (1, 2, 3)]
    # They had been handed over long ago: that is said of each.
    assert [kind for kind, _ in room.reported] == [LinkKind.SENT_LATE] * 3


def test_only_an_agents_state_counts() -> None:
    room = Room()
    room.call.attributes_changed({"lk.agent.state": "listening"}, AGENT)
    room.call.attributes_changed({"lk.agent.state": "speaking"}, OTHER)
    room.call.attributes_changed({"name": "x"}, AGENT)
    room.call.participant_left(OTHER)
    room.call.participant_left(AGENT)
    assert room.items == [AgentState("listening"), AgentLeft()]


class Reader:
    """A stream of the SDK."""

    def __init__(self, *chunks: Any, **attributes: str) -> None:
        self.info = SimpleNamespace(attributes=attributes)
        self._chunks = chunks

    async def read_all(self) -> str:
        return "".join(self._chunks)

    async def __aiter__(self) -> AsyncIterator[Any]:
        for chunk in self._chunks:
            yield chunk


def test_transcripts_of_caller_count_and_those_of_agent_do_not() -> None:
    room = Room()
    call: Any = room.call
    call._room = SimpleNamespace(local_participant=SimpleNamespace(identity="caller-1"))

    async def run() -> None:
        marks = {"lk.segment_id": "SG_1", "lk.transcription_final": "false"}
        await call.read_text(Reader("turn ", "it", **marks), "caller-1")
        await call.read_text(Reader("It is", **marks), "agent")
        await call.read_text(Reader("turn it on", **{**marks, "lk.transcription_final": "true"}), "caller-1")

    asyncio.run(run())
    assert room.items == [RoomTranscript("SG_1", "turn it", False), RoomTranscript("SG_1", "turn it on", True)]


def test_a_message_of_the_agents_session_is_passed_on_whole() -> None:
    room = Room()
    asyncio.run(room.call.read_bytes(Reader(b"\x1a", b"\x02ab")))
    assert room.reported == [(LinkKind.BINARY, b"\x1a\x02ab")]


def test_the_agents_audio_is_passed_on() -> None:
    room = Room()
    frame = rtc.AudioFrame(b"\1\0" * 480, RATE_HZ, 1, 480)
    asyncio.run(room.call.hear(Reader(SimpleNamespace(frame=frame))))
    assert room.reported == [(LinkKind.AUDIO, PACKET.pack(0, 0) + b"\1\0" * 480)]


def test_a_server_that_ends_the_call_fails_it_once() -> None:
    room = Room()
    room.call.disconnected(rtc.DisconnectReason.ROOM_DELETED)
    room.call.disconnected(rtc.DisconnectReason.ROOM_DELETED)
    assert [loss.failure for loss in room.lost] == [Failure("close_code", "ROOM_DELETED")]
    nameless = Room()
    nameless.call.disconnected()
    assert [loss.failure for loss in nameless.lost] == [Failure("close_code", "UNKNOWN_REASON")]


@pytest.mark.parametrize(
    ("sentence", "failure"),
    [
        ("engine: signal failure: client error: 401 - invalid token", Failure("http_status", "401")),
        ("engine: signal failure: IO error: Connection refused (os error 111)", Failure("tcp", "ECONNREFUSED")),
        ("engine: connection error: wait_pc_connection timed out", Failure("timeout", "connect")),
        ("engine: something else", Failure("other", "livekit_connect")),
    ],
)
def test_the_cause_in_a_sentence_of_the_sdk(sentence: str, failure: Failure) -> None:
    assert cause_of(sentence) == failure


@pytest.mark.parametrize(
    ("sentence", "code"),
    [
        ("engine: signal failure: IO error: Too many open files (os error 24)", "EMFILE"),
        ("engine: signal failure: IO error: Cannot assign requested address (os error 99)", "EADDRNOTAVAIL"),
        ("engine: signal failure: IO error: No buffer space available (os error 105)", "ENOBUFS"),
        ("engine: signal failure: IO error: Connection refused (os error 111)", None),
        ("engine: connection error: wait_pc_connection timed out", None),
    ],
)
def test_shortage_on_this_machine_is_no_server_failure(sentence: str, code: str | None) -> None:
    exhaustion = exhaustion_in(sentence)
    assert (None if exhaustion is None else exhaustion.failure) == (
        None if code is None else Failure("generator", code)
    )
