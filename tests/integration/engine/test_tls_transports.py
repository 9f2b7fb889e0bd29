"""Callers over TLS on each kind of transport: verified by default, stamped by the kernel all the same, and each refusal
with its sentence and its cause."""

import contextlib
import socket
import ssl
import sys
import threading
import urllib.parse
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from loadtest.conversation.plan import Limits
from loadtest.engine.engine import Engine
from loadtest.engine.tls import PASSPHRASE_VARIABLE, TlsClient, tls_client
from loadtest.errors import EndpointUnreachable, UsageError
from loadtest.protocols import registry
from loadtest.protocols.base import CallerOptions
from loadtest.scenario.settings import SwarmSettings
from telemetry.model.turns import Turn
from tests.integration.assistant.assistant_process import hosted
from tests.integration.calling import Callers
from tests.integration.certificates import Authority, authority
from tests.integration.engine.tls_door import served, tls_door
from tests.integration.peers import processes
from tests.nightly import nightly_after

HERE = Path(__file__).parents[1]
WEBSOCKET, HTTP, TCP = "openai-realtime", "llm", "wyoming"


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


@contextlib.contextmanager
def serving(protocol: str, folder: Path) -> Generator[Server]:
    if protocol == WEBSOCKET:
        with hosted() as url:
            known = urllib.parse.urlsplit(url)
            yield Server(protocol, known.port or 0, "ws", "wss", known.path)
        return
    port = processes.free_port()
    if protocol == HTTP:
        command = [sys.executable, str(HERE / "servers" / "stage_server.py"), str(port)]
        running = Server(protocol, port, "http", "https", "/v1")
    else:
        command = [processes.python_of("wyoming"), str(HERE / "peers" / "wyoming_server.py"), str(port)]
        running = Server(protocol, port, "tcp", "tls", "")
    with processes.running(command, port, folder / "server.log"):
        yield running


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module", params=nightly_after(2, [WEBSOCKET, HTTP, TCP]))
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(request.param, tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture(scope="module")
def socket_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(WEBSOCKET, tmp_path_factory.getbasetemp()) as running:
        yield running


def refusal(server: Server, url: str, tls: TlsClient) -> str | None:
    """Return the error of a caller that cannot connect; None when the session opens."""
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


def test_untrusted_certificate_is_refused_with_its_cause(server: Server, ca: Authority) -> None:
    with tls_door(server.port, served(ca.sign("localhost"))) as port:
        turn = one_turn(server, server.url(server.secure, port), tls_client())
    assert (turn.outcome, turn.failure_kind, turn.connect_ns) == ("error", "tls", None)
    assert "its certificate is not signed by a trusted CA" in (turn.outcome_reason or "")


def test_certificate_faults_are_explained(server: Server, ca: Authority) -> None:
    trusted = tls_client(str(ca.cert))
    with tls_door(server.port, served(ca.sign("localhost", days=-1))) as port:
        assert "its certificate has expired" in (refusal(server, server.url(server.secure, port), trusted) or "")
    with tls_door(server.port, served(ca.sign("elsewhere.test"))) as port:
        url = server.url(server.secure, port)
        wrong = refusal(server, url, trusted) or ""
        assert "its certificate is not valid for localhost; give a name that it is valid for with --sni" in wrong
        assert refusal(server, url, tls_client(str(ca.cert), server_name="elsewhere.test")) is None


def test_other_scheme_is_named_if_one_side_alone_speaks_tls(server: Server, ca: Authority) -> None:
    trusted = tls_client(str(ca.cert))
    with tls_door(server.port, served(ca.sign("localhost"))) as port:
        plain = refusal(server, server.url(server.plain, port), trusted)
    assert plain is not None
    assert f"use {server.secure}://" in plain
    secure = refusal(server, server.url(server.secure, server.port, "127.0.0.1"), trusted)
    assert secure is not None
    assert f"use {server.plain}://" in secure


def test_sni_name_chooses_the_certificate_and_is_verified(socket_server: Server, ca: Authority) -> None:
    one, other = served(ca.sign("one.test")), served(ca.sign("other.test"))

    def choose(connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
        if name == "other.test":
            connection.context = other

    one.sni_callback = choose
    with tls_door(socket_server.port, one) as port:
        url = socket_server.url("wss", port)
        for name in ("one.test", "other.test"):
            assert refusal(socket_server, url, tls_client(str(ca.cert), server_name=name)) is None
        wrong = refusal(socket_server, url, tls_client(str(ca.cert), server_name="third.test"))
    assert wrong is not None
    assert "its certificate is not valid for third.test" in wrong


@contextlib.contextmanager
def _doorkeeper(context: ssl.SSLContext) -> Generator[int]:
    """A server that goes no further than the handshake, with its alert sent before it hangs up; gives its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    peer, _ = listener.accept()
                except OSError:
                    return
                with peer, contextlib.suppress(OSError), context.wrap_socket(peer, server_side=True) as secured:
                    secured.recv(1)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(60)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
def test_an_endpoint_that_asks_for_a_client_certificate_gets_it(
    socket_server: Server, ca: Authority, version: ssl.TLSVersion
) -> None:
    door = served(ca.sign("localhost"))
    door.maximum_version = version
    door.verify_mode = ssl.CERT_REQUIRED
    door.load_verify_locations(ca.cert)
    ours = ca.sign("caller", passphrase="open sesame")
    foreign = authority(ca.folder / "foreign", "foreign").sign("stranger")
    trusted = str(ca.cert)
    with tls_door(socket_server.port, door) as port:
        url = socket_server.url("wss", port)
        shown = tls_client(trusted, client_cert=str(ours.cert), client_key=str(ours.key), passphrase="open sesame")
        assert refusal(socket_server, url, shown) is None
    with _doorkeeper(door) as port:
        url = socket_server.url("wss", port)
        without = refusal(socket_server, url, tls_client(trusted)) or ""
        refused = (
            refusal(socket_server, url, tls_client(trusted, client_cert=str(foreign.cert), client_key=str(foreign.key)))
            or ""
        )
    assert "the endpoint requires a client certificate; give one with --client-cert" in without
    assert "the endpoint rejected the client certificate (unknown ca)" in refused


def test_unusable_tls_files_and_names_are_all_reported_at_once(tmp_path: Path) -> None:
    (tmp_path / "text.pem").write_text("no certificate\n")
    with pytest.raises(UsageError) as caught:
        tls_client(str(tmp_path / "no.pem"), client_cert=str(tmp_path / "text.pem"), server_name=".")
    missing, text, name = str(caught.value).splitlines()
    assert missing.startswith(f"--ca-file {tmp_path}/no.pem: no such file")
    assert text.startswith(f"--client-cert {tmp_path}/text.pem: it is not valid PEM; give")
    assert name == "--sni '.' is not a host name; give one such as voice.example.com"
    with pytest.raises(UsageError, match="requires --client-cert with the certificate"):
        tls_client(client_key="some.key")


def test_a_key_that_does_not_open_says_why_and_not_with_what(tmp_path: Path) -> None:
    ca = authority(tmp_path)
    locked, other = ca.sign("locked", passphrase="open sesame"), ca.sign("other")
    cert, key = str(locked.cert), str(locked.key)
    with pytest.raises(UsageError, match="the key is encrypted; set VOICEPROBE_CLIENT_KEY"):
        tls_client(client_cert=cert, client_key=key)
    with pytest.raises(UsageError, match="does not decrypt the key") as caught:
        tls_client(client_cert=cert, client_key=key, passphrase="shut sesame")
    assert "sesame" not in str(caught.value)
    with pytest.raises(UsageError, match="the key does not belong to the certificate"):
        tls_client(client_cert=str(other.cert), client_key=key, passphrase="open sesame")


def test_passphrase_from_file_with_line_end_decrypts_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ca = authority(tmp_path)
    locked = ca.sign("locked", passphrase="open sesame ")
    settings = SwarmSettings(client_cert=str(locked.cert), client_key=str(locked.key))
    monkeypatch.setenv(PASSPHRASE_VARIABLE, "open sesame \r\n")
    assert settings.tls is not None
    assert "sesame" not in settings.redactor.text("it is 'open sesame '")
    monkeypatch.setenv(PASSPHRASE_VARIABLE, "open sesame")
    with pytest.raises(UsageError, match="does not decrypt the key"):
        assert settings.tls
