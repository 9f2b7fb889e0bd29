"""An endpoint that shares no code with voiceprobe: it answers after a delay of its own, and logs what it did and when.

One file on the standard library and numpy. It speaks OpenAI Realtime's JSON over a WebSocket of its own making. Where
the caller's speech ends it finds by itself: the last sample at full level (the calls must carry bursts of constant
magnitude followed by digital silence; a fade after the end is below that level). Like a service's voice activity
detector, it closes the turn after two frames of silence, and answers after a delay drawn from the seed. Its reply is
audible from its first sample.

Every moment is an interval on CLOCK_MONOTONIC: a frame came between the last look at its socket that found nothing more
and the kernel's stamp; a message went between just before the call and just after it.

`python endpoint.py --log turns.jsonl --seed 1` prints {"ready": true, "url": ...}, and serves until SIGTERM.
"""

import argparse
import asyncio
import base64
import contextlib
import gc
import hashlib
import json
import os
import random
import signal
import socket
import struct
import sys
import time
from typing import Any

import numpy as np

RATE_HZ = 24_000
FRAME_SAMPLES = 480
FRAME_NS = 20_000_000
QUIET_FRAMES = 2  # of silence close the caller's turn
SPEECH_PEAK = 1000  # the bursts are louder, silence is 0
FULL_LEVEL = 0.999  # of the utterance's peak: what is quieter belongs to the fade
SHORTEST_S, LONGEST_S = 0.020, 0.350  # from closing the turn to the first audio
CHUNK_MS, CHUNKS = 60, 4
SO_TIMESTAMPNS = 35
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
READ_BYTES = 1 << 18


def monotonic_ns() -> int:
    """The clock that all processes of a machine share."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def wall_offset_ns() -> int:
    """CLOCK_REALTIME - CLOCK_MONOTONIC, from the tightest of a few readings."""
    readings: list[tuple[int, int]] = []
    for _ in range(5):
        before = monotonic_ns()
        wall = time.clock_gettime_ns(time.CLOCK_REALTIME)
        after = monotonic_ns()
        readings.append((after - before, wall - (before + after) // 2))
    return min(readings)[1]


def text_frame(value: dict[str, Any]) -> bytes:
    """A WebSocket text frame of a server: final, not masked."""
    payload = json.dumps(value, separators=(",", ":")).encode()
    if len(payload) < 126:
        return struct.pack("!BB", 0x81, len(payload)) + payload
    if len(payload) < 65_536:
        return struct.pack("!BBH", 0x81, 126, len(payload)) + payload
    return struct.pack("!BBQ", 0x81, 127, len(payload)) + payload


def unmasked(payload: bytes, mask: bytes) -> bytes:
    """The payload of a client's frame."""
    data = np.frombuffer(payload, np.uint8)
    return np.bitwise_xor(data, np.resize(np.frombuffer(mask, np.uint8), len(data))).tobytes()


def reply_chunk(number: int) -> str:
    """The base64 of a chunk of noise of constant magnitude: audible from its first sample."""
    signs = np.random.default_rng(number).integers(0, 2, RATE_HZ * CHUNK_MS // 1000) * 2 - 1
    return base64.b64encode((signs * 4000).astype("<i2").tobytes()).decode()


REPLY = [reply_chunk(number) for number in range(CHUNKS)]


class Turn:
    """One utterance of a caller, from its first loud frame on."""

    def __init__(self, response_id: str) -> None:
        self.response_id = response_id
        self.peak = 0
        self.came: tuple[int, int] = (0, 0)  # when the frame with the last full sample came, at the earliest and latest
        self.last = 0  # that sample's offset in its frame
        self.frames_after = 0
        self.first_came: tuple[int, int] = (0, 0)

    def hear(self, samples: "np.ndarray[Any, np.dtype[np.int16]]", came: tuple[int, int]) -> bool:
        """Take a frame in; whether it closes the turn."""
        level = np.abs(samples.astype(np.int32))
        peak = int(level.max())
        self.peak = max(self.peak, peak)
        full = np.flatnonzero(level >= FULL_LEVEL * self.peak)
        if len(full) and peak >= SPEECH_PEAK:
            self.came, self.last, self.frames_after = came, int(full[-1]), 0
            return False
        self.frames_after += 1
        return peak == 0 and self.frames_after >= QUIET_FRAMES

    def end_ns(self) -> tuple[int, int]:
        """When the last sample was spoken, at the earliest and the latest: a frame is sent when its last sample is."""
        to_its_end = (FRAME_SAMPLES - self.last) * 1_000_000_000 // RATE_HZ
        return self.came[0] - to_its_end, self.came[1] - to_its_end


class Caller:
    """One connection."""

    def __init__(self, server: "Server", sock: socket.socket, number: int) -> None:
        self.server, self.sock, self.number = server, sock, number
        self.random = random.Random(f"{server.seed}/{number}")
        self.rest = b""
        self.upgraded = False
        self.turn: Turn | None = None
        self.turns = 0
        self.looked_ns = monotonic_ns()
        self.handles: list[asyncio.TimerHandle] = []
        self.closed = False

    def readable(self) -> None:
        """Read what came, with the kernel's stamp of the last of it."""
        before_ns = self.looked_ns
        try:
            data, ancillary, _, _ = self.sock.recvmsg(READ_BYTES, 64)
        except BlockingIOError:
            return
        except OSError:
            data, ancillary = b"", []
        if not data:
            self.close()
            return
        now_ns = monotonic_ns()
        stamp_ns = self.stamp_ns(ancillary, now_ns)
        # A read takes all there is. What comes while it is under way is in the next one.
        self.looked_ns = stamp_ns
        data = self.rest + data
        at = 0
        while (found := self.message(data, at)) is not None:
            opcode, payload, at = found
            is_last = at == len(data)
            self.take(opcode, payload, (stamp_ns if is_last else before_ns, stamp_ns))
            if self.closed:
                return
        self.rest = data[at:]

    def stamp_ns(self, ancillary: list[tuple[int, int, bytes]], now_ns: int) -> int:
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == SO_TIMESTAMPNS:
                seconds, nanoseconds = struct.unpack_from("qq", payload)
                return min(now_ns, seconds * 1_000_000_000 + nanoseconds - self.server.offset_ns)
        return now_ns

    def message(self, data: bytes, at: int) -> tuple[int, bytes, int] | None:
        """The message at a position and where it ends; None where it is not whole."""
        if not self.upgraded:
            end = data.find(b"\r\n\r\n", at)
            return None if end < 0 else (-1, data[at:end], end + 4)
        if len(data) - at < 6:
            return None
        length, head = data[at + 1] & 0x7F, at + 2
        if length == 126:
            length, head = int.from_bytes(data[head : head + 2], "big"), head + 2
        elif length == 127:
            length, head = int.from_bytes(data[head : head + 8], "big"), head + 8
        end = head + 4 + length
        if len(data) < end:
            return None
        return data[at] & 0x0F, unmasked(data[head + 4 : end], data[head : head + 4]), end

    def take(self, opcode: int, payload: bytes, came: tuple[int, int]) -> None:
        if opcode == -1:
            self.upgrade(payload)
        elif opcode == 1 and payload.startswith(b'{"type":"input_audio_buffer.append"'):
            self.hear(payload, came)
        elif opcode == 1:
            value = json.loads(payload)
            if value["type"] == "session.update":
                self.send({"type": "session.updated", "session": self.session()})
        elif opcode == 8:
            with contextlib.suppress(OSError):
                self.sock.send(b"\x88\x02\x03\xe8")
            self.close()
        elif opcode == 9:
            self.write(struct.pack("!BB", 0x8A, len(payload)) + payload)

    def session(self) -> dict[str, Any]:
        audio = {"format": {"type": "audio/pcm", "rate": RATE_HZ}}
        return {
            "id": f"sess_{self.number}",
            "type": "realtime",
            "output_modalities": ["audio"],
            "audio": {"input": {**audio, "turn_detection": {"type": "server_vad"}}, "output": audio},
        }

    def upgrade(self, head: bytes) -> None:
        lines = dict(line.split(b":", 1) for line in head.split(b"\r\n")[1:])
        key = {name.lower(): value.strip() for name, value in lines.items()}[b"sec-websocket-key"]
        accept = base64.b64encode(hashlib.sha1(key + GUID, usedforsecurity=False).digest())
        self.upgraded = True
        self.write(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n"
        )
        self.send({"type": "session.created", "session": self.session()})

    def hear(self, payload: bytes, came: tuple[int, int]) -> None:
        """Take one frame of audio in."""
        begin = payload.index(b'"audio":"') + 9
        samples = np.frombuffer(base64.b64decode(payload[begin : payload.index(b'"', begin)]), "<i2")
        turn = self.turn
        if turn is None:
            if int(np.abs(samples.astype(np.int32)).max()) < SPEECH_PEAK:
                return
            turn = self.turn = Turn(f"resp_{self.server.name}_{self.number}_{self.turns}")
            turn.first_came = came
            self.turns += 1
            self.send({"type": "input_audio_buffer.speech_started", "item_id": self.item(turn), "audio_start_ms": 0})
        if turn.hear(samples, came):
            self.turn = None
            self.answer(turn, came)

    def item(self, turn: Turn) -> str:
        return turn.response_id.replace("resp", "item")

    def answer(self, turn: Turn, closed: tuple[int, int]) -> None:
        """Close the turn now, and answer it later."""
        delay_s = self.random.uniform(SHORTEST_S, LONGEST_S)
        self.send({"type": "input_audio_buffer.speech_stopped", "item_id": self.item(turn), "audio_end_ms": 0})
        row: dict[str, Any] = {
            "response_id": turn.response_id,
            "call": self.number,
            "speech_start_ns": list(turn.first_came),
            "speech_end_ns": list(turn.end_ns()),
            "last_frame_ns": list(turn.came),
            "closed_ns": list(closed),
            "delay_ns": round(delay_s * 1e9),
            # How much longer the silence that closes the turn took to come than it lasts, at the least.
            "held_up_ns": max(0, closed[0] - turn.came[1] - turn.frames_after * FRAME_NS),
        }
        loop = asyncio.get_running_loop()
        response = {"id": turn.response_id, "object": "realtime.response", "status": "in_progress", "metadata": {}}
        # Half of the callers get the creation some time before the audio, half at once; likewise all chunks at once.
        early_s = delay_s / 2 if self.number % 2 else 0.0
        self.handles = [
            loop.call_later(delay_s - early_s, self.send, {"type": "response.created", "response": response}),
            loop.call_later(delay_s, self.speak, turn, row),
        ]

    def speak(self, turn: Turn, row: dict[str, Any]) -> None:
        """Send the first chunk, the one whose moment is the truth, and then the others."""
        item_id = f"{self.item(turn)}_a"
        ids = {"response_id": turn.response_id, "item_id": item_id, "output_index": 0, "content_index": 0}
        deltas = [text_frame({"type": "response.output_audio.delta", **ids, "delta": chunk}) for chunk in REPLY]
        before_ns = monotonic_ns()
        taken = self.write(deltas[0])
        row["first_audio_ns"] = [before_ns, monotonic_ns()] if taken else None
        self.server.rows.append(row)
        loop = asyncio.get_running_loop()
        gap_s = CHUNK_MS / 1000 / 2 if self.number % 4 < 2 else 0.0
        for index, data in enumerate(deltas[1:], 1):
            if gap_s:
                self.handles.append(loop.call_later(index * gap_s, self.write, data))
            else:
                self.write(data)
        self.handles.append(loop.call_later(CHUNKS * gap_s + 0.002, self.finish, turn, ids))

    def finish(self, turn: Turn, ids: dict[str, Any]) -> None:
        self.send({"type": "response.output_audio.done", **ids})
        response = {"id": turn.response_id, "object": "realtime.response", "status": "completed", "metadata": {}}
        self.send({"type": "response.done", "response": {**response, "usage": {"output_tokens": 1}}})

    def send(self, value: dict[str, Any]) -> None:
        self.write(text_frame(value))

    def write(self, data: bytes) -> bool:
        """Whether the kernel took all of it. A caller that does not read half a megabyte is hung up on."""
        if self.closed:
            return False
        try:
            sent = self.sock.send(data)
        except OSError:
            sent = 0
        if sent < len(data):
            self.close()
        return sent == len(data)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            for handle in self.handles:
                handle.cancel()
            asyncio.get_running_loop().remove_reader(self.sock.fileno())
            self.sock.close()


class Server:
    """Listens, and keeps the log."""

    def __init__(self, log: str, seed: int, name: str) -> None:
        self.log, self.seed, self.name = log, seed, name
        self.rows: list[dict[str, Any]] = []
        self.callers = 0
        self.offset_ns = wall_offset_ns()
        self.listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(1024)
        self.listener.setblocking(False)
        self.url = f"ws://127.0.0.1:{self.listener.getsockname()[1]}/v1/realtime"

    def accept(self) -> None:
        with contextlib.suppress(OSError):
            sock, _ = self.listener.accept()
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
            caller = Caller(self, sock, self.callers)
            self.callers += 1
            asyncio.get_running_loop().add_reader(sock.fileno(), caller.readable)

    async def serve(self) -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        loop.add_reader(self.listener.fileno(), self.accept)
        print(json.dumps({"ready": True, "url": self.url}), flush=True)
        with open(self.log, "a", encoding="utf-8") as file:  # noqa: ASYNC230, PTH123 - a few lines
            while not stop.is_set():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), 0.5)
                self.offset_ns = wall_offset_ns()
                file.writelines(json.dumps(row) + "\n" for row in self.rows)
                file.flush()
                self.rows.clear()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log", required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--name", default=f"{os.getpid():x}")
    given = parser.parse_args()
    gc.disable()
    sys.setswitchinterval(1.0)
    asyncio.run(Server(given.log, given.seed, given.name).serve())


if __name__ == "__main__":
    main()
