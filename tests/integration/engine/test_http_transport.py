"""Requests of a call to a server that is not ours: kept connections, queues, cancels and failures."""

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import gevent
import pytest

from loadtest.engine.clock import Clocks
from loadtest.engine.connection import ConnectionParts
from loadtest.engine.local_limits import LocalLimits
from loadtest.engine.transports.base import TransportItem, TransportParts
from loadtest.engine.transports.http import MAX_CONNECTIONS_PER_ORIGIN, HttpTransport
from loadtest.engine.watch import SocketWatch
from loadtest.engine.webrtc.media_process import MediaProcess
from loadtest.protocols.failure import Failure
from loadtest.protocols.http_items import HttpCancel, HttpData, HttpEnd, HttpFailed, HttpHead, HttpRequest
from loadtest.protocols.transports.framing import Opened

BOUND_S = 120.0  # only ends a hopeless wait


class Service(ThreadingHTTPServer):
    """Answers by the path; what it does besides is for the test to look at."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.connections = 0
        self.running = self.most_running = 0
        self.lock, self.may_answer, self.cut_off = threading.Lock(), threading.Event(), threading.Event()


class Answers(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server: Service

    def setup(self) -> None:
        super().setup()
        self.answered = 0
        self.server.connections += 1

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's own name
        pass

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        getattr(self, f"answer_{self.path.strip('/')}")(body)
        self.answered += 1

    def answer_echo(self, body: bytes, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def answer_busy(self, body: bytes) -> None:
        self.answer_echo(body, 503)

    def answer_held(self, body: bytes) -> None:
        with self.server.lock:
            self.server.running += 1
            self.server.most_running = max(self.server.most_running, self.server.running)
        self.server.may_answer.wait(BOUND_S)
        with self.server.lock:
            self.server.running -= 1
        self.answer_echo(body)

    def answer_chunks(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for _ in range(3):
            self.wfile.write(b"%x\r\n%b\r\n" % (len(body), body))
            self.server.may_answer.wait(BOUND_S)
            self.server.may_answer.clear()
        self.wfile.write(b"0\r\n\r\n")

    def answer_endless(self, body: bytes) -> None:
        self.send_response(200)
        self.end_headers()
        try:
            while True:
                self.wfile.write(body * 1000)
        except OSError:
            self.server.cut_off.set()
        self.close_connection = True

    def answer_cut(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = True

    def answer_once(self, body: bytes) -> None:
        """Answer the first request of a connection and close it, unannounced, when the second one comes."""
        if self.answered:
            self.close_connection = True
        else:
            self.answer_echo(body)


class Owner:
    """Records its calls, and replaces the protocol, too."""

    def __init__(self) -> None:
        self.items: list[TransportItem] = []
        self.stamps: list[int] = []
        self.errors: list[Exception] = []
        self.kept: list[bytes] = []
        self.wants: list[HttpRequest] = []

    def receive(self, stamp_perf_ns: int, seen_perf_ns: int, items: Any) -> None:
        assert stamp_perf_ns <= seen_perf_ns
        self.items += items
        self.stamps += [stamp_perf_ns] * len(items)

    def note(self, item: TransportItem, stamp_perf_ns: int) -> None:
        self.items.append(item)
        self.stamps.append(stamp_perf_ns)

    def failed(self, error: Exception) -> None:
        self.errors.append(error)

    def keep_audio(self, frame: bytes) -> None:
        self.kept.append(frame)

    def pending(self) -> list[HttpRequest]:
        wanted, self.wants = self.wants, []
        return wanted


class Calling:
    """A transport, its owner and what moves them."""

    def __init__(self) -> None:
        self.owner = Owner()
        clocks, loop = Clocks(), gevent.get_hub().loop
        self.clocks, self.watch = clocks, SocketWatch(loop, clocks.perf_ns)
        connections = ConnectionParts(loop, self.watch, clocks)
        media = MediaProcess(connections)
        parts = TransportParts(connections, media, media, LocalLimits(), None, 2**20)
        self.transport = HttpTransport(parts, self.owner)  # type: ignore[arg-type]  # what it needs of a protocol
        self.transport.open(self.owner, BOUND_S)  # type: ignore[arg-type]  # what is called of a call
        self.transport.begin()

    def ended(self, count: int) -> list[TransportItem]:
        """Wait until so many requests have ended; everything that has come."""
        with gevent.Timeout(BOUND_S):
            while sum(isinstance(item, HttpEnd | HttpFailed) for item in self.owner.items) < count:
                gevent.sleep(0.002)
                now = self.clocks.perf_ns()
                self.watch.tick(now + 1_000_000)
        assert not self.owner.errors
        return self.owner.items

    def until(self, done: Any) -> None:
        with gevent.Timeout(BOUND_S):
            while not done():
                gevent.sleep(0.002)
                now = self.clocks.perf_ns()
                self.watch.tick(now + 1_000_000)


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield running
        running.may_answer.set()
        running.shutdown()


@pytest.fixture
def calling() -> Iterator[Calling]:
    made = Calling()
    yield made
    made.transport.close()
    made.watch.close()


def post(service: Service, name: str, path: str, body: bytes = b"words") -> HttpRequest:
    return HttpRequest(name, "POST", f"{service.url}/{path}", body=body)


def texts(items: list[TransportItem], name: str) -> bytes:
    return b"".join(item.data for item in items if isinstance(item, HttpData) and item.request_id == name)


def test_requests_follow_each_other_over_one_connection(service: Service, calling: Calling) -> None:
    for number in range(3):
        calling.transport.send(post(service, f"r{number}", "busy" if number == 1 else "echo", b"%d" % number))
        items = calling.ended(number + 1)
    assert isinstance(items[0], Opened)
    assert [item.status for item in items if isinstance(item, HttpHead)] == [200, 503, 200]
    assert [texts(items, f"r{number}") for number in range(3)] == [b"0", b"1", b"2"]
    assert service.connections == 1
    assert calling.transport.stamp_kind in ("kernel", "user")


def test_requests_beyond_the_limit_wait_for_a_connection(service: Service, calling: Calling) -> None:
    count = 2 * MAX_CONNECTIONS_PER_ORIGIN + 1
    for number in range(count):
        calling.transport.send(post(service, f"r{number}", "held", b"%d" % number))
    calling.until(lambda: service.running == MAX_CONNECTIONS_PER_ORIGIN)
    calling.transport.send(HttpCancel(f"r{count - 1}"))  # one that is still waiting
    service.may_answer.set()
    items = calling.ended(count - 1)
    assert {texts(items, f"r{number}") for number in range(count - 1)} == {
        b"%d" % number for number in range(count - 1)
    }
    assert service.most_running == service.connections == MAX_CONNECTIONS_PER_ORIGIN


def test_a_body_is_passed_on_as_it_arrives(service: Service, calling: Calling) -> None:
    calling.transport.send(post(service, "r", "chunks", b"part"))
    for number in range(1, 4):
        calling.until(lambda: texts(calling.owner.items, "r") == b"part" * number)  # noqa: B023 - called at once
        service.may_answer.set()
    calling.ended(1)
    stamps = [
        stamp
        for stamp, item in zip(calling.owner.stamps, calling.owner.items, strict=True)
        if isinstance(item, HttpData)
    ]
    assert stamps == sorted(stamps)
    assert len(set(stamps)) == 3


def test_a_cancelled_request_is_cut_off_and_says_nothing_more(service: Service, calling: Calling) -> None:
    calling.transport.send(post(service, "r", "endless"))
    calling.until(lambda: texts(calling.owner.items, "r"))
    calling.transport.send(HttpCancel("r"))
    heard = len(calling.owner.items)
    assert service.cut_off.wait(BOUND_S)
    calling.transport.send(post(service, "next", "echo"))
    items = calling.ended(1)
    assert texts(items, "next") == b"words"
    assert not [item for item in items[heard:] if getattr(item, "request_id", "") == "r"]


def test_a_response_that_is_cut_off_fails(service: Service, calling: Calling) -> None:
    calling.transport.send(post(service, "r", "cut"))
    failed = calling.ended(1)[-1]
    assert isinstance(failed, HttpFailed)
    assert failed.failure == Failure("tcp", "EOF")


def test_kept_connection_closed_by_server_is_replaced_once(service: Service, calling: Calling) -> None:
    for number in range(2):
        calling.transport.send(post(service, f"r{number}", "once"))
        items = calling.ended(number + 1)
    assert [texts(items, f"r{number}") for number in range(2)] == [b"words", b"words"]
    assert service.connections == 2


def test_port_without_listener_is_refused(calling: Calling) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    calling.transport.send(HttpRequest("r", "GET", f"http://127.0.0.1:{port}/"))
    failed = calling.ended(1)[-1]
    assert isinstance(failed, HttpFailed)
    assert failed.failure == Failure("tcp", "ECONNREFUSED")
    assert failed.reason.startswith(f"cannot connect to 127.0.0.1:{port}: ")


@pytest.mark.parametrize("url", ["ws://h/", "http://", "http://h/ x"])
def test_invalid_address_is_bad_request(calling: Calling, url: str) -> None:
    calling.transport.send(HttpRequest("r", "GET", url))
    failed = calling.ended(1)[-1]
    assert isinstance(failed, HttpFailed)
    assert failed.failure == Failure("generator", "bad_request")


def test_frames_stay_with_caller_and_lead_to_its_requests(service: Service, calling: Calling) -> None:
    calling.transport.send_frame(b"one")
    calling.owner.wants = [post(service, "r", "echo")]
    assert calling.transport.send_frame(b"two")
    assert texts(calling.ended(1), "r") == b"words"
    assert (calling.owner.kept, calling.transport.frame_bytes) == ([b"one", b"two"], 3)


def test_hanging_up_ends_everything_at_once(service: Service, calling: Calling) -> None:
    calling.transport.send(post(service, "r", "endless"))
    calling.transport.send(post(service, "dialing", "echo"))
    calling.until(lambda: texts(calling.owner.items, "r"))
    heard = len(calling.owner.items)
    calling.transport.hang_up("enough")
    assert calling.transport.closed is not None
    assert service.cut_off.wait(BOUND_S)
    calling.transport.send(post(service, "late", "echo"))
    gevent.sleep(0)
    assert len(calling.owner.items) == heard
