"""The client's side of one HTTP/1.1 connection: requests one after the other, responses as they arrive; no socket.

The `h11` library (sans-I/O) reads and writes the messages. Nothing is pipelined: a request may be sent when the
response before it is complete.
"""

import base64
from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote, urlsplit

import h11

from loadtest.protocols.failure import Failure
from loadtest.protocols.http_items import HttpData, HttpEnd, HttpFailed, HttpHead, HttpItem, HttpRequest

# What a response's head may take; beyond it, the peer violates the protocol.
MAX_HEAD_BYTES: Final = 64 * 1024
Headers = list[tuple[str, str]]


class Http1Client:
    """One connection. It never raises because of what the peer sends."""

    def __init__(self) -> None:
        self._wire = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)
        self.running: HttpRequest | None = None  # its response is not complete
        self.answered = False  # whether anything of the running response has arrived
        self.is_open = True  # whether it can carry another request once none is running

    @property
    def is_free(self) -> bool:
        """Whether no request is running."""
        return self.running is None

    def send(self, request: HttpRequest) -> bytes:
        """Return the bytes of a request. Raises ValueError while another one is running or the connection is used up.

        Raises h11.LocalProtocolError for a method, target or header that HTTP cannot carry.
        """
        if self.running is not None or not self.is_open:
            raise ValueError("the connection cannot carry this request now")
        parts = urlsplit(request.url)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        head = h11.Request(method=request.method, target=target, headers=_headers(request))
        self.running, self.answered = request, False
        sent = [self._wire.send(head)]
        if request.body:
            sent.append(self._wire.send(h11.Data(data=request.body)))
        sent.append(self._wire.send(h11.EndOfMessage()))
        return b"".join(part for part in sent if part)

    def receive(self, data: bytes) -> list[HttpItem]:
        """Return what `data` completes, in order. Data after the end is ignored."""
        if not data or not self.is_open:
            return []
        if self.running is None:
            self.is_open = False  # an answer without a request
            return []
        self.answered = True
        items = self._receive(data)
        if self.is_free and self._wire.trailing_data[0]:
            self.is_open = False
        return items

    def receive_eof(self) -> list[HttpItem]:
        """Return what the end of the stream completes: a body without a stated length."""
        items = self._receive(b"") if self.is_open else []
        self.is_open = False
        return items

    def _receive(self, data: bytes) -> list[HttpItem]:
        items: list[HttpItem] = []
        try:
            self._wire.receive_data(data)
            while self._take(items):
                pass
        except h11.RemoteProtocolError as error:
            self.is_open = False
            if self.running is not None and data:
                sentence = f"the endpoint violated HTTP: {error}"
                items.append(HttpFailed(self.running.request_id, sentence, Failure("protocol_violation", "bad_http")))
                self.running = None
        return items

    def _take(self, items: list[HttpItem]) -> bool:
        """Convert the library's next event; return whether there may be more."""
        event = self._wire.next_event()
        if event is h11.NEED_DATA or event is h11.PAUSED or isinstance(event, h11.ConnectionClosed):
            if self.running is None:
                self.is_open = self.is_open and event is h11.NEED_DATA
            return False
        if self.running is None:
            return True
        name = self.running.request_id
        if isinstance(event, h11.Response):
            items.append(HttpHead(name, event.status_code, _texts(event.headers)))
        elif isinstance(event, h11.Data):
            items.append(HttpData(name, bytes(event.data)))
        elif isinstance(event, h11.EndOfMessage):
            items.append(HttpEnd(name))
            self.running = None
            if self._wire.our_state is h11.DONE and self._wire.their_state is h11.DONE:
                self._wire.start_next_cycle()
            else:
                self.is_open = False
                return False
        return True


def _headers(request: HttpRequest) -> Headers:
    """Return the request's headers, with those that every request has."""
    parts = urlsplit(request.url)
    given = {name.lower() for name, _ in request.headers}
    headers: Headers = list(request.headers)
    if "host" not in given:
        headers.insert(0, ("Host", parts.netloc.rpartition("@")[2]))
    if parts.username is not None and "authorization" not in given:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers.append(("Authorization", f"Basic {base64.b64encode(pair.encode()).decode()}"))
    if "content-length" not in given and (request.body or request.method not in ("GET", "HEAD")):
        headers.append(("Content-Length", str(len(request.body))))
    return headers


def _texts(headers: Iterable[tuple[bytes, bytes]]) -> tuple[tuple[str, str], ...]:
    return tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in headers)
