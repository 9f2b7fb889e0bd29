"""HTTP and TCP transports over TLS: verified as a WebSocket is, and each refusal has its sentence and its cause."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from loadtest.conversation.plan import Limits
from loadtest.engine.engine import Engine
from loadtest.engine.tls import TlsClient, tls_client
from loadtest.errors import EndpointUnreachable
from loadtest.protocols import registry
from loadtest.protocols.base import CallerOptions
from telemetry.model.turns import Turn
from tests.integration.calling import Callers
from tests.integration.certificates import Authority, authority
from tests.integration.engine.tls_door import served, tls_door
from tests.integration.peers import processes
from tests.nightly import nightly_after

HERE = Path(__file__).parents[1]


@dataclass(frozen=True)
class Server:
    """A server without TLS, the schemes of its addresses, and the protocol that it speaks."""

    protocol: str
    port: int
    plain: str
    secure: str
    path: str

    def url(self, scheme: str, port: int, host: str = "localhost") -> str:
        return f"{scheme}://{host}:{port}{self.path}"


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module", params=nightly_after(1, ["llm", "wyoming"]))
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    port, log = processes.free_port(), tmp_path_factory.mktemp("server") / "server.log"
    if request.param == "llm":
        command = [sys.executable, str(HERE / "servers" / "stage_server.py"), str(port)]
        found = Server("llm", port, "http", "https", "/v1")
    else:
        command = [processes.python_of("wyoming"), str(HERE / "peers" / "wyoming_server.py"), str(port)]
        found = Server("wyoming", port, "tcp", "tls", "")
    with processes.running(command, port, log):
        yield found


def refusal(server: Server, url: str, tls: TlsClient) -> str | None:
    """What a caller says who cannot get in; None when the session opens."""
    engine = Engine(frame_ns=20_000_000, onset_preset="rms-10ms", tls=tls)
    protocol = registry.make_caller(server.protocol, CallerOptions("manual"))
    try:
        engine.probe(protocol, protocol.upgrade(url, None), Limits(ready_ns=3_000_000_000))
    except EndpointUnreachable as error:
        return str(error)
    finally:
        engine.close()
    return None


def one_turn(server: Server, url: str, tls: TlsClient) -> Turn:
    ((turn,),) = Callers(url, 1, protocol=server.protocol, manual_turns=True, tls=tls).call()
    return turn


def test_a_call_over_tls_with_an_own_authority(server: Server, ca: Authority) -> None:
    with tls_door(server.port, served(ca.sign("localhost"))) as port:
        turn = one_turn(server, server.url(server.secure, port), tls_client(str(ca.cert)))
    assert turn.outcome == "ok", turn.outcome_reason
    assert turn.receive_stamp == "kernel"


def test_a_certificate_that_nobody_trusts_is_refused_with_its_cause(server: Server, ca: Authority) -> None:
    with tls_door(server.port, served(ca.sign("localhost"))) as port:
        turn = one_turn(server, server.url(server.secure, port), tls_client())
    assert (turn.outcome, turn.failure_kind, turn.connect_ns) == ("error", "tls", None)
    assert "its certificate is not signed by a trusted CA" in (turn.outcome_reason or "")


def test_what_is_wrong_with_a_certificate_is_explained(server: Server, ca: Authority) -> None:
    trusted = tls_client(str(ca.cert))
    with tls_door(server.port, served(ca.sign("localhost", days=-1))) as port:
        assert "its certificate has expired" in (refusal(server, server.url(server.secure, port), trusted) or "")
    with tls_door(server.port, served(ca.sign("elsewhere.test"))) as port:
        url = server.url(server.secure, port)
        assert "its certificate is not valid for localhost" in (refusal(server, url, trusted) or "")
        assert refusal(server, url, tls_client(str(ca.cert), server_name="elsewhere.test")) is None


def test_where_one_side_alone_speaks_tls_the_other_scheme_is_named(server: Server, ca: Authority) -> None:
    trusted = tls_client(str(ca.cert))
    with tls_door(server.port, served(ca.sign("localhost"))) as port:
        plain = refusal(server, server.url(server.plain, port), trusted)
    assert plain is not None
    assert f"use {server.secure}://" in plain
    secure = refusal(server, server.url(server.secure, server.port, "127.0.0.1"), trusted)
    assert secure is not None
    assert f"use {server.plain}://" in secure
