"""One OTLP/HTTP protobuf request to a collector, within a deadline, with the answer as a value.

The SDK's own exporters take spans rather than bytes, retry inside the call for up to ten seconds and log each failure;
here bytes wait for delivery, and retrying is done by the span processor.
"""

import http.client
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import urlsplit

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from telemetry.client_tls import sidecar_context
from telemetry.export.encoded_spans import EncodedRequest
from telemetry.export.http_post import HttpPoster
from telemetry.model.addresses import without_credentials
from telemetry.model.errors import ConfigError

# The collector has read the request and will never take it: sending it again cannot help.
_NEVER_TAKEN: Final = (400, 413, 422)


@dataclass(frozen=True, slots=True)
class Delivery:
    """The outcome of one request. `taken`: acknowledged, except for `rejected_items`. `refused`: never to be sent
    again. `failed`: keep it and try later. `reason` says why."""

    outcome: Literal["taken", "refused", "failed"]
    reason: str = ""
    rejected_items: int = 0


class OtlpHttpExporter:
    """Posts export requests to one collector. `endpoint` is its base URL: `/v1/traces` and `/v1/metrics` follow.

    Raises ConfigError for an endpoint that is not an http or https URL, and for files of TLS that cannot be used.
    """

    def __init__(
        self, endpoint: str, token: str | None, *, timeout_s: float = 3.0, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        try:
            url = urlsplit(endpoint)
            is_usable = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
        except ValueError:
            url, is_usable = urlsplit(""), False
        if not is_usable:
            raise ConfigError(
                "telemetry endpoint", [f"{without_credentials(endpoint)!r} is no URL like http://127.0.0.1:4318"]
            )
        self.endpoint = endpoint
        tls = sidecar_context() if url.scheme == "https" else None
        self._poster = HttpPoster(endpoint, tls, timeout_s=timeout_s, clock_s=clock_s)
        self._headers = {"Content-Type": "application/x-protobuf", "User-Agent": "voiceprobe"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"

    def send(self, request: EncodedRequest) -> Delivery:
        """Post one request; never raises because of the network or the collector."""
        try:
            status, _, answer = self._poster.post(f"/v1/{request.signal}", request.payload, self._headers)
        except (OSError, http.client.HTTPException) as error:
            return Delivery("failed", str(error) or type(error).__name__)
        if status == 200:
            return _acknowledgment(request, answer)
        return Delivery("refused" if status in _NEVER_TAKEN else "failed", f"HTTP status {status}")


def _acknowledgment(request: EncodedRequest, answer: bytes) -> Delivery:
    try:
        if request.signal == "traces":
            partial = ExportTraceServiceResponse.FromString(answer).partial_success
            rejected = partial.rejected_spans
        else:
            partial = ExportMetricsServiceResponse.FromString(answer).partial_success
            rejected = partial.rejected_data_points
    except DecodeError:
        return Delivery("failed", "the answer is no OTLP response")
    return Delivery("taken", partial.error_message, min(max(0, rejected), request.items))
