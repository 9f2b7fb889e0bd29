"""Sending: one OTLP/HTTP request to a destination with its answer as a value, and what is done about each answer.

Only the destination's own address is connected to: no redirect is followed, no proxy is taken from the environment, and
of an answer at most so much is read as an OTLP response can hold.
"""

import asyncio
import contextlib
import logging
import os
import random
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Final, Literal, TypeVar

import httpx
from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message
from google.rpc.status_pb2 import Status
from isal import igzip  # pyright: ignore[reportMissingTypeStubs]
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

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
# At the end of the sidecar, what waits is sent for so long.
DRAIN_S: Final = 5.0
BACKOFF_FIRST_S: Final = 1.0
BACKOFF_MAX_S: Final = 60.0
RETRY_AFTER_MAX_S: Final = 3600.0
# What concerns every request (a token, an address) or passes is tried again; every other 4xx refuses this request.
_TRIED_AGAIN: Final = frozenset([401, 402, 403, 404, 405, 407, 408, 421, 425, 429])
# A destination that refuses so many requests in a row gets the next ones with pauses between them.
_REFUSALS_MAX: Final = 10
# Errors of a server that come and go whatever the request is.
_UNAVAILABLE: Final = (502, 503, 504)
_ANSWER_BYTES_MAX: Final = 64 << 10
_SHOWN_CHARS: Final = 200
_COMPRESSION_LEVEL: Final = 1

_Answer = TypeVar("_Answer", bound=Message)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PostResult:
    """The end of a request. `taken`: acknowledged, less `rejected_items`; `refused`: never to be sent again as it is;
    `failed`: to be sent again, after `retry_after_s` at the earliest; `doubtful`: the same, but the request itself may
    provoke the server's error. `reason` says why, and holds no secret; `message` is what the destination adds."""

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
    """Posts export requests to one destination. Raises ConfigError for certificates that cannot be used."""

    def __init__(self, destination: Destination, *, wall_clock_ns: Callable[[], int] = time.time_ns) -> None:
        self._destination = destination
        self._wall_clock_ns = wall_clock_ns
        self._client = httpx.AsyncClient(
            verify=_tls_context(destination), timeout=destination.timeout_s, trust_env=False, follow_redirects=False
        )

    async def close(self) -> None:
        """Close the connection."""
        await self._client.aclose()

    async def send(self, signal: Signal, bodies: Sequence[bytes]) -> PostResult:
        """Post requests of one signal as one; their concatenation is the request that holds what each of them holds.

        Never raises for what the network or the destination does.
        """
        destination = self._destination
        body = b"".join(bodies)
        headers = {"content-type": "application/x-protobuf", "user-agent": "voiceprobe", "accept-encoding": "identity"}
        if destination.compression == "gzip":
            headers["content-encoding"] = "gzip"
            body = igzip.compress(body, _COMPRESSION_LEVEL)
        try:
            headers |= {header.name: header.read() for header in destination.headers}
            async with asyncio.timeout(destination.timeout_s):
                return await self._post(f"{destination.url}/v1/{signal}", body, headers)
        except SecretError as error:
            return PostResult("failed", str(error))
        except TimeoutError:
            return PostResult("failed", f"no answer within {destination.timeout_s:g} s")
        except (httpx.HTTPError, httpx.StreamError, ssl.SSLError, OSError) as error:
            return PostResult("failed", one_line(_cause(error), _SHOWN_CHARS))

    async def _post(self, url: str, body: bytes, headers: dict[str, str]) -> PostResult:
        async with self._client.stream("POST", url, content=body, headers=headers) as response:
            self._client.cookies.clear()
            answer = bytearray()
            async for chunk in response.aiter_raw():
                answer += chunk
                if len(answer) > _ANSWER_BYTES_MAX:
                    break  # the connection is closed, and the status counts
            return self._result(response, bytes(answer), url.rpartition("/")[2])

    def _result(self, response: httpx.Response, answer: bytes, signal: str) -> PostResult:
        status = response.status_code
        reason = f"HTTP status {status}"
        is_json = response.headers.get("content-type", "").partition(";")[0].strip() == "application/json"
        if response.is_success:
            if signal == "traces":
                spans = _read(ExportTraceServiceResponse(), answer, is_json=is_json).partial_success
                rejected, message = spans.rejected_spans, spans.error_message
            else:
                points = _read(ExportMetricsServiceResponse(), answer, is_json=is_json).partial_success
                rejected, message = points.rejected_data_points, points.error_message
            return PostResult("taken", reason, self._shown(message), max(0, rejected))
        if response.is_redirect:
            return PostResult("failed", reason, "it redirects, which is not followed; correct its url")
        message = self._shown(_read(Status(), answer, is_json=is_json).message)
        if response.is_client_error and status not in _TRIED_AGAIN:
            return PostResult("refused", reason, message)
        is_doubtful = response.is_server_error and status not in _UNAVAILABLE
        retry_after_s = self._retry_after_s(response.headers.get("retry-after", ""))
        return PostResult("doubtful" if is_doubtful else "failed", reason, message, 0, retry_after_s)

    def _shown(self, message: str) -> str:
        # What refuses a request may quote it, and texts that are kept stand in no log.
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
        post: Callable[[Signal, Sequence[bytes]], Awaitable[PostResult]],
        stopping: asyncio.Event,
        *,
        pause: Callable[[float], Awaitable[None]] | None = None,
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

    async def run(self) -> None:
        """Send what waits until it is stopped. An error of its own ends nothing for good."""
        while True:
            try:
                wait_s = await self._send()
            except Exception as error:  # noqa: BLE001 - whatever it is, requests that come must be sent
                _log.exception("forwarding to %s has failed and begins again", self._name)
                self._queue.put_back(self._signal)
                wait_s = self._failed(PostResult("failed", type(error).__name__))
            if self._stopping.is_set() and (wait_s is None or wait_s > DRAIN_S):
                return
            await self._pause(GATHER_S if wait_s is None else wait_s)

    async def _send(self) -> float | None:
        """Send the oldest requests; return how long to wait before the next, None if nothing waited."""
        batch = self._queue.take(self._signal, self._requests_max, BATCH_BYTES)
        if not batch:
            return None
        result = await self._post(self._signal, [request.body for request in batch])
        if result.outcome == "taken":
            self._queue.forwarded(self._signal, result.rejected_items)
            rejected = f"{result.rejected_items} items of {self._signal} rejected (partial success): {result.message}"
            self._answered(rejected if result.rejected_items else None)
            self._refusals = 0
            was_full = len(batch) >= self._requests_max or sum(len(each.body) for each in batch) >= BATCH_BYTES // 2
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
        """Note that the destination takes or refuses: whatever comes next has a chance of its own."""
        if self._queue.note(self._signal, None, refusal):
            _log.warning("forwarding %s to %s works again", self._signal, self._name)
        self._backoff_s = BACKOFF_FIRST_S

    async def _wait(self, seconds: float) -> None:
        """Wait, until it is stopped at most; from then on, between failures alone."""
        if self._stopping.is_set():
            await asyncio.sleep(seconds if seconds > GATHER_S else 0.0)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()


class SendingThread:
    """The thread that sends what waits in queues, each signal of each destination by itself, from `start` to `stop`.

    Raises ConfigError for certificates that cannot be used.
    """

    def __init__(self, queues: Mapping[Destination, BoundedQueue]) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()
        self._upstreams = [Upstream(destination) for destination in queues]
        self._senders = [
            SignalSender(destination.name, signal, queue, upstream.send, self._stopping)
            for (destination, queue), upstream in zip(queues.items(), self._upstreams, strict=True)
            for signal in destination.signals
        ]
        self._thread = threading.Thread(target=self._serve, name="forwarding", daemon=True)

    def start(self) -> None:
        """Begin to send."""
        self._loop = asyncio.new_event_loop()
        self._loop.set_default_executor(_DaemonThreads())
        self._thread.start()

    def stop(self) -> None:
        """Send what waits for `DRAIN_S` at most, then end."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # it was stopped before
                self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join(DRAIN_S + 1.0)

    def _serve(self) -> None:
        assert self._loop is not None  # noqa: S101 - `start` has made it
        logging.getLogger("httpx").setLevel(logging.WARNING)
        with contextlib.closing(self._loop):
            self._loop.run_until_complete(self._run())

    async def _run(self) -> None:
        tasks = [asyncio.create_task(sender.run()) for sender in self._senders]
        await self._stopping.wait()
        await asyncio.wait(tasks, timeout=DRAIN_S)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *(upstream.close() for upstream in self._upstreams), return_exceptions=True)


class _DaemonThreads(ThreadPoolExecutor):
    """A thread for each call, for which no process waits at its end: a name server may be silent for minutes."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()

        def run() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except Exception as error:  # noqa: BLE001 - it is raised for the caller
                future.set_exception(error)

        threading.Thread(target=run, name="forwarding resolver", daemon=True).start()
        return future


def _cause(error: BaseException) -> str:
    """Return what the operating system says, where an error comes from it; otherwise the error's own words."""
    at: BaseException | None = error
    while at is not None:
        if isinstance(at, OSError) and at.strerror and not isinstance(at, ssl.SSLError):
            # asyncio has words of its own; a resolver has numbers of its own, below zero.
            return os.strerror(at.errno) if at.errno is not None and at.errno > 0 else at.strerror
        at = at.__cause__ or at.__context__
    return str(error) or type(error).__name__


def _tls_context(destination: Destination) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=destination.ca_file)
        if destination.client_cert_file is not None:
            # Nobody is asked for a passphrase: a process without a terminal would wait forever.
            context.load_cert_chain(destination.client_cert_file, destination.client_key_file, password="")
    except (ssl.SSLError, OSError) as error:
        where = f"forward destination {destination.name}"
        raise ConfigError(where, [f"its certificates cannot be used ({one_line(str(error))})"]) from error
    return context


def _read(message: _Answer, answer: bytes, *, is_json: bool) -> _Answer:
    """The message that an answer holds; an empty one if it holds another."""
    try:
        if is_json:
            return json_format.Parse(answer, message, ignore_unknown_fields=True)
        message.ParseFromString(answer)
    except (DecodeError, json_format.ParseError, ValueError, RecursionError):
        message.Clear()
    return message
