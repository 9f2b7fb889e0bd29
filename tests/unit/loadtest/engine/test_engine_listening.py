"""Waiting for an endpoint that connects to the caller: real sockets of this machine, nothing else."""

import socket
from collections.abc import Iterator
from typing import Any

import gevent
import pytest

from loadtest.conversation.plan import CallPlan, Limits
from loadtest.engine.engine import Engine
from loadtest.engine.transports.base import ConnectionFailed
from loadtest.engine.transports.dialing import await_dial_in
from loadtest.errors import EndpointUnreachable, InstrumentError
from loadtest.protocols.address import Address
from loadtest.protocols.base import CallerOptions
from loadtest.protocols.failure import Failure
from loadtest.protocols.registry import make_caller
from tests.unit.loadtest.conversation.world import make_plan

SECOND_NS = 1_000_000_000


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine(frame_ns=20_000_000, onset_preset="rms-10ms")
    yield engine
    engine.close()


@pytest.fixture
def address() -> Address:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return Address("127.0.0.1", int(probe.getsockname()[1]), tls=False)


def dialed(address: Address) -> socket.socket:
    """A connection, as soon as somebody listens."""
    while True:
        try:
            return gevent.socket.create_connection((address.host, address.port), timeout=120.0)
        except ConnectionRefusedError:
            gevent.sleep(0.001)


def url(address: Address) -> str:
    return f"tcp-listen://{address.host}:{address.port}"


def probed(engine: Engine, address: Address, **limits: int) -> str:
    """Why no session came about."""
    caller = make_caller("livekit-console", CallerOptions(settings={"wait_s": 10}))
    with pytest.raises(EndpointUnreachable) as failed:
        engine.probe(caller, caller.upgrade(url(address), None), Limits(**limits))
    return str(failed.value)


def test_no_connection_within_wait_is_unreachable(engine: Engine, address: Address) -> None:
    caller = make_caller("livekit-console", CallerOptions(settings={"wait_s": 0.01}))
    with pytest.raises(EndpointUnreachable, match=r"^nothing connected to 127\.0\.0\.1:\d+ within 0\.01 s: start"):
        engine.probe(caller, caller.upgrade(url(address), None), Limits())


@pytest.mark.parametrize(("served_before", "outcome"), [(0, "error"), (1, "cut")])
def test_no_connection_for_further_call_cuts_it(
    engine: Engine, address: Address, served_before: int, outcome: str
) -> None:
    """An endpoint that connects to its caller takes one call. When that is over, no other one was promised."""
    engine.health.calls_connected = served_before
    caller = make_caller("livekit-console", CallerOptions(settings={"wait_s": 0.01}))
    request = caller.upgrade(url(address), None)
    ((_, exchange),) = engine.call(make_plan(), caller, request)
    assert exchange.outcome == outcome
    expected = {
        "error": f"nothing connected to 127.0.0.1:{address.port} within 0.01 s: start the endpoint after the caller",
        "cut": "cut by the wait of 0.01 s for another endpoint before the caller had spoken",
    }
    assert (exchange.reason or "").startswith(expected[outcome])


def test_the_engines_limit_counts_where_the_protocol_has_none(engine: Engine, address: Address) -> None:
    parts: Any = type("Parts", (), {})
    with pytest.raises(ConnectionFailed, match=r"within 0\.01 s") as failed:
        await_dial_in(parts, address, parts, 0.01)
    assert failed.value.failure == Failure("timeout", "connect")


def test_only_one_caller_can_wait_on_an_address(engine: Engine, address: Address) -> None:
    with socket.socket() as other:
        other.bind((address.host, address.port))
        other.listen()
        caller = make_caller("livekit-console", CallerOptions(settings={"wait_s": 10}))
        with pytest.raises(InstrumentError) as failed:  # no endpoint has had a part in it
            engine.probe(caller, caller.upgrade(url(address), None), Limits())
        sentence = str(failed.value)
    assert sentence.startswith(f"cannot listen on {address.host}:{address.port}: Address already in use")
    assert sentence.endswith("one caller at a time can wait there")


def test_the_address_is_free_again_when_one_has_connected(engine: Engine, address: Address) -> None:
    """A second one is refused: it would wait for an answer for ever. The next call waits on the same address."""
    for _ in range(2):
        first = gevent.spawn(dialed, address)
        failing = gevent.spawn(probed, engine, address, ready_ns=SECOND_NS // 20)
        connected = first.get(timeout=120.0)
        with pytest.raises(ConnectionRefusedError):
            gevent.socket.create_connection((address.host, address.port), timeout=120.0)
        where = f"{address.host}:{address.port}"
        sentence = failing.get(timeout=120.0)
        assert sentence == f"the endpoint connected to {where} but did not open a session within 0.05 s"
        connected.close()


def test_one_that_connects_and_leaves(engine: Engine, address: Address) -> None:
    leaving = gevent.spawn(lambda: dialed(address).close())
    assert probed(engine, address).startswith("the endpoint closed the connection unexpectedly before it sent anything")
    leaving.get(timeout=120.0)


def test_one_that_speaks_something_else(engine: Engine, address: Address) -> None:
    def speak() -> socket.socket:
        connection = dialed(address)
        connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
        return connection

    speaking = gevent.spawn(speak)
    sentence = probed(engine, address)
    assert "violated the protocol: a message begins with b'GET ' in the place of its length" in sentence
    speaking.get(timeout=120.0).close()


def test_caller_stopped_while_waiting_releases_address(engine: Engine, address: Address) -> None:
    caller = make_caller("livekit-console", CallerOptions())

    def call() -> None:
        for _ in engine.call(CallPlan("1", (), (b"",), Limits()), caller, caller.upgrade(url(address), None)):
            pass

    waiting = gevent.spawn(call)
    gevent.idle()
    assert engine.calls_in_flight == 1
    waiting.kill(timeout=120.0)
    assert engine.calls_in_flight == 0
    with socket.socket() as free:
        free.bind((address.host, address.port))
