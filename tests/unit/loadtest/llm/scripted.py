"""A response written as bytes with their times, read as the client reads it."""

from loadtest.llm.answers import LlmAnswer, LlmRequest, Message
from loadtest.llm.bodies import Key, LlmTarget, Wire, http_request
from loadtest.llm.exchange import ModelExchange, Times
from loadtest.protocols.failure import Failure
from loadtest.protocols.http_items import HttpFailed, HttpItem
from loadtest.protocols.transports.http1 import Http1Client

MS = 1_000_000
SECRET = "sk-very-secret"
REQUEST = LlmRequest(messages=(Message("user", "Hello"),), system="Be brief.", max_tokens=20)
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


def target(wire: Wire = "openai", *, with_key: bool = True) -> LlmTarget:
    return LlmTarget("http://127.0.0.1:8000/v1", "small", wire=wire, key=Key(SECRET) if with_key else None)


def played(
    *reads: tuple[int, bytes],
    of: LlmTarget | None = None,
    request: LlmRequest = REQUEST,
    ends_at: int | None = None,
    seen_before_ms: int = 1,
) -> LlmAnswer:
    """Read what arrived at so many ms after the request, which was made at 0; the connection ends after it.

    The socket was last seen empty `seen_before_ms` before each read.
    """
    of = of or target()
    sent = http_request(of, request)
    http, exchange = Http1Client(), ModelExchange(of, sent.url)
    http.send(sent)

    def take(ms: int, items: list[HttpItem]) -> None:
        exchange.receive((ms - seen_before_ms) * MS, ms * MS, items)

    for ms, data in reads:
        take(ms, http.receive(data))
    end = ends_at or (reads[-1][0] if reads else 0)
    if items := http.receive_eof():
        take(end, items)
    if http.running is not None:
        take(end, [HttpFailed("ask", "the server closed the connection", Failure("tcp", "connection"))])
    return exchange.answer(Times(-5 * MS, asked_ns=0))


def events(*data: str) -> bytes:
    return "".join(f"data: {one}\n\n" for one in data).encode()
