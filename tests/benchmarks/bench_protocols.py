"""What the generator's hot path costs per message, in microseconds: `python tests/benchmarks/bench_protocols.py`."""

import base64
import json
import time
from collections.abc import Callable

import numpy as np
from websockets.server import ServerProtocol

from loadtest.audio.onset import AudibleSpan
from loadtest.protocols.base import CallerOptions, UpgradeRequest
from loadtest.protocols.openai_realtime.caller import OpenAIRealtimeCaller
from loadtest.protocols.websocket import FIXED_MASK, WebSocketClient, frame


def best_us(act: Callable[[], object], times: int = 2000, rounds: int = 5) -> float:
    """The best of several rounds: other work on the machine only ever adds."""
    figures: list[float] = []
    for _ in range(rounds):
        began = time.perf_counter_ns()
        for _ in range(times):
            act()
        figures.append((time.perf_counter_ns() - began) / times / 1000)
    return min(figures)


def main() -> None:
    client, server = WebSocketClient(UpgradeRequest("ws://h/")), ServerProtocol()
    server.receive_data(client.start())
    (request,) = server.events_received()
    server.send_response(server.accept(request))  # type: ignore[arg-type]  # the first event is the request
    client.receive(b"".join(server.data_to_send()))
    tone = (8000 * np.sin(np.arange(2400) / 9)).astype(np.int16)
    ids = {"event_id": "event_1", "response_id": "r", "item_id": "i", "output_index": 0, "content_index": 0}
    text = json.dumps({"type": "response.output_audio_transcript.delta", **ids, "delta": "hello "})
    delta = base64.b64encode(tone.tobytes()).decode()
    audio = json.dumps({"type": "response.output_audio.delta", **ids, "delta": delta})
    wire: dict[str, bytes] = {}
    for name, message in (("text", text), ("audio", audio)):
        server.send_text(message.encode())
        wire[name] = b"".join(server.data_to_send())
    caller = OpenAIRealtimeCaller(CallerOptions())
    caller.receive('{"type":"response.created","response":{"id":"r"}}')
    span = AudibleSpan("rms-10ms", 24_000)
    frame_message = caller.audio_message(tone[:480])
    for label, act in (
        ("websocket: receive a small text message", lambda: client.receive(wire["text"])),
        ("websocket: receive 100 ms of audio", lambda: client.receive(wire["audio"])),
        ("caller: decode a text delta", lambda: caller.receive(text)),
        ("caller: decode 100 ms of audio", lambda: caller.receive(audio)),
        ("onset: 100 ms of audio at 24 kHz", lambda: span.feed(tone)),
        ("prepare: encode one 20 ms frame", lambda: caller.audio_message(tone[:480])),
        ("prepare: mask one 20 ms frame", lambda: frame(frame_message, mask=FIXED_MASK, text=True)),
    ):
        print(f"{best_us(act):8.2f} µs  {label}")


if __name__ == "__main__":
    main()
