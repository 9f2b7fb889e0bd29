"""One HTTP/1.1 connection: what goes out, and what ends it."""

import base64

import h11
import pytest

from loadtest.protocols.failure import Failure
from loadtest.protocols.http_items import HttpData, HttpEnd, HttpFailed, HttpHead, HttpRequest
from loadtest.protocols.transports.http1 import MAX_HEAD_BYTES, Http1Client

GET = HttpRequest("r1", "GET", "http://host:8080/path?q=1")


def read(data: bytes) -> tuple[h11.Request, bytes]:
    """Return a request as a server reads it."""
    server = h11.Connection(h11.SERVER)
    server.receive_data(data)
    head = server.next_event()
    assert isinstance(head, h11.Request)
    body = b""
    while isinstance(event := server.next_event(), h11.Data):
        body += bytes(event.data)
    assert isinstance(event, h11.EndOfMessage)
    return head, body


def test_a_request() -> None:
    sent = Http1Client().send(HttpRequest("r", "POST", "http://host:8080/a?b=c", (("X-A", "1"),), b"body"))
    head, body = read(sent)
    assert (head.method, head.target, body) == (b"POST", b"/a?b=c", b"body")
    assert dict(head.headers) == {b"host": b"host:8080", b"x-a": b"1", b"content-length": b"4"}


def test_credentials_of_address_go_into_header_not_host() -> None:
    head, _ = read(Http1Client().send(HttpRequest("r", "GET", "https://us%20er:pass@host/")))
    fields = dict(head.headers)
    assert fields[b"host"] == b"host"
    assert base64.b64decode(fields[b"authorization"].removeprefix(b"Basic ")) == b"us er:pass"


def test_only_one_request_runs() -> None:
    client = Http1Client()
    client.send(GET)
    with pytest.raises(ValueError, match="cannot carry"):
        client.send(GET)


@pytest.mark.parametrize("header", [("a b", "x"), ("a", "x\r\nb: c")])
def test_a_header_that_cannot_be_sent(header: tuple[str, str]) -> None:
    with pytest.raises(h11.LocalProtocolError):
        Http1Client().send(HttpRequest("r", "GET", "http://h/", (header,)))


def test_a_body_without_a_length_ends_with_the_connection() -> None:
    client = Http1Client()
    client.send(GET)
    assert [type(item) for item in client.receive(b"HTTP/1.1 200 OK\r\n\r\nsome")] == [HttpHead, HttpData]
    assert client.receive_eof() == [HttpEnd("r1")]
    assert not client.is_open


def test_a_response_that_is_cut_off_is_not_completed() -> None:
    client = Http1Client()
    client.send(GET)
    client.receive(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nsome")
    assert client.receive_eof() == []
    assert client.running is GET


@pytest.mark.parametrize("data", [b"not HTTP\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"])
def test_data_that_is_not_http_is_violation(data: bytes) -> None:
    client = Http1Client()
    client.send(GET)
    (failed,) = client.receive(data)
    assert isinstance(failed, HttpFailed)
    assert failed.failure == Failure("protocol_violation", "bad_http")
    assert (client.is_open, client.receive(b"HTTP/1.1 200 OK\r\n\r\n")) == (False, [])


def test_an_endless_head_is_a_violation() -> None:
    client = Http1Client()
    client.send(GET)
    items = [item for _ in range(20) for item in client.receive(b"x" * (MAX_HEAD_BYTES // 10))]
    assert [type(item) for item in items] == [HttpFailed]


def test_interim_responses_are_passed_over() -> None:
    client = Http1Client()
    client.send(GET)
    data = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n"
    assert client.receive(data) == [HttpHead("r1", 204), HttpEnd("r1")]
    assert client.is_open


@pytest.mark.parametrize("later", [b"HTTP/1.1 200 OK\r\n\r\n", b"noise"])
def test_unrequested_data_ends_the_connection(later: bytes) -> None:
    client = Http1Client()
    client.send(GET)
    client.receive(b"HTTP/1.1 204 No Content\r\n\r\n")
    assert client.receive(later) == []
    assert not client.is_open
