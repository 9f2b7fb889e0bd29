"""What the generator's hot path costs per message, in microseconds; printed as one JSON object."""

import base64
import itertools
import json
import socket
import sys
import time
from collections.abc import Callable
from typing import Final

import numpy as np
from websockets.server import ServerProtocol

from loadtest.audio.deferred_span import DeferredSpan, ScanQueue
from loadtest.audio.onset import AudibleSpan
from loadtest.protocols.base import CallerOptions, OpenRequest
from loadtest.protocols.openai_realtime.caller import OpenAIRealtimeCaller
from loadtest.protocols.transports.masked_frames import FIXED, FIXED_MASK, FramePreparer, frame, headed_frames
from loadtest.protocols.transports.websocket import WebSocketClient

_MEDIA_HEAD: Final = (
    b'{"event":"media","sequenceNumber":"%d","streamSid":"MZ0123456789abcdef0123456789abcdef",'
    b'"media":{"track":"inbound","chunk":"%d","timestamp":"%d","payload":"'
)
_IDS: Final = {"event_id": "event_1", "response_id": "r", "item_id": "i", "output_index": 0, "content_index": 0}


def best_us(act: Callable[[], object], times: int, rounds: int) -> float:
    """The best of several rounds: other work on the machine only ever adds."""
    figures: list[float] = []
    for _ in range(rounds):
        began = time.perf_counter_ns()
        for _ in range(times):
            act()
        figures.append((time.perf_counter_ns() - began) / times / 1000)
    return min(figures)


def messages(tone: bytes) -> dict[str, str]:
    """A small text message and one of audio, as an endpoint sends them."""
    delta = base64.b64encode(tone).decode()
    return {
        "text": json.dumps({"type": "response.output_audio_transcript.delta", **_IDS, "delta": "hello "}),
        "audio": json.dumps({"type": "response.output_audio.delta", **_IDS, "delta": delta}),
    }


def frame_costs(message: bytes, times: int, rounds: int) -> dict[str, float]:
    """Send frames over TCP to this machine: prepared ones, and such as begin with a number of their call."""
    prepared, shared = frame(message, mask=FIXED_MASK, text=True), FramePreparer().rest(message)
    numbers, headed_frame = itertools.count(1), headed_frames(FIXED, text=True)

    def numbered() -> bytes:
        number = next(numbers)
        return headed_frame(_MEDIA_HEAD % (number, number, 20 * number), shared)

    figures: dict[str, float] = {}
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as here:
        there, _ = server.accept()
        here.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        makes: dict[str, Callable[[], bytes]] = {
            "frame: send a prepared one": lambda: prepared,
            "frame: number one, join it with its shared rest and send it": numbered,
        }
        for label, make in makes.items():
            figures[label] = min(_sending_us(make, here, there, times) for _ in range(rounds))
        there.close()
    return figures


def _sending_us(make: Callable[[], bytes], here: socket.socket, there: socket.socket, times: int) -> float:
    """Microseconds of making and sending a frame; reading it is not counted."""
    spent_ns = 0
    for _ in range(times):
        began = time.perf_counter_ns()
        here.send(make())
        spent_ns += time.perf_counter_ns() - began
        there.recv(4096)
    return spent_ns / times / 1000


def measure(times: int = 2000, rounds: int = 5) -> dict[str, float]:
    """Microseconds by what is done."""
    client, server = WebSocketClient(OpenRequest("ws://h/")), ServerProtocol()
    server.receive_data(client.start())
    (request,) = server.events_received()
    server.send_response(server.accept(request))  # type: ignore[arg-type]  # the first event is the request
    client.receive(b"".join(server.data_to_send()))
    tone = (8000 * np.sin(np.arange(2400) / 9)).astype(np.int16)
    wire_messages = messages(tone.tobytes())
    wire: dict[str, bytes] = {}
    for name, message in wire_messages.items():
        server.send_text(message.encode())
        wire[name] = b"".join(server.data_to_send())
    caller = OpenAIRealtimeCaller(CallerOptions())
    caller.receive('{"type":"response.created","response":{"id":"r"}}')
    span, audio = DeferredSpan(AudibleSpan("rms-10ms", 24_000), ScanQueue()), tone.tobytes()
    frame_message = caller.audio_message(tone[:480])
    acts: dict[str, Callable[[], object]] = {
        "websocket: receive a small text message": lambda: client.receive(wire["text"]),
        "websocket: receive 100 ms of audio": lambda: client.receive(wire["audio"]),
        "caller: decode a text delta": lambda: caller.receive(wire_messages["text"]),
        "caller: decode 100 ms of audio": lambda: caller.receive(wire_messages["audio"]),
        "onset: 100 ms of audio at 24 kHz": lambda: span.add(audio),
        "prepare: encode one 20 ms frame": lambda: caller.audio_message(tone[:480]),
        "prepare: mask one 20 ms frame": lambda: frame(frame_message, mask=FIXED_MASK, text=True),
    }
    return {label: best_us(act, times, rounds) for label, act in acts.items()} | frame_costs(
        frame_message, times, rounds
    )


def main() -> None:
    """Print the costs: `python -m tests.benchmarks.bench.hot_path [TIMES]`."""
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    sys.stdout.write(json.dumps(measure(times)) + "\n")


if __name__ == "__main__":
    main()
