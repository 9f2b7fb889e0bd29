"""What the generator's hot path costs per message, in microseconds; printed as one JSON object."""

import base64
import json
import sys
import time
from collections.abc import Callable
from typing import Final

import numpy as np
from websockets.server import ServerProtocol

from loadtest.audio.onset import AudibleSpan
from loadtest.protocols.base import CallerOptions, UpgradeRequest
from loadtest.protocols.openai_realtime.caller import OpenAIRealtimeCaller
from loadtest.protocols.websocket import FIXED_MASK, WebSocketClient, frame

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


def measure(times: int = 2000, rounds: int = 5) -> dict[str, float]:
    """Microseconds by what is done."""
    client, server = WebSocketClient(UpgradeRequest("ws://h/")), ServerProtocol()
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
    span = AudibleSpan("rms-10ms", 24_000)
    frame_message = caller.audio_message(tone[:480])
    acts: dict[str, Callable[[], object]] = {
        "websocket: receive a small text message": lambda: client.receive(wire["text"]),
        "websocket: receive 100 ms of audio": lambda: client.receive(wire["audio"]),
        "caller: decode a text delta": lambda: caller.receive(wire_messages["text"]),
        "caller: decode 100 ms of audio": lambda: caller.receive(wire_messages["audio"]),
        "onset: 100 ms of audio at 24 kHz": lambda: span.feed(tone),
        "prepare: encode one 20 ms frame": lambda: caller.audio_message(tone[:480]),
        "prepare: mask one 20 ms frame": lambda: frame(frame_message, mask=FIXED_MASK, text=True),
    }
    return {label: best_us(act, times, rounds) for label, act in acts.items()}


def main() -> None:
    """Print the costs: `python -m loadtest.bench.hot_path [TIMES]`."""
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    sys.stdout.write(json.dumps(measure(times)) + "\n")


if __name__ == "__main__":
    main()
