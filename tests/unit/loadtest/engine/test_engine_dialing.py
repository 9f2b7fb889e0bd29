"""A connection that this machine prevents is no fault of the endpoint, on any transport; every other failure is."""

import errno
import os
import socket
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest

from loadtest.conversation.outcome import fault_of
from loadtest.conversation.record import build_turn
from loadtest.engine.connection import Connection
from loadtest.engine.engine import Engine
from loadtest.engine.local_limits import Exhausted
from loadtest.engine.transports import dialing
from loadtest.engine.webrtc import media_process
from loadtest.errors import EndpointUnreachable, InstrumentError
from loadtest.protocols.base import CallerOptions
from loadtest.protocols.failure import Failure
from loadtest.protocols.registry import make_caller
from telemetry.model.turns import Turn
from tests.unit.loadtest.conversation.test_conversation_record import CALL, OPTIONS
from tests.unit.loadtest.conversation.world import make_plan

V4 = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 9))
V6 = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 9, 0, 0))
URLS = {
    "openai-realtime": "ws://127.0.0.1:9/v1/realtime",
    "wyoming": "tcp://127.0.0.1:9",
    "llm": "http://127.0.0.1:9/v1",
    "http-cascade": "http://127.0.0.1:9/v1",
    "twilio": "ws://127.0.0.1:9/stream",
    "twilio with a webhook": "ws://127.0.0.1:9/stream",  # a request before the connection
}


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine(frame_ns=20_000_000, onset_preset="rms-10ms")
    yield engine
    engine.close()


def failing(*errors: OSError | None) -> Callable[..., None]:
    """Connects as these say, one after the other and the last for good; None: it succeeds."""
    left = list(errors)

    def connect(*_: object) -> None:
        error = left.pop(0) if len(left) > 1 else left[0]
        if error is not None:
            raise error

    return connect


def open_files() -> int:
    return psutil.Process().num_fds()


def turn_of(engine: Engine, protocol: str, url: str) -> Turn:
    name, _, webhook = protocol.partition(" with a ")
    settings = {webhook: "http://127.0.0.1:9/voice"} if webhook else {}
    options = CallerOptions("manual") if name in ("llm", "http-cascade") else CallerOptions(settings=settings)
    caller = make_caller(name, options)
    ((_, exchange),) = engine.call(make_plan(), caller, caller.upgrade(url, None))
    return build_turn(exchange, CALL, OPTIONS)


def transports_and_codes(*codes: int) -> pytest.MarkDecorator:
    """Parametrize over every transport with the first code, and every code on the first transport."""
    first, *others = URLS
    cases = [(first, code) for code in codes] + [(other, codes[0]) for other in others]
    return pytest.mark.parametrize(("protocol", "code"), cases)


@transports_and_codes(errno.EMFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS, errno.ENOMEM, errno.EAGAIN)
def test_a_call_that_this_machine_prevents_is_one_invalid_turn(
    monkeypatch: pytest.MonkeyPatch, engine: Engine, protocol: str, code: int
) -> None:
    monkeypatch.setattr(dialing, "_connect", failing(OSError(code, os.strerror(code))))
    turn = turn_of(engine, protocol, URLS[protocol])
    assert (turn.turn_index, turn.outcome, turn.outcome_observed) == (0, "invalid", "error")
    assert (turn.failure_kind, turn.failure_code) == ("generator", errno.errorcode[code])
    assert turn.invalid_reasons == (fault_of(Failure("generator", errno.errorcode[code])),)
    assert "; " in (turn.outcome_reason or ""), "the sentence says what to do"


@transports_and_codes(errno.ECONNREFUSED, errno.ECONNRESET, errno.EHOSTUNREACH, errno.ETIMEDOUT)
def test_call_prevented_by_endpoint_or_network_is_their_error(
    monkeypatch: pytest.MonkeyPatch, engine: Engine, protocol: str, code: int
) -> None:
    monkeypatch.setattr(dialing, "_connect", failing(OSError(code, os.strerror(code))))
    turn = turn_of(engine, protocol, URLS[protocol])
    assert (turn.outcome, turn.failure_kind, turn.failure_code) == ("error", "tcp", errno.errorcode[code])
    assert turn.invalid_reasons == ()


REFUSED, NO_PORT = ConnectionRefusedError(errno.ECONNREFUSED, "refused"), OSError(errno.EADDRNOTAVAIL, "no address")


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        ((REFUSED, NO_PORT), InstrumentError),  # localhost: nobody listens on ::1, and no port is left for 127.0.0.1
        ((NO_PORT, REFUSED), InstrumentError),
        ((REFUSED, REFUSED), EndpointUnreachable),
    ],
)
def test_address_prevented_by_this_machine_decides_among_several(
    monkeypatch: pytest.MonkeyPatch, engine: Engine, errors: tuple[OSError, ...], expected: type[Exception]
) -> None:
    monkeypatch.setattr(dialing.gevent.socket, "getaddrinfo", lambda *_: [V6, V4])
    monkeypatch.setattr("loadtest.engine.local_limits._has_source", lambda *_: True)
    monkeypatch.setattr(dialing, "_connect", failing(*errors))
    caller = make_caller("openai-realtime", CallerOptions())
    with pytest.raises(expected):
        engine.probe(caller, caller.upgrade("ws://localhost:9/", None), make_plan().limits)


def test_lookup_without_open_files_is_no_unknown_host(monkeypatch: pytest.MonkeyPatch, engine: Engine) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(dialing.gevent.socket, "getaddrinfo", fail)
    turn = turn_of(engine, "openai-realtime", "ws://some-host:9/")
    assert (turn.outcome, turn.invalid_reasons) == ("invalid", ("out of open files",))


def test_a_look_up_for_which_no_thread_starts_prevents_the_call(
    monkeypatch: pytest.MonkeyPatch, engine: Engine
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(dialing.gevent.socket, "getaddrinfo", fail)
    turn = turn_of(engine, "openai-realtime", "ws://some-host:9/")
    assert (turn.outcome, turn.failure_code, turn.invalid_reasons) == (
        "invalid",
        "EAGAIN",
        ("out of system resources",),
    )
    assert "ulimit -u" in (turn.outcome_reason or "")


def test_an_endpoint_that_cannot_be_waited_for_is_not_blamed(monkeypatch: pytest.MonkeyPatch, engine: Engine) -> None:
    def fail(address: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(dialing, "_listener", fail)
    turn = turn_of(engine, "livekit-console", "tcp-listen://127.0.0.1:9")
    assert (turn.outcome, turn.invalid_reasons) == ("invalid", ("out of open files",))


@pytest.mark.parametrize("code", [errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES])
def test_address_that_cannot_be_listened_on_is_no_endpoint_fault(
    monkeypatch: pytest.MonkeyPatch, engine: Engine, code: int
) -> None:
    def fail(address: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(dialing, "_listener", fail)
    turn = turn_of(engine, "livekit-console", "tcp-listen://127.0.0.1:9")
    assert (turn.outcome, turn.failure_code, turn.invalid_reasons) == ("invalid", "cannot_listen", ("cannot listen",))
    assert os.strerror(code) in (turn.outcome_reason or "")


@pytest.mark.parametrize("code", [errno.EMFILE, errno.EAGAIN, errno.ENOMEM])
def test_media_process_that_cannot_start_prevents_call(
    monkeypatch: pytest.MonkeyPatch, engine: Engine, code: int
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(media_process.subprocess, "Popen", fail)
    files = open_files()
    turn = turn_of(engine, "smallwebrtc", "http://127.0.0.1:9/api/offer")
    assert (turn.turn_index, turn.outcome, turn.failure_code) == (0, "invalid", errno.errorcode[code])
    assert open_files() == files


def test_failed_connection_setup_closes_its_descriptor(monkeypatch: pytest.MonkeyPatch, engine: Engine) -> None:
    def fail(*_: object) -> Any:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(dialing.TlsClient, "begin", fail)
    with socket.create_server(("127.0.0.1", 0)) as server:
        host, port = server.getsockname()
        files = open_files()
        turn = turn_of(engine, "openai-realtime", f"wss://{host}:{port}/")
        assert open_files() == files
    assert (turn.outcome, turn.invalid_reasons) == ("invalid", ("out of memory",))


def test_buffers_that_run_out_during_a_call_are_this_machines(engine: Engine) -> None:
    class Owner:
        def __init__(self) -> None:
            self.ended: list[tuple[str, Failure]] = []

        def disconnected(self, reason: str, failure: Failure) -> None:
            self.ended.append((reason, failure))

    ours, theirs = socket.socketpair()
    with theirs:
        owner = Owner()
        opened = dialing.OpenedSocket(ours.detach(), socket.AF_UNIX, "h:1", None)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Connection, "_bound_unsent", lambda self: None)
            patched.setattr("socket.IPPROTO_TCP", socket.SOL_SOCKET)
            patched.setattr("socket.TCP_NODELAY", socket.SO_KEEPALIVE)
            connection = Connection(engine._transport_parts.connections, opened, owner)  # type: ignore[arg-type]
        connection._lost_by(OSError(errno.ENOBUFS, "No buffer space available"))
        connection.close()
    ((reason, failure),) = owner.ended
    assert failure == Failure("generator", "ENOBUFS")
    assert "no buffers left for sockets" in reason


def test_probe_prevented_by_this_machine_blames_no_target(monkeypatch: pytest.MonkeyPatch, engine: Engine) -> None:
    monkeypatch.setattr(dialing, "_connect", failing(OSError(errno.EMFILE, "Too many open files")))
    caller = make_caller("openai-realtime", CallerOptions())
    with pytest.raises(InstrumentError, match="raise the limit"):
        engine.probe(caller, caller.upgrade(URLS["openai-realtime"], None), make_plan().limits)
    assert issubclass(Exhausted, InstrumentError)
