"""Records what the speech-to-speech server sends, into a fixture: `python record_s2s.py URL OUT.jsonl`.

The client here is the plain `websockets` library and hand-written JSON, so the fixture owes nothing to the code that it
tests. The first line of the fixture says what was recorded.
"""

import base64
import importlib.metadata
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from websockets.sync.client import ClientConnection, connect

RATE_HZ = 24_000


def main(url: str, out: str) -> None:
    events: list[dict[str, Any]] = []
    with connect(url, compression=None) as connection:

        def until(kind: str) -> None:
            while not events or events[-1]["type"] != kind:
                events.append(json.loads(connection.recv(timeout=20)))

        until("session.created")
        audio_format = {"type": "audio/pcm", "rate": RATE_HZ}
        heard = {"format": audio_format, "transcription": {"model": "any"}, "turn_detection": {"type": "server_vad"}}
        session = {"type": "realtime", "audio": {"input": heard, "output": {"format": audio_format}}}
        send(connection, type="session.update", session=session)
        until("session.updated")
        moments = np.arange(RATE_HZ) / RATE_HZ
        tone = (8000 * np.sin(2 * np.pi * 300 * moments)).astype(np.int16)
        append(connection, tone)
        append(connection, np.zeros(RATE_HZ, np.int16))
        until("response.done")
        send(connection, type="input_audio_buffer.append", audio="not base64", event_id="bad-audio")
        send(connection, type="no.such.event", event_id="bad-type")
        until("error")
    version = importlib.metadata.version
    note = {"peer": "speech-to-speech", "version": version("speech-to-speech"), "openai": version("openai")}
    lines = [json.dumps(line) for line in [{"recorded": note}, *events]]
    Path(out).write_text("\n".join(lines) + "\n")


def append(connection: ClientConnection, samples: np.ndarray) -> None:
    for frame in np.array_split(samples, 50):
        send(connection, type="input_audio_buffer.append", audio=base64.b64encode(frame.tobytes()).decode())


def send(connection: ClientConnection, **event: object) -> None:
    connection.send(json.dumps(event))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
