"""What it costs to hear 20 ms of a reply, in µs of process CPU: `python -m tests.benchmarks.hearing [CHUNKS] [ROUNDS]`.

The chunks are WebSocket messages of OpenAI Realtime with speech-like audio. `fed` passes them to a transport and its
call without a socket; `loopback` reads them from TCP connections that another process writes to, every connection once
per 20 ms, through the engine's own watch. The median of the rounds counts. Beside it stand the Python functions that
one chunk calls.
"""

import base64
import json
import multiprocessing
import socket
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import gevent
import numpy as np
from websockets.server import ServerProtocol

from loadtest.conversation.state import State
from loadtest.engine.connection import Connection, ConnectionParts, OpenedSocket
from loadtest.engine.watch import SocketWatch
from tests.unit.loadtest.conversation.world import MS
from tests.unit.loadtest.engine.test_engine_call import Caller

ROUNDS = 5
CONNECTIONS = 100
CHUNK_SAMPLES = 480


def chunks(count: int) -> list[bytes]:
    """Frames of a server, each with 20 ms of a sound that comes and goes as syllables do."""
    at = np.arange(count * CHUNK_SAMPLES)
    noise = np.random.default_rng(1).standard_normal(len(at))
    pcm = (3000 * noise * np.clip(np.sin(at / 3000) + 0.6, 0, None)).astype("<i2")
    found: list[bytes] = []
    for number in range(count):
        delta = base64.b64encode(pcm[number * CHUNK_SAMPLES :][:CHUNK_SAMPLES].tobytes()).decode()
        ids = {"event_id": f"event_{number:08}", "response_id": "resp_1", "item_id": "item_1"}
        found.append(_frame({"type": "response.output_audio.delta", **ids, "output_index": 0, "delta": delta}))
    return found


def _frame(message: dict[str, object]) -> bytes:
    payload = json.dumps(message).encode()
    head = bytes((0x81, len(payload))) if len(payload) < 126 else b"\x81\x7e" + len(payload).to_bytes(2)
    return head + payload


def hearing_caller() -> Caller:
    """A caller who has asked and hears the first chunk of the reply."""
    caller = Caller()
    caller.transport.secured()
    server = ServerProtocol()
    server.receive_data(b"".join(caller.wire.sent))
    (request,) = server.events_received()
    server.send_response(server.accept(request))  # type: ignore[arg-type]  # the first event is the request
    caller.wire.stamped = True
    caller.transport.receive(0, 0, b"".join(server.data_to_send()))
    for kind in ("session.created", "session.updated"):
        caller.transport.receive(0, 0, _frame({"type": kind, "session": {}}))
    assert caller.call.connect_ns is not None
    caller.speak()
    now = caller.slot.due_perf_ns
    caller.transport.receive(now, now, _frame({"type": "response.created", "response": {"id": "resp_1"}}))
    return caller


def hear_first(caller: Caller, first: bytes) -> int:
    """Feed the first chunk; return the moment."""
    now = caller.slot.due_perf_ns
    caller.transport.receive(now, now, first)
    caller.rows(3)
    assert caller.call.conversation.state is State.HEARING, caller.call.conversation.state
    return now


def fed(frames: list[bytes]) -> float:
    """µs per chunk of a reply that arrives in real time."""
    caller = hearing_caller()
    now = hear_first(caller, frames[0])
    receive = caller.transport.receive
    began = time.process_time()
    for frame in frames[1:]:
        now += 20 * MS
        receive(now, now, frame)
    spent = time.process_time() - began
    assert _heard(caller) == len(frames)
    return spent / (len(frames) - 1) * 1e6


def _heard(caller: Caller) -> int:
    exchange = caller.call.conversation.exchange
    assert exchange is not None
    return sum(
        each.playback.samples // CHUNK_SAMPLES
        for each in exchange.timeline.replies.values()
        if each.playback is not None
    )


def calls_per_chunk(feed: Callable[[], object]) -> list[str]:
    """The Python functions that are called meanwhile, in order."""
    found: list[str] = []

    def note(frame: Any, event: str, arg: object) -> None:
        del arg
        if event == "call":
            found.append(f"{frame.f_code.co_filename.rsplit('/', 1)[-1]}:{frame.f_code.co_qualname}")

    sys.setprofile(note)
    try:
        feed()
    finally:
        sys.setprofile(None)
    return found


def _write(port: int, frames: list[bytes], heard: Any) -> None:
    sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(CONNECTIONS)]
    for each in sockets:
        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    due = time.perf_counter()
    for frame in frames:
        for number, each in enumerate(sockets):
            wait = due + 0.02 * number / CONNECTIONS - time.perf_counter()
            if wait > 0.0005:
                time.sleep(wait)
            each.sendall(frame)
        due += 0.02
    heard.wait()


def loopback(frames: list[bytes]) -> float:
    """µs per chunk, epoll and the reading of the sockets included."""
    hub_loop = gevent.get_hub().loop
    server = socket.create_server(("127.0.0.1", 0), backlog=CONNECTIONS)
    callers = [hearing_caller() for _ in range(CONNECTIONS)]
    for caller in callers:
        hear_first(caller, frames[0])
    context = multiprocessing.get_context("spawn")
    heard = context.Event()
    writer = context.Process(target=_write, args=(server.getsockname()[1], frames[1:], heard))
    writer.start()
    clocks = callers[0].call.engine.clocks
    watch = SocketWatch(hub_loop, clocks.perf_ns)
    parts = ConnectionParts(hub_loop, watch, clocks)
    for caller in callers:
        accepted, _ = server.accept()
        opened = OpenedSocket(accepted.detach(), socket.AF_INET, "", None)
        caller.transport.take_over(Connection(parts, opened, caller.transport), caller.call)
    wanted = len(frames) * CONNECTIONS
    began = time.process_time()
    ticks = 0
    while writer.is_alive() and any(_heard(caller) < len(frames) for caller in callers[-1:] + callers[:1]):
        gevent.sleep(0.001)
        ticks += 1
        now = clocks.perf_ns()
        watch.tick(now, now + MS)
    spent = time.process_time() - began
    began = time.process_time()
    for _ in range(300):
        gevent.sleep(0.001)
        now = clocks.perf_ns()
        watch.tick(now, now + MS)
    idle = (time.process_time() - began) / 300 * ticks
    assert sum(map(_heard, callers)) == wanted, (sum(map(_heard, callers)), wanted)
    heard.set()
    writer.join()
    for caller in callers:
        caller.transport.close()
    watch.close()
    server.close()
    return (spent - idle) / (wanted - CONNECTIONS) * 1e6


def main() -> None:
    """Print the figures."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 3000
    frames = chunks(count)
    print(f"fed:      {median(fed(frames) for _ in range(ROUNDS)):5.2f} µs a chunk")
    if len(sys.argv) > 2:
        print(f"loopback: {median(loopback(frames[:300]) for _ in range(int(sys.argv[2]))):5.2f} µs a chunk")
    caller = hearing_caller()
    now = hear_first(caller, frames[0])
    for number, frame in enumerate(frames[1:20]):
        caller.transport.receive(now + number * 20 * MS, now + number * 20 * MS, frame)
    found = calls_per_chunk(lambda: caller.transport.receive(now + 400 * MS, now + 400 * MS, frames[20]))
    print(f"Python functions that one chunk calls: {len(found)}")
    print("\n".join(found))


if __name__ == "__main__":
    main()
