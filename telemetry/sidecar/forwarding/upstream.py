"""One OTLP/HTTP request to a destination, within a deadline, with the answer as a value.

Only the destination's own address is spoken to: no redirect is followed, no proxy is taken from the environment, and
of an answer at most so much is read as an OTLP response can hold.
"""

import asyncio
import os
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Final, Literal, cast

import httpx
import orjson
from google.protobuf.message import DecodeError
from google.rpc.status_pb2 import Status
from isal import igzip  # pyright: ignore[reportMissingTypeStubs]
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from telemetry.model.errors import ConfigError
from telemetry.model.foreign_text import one_line
from telemetry.sidecar.forwarding.destinations import Destination
from telemetry.sidecar.forwarding.secret_values import SecretError
from telemetry.sidecar.signals import Signal

# The destination has read the request and will never take it: it is this request's fault.
_REFUSED: Final = (400, 413, 422)
RETRY_AFTER_MAX_S: Final = 3600.0
# Errors of a server that come and go whatever the request is.
_UNAVAILABLE: Final = (502, 503, 504)
_ANSWER_BYTES_MAX: Final = 64 << 10
_SHOWN_CHARS: Final = 200
_COMPRESSION_LEVEL: Final = 1


@dataclass(frozen=True, slots=True)
class PostResult:
    """How a request ended. `taken`: acknowledged, less `rejected_items`; `refused`: never to be sent again as it is;
    `failed`: to be sent again, after `retry_after_s` at the earliest. `reason` says why, and holds no secret.
    `is_doubtful`: it was answered by an error of the server's that this request itself may provoke."""

    outcome: Literal["taken", "refused", "failed"]
    reason: str = ""
    rejected_items: int = 0
    retry_after_s: float = 0.0
    is_doubtful: bool = False


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
            body = await asyncio.to_thread(_compressed, body)
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
            return self._reply(response, bytes(answer), url.rpartition("/")[2])

    def _reply(self, response: httpx.Response, answer: bytes, signal: str) -> PostResult:
        status = response.status_code
        is_json = response.headers.get("content-type", "").partition(";")[0].strip() == "application/json"
        if response.is_success:
            rejected, message = _rejected(answer, signal, is_json=is_json)
            return PostResult("taken", self._shown(message), rejected)
        if response.is_redirect:
            return PostResult("failed", f"HTTP status {status}: it redirects, which is not followed; correct its url")
        reason = f"HTTP status {status}"
        if message := self._shown(_status_message(answer, is_json=is_json)):
            reason += f": {message}"
        if status in _REFUSED:
            return PostResult("refused", reason)
        retry_after_s = self._retry_after_s(response.headers.get("retry-after", ""))
        return PostResult("failed", reason, 0, retry_after_s, response.is_server_error and status not in _UNAVAILABLE)

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


def _cause(error: BaseException) -> str:
    """What the operating system says, where an error comes from it; otherwise the error's own words."""
    at: BaseException | None = error
    while at is not None:
        if isinstance(at, OSError) and at.strerror and not isinstance(at, ssl.SSLError):
            # asyncio has words of its own; a resolver has numbers of its own, below zero.
            return os.strerror(at.errno) if at.errno is not None and at.errno > 0 else at.strerror
        at = at.__cause__ or at.__context__
    return str(error) or type(error).__name__


def _compressed(body: bytes) -> bytes:
    return igzip.compress(body, _COMPRESSION_LEVEL)


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


def _rejected(answer: bytes, signal: str, *, is_json: bool) -> tuple[int, str]:
    """The items that an acknowledgment leaves out, and its message; none if it is not an OTLP response."""
    try:
        if is_json:
            partial = _json_object(_json_object(orjson.loads(answer)).get("partialSuccess"))
            count = partial.get("rejectedSpans" if signal == "traces" else "rejectedDataPoints", 0)
            return max(0, int(count)), str(partial.get("errorMessage", ""))
        if signal == "traces":
            found = ExportTraceServiceResponse.FromString(answer).partial_success
            return max(0, found.rejected_spans), found.error_message
        points = ExportMetricsServiceResponse.FromString(answer).partial_success
        return max(0, points.rejected_data_points), points.error_message
    except (DecodeError, ValueError, TypeError):
        return 0, ""


def _status_message(answer: bytes, *, is_json: bool) -> str:
    """The message of a google.rpc.Status; empty if the answer is not one."""
    try:
        if is_json:
            return str(_json_object(orjson.loads(answer)).get("message", ""))
        return Status.FromString(answer).message
    except (DecodeError, ValueError):
        return ""


def _json_object(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
