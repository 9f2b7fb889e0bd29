"""Our sans-I/O protocols over real sockets: the `websockets` server, and a voice server that we did not write."""

import asyncio
import socket
from collections.abc import Iterator

import numpy as np
import pytest
from websockets.asyncio.server import ServerConnection, serve

from loadtest.protocols.base import CallerOptions, EventKind, OpenRequest, VoiceEvent
from loadtest.protocols.openai_realtime.caller import OpenAIRealtimeCaller
from loadtest.protocols.transports.masked_frames import FramePreparer
from loadtest.protocols.transports.websocket import Closed, Item, Opened, Rejected, WebSocketClient
from tests.integration.engine.s2s_process import s2s_server

BOUND_S = 120.0


class Line:
    """A blocking socket under a WebSocketClient: the thin shell that the engine is in earnest."""

    def __init__(self, request: OpenRequest, port: int) -> None:
        self.client = WebSocketClient(request)
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=BOUND_S)
        self.socket.sendall(self.client.start())

    def read(self) -> list[Item]:
        data = self.socket.recv(65_536)
        items = self.client.receive(data) if data else self.client.receive_eof()
        self.socket.sendall(self.client.take_output())
        return items

    def until(self, wanted: type) -> list[Item]:
        items: list[Item] = []
        while not any(isinstance(item, wanted) for item in items):
            items += self.read()
        return items


class RealServer:
    """The `websockets` server, and what it received."""

    def __init__(self) -> None:
        self.received: list[str | bytes] = []
        self.headers: dict[str, str] = {}
        self.pong_s: float | None = None

    async def handle(self, connection: ServerConnection) -> None:
        assert connection.request is not None
        self.headers = {name.lower(): value for name, value in connection.request.headers.raw_items()}
        assert connection.protocol.extensions == []
        self.pong_s = await (await connection.ping(b"are you there"))
        await connection.send(["frag", "men", "ted"])
        await connection.send(b"\x00\x01")
        await connection.send("x" * 100_000)
        async for message in connection:
            self.received.append(message)
            if message == "bye":
                await connection.close(4000, "as asked")


def with_server(server: RealServer, talk: "object") -> None:
    """Run `talk(port)` in a thread while the server runs."""

    async def main() -> None:
        async with serve(server.handle, "127.0.0.1", 0) as running:
            port = running.sockets[0].getsockname()[1]
            await asyncio.wait_for(asyncio.to_thread(talk, port), BOUND_S)  # type: ignore[arg-type]  # any callable

    asyncio.run(main())


def test_the_real_websockets_server() -> None:
    server = RealServer()
    seen: list[Item] = []

    def talk(port: int) -> None:
        line = Line(OpenRequest(f"ws://127.0.0.1:{port}/x?model=m", (("Authorization", "Bearer t"),)), port)
        while len(seen) < 4:
            seen.extend(line.read())
        prepared = FramePreparer("random", seed=3).frame("prepared", text=True)
        line.socket.sendall(prepared + line.client.send(b"\x05" * 70_000) + prepared + line.client.send("bye"))
        seen.extend(line.until(Closed))
        assert line.socket.recv(1) == b""
        line.socket.close()

    with_server(server, talk)
    assert isinstance(seen[0], Opened)
    assert seen[1:] == ["fragmented", b"\x00\x01", "x" * 100_000, Closed(4000, "as asked", clean=True)]
    assert server.received == ["prepared", b"\x05" * 70_000, "prepared", "bye"]
    assert server.headers["authorization"] == "Bearer t"
    assert "sec-websocket-extensions" not in server.headers
    assert server.pong_s is not None


def test_we_close_first_and_the_server_agrees() -> None:
    server = RealServer()
    ends: list[Item] = []

    def talk(port: int) -> None:
        line = Line(OpenRequest(f"ws://127.0.0.1:{port}/"), port)
        line.until(bytes)
        line.socket.sendall(line.client.close(1000, "done"))
        ends.extend(line.until(Closed))
        line.socket.close()

    with_server(server, talk)
    assert ends[-1] == Closed(1000, "done", clean=True)


def test_a_server_that_refuses_the_upgrade() -> None:
    refusals: list[Item] = []

    def talk(port: int) -> None:
        line = Line(OpenRequest(f"ws://127.0.0.1:{port}/"), port)
        refusals.extend(line.until(Rejected))
        line.socket.close()

    async def main() -> None:
        def refuse(connection: ServerConnection, _: object) -> object:
            return connection.respond(403, "no such key\n")

        async with serve(RealServer().handle, "127.0.0.1", 0, process_request=refuse) as running:  # type: ignore[arg-type]  # returns a Response
            port = running.sockets[0].getsockname()[1]
            await asyncio.wait_for(asyncio.to_thread(talk, port), BOUND_S)

    asyncio.run(main())
    assert refusals == [Rejected(403, "Forbidden", "no such key\n")]


@pytest.fixture(scope="module")
def s2s_port() -> Iterator[int]:
    with s2s_server(units=1) as port:
        yield port


class Call:
    """A caller on a line, reading until a kind of event comes."""

    def __init__(self, port: int, options: CallerOptions) -> None:
        self.caller = OpenAIRealtimeCaller(options)
        request = self.caller.upgrade(f"ws://127.0.0.1:{port}/v1/realtime", "00-" + "a" * 32 + "-" + "b" * 16 + "-01")
        self.line = Line(request, port)
        self.events: list[VoiceEvent] = []
        self.items: list[Item] = []

    def until(self, kind: EventKind) -> VoiceEvent:
        while True:
            for event in self.events:
                if event.kind is kind:
                    self.events.remove(event)
                    return event
            # The goodbye may come in one piece with the event that explains it.
            assert not isinstance(self.items[-1] if self.items else None, Closed | Rejected), self.items[-1]
            for item in self.line.read():
                self.items.append(item)
                if isinstance(item, str | bytes):
                    self.events += self.caller.receive(item)
            for message in self.caller.pending():
                self.line.socket.sendall(self.line.client.send(message))

    def say(self, samples: np.ndarray) -> None:
        preparer, frame = FramePreparer(), 480
        for start in range(0, len(samples), frame):
            message = self.caller.audio_message(samples[start : start + frame])
            self.line.socket.sendall(preparer.frame(message, text=self.caller.capabilities.audio_is_text))


@pytest.mark.nightly
def test_a_turn_against_a_server_that_we_did_not_write(s2s_port: int) -> None:
    call = Call(s2s_port, CallerOptions(model="any", token="t"))
    call.until(EventKind.READY)
    moments = np.arange(24_000) / 24_000
    call.say((8000 * np.sin(2 * np.pi * 300 * moments)).astype(np.int16))
    call.say(np.zeros(24_000, np.int16))
    began = call.until(EventKind.SPEECH_STARTED)
    assert call.until(EventKind.ASR_PARTIAL).text == "what"
    assert call.until(EventKind.SPEECH_STOPPED).item_id == began.item_id
    assert call.until(EventKind.ASR_FINAL).text == "what is the weather like in paris"
    response_id = call.until(EventKind.RESPONSE_STARTED).response_id
    assert call.until(EventKind.LLM_TEXT).text == "It is mild in Paris."
    first = call.until(EventKind.AUDIO)
    assert (first.response_id, first.rate_hz) == (response_id, 24_000)
    done = call.until(EventKind.RESPONSE_DONE)
    assert (done.response_id, done.status) == (response_id, "completed")
    assert not [event for event in call.events if event.kind is EventKind.ERROR]
    call.line.socket.sendall(call.line.client.close())
    call.line.until(Closed)
    call.line.socket.close()


@pytest.mark.nightly
def test_its_pool_being_full_is_fatal_with_its_own_words(s2s_port: int) -> None:
    for _ in range(1000):  # the session of the test before is released in the background
        holder = Call(s2s_port, CallerOptions())
        try:
            holder.until(EventKind.READY)
            break
        except AssertionError:
            holder.line.socket.close()
    else:
        pytest.fail("the only session never became free")
    refused = Call(s2s_port, CallerOptions())
    error = refused.until(EventKind.ERROR)
    assert error.fatal
    assert "All 1 session slots are in use" in (error.message or "")
    last = refused.items[-1]
    closed = last if isinstance(last, Closed) else refused.line.until(Closed)[-1]
    assert isinstance(closed, Closed)
    assert (closed.code, closed.clean) == (1008, True)
    refused.line.socket.close()
    holder.line.socket.close()
