"""A server of OpenAI's wire that answers exactly as each request declares: its times are the reference of tests.

    python tests/integration/llm/declared_server.py          prints its port

A request's field `declared` is a `Plan`. Each piece is sent at its own moment, counted from when the kernel received
the request; the last millisecond before it is waited for without sleeping. `GET /log` says when each was really sent,
as a busy machine is late itself. Knows nothing of our own packages.
"""

import dataclasses
import gc
import heapq
import json
import select
import socket
import struct
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

SPIN_NS = 1_200_000
SO_TIMESTAMPNS = 35
MS = 1_000_000
HEAD = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


@dataclass(frozen=True)
class Plan:
    """One answer: `tokens` in chunks of `per_chunk`, the first after `first_ms`, the others `gap_ms` apart.

    `stalls` are further waits in ms before the chunk of that index. `sentence_at` is the index of the chunk with which
    the first sentence is known to be complete. `fault` is one of `FAULTS`.
    """

    first_ms: float = 50.0
    tokens: int = 20
    per_chunk: int = 1
    gap_ms: float = 10.0
    stalls: dict[int, float] = field(default_factory=dict)
    sentence_at: int | None = None
    prompt: int = 100
    cached: int = 0
    running: bool = False
    stamped: bool = False  # the text is the moment of sending, in ns of the monotonic clock
    fault: str | None = None
    name: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return what a request declares."""
        return dataclasses.asdict(self) | {"stalls": {str(key): value for key, value in self.stalls.items()}}

    def chunk_tokens(self) -> list[int]:
        whole, rest = divmod(self.tokens, self.per_chunk)
        return [self.per_chunk] * whole + [rest] * (rest > 0)

    def due_ms(self) -> list[float]:
        """When each chunk is sent, from the request on."""
        due, at = [], self.first_ms
        for index in range(len(self.chunk_tokens())):
            at += (self.gap_ms if index else 0.0) + self.stalls.get(index, 0.0)
            due.append(at)
        return due


class Peer:
    """One connection of a client."""

    def __init__(self, server: "Server", sock: socket.socket) -> None:
        self.server, self.sock, self.buffer = server, sock, b""
        self.is_open = True
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)

    def readable(self) -> None:
        arrived_ns = time.perf_counter_ns()
        try:
            data, ancillary, _, _ = self.sock.recvmsg(65536, 64)
            if ancillary:
                seconds, nanoseconds = struct.unpack("qq", ancillary[0][2])
                age_ns = time.time_ns() - seconds * 1_000_000_000 - nanoseconds
                arrived_ns = min(arrived_ns, time.perf_counter_ns() - age_ns)
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        self.buffer += data
        head, separator, rest = self.buffer.partition(b"\r\n\r\n")
        if not separator:
            return
        lines = head.decode("latin-1").lower().split("\r\n")
        length = next((int(line[15:]) for line in lines if line.startswith("content-length:")), 0)
        if len(rest) < length:
            return
        self.buffer = rest[length:]
        if lines[0].startswith("post"):
            body: dict[str, Any] = json.loads(rest[:length])
            plan = body.get("declared", {})
            stalls = {int(key): value for key, value in plan.get("stalls", {}).items()}
            answer(self, Plan(**plan | {"stalls": stalls}), arrived_ns)
        elif lines[0].startswith("get /log"):
            self.send(whole("200 OK", self.server.log))
        else:
            self.send(b"HTTP/1.1 204 No Content\r\n\r\n")

    def at(self, due_ns: float, write: Callable[[], bytes]) -> None:
        self.server.later(round(due_ns), lambda: self.send(write()))

    def send(self, data: bytes) -> None:
        if self.is_open:
            try:
                self.sock.sendall(data)
            except OSError:
                self.close()

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            self.server.forget(self.sock)
            self.sock.close()


def piece(text: str) -> bytes:
    data = text.encode()
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def event(fields: dict[str, Any] | str) -> bytes:
    return piece(f"data: {fields if isinstance(fields, str) else json.dumps(fields)}\n\n")


def content(text: str, **more: Any) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    return event({"object": "chat.completion.chunk", "model": "small", "choices": [choice], **more})


def end(plan: Plan) -> bytes:
    details = {"cached_tokens": plan.cached}
    usage = {"prompt_tokens": plan.prompt, "completion_tokens": plan.tokens, "prompt_tokens_details": details}
    last = {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]}
    return (
        event(last)
        + event({"object": "chat.completion.chunk", "choices": [], "usage": usage})
        + event("[DONE]")
        + b"0\r\n\r\n"
    )


def whole(status: str, fields: dict[str, Any], *headers: str) -> bytes:
    body = json.dumps(fields)
    head = [f"HTTP/1.1 {status}", "Content-Type: application/json", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*head, "", body]).encode()


def refusal(status: str, message: str, *headers: str) -> bytes:
    return whole(status, {"error": {"message": message}}, *headers)


FAULTS: dict[str, Callable[[Plan], list[bytes]]] = {
    "no_key": lambda _: [refusal("401 Unauthorized", "no API key")],
    "unknown_model": lambda _: [refusal("404 Not Found", "the model 'small' does not exist")],
    "rate_limited": lambda _: [refusal("429 Too Many Requests", "slow down", "Retry-After: 7")],
    "mid_error": lambda _: [HEAD.encode(), content("One "), event({"error": {"message": "out of memory"}})],
    "empty_choices": lambda _: [HEAD.encode(), event({"choices": []}), event("[DONE]") + b"0\r\n\r\n"],
    "buffered": lambda plan: [HEAD.encode() + content("word ") * plan.tokens + end(plan)],
    "whole": lambda _: [whole("200 OK", {"choices": [{"message": {"content": "One."}, "finish_reason": "stop"}]})],
    "silent": lambda _: [],
    "never_ended": lambda _: [HEAD.encode(), *[piece(": alive\n\n") + content("word ")] * 40],
    "no_token": lambda _: [HEAD.encode(), *[piece(": alive\n\n")] * 40],
    "cut_off": lambda _: [HEAD.encode(), content("One "), b""],
}


def answer(peer: Peer, plan: Plan, asked_ns: int) -> None:
    if plan.fault is not None:
        for index, data in enumerate(FAULTS[plan.fault](plan)):
            due_ns = asked_ns + (plan.first_ms + index * plan.gap_ms) * MS
            if data:
                peer.at(due_ns, lambda data=data: data)
            else:
                peer.server.later(round(due_ns), peer.close)
        return
    peer.send(HEAD.encode())
    written = 0
    due = plan.due_ms()
    for index, tokens in enumerate(plan.chunk_tokens()):
        written += tokens
        more = {"usage": {"completion_tokens": written}} if plan.running else {}
        text = " word" * tokens
        if plan.sentence_at is not None and index == plan.sentence_at - 1:
            text = " word" * (tokens - 1) + " end."

        def write(text: str = text, more: dict[str, Any] = more) -> bytes:
            peer.server.log.setdefault(plan.name, [asked_ns]).append(time.perf_counter_ns())
            return content(f" {time.perf_counter_ns()}" if plan.stamped else text, **more)

        peer.at(asked_ns + due[index] * MS, write)
    peer.at(asked_ns + due[-1] * MS + 1, lambda: end(plan))


class Server:
    """One thread that sends what is due and reads what comes."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port = self._listener.getsockname()[1]
        self._poll = select.epoll()
        self._poll.register(self._listener, select.EPOLLIN)
        self._peers: dict[int, Peer] = {}
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._number = 0
        self.log: dict[str, list[int]] = {}  # of each name: when its request came, and when each chunk was sent

    def later(self, due_ns: int, action: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._due, (due_ns, self._number, action))

    def forget(self, sock: socket.socket) -> None:
        self._poll.unregister(sock)
        del self._peers[sock.fileno()]

    def run(self) -> None:
        while True:
            wait_ns = self._due[0][0] - time.perf_counter_ns() if self._due else 1_000 * MS
            for fd, _ in self._poll.poll(max(0.0, (wait_ns - SPIN_NS) / 1e9)):
                if fd == self._listener.fileno():
                    sock, _ = self._listener.accept()
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self._peers[sock.fileno()] = Peer(self, sock)
                    self._poll.register(sock, select.EPOLLIN)
                elif fd in self._peers:
                    self._peers[fd].readable()
            while self._due and self._due[0][0] <= time.perf_counter_ns():
                heapq.heappop(self._due)[2]()


if __name__ == "__main__":
    gc.disable()  # a collection would make every stream late
    server = Server()
    sys.stdout.write(f"{server.port}\n")
    sys.stdout.flush()
    server.run()
