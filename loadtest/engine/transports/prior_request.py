"""Makes the one request over HTTP that some endpoints want before a connection, and waits for its whole answer."""

from collections.abc import Sequence
from typing import Final

import gevent
import gevent.event

from loadtest.engine.transports.base import ConnectionFailed, TransportCallbacks, TransportItem, TransportParts
from loadtest.engine.transports.http import HttpTransport
from loadtest.protocols.address import parse_address
from loadtest.protocols.failure import Failure
from loadtest.protocols.http_items import HttpAnswer, HttpData, HttpFailed, HttpHead, HttpRequest

# More than an answer that says where to connect can need.
MAX_ANSWER_BYTES: Final = 1024 * 1024
TIMEOUT: Final = Failure("timeout", "prior_request")
TOO_LONG: Final = Failure("protocol_violation", "answer_too_long")


def answer_of(
    parts: TransportParts, request: HttpRequest, timeout_s: float, ended: gevent.event.Event
) -> HttpAnswer | None:
    """Send a request on a connection of its own; return the answer, or None if the call has `ended` first.

    Redirects are not followed. Blocks only the calling greenlet. Raises UsageError for an address that is not one of
    HTTP, and ConnectionFailed without a whole answer in time, also where this machine prevented it.
    """
    parse_address(request.url, "http")
    waiting, transport = _OneAnswer(), HttpTransport(parts, None)
    transport.open(waiting, timeout_s)
    try:
        transport.send(request)
        gevent.wait([waiting.done, ended], timeout=timeout_s, count=1)
        if ended.is_set():
            return None
        if not waiting.done.is_set():
            reasons = [opened.no_session_reason(timeout_s)[0] for opened in transport.connections()]
            why = reasons[0] if reasons else "no connection could be opened"
            what = why if not waiting.answered else "its answer was not complete in time"
            raise ConnectionFailed(f"{_named(request)} had no answer within {timeout_s:g} s: {what}", TIMEOUT)
    finally:
        transport.close()
    return waiting.answer(request)


def _named(request: HttpRequest) -> str:
    return f"the request {request.request_id!r} that precedes the connection"


class _OneAnswer(TransportCallbacks):
    """Collects one answer."""

    def __init__(self) -> None:
        self.done = gevent.event.Event()
        self._head: HttpHead | None = None
        self._body = bytearray()
        self._failed: HttpFailed | None = None
        self._error: Exception | None = None

    @property
    def answered(self) -> bool:
        """Whether the answer has begun."""
        return self._head is not None

    def answer(self, request: HttpRequest) -> HttpAnswer:
        """Return the answer once `done`. Raises as `answer_of` does."""
        if self._error is not None:
            sentence = f"the load generator failed: {type(self._error).__name__}: {self._error}"
            raise ConnectionFailed(sentence, Failure("generator", "fault"))
        if self._failed is not None or self._head is None:
            reason, failure = "it was not sent", Failure("other")
            if self._failed is not None:
                reason, failure = self._failed.reason, self._failed.failure
            raise ConnectionFailed(f"{_named(request)} failed: {reason}", failure)
        return HttpAnswer(self._head.status, self._head.headers, bytes(self._body))

    # Called by the transport.

    def receive(self, stamp_perf_ns: int, seen_perf_ns: int, items: Sequence[TransportItem]) -> None:
        """Collect what arrived."""
        del stamp_perf_ns, seen_perf_ns
        for item in items:
            if self.done.is_set():
                return
            if isinstance(item, HttpHead):
                self._head = item
            elif isinstance(item, HttpData):
                self._body += item.data
                if len(self._body) > MAX_ANSWER_BYTES:
                    sentence = f"its answer has more than {MAX_ANSWER_BYTES} bytes"
                    self._end(HttpFailed(item.request_id, sentence, TOO_LONG))
            else:
                self._end(item if isinstance(item, HttpFailed) else None)

    def _end(self, failed: HttpFailed | None) -> None:
        self._failed = failed
        self.done.set()

    def failed(self, error: Exception) -> None:
        """End with an internal error."""
        self._error = error
        self.done.set()
