"""An endpoint that answers at once, as a process of its own: `python -m tests.integration.quick_endpoint`.

It speaks just enough of OpenAI Realtime for callers who say themselves when they have finished, and goes round all its
connections every few milliseconds instead of waiting for each: so it holds thousands of callers at a small price. On
its standard input, "stop 3" makes it read no more from the third caller (as its trace header says), "go 3" go on, and
"count 0" asks how many questions it was asked so far, which it prints. `REPLIES` are the ways in which it can answer:
each caller gets those of `--replies` one after the other, and the first again after the last.
"""

import argparse
import base64
import contextlib
import json
import math
import re
import socket
import subprocess
import sys
import threading
import time
from array import array
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field

from tests.integration.raw_endpoint import accepting, text

_TRACE = re.compile(rb"traceparent: 00-([0-9a-f]{32})-", re.IGNORECASE)
# Longer messages are audio, which nobody here listens to.
_LONGEST_COMMAND = 1000
_ACCEPTS_AT_ONCE = 200
_PIECE_S = 0.1


def _message(kind: str, **fields: object) -> bytes:
    return text(json.dumps({"type": kind, **fields}).encode())


def _tone() -> bytes:
    """100 ms of 400 Hz, as base64."""
    return base64.b64encode(array("h", [int(8000 * math.sin(i * math.tau / 60)) for i in range(2400)]).tobytes())


_READY = _message("session.created", session={}) + _message("session.updated", session={})
_AUDIO = _tone().decode()


def _began(name: str) -> bytes:
    return _message("response.created", response={"id": name})


def _audio(name: str, **fields: object) -> bytes:
    return _message("response.output_audio.delta", response_id=name, item_id="i", delta=_AUDIO, **fields)


def _done(name: str, **fields: object) -> bytes:
    return _message("response.done", response={"id": name, "status": "completed", **fields})


def _plain(name: str) -> bytes:
    return _began(name) + _audio(name) + _done(name)


def _tool_call(name: str) -> bytes:
    call = {"type": "function_call", "name": "weather", "arguments": "{}"}
    return _began(f"call-{name}") + _done(f"call-{name}", output=[call]) + _plain(name)


def _text(name: str) -> bytes:
    words = _message("response.output_text.delta", response_id=f"text-{name}", item_id="i", delta="Let me see.")
    return _began(f"text-{name}") + words + _done(f"text-{name}") + _plain(name)


def _twice(name: str) -> bytes:
    metadata = {"service.turn_latency": "{}"}
    piece = _audio(name, event_id=f"event-{name}")
    return _began(name) + _message("vendor.hello") + piece * 2 + _done(name, metadata=metadata)


REPLIES = {
    "plain": _plain,
    "tool-call": _tool_call,
    "text": _text,
    "superseded": lambda name: _began(f"old-{name}") + _plain(name),
    "unclosed": lambda name: _began(name) + _audio(name),
    "twice": _twice,
    "silent": lambda name: b"",
    "endless": _began,  # and then pieces of audio for as long as the caller is there
}


@dataclass(slots=True)
class Peer:
    """One caller, from here."""

    sock: socket.socket
    number: int = 0
    answers: int = 0
    deaf: bool = False
    replies: tuple[str, ...] = ("plain",)
    buffer: bytearray = field(default_factory=bytearray)
    endless: str | None = None  # the response that goes on, and when its next piece is due
    due_s: float = 0.0

    def go_on(self, now_s: float) -> None:
        """Send the next piece of a reply without an end."""
        if self.endless is not None and now_s >= self.due_s:
            self.due_s = now_s + _PIECE_S
            with contextlib.suppress(OSError):
                self.sock.sendall(_audio(self.endless))

    def read(self) -> bool:
        """Take what came and answer it; False when the caller is gone."""
        try:
            data = self.sock.recv(1 << 16)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if self.number and self.deaf:
            return bool(data)
        self.buffer += data
        if not self.number:
            self._upgrade()
        else:
            for is_goodbye, command in self._commands():
                if is_goodbye:
                    return False
                if b'"response.create"' in command:
                    kind, name = self.replies[self.answers % len(self.replies)], f"r{self.answers}"
                    self.answers += 1
                    self.endless = name if kind == "endless" else None
                    self.sock.sendall(REPLIES[kind](name))
        return bool(data)

    def _upgrade(self) -> None:
        head, end, rest = bytes(self.buffer).partition(b"\r\n\r\n")
        if not end:
            return
        trace = _TRACE.search(head)
        self.number = int(trace[1], 16) if trace is not None else 1
        self.buffer = bytearray(rest)
        self.sock.sendall(accepting(head) + _READY)

    def _commands(self) -> Iterator[tuple[bool, bytes]]:
        """Whether it is a close frame, and the text."""
        at, data = 0, self.buffer
        while len(data) - at >= 8:
            length, head = data[at + 1] & 0x7F, 6
            if length == 126:
                length, head = int.from_bytes(data[at + 2 : at + 4], "big"), 8
            if len(data) - at < head + length:
                break
            if length < _LONGEST_COMMAND:
                mask = data[at + head - 4 : at + head]
                command = bytes(b ^ mask[i % 4] for i, b in enumerate(data[at + head : at + head + length]))
                yield data[at] == 0x88, command
            at += head + length
        del data[:at]


def serve(round_s: float, receive_buffer: int | None, deaf: bool, replies: tuple[str, ...]) -> None:
    """Go round until standard input ends."""
    stopped: set[int] = set()
    met: list[Peer] = []
    ended = threading.Event()

    def obey() -> None:
        for line in sys.stdin:
            order, _, number = line.partition(" ")
            if order == "count":
                print(sum(peer.answers for peer in met), flush=True)
                continue
            (stopped.add if order == "stop" else stopped.discard)(int(number))
        ended.set()

    threading.Thread(target=obey, daemon=True).start()
    with socket.socket() as listener:
        if receive_buffer is not None:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        listener.bind(("127.0.0.1", 0))
        listener.listen(4096)
        listener.setblocking(False)
        print(listener.getsockname()[1], flush=True)
        peers: list[Peer] = []
        while not ended.is_set():
            with contextlib.suppress(BlockingIOError):
                for _ in range(_ACCEPTS_AT_ONCE):
                    sock, _ = listener.accept()
                    sock.setblocking(False)
                    peers.append(Peer(sock, deaf=deaf, replies=replies))
                    met.append(peers[-1])
            now_s = time.monotonic()
            for peer in tuple(peers):
                peer.go_on(now_s)
                if peer.number not in stopped and not peer.read():
                    peers.remove(peer)
                    peer.sock.close()
            time.sleep(round_s)


@dataclass(frozen=True, slots=True)
class QuickEndpoint:
    """A running endpoint. `order("stop 1")` controls it."""

    url: str
    process: "subprocess.Popen[str]"

    def order(self, words: str) -> None:
        """Tell it to stop reading from a caller, or to go on."""
        assert self.process.stdin is not None
        self.process.stdin.write(words + "\n")
        self.process.stdin.flush()

    @property
    def questions(self) -> int:
        """Number of questions so far."""
        self.order("count 0")
        assert self.process.stdout is not None
        return int(self.process.stdout.readline())


@contextlib.contextmanager
def quick_endpoint(
    round_s: float = 0.002, receive_buffer: int | None = None, deaf: bool = False, replies: str = "plain"
) -> Generator[QuickEndpoint]:
    """Start one; it ends with the block. A deaf one opens sessions, and throws away what callers say."""
    flags = ["--round-s", str(round_s), "--replies", replies, *(["--deaf"] if deaf else [])]
    if receive_buffer is not None:
        flags += ["--receive-buffer", str(receive_buffer)]
    arguments = [sys.executable, "-m", "tests.integration.quick_endpoint", *flags]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield QuickEndpoint(f"ws://127.0.0.1:{int(process.stdout.readline())}/v1/realtime", process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(180)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--round-s", type=float, default=0.002)
    parser.add_argument("--receive-buffer", type=int, default=None)
    parser.add_argument("--deaf", action="store_true")
    parser.add_argument("--replies", default="plain")
    given = parser.parse_args()
    serve(given.round_s, given.receive_buffer, given.deaf, tuple(given.replies.split(",")))
