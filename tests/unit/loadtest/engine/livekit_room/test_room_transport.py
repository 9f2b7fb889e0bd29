"""The engine's side of a room: what it needs, what it sends, and what it says where there is no session."""

from typing import Any

import gevent
import msgspec
import pytest

from loadtest.engine.clock import Clocks
from loadtest.engine.connection import ConnectionParts
from loadtest.engine.transports.base import TransportParts
from loadtest.engine.transports.opening import make_transport
from loadtest.engine.transports.room import RoomTransport
from loadtest.engine.watch import SocketWatch
from loadtest.engine.webrtc import media_process
from loadtest.engine.webrtc.media_process import LIVEKIT, MediaProcess
from loadtest.engine.webrtc.messages import LinkKind
from loadtest.errors import UsageError
from loadtest.protocols.base import CallerOptions, OpenRequest
from loadtest.protocols.failure import Failure
from loadtest.protocols.livekit.room import RoomCaller
from loadtest.protocols.room_items import AgentState, JoinRoom, RoomJoined
from tests.unit.loadtest.engine.livekit_room.test_room_token import join


class Process:
    """Stands for the process for rooms: what it is sent is noted."""

    def __init__(self) -> None:
        self.sent: list[tuple[LinkKind, int, bytes]] = []

    def start(self) -> None:
        """There is nothing to start."""

    def register(self, owner: object) -> int:
        return 7

    def send(self, kind: LinkKind, call: int, data: bytes = b"") -> None:
        self.sent.append((kind, call, data))

    def forget(self, call: int) -> None:
        """There is nothing to forget."""


class Callbacks:
    """Stands for a call."""

    def __init__(self) -> None:
        self.items: list[Any] = []

    def receive(self, stamp_perf_ns: int, seen_perf_ns: int, items: Any) -> None:
        self.items += items

    def note(self, item: Any, stamp_perf_ns: int) -> None:
        self.items.append(item)


def transport() -> tuple[RoomTransport, Process, Callbacks]:
    process: Any = Process()
    connections: Any = type("Connections", (), {"clocks": Clocks()})
    parts = TransportParts(connections, process, process, None, None, 2**20)  # type: ignore[arg-type]
    made = make_transport(parts, RoomCaller(CallerOptions()), OpenRequest("wss://h"))
    assert isinstance(made, RoomTransport)
    callbacks = Callbacks()
    made.open(callbacks, 1.0)  # type: ignore[arg-type]  # instead of a call
    return made, process, callbacks


def test_a_room_is_joined_and_nothing_else_is_sent() -> None:
    made, process, _ = transport()
    made.send(join())
    ((kind, call, data),) = process.sent
    assert (kind, call, msgspec.json.decode(data, type=JoinRoom)) == (LinkKind.JOIN, 7, join())
    with pytest.raises(TypeError, match="not str"):
        made.send("a text")


def test_why_there_is_no_session() -> None:
    made, _, callbacks = transport()
    assert made.no_session_reason(3.0) == (
        "the room of the LiveKit server was not joined within 3 s",
        Failure("timeout", "connect"),
    )
    made.arrived(1, 0, [RoomJoined()])
    made.arrived(2, 0, [AgentState("initializing")])
    assert callbacks.items == [RoomJoined(), AgentState("initializing")]
    assert made.no_session_reason(3.0) == (
        "the room was joined, but no agent was ready in it within 3 s",
        Failure("timeout", "session"),
    )


def test_without_the_sdk_the_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(media_process, "is_installed", lambda package: package != "livekit.rtc")  # type: ignore[misc]
    loop: Any = gevent.get_hub().loop
    clocks = Clocks()
    watch = SocketWatch(loop, clocks.perf_ns)
    rooms: Any = MediaProcess(ConnectionParts(loop, watch, clocks), LIVEKIT)
    parts = TransportParts(ConnectionParts(loop, watch, clocks), rooms, rooms, None, None, 2**20)  # type: ignore[arg-type]
    try:
        with pytest.raises(
            UsageError,
            match=r"need the package livekit; install it with: \S+ -m pip install 'livekit>=1.0' 'livekit-api>=1.0'$",
        ):
            make_transport(parts, RoomCaller(CallerOptions()), OpenRequest("wss://h"))
    finally:
        watch.close()


@pytest.mark.parametrize(
    ("package", "installed"),
    [("livekit.rtc", True), ("nothing_of_the_kind", False), ("nothing_of_the_kind.rtc", False)],
)
def test_whether_a_package_is_installed(package: str, installed: bool) -> None:
    assert media_process.is_installed(package) is installed
