"""Sending: one OTLP/HTTP request to a destination with its answer as a value, and the reaction to each answer.

Only the destination's own address is connected to: no redirect is followed, and no proxy is taken from the environment.
"""

import http.client
import logging
import random
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Final, Literal, TypeVar

from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message
from google.rpc.status_pb2 import Status
from isal import igzip  # pyright: ignore[reportMissingTypeStubs]
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from telemetry.export.http_post import HttpPoster, PostAnswer
from telemetry.model.errors import ConfigError
from telemetry.model.foreign_text import one_line
from telemetry.sidecar.forwarding.bounded_queue import BoundedQueue
from telemetry.sidecar.forwarding.destinations import Destination, SecretError
from telemetry.sidecar.signals import Signal

# Most receivers take some 4 MiB; requests that are larger by themselves are sent as they are.
BATCH_BYTES: Final = 2 << 20
BATCH_REQUESTS: Final = 1024
# Requests that come one after another are sent together.
GATHER_S: Final = 0.3
# At the end of the sidecar, waiting requests are sent for this long.
DRAIN_S: Final = 5.0
BACKOFF_FIRST_S: Final = 1.0
BACKOFF_MAX_S: Final = 60.0
RETRY_AFTER_MAX_S: Final = 3600.0
# What concerns every request (a token, an address) or passes is tried again; every other 4xx refuses this request.
_TRIED_AGAIN: Final = frozenset([401, 402, 403, 404, 405, 407, 408, 421, 425, 429])
# A destination that refuses so many requests in a row gets the next ones with pauses between them.
_REFUSALS_MAX: Final = 10
# Temporary errors of a server that do not depend on the request.
_UNAVAILABLE: Final = (502, 503, 504)
_SHOWN_CHARS: Final = 200
_COMPRESSION_LEVEL: Final = 1

_Answer = TypeVar("_Answer", bound=Message)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PostResult:
    """The result of a request. `taken`: acknowledged, except for `rejected_items`; `refused`: never to be sent again;
    `failed`: to be sent again, after `retry_after_s` at the earliest; `doubtful`: the same, but the request itself may
    cause the server's error. `reason` says why, and contains no secret; `message` is the destination's own text."""

    outcome: Literal["taken", "refused", "failed", "doubtful"]
    reason: str = ""
    message: str = ""
    rejected_items: int = 0
    retry_after_s: float = 0.0

    @property
    def sentence(self) -> str:
        """The reason with the destination's message."""
        return f"{self.reason}: {self.message}" if self.message else self.reason


class Upstream:
    """Posts export requests to one destination. Raises ConfigError for unusable certificates."""

    def __init__(self, destination: Destination, *, wall_clock_ns: Callable[[], int] = time.time_ns) -> None:
        self._destination = destination
        self._wall_clock_ns = wall_clock_ns
        self._poster = HttpPoster(destination.url, _tls_context(destination), timeout_s=destination.timeout_s)

    def send(self, signal: Signal, bodies: Sequence[bytes]) -> PostResult:
        """Post requests of one signal as one: concatenated, they are the request that contains all of their items.

        Never raises because of the network or the destination.
        """
        destination = self._destination
        body = b"".join(bodies)
        headers = {"Content-Type": "application/x-protobuf", "User-Agent": "voiceprobe"}
        if destination.compression == "gzip":
            headers["Content-Encoding"] = "gzip"
            body = igzip.compress(body, _COMPRESSION_LEVEL)
        try:
            headers |= {header.name: header.read() for header in destination.headers}
            return self._result(self._poster.post(f"/v1/{signal}", body, headers), signal)
        except SecretError as error:
            return PostResult("failed", str(error))
        except TimeoutError:
            return PostResult("failed", f"no answer within {destination.timeout_s:g} s")
        except (OSError, http.client.HTTPException) as error:
            return PostResult("failed", one_line(_cause(error), _SHOWN_CHARS))

    def _result(self, answer: PostAnswer, signal: Signal) -> PostResult:
        status, headers, content = answer
        reason = f"HTTP status {status}"
        is_json = headers.get_content_type() == "application/json"
        if 200 <= status < 300:
            if signal == "traces":
                spans = _read(ExportTraceServiceResponse(), content, is_json=is_json).partial_success
                rejected, message = spans.rejected_spans, spans.error_message
            else:
                points = _read(ExportMetricsServiceResponse(), content, is_json=is_json).partial_success
                rejected, message = points.rejected_data_points, points.error_message
            return PostResult("taken", reason, self._shown(message), max(0, rejected))
        if 300 <= status < 400:
            return PostResult("failed", reason, "it redirects, which is not followed; correct its url")
        message = self._shown(_read(Status(), content, is_json=is_json).message)
        if 400 <= status < 500 and status not in _TRIED_AGAIN:
            return PostResult("refused", reason, message)
        is_doubtful = status >= 500 and status not in _UNAVAILABLE
        retry_after_s = self._retry_after_s(headers.get("retry-after", ""))
        return PostResult("doubtful" if is_doubtful else "failed", reason, message, 0, retry_after_s)

    def _shown(self, message: str) -> str:
        # A refusal may quote the request, and kept texts must not appear in a log.
        return one_line(message, _SHOWN_CHARS) if self._destination.text == "redact" else ""

    def _retry_after_s(self, value: str) -> float:
        if value.isdecimal():
            return min(float(value[:9]), RETRY_AFTER_MAX_S)
        try:
            at_s = parsedate_to_datetime(value).timestamp()
        except (ValueError, OverflowError):
            return 0.0
        return min(max(0.0, at_s - self._wall_clock_ns() / 1e9), RETRY_AFTER_MAX_S)


class SignalSender:
    """The sender of one signal to one destination, until `stopping` is set and nothing waits.

    `post` never raises, `pause` waits so many seconds, `uniform` gives a random number between two others.
    """

    def __init__(
        self,
        name: str,
        signal: Signal,
        queue: BoundedQueue,
        post: Callable[[Signal, Sequence[bytes]], PostResult],
        stopping: threading.Event,
        *,
        pause: Callable[[float], None] | None = None,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._name = name
        self._signal: Signal = signal
        self._queue = queue
        self._post = post
        self._stopping = stopping
        self._pause = pause or self._wait
        self._uniform = uniform
        self._backoff_s = BACKOFF_FIRST_S
        self._requests_max = BATCH_REQUESTS
        self._refusals = 0

    def run(self) -> None:
        """Send waiting requests until it is stopped. An internal error does not end it."""
        while True:
            try:
                wait_s = self._send()
            except Exception as error:  # noqa: BLE001 - whatever it is, requests that come must be sent
                _log.exception("forwarding to %s has failed and begins again", self._name)
                self._queue.put_back(self._signal)
                wait_s = self._failed(PostResult("failed", type(error).__name__))
            if self._stopping.is_set() and (wait_s is None or wait_s > DRAIN_S):
                return
            self._pause(GATHER_S if wait_s is None else wait_s)

    def _send(self) -> float | None:
        """Send the oldest requests; return how long to wait before the next, None if nothing waited."""
        batch = self._queue.take(self._signal, self._requests_max, BATCH_BYTES)
        if not batch:
            return None
        result = self._post(self._signal, [request.body for request in batch])
        if result.outcome == "taken":
            self._queue.forwarded(self._signal, result.rejected_items)
            rejected = f"{result.rejected_items} items of {self._signal} rejected (partial success): {result.message}"
            self._answered(rejected if result.rejected_items else None)
            self._refusals = 0
            was_full = (
                len(batch) >= self._requests_max or sum(len(request.body) for request in batch) >= BATCH_BYTES // 2
            )
            self._requests_max = min(2 * self._requests_max, BATCH_REQUESTS)
            return 0.0 if was_full else GATHER_S
        if result.outcome in ("refused", "doubtful") and len(batch) > 1:
            # One of them may be at fault: the others are sent without it.
            self._requests_max = len(batch) // 2
            self._queue.put_back(self._signal)
            self._backoff_s = BACKOFF_FIRST_S
            return 0.0 if result.outcome == "refused" else self._failed(result)
        if result.outcome == "failed" or (result.outcome == "doubtful" and self._queue.move_last(self._signal)):
            self._queue.put_back(self._signal)
            return self._failed(result)
        self._queue.refused(self._signal, result.reason)
        self._answered(result.sentence)
        self._refusals += 1
        return 0.0 if self._refusals < _REFUSALS_MAX else GATHER_S

    def _failed(self, result: PostResult) -> float:
        if self._queue.note(self._signal, result.sentence):
            _log.warning("forwarding %s to %s fails, they wait: %s", self._signal, self._name, result.sentence)
        wait_s = max(self._uniform(self._backoff_s / 2, self._backoff_s), result.retry_after_s)
        self._backoff_s = min(2 * self._backoff_s, BACKOFF_MAX_S)
        return wait_s

    def _answered(self, refusal: str | None) -> None:
        """Record that the destination accepts or refuses requests, and reset the backoff."""
        if self._queue.note(self._signal, None, refusal):
            _log.warning("forwarding %s to %s works again", self._signal, self._name)
        self._backoff_s = BACKOFF_FIRST_S

    def _wait(self, seconds: float) -> None:
        """Wait, at most until it is stopped; after that, only between failures."""
        if not self._stopping.is_set():
            self._stopping.wait(seconds)
        elif seconds > GATHER_S:
            time.sleep(seconds)


class SendingThreads:
    """The threads that send the queued requests, one for each signal of each destination, from `start` to `stop`. The
    process does not wait for them at its end: a name server may not answer for minutes.

    Raises ConfigError for unusable certificates.
    """

    def __init__(self, queues: Mapping[Destination, BoundedQueue]) -> None:
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        for destination, queue in queues.items():
            post = Upstream(destination).send
            for signal in destination.signals:
                run = SignalSender(destination.name, signal, queue, post, self._stopping).run
                name = f"forwarding {signal} to {destination.name}"
                self._threads.append(threading.Thread(target=run, name=name, daemon=True))

    def start(self) -> None:
        """Begin to send."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Send waiting requests for `DRAIN_S` at most, then end."""
        self._stopping.set()
        until_s = time.monotonic() + DRAIN_S
        for thread in self._threads:
            if thread.is_alive():
                thread.join(max(0.0, until_s - time.monotonic()))


def _cause(error: Exception) -> str:
    """Return the operating system's message if it is the cause, otherwise the error's own message."""
    if isinstance(error, OSError) and error.strerror and not isinstance(error, ssl.SSLError):
        return error.strerror
    return str(error) or type(error).__name__


def _tls_context(destination: Destination) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=destination.ca_file)
        if destination.client_cert_file is not None:
            # Do not prompt for a passphrase: a process without a terminal would wait forever.
            context.load_cert_chain(destination.client_cert_file, destination.client_key_file, password="")
    except (ssl.SSLError, OSError) as error:
        where = f"forward destination {destination.name}"
        raise ConfigError(where, [f"its certificates cannot be used ({one_line(str(error))})"]) from error
    return context


def _read(message: _Answer, answer: bytes, *, is_json: bool) -> _Answer:
    """The message in a response body; empty if it is of another type."""
    try:
        if is_json:
            return json_format.Parse(answer, message, ignore_unknown_fields=True)
        message.ParseFromString(answer)
    except (DecodeError, json_format.ParseError, ValueError, RecursionError):
        message.Clear()
    return message
