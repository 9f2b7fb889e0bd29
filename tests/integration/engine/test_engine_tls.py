"""The same callers over wss: verified by default, stamped by the kernel all the same."""

import contextlib
import socket
import ssl
import threading
import urllib.parse
from collections.abc import Callable, Generator, Iterator
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
from tests.integration.calling import Callers, assistant
from tests.integration.certificates import Authority, authority
from tests.integration.engine.tls_door import served, tls_door


@dataclass(frozen=True)
class House:
    """An authority, a plain assistant and doors in front of it."""

    ca: Authority
    plain: str
    open_door: Callable[[ssl.SSLContext], contextlib.AbstractContextManager[int]]

    def wss(self, port: int, host: str = "localhost") -> str:
        return f"wss://{host}:{port}{urllib.parse.urlsplit(self.plain).path}"


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("tls")
    with assistant(folder) as url:
        port = urllib.parse.urlsplit(url).port
        assert port is not None
        yield House(authority(folder / "ca"), url, lambda context: tls_door(port, context))


def refusal(url: str, tls: TlsClient) -> str | None:
    """What a caller says who cannot get in; None when the session opens."""
    engine = Engine(frame_ns=20_000_000, onset_preset="rms-10ms", tls=tls)
    protocol = registry.make_caller("openai-realtime", CallerOptions())
    try:
        engine.probe(protocol, protocol.upgrade(url, None), Limits())
    except EndpointUnreachable as error:
        return str(error)
    finally:
        engine.close()
    return None


def test_a_call_over_tls_with_an_own_authority(house: House) -> None:
    with house.open_door(served(house.ca.sign("localhost"))) as port:
        for (turn,) in Callers(house.wss(port), 2, tls=tls_client(str(house.ca.cert))).call():
            assert turn.outcome == "ok", turn.outcome_reason
            assert turn.receive_stamp == "kernel"


def test_an_endpoint_that_cannot_be_verified_is_refused(house: House) -> None:
    with house.open_door(served(house.ca.sign("localhost"))) as port:
        ((turn,),) = Callers(house.wss(port), 1).call()
    assert turn.outcome == "error"
    assert "its certificate is not signed by a trusted CA" in (turn.outcome_reason or "")


def test_each_thing_wrong_with_an_endpoints_certificate_has_its_sentence(house: House) -> None:
    trusted = tls_client(str(house.ca.cert))
    with house.open_door(served(house.ca.sign("localhost", days=-1))) as port:
        assert refusal(house.wss(port), trusted) == ("no secure connection to localhost: its certificate has expired")
    with house.open_door(served(house.ca.sign("elsewhere.test"))) as port:
        output = refusal(house.wss(port), trusted)
    assert output is not None
    assert output.endswith("its certificate is not valid for localhost; give a name that it is valid for with --sni")


def test_a_name_given_with_sni_chooses_the_certificate_and_is_verified(house: House) -> None:
    one, other = served(house.ca.sign("one.test")), served(house.ca.sign("other.test"))

    def choose(connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
        if name == "other.test":
            connection.context = other

    one.sni_callback = choose
    with house.open_door(one) as port:
        for name in ("one.test", "other.test"):
            assert refusal(house.wss(port), tls_client(str(house.ca.cert), server_name=name)) is None
        wrong = refusal(house.wss(port), tls_client(str(house.ca.cert), server_name="third.test"))
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
def test_an_endpoint_that_asks_for_a_client_certificate_gets_it(house: House, version: ssl.TLSVersion) -> None:
    door = served(house.ca.sign("localhost"))
    door.maximum_version = version
    door.verify_mode = ssl.CERT_REQUIRED
    door.load_verify_locations(house.ca.cert)
    ours = house.ca.sign("caller", passphrase="open sesame")
    foreign = authority(house.ca.folder / "foreign", "foreign").sign("stranger")
    ca = str(house.ca.cert)
    with house.open_door(door) as port:
        url = house.wss(port)
        shown = tls_client(ca, client_cert=str(ours.cert), client_key=str(ours.key), passphrase="open sesame")
        assert refusal(url, shown) is None
    with _doorkeeper(door) as port:
        url = house.wss(port)
        without = refusal(url, tls_client(ca)) or ""
        refused = refusal(url, tls_client(ca, client_cert=str(foreign.cert), client_key=str(foreign.key))) or ""
    assert "the endpoint requires a client certificate; give one with --client-cert" in without
    assert "the endpoint rejected the client certificate (unknown ca)" in refused


def test_plain_text_where_tls_is_expected_and_the_other_way_round(house: House) -> None:
    spoken = refusal(house.plain.replace("ws://", "wss://"), tls_client())
    assert spoken is not None
    assert "does not speak TLS" in spoken
    assert spoken.endswith("use ws://")
    with house.open_door(served(house.ca.sign("localhost"))) as port:
        output = refusal(house.wss(port).replace("wss://", "ws://"), tls_client())
    assert output is not None
    assert output.endswith("use wss://")


def test_files_and_names_of_ours_that_cannot_be_used_are_all_reported_at_once(tmp_path: Path) -> None:
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


def test_a_passphrase_from_a_file_with_a_line_end_decrypts_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ca = authority(tmp_path)
    locked = ca.sign("locked", passphrase="open sesame ")
    settings = SwarmSettings(client_cert=str(locked.cert), client_key=str(locked.key))
    monkeypatch.setenv(PASSPHRASE_VARIABLE, "open sesame \r\n")
    assert settings.tls is not None
    assert "sesame" not in settings.redactor.text("it is 'open sesame '")
    monkeypatch.setenv(PASSPHRASE_VARIABLE, "open sesame")
    with pytest.raises(UsageError, match="does not decrypt the key"):
        assert settings.tls
