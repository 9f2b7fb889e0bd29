"""An agent on telephone calls that answers after a known delay: `python telephony_agent.py PORT LOG OPTIONS`.

Nothing here is of this project: the WebSocket server is the `websockets` package's, µ-law is Python's `audioop`. LOG
gets a line of JSON for each message with the time (CLOCK_MONOTONIC, ns) when it was received, or right before it was
sent and right after (`done_ns`). OPTIONS is a JSON object: `wire`, `delay_ms` from the first silent frame after speech
to the reply, `stall_after` and `stall_s` (the agent then reads nothing for a while, once), `receive_bytes` (of its
socket's buffer), `tone_ms` (of a reply, after 100 ms of silence), `clear` (an agent that can be interrupted).
"""

import audioop
import base64
import json
import math
import socket
import struct
import sys
import threading
import time
from pathlib import Path
from typing import Any

from websockets.sync.server import ServerConnection, serve

RATE_HZ = 8000
SILENCE_MS = 100
TONE_MS = 500
LOUD = 200  # of full scale 32767: above the background, below speech
QUIET_FRAMES = 15


def reply_pcm(tone_ms: int) -> bytes:
    """Digital silence, then a tone."""
    tone = [int(9000 * math.cos(2 * math.pi * 400 * at / RATE_HZ)) for at in range(RATE_HZ * tone_ms // 1000)]
    return bytes(2 * RATE_HZ * SILENCE_MS // 1000) + struct.pack(f"<{len(tone)}h", *tone)


class Agent:
    """One call."""

    def __init__(self, connection: ServerConnection, log: Any, options: dict[str, Any]) -> None:
        self.connection, self.log, self.options = connection, log, options
        self.linear = options["wire"] in ("exotel", "vonage")
        self.call = ""
        self.stream: dict[str, str] = {}
        self.quiet = self.loud_frames = self.frames = self.replies = 0
        self.clear_at_speech = False

    def note(self, what: str, at_ns: int, **more: object) -> None:
        self.log.write(json.dumps({"call": self.call, "what": what, "at_ns": at_ns, **more}) + "\n")

    def run(self) -> None:
        self.note("opened", time.monotonic_ns(), headers=dict(self.connection.request.headers.raw_items()))
        for message in self.connection:
            at_ns = time.monotonic_ns()
            fields = json.loads(message)
            if fields["event"] == "media":
                self.heard(fields, at_ns)
            else:
                if fields["event"] == "start":
                    start = fields["start"]
                    self.call = start.get("callSid") or start.get("call_sid") or start.get("callId") or ""
                    keys = ("streamSid", "stream_sid", "streamId")
                    self.stream = {key: start[key] for key in keys if key in start}
                self.note("message", at_ns, fields=fields)

    def heard(self, fields: dict[str, Any], at_ns: int) -> None:
        media = fields.pop("media")
        audio = base64.b64decode(media.pop("payload"), validate=True)
        pcm = audio if self.linear else audioop.ulaw2lin(audio, 2)
        loud = audioop.rms(pcm, 2) > LOUD
        self.note("media", at_ns, fields=fields, media=media, octets=len(audio), loud=loud)
        self.frames += 1
        if self.frames == self.options.get("stall_after"):
            time.sleep(self.options["stall_s"])
        if loud:
            self.loud_frames, self.quiet = self.loud_frames + 1, 0
            if self.clear_at_speech and self.loud_frames == 3:
                self.clear_at_speech = False
                self.send(json.dumps({"event": "clear", **self.stream}), "clear")
            return
        self.quiet += 1
        if self.loud_frames >= 5 and self.quiet == QUIET_FRAMES:
            self.loud_frames = 0
            threading.Timer(self.options["delay_ms"] / 1000, self.answer).start()
            self.note("turn", at_ns)

    def send(self, message: str, what: str, **more: object) -> None:
        at_ns = time.monotonic_ns()
        self.connection.send(message)
        self.note(what, at_ns, done_ns=time.monotonic_ns(), **more)

    def answer(self) -> None:
        pcm = reply_pcm(int(self.options.get("tone_ms", TONE_MS)))
        octets = pcm if self.linear else audioop.lin2ulaw(pcm, 2)
        self.replies += 1
        step = 600
        for begin in range(0, len(octets), step):
            payload = base64.b64encode(octets[begin : begin + step]).decode()
            self.send(json.dumps({"event": "media", **self.stream, "media": {"payload": payload}}), "audio")
        name = f"reply-{self.replies}"
        self.send(json.dumps({"event": "mark", **self.stream, "mark": {"name": name}}), "mark", name=name)
        self.clear_at_speech = bool(self.options.get("clear"))


def main(port: int, log_path: str, options: dict[str, Any]) -> None:
    listener = socket.create_server(("127.0.0.1", port))
    if "receive_bytes" in options:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, options["receive_bytes"])
    with (
        Path(log_path).open("w", buffering=1) as log,
        serve(
            lambda connection: Agent(connection, log, options).run(),
            sock=listener,
            compression=None,
            max_queue=1 if "stall_s" in options else None,
        ) as server,
    ):
        server.serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]))
