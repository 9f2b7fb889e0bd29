"""A request without what may not be stored: of a body in which nothing is to be changed, the same bytes."""

from collections.abc import Callable
from functools import lru_cache
from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from telemetry.model.personal_data.labels import without_personal_data
from telemetry.sidecar.otlp.attributes import OtlpDecodeError
from telemetry.sidecar.otlp.framing import Framed, framed
from telemetry.sidecar.otlp.readable import METRIC, RESOURCE, SCOPE, SPAN, Shape, readable
from telemetry.sidecar.privacy.messages import clean_metric, clean_resource, clean_scope, clean_span, serialized
from telemetry.sidecar.privacy.rules import PrivacyRules
from telemetry.sidecar.signals import Signal
from telemetry.store.redaction import framework_of

_REMEMBERED: Final = 1000
_REMEMBERED_BYTES: Final = 4096
_Part = TypeVar("_Part", bound=Message)
_MESSAGES: Final[dict[Signal, tuple[str, str]]] = {
    "traces": ("ExportTraceServiceRequest", "spans"),
    "metrics": ("ExportMetricsServiceRequest", "metrics"),
}


class Redactor:
    """Takes out of requests what may not be stored, before they are logged, stored or forwarded."""

    def __init__(self, rules: PrivacyRules) -> None:
        self.rules = rules
        # Every request of a sender has the same resource and scopes.
        self._resource = lru_cache(_REMEMBERED)(self._clean_resource)
        self._scope = lru_cache(_REMEMBERED)(self._clean_scope)

    def redact_request(self, body: bytes, signal: Signal) -> bytes:
        """The body of an export request in protobuf, without what may not be stored; the same object where that is
        nothing. Raises OtlpDecodeError when it is not one: then nothing of it can be stored either."""
        cut = framed(body, *_MESSAGES[signal])
        frameworks = [self.framework(payload) for payload in cut.scopes]
        changed = self.clean_around(cut)
        clean = self.span if signal == "traces" else self.metric
        for place, (item, scope) in enumerate(zip(cut.items, cut.scope_of, strict=True)):
            cut.items[place] = clean(item, frameworks[scope])
            changed = changed or cut.items[place] is not item
        return cut.assembled() if changed else body

    def clean_around(self, cut: Framed) -> bool:
        """Clean the resources, the scopes and the schemas of a request; says whether anything but its items has
        changed."""
        changed = not cut.is_whole
        for payloads, clean in (
            (cut.resources, self.resource),
            (cut.scopes, self.scope),
            (cut.resource_schemas, clean_schema),
            (cut.scope_schemas, clean_schema),
        ):
            cleaned = [*map(clean, payloads)]
            changed = changed or cleaned != payloads
            payloads[:] = cleaned
        return changed

    def framework(self, scope: bytes) -> str:
        """The framework of a serialized instrumentation scope."""
        return _framework(scope)

    def resource(self, payload: bytes) -> bytes:
        """A serialized resource without what may not be stored."""
        return self._resource(payload) if len(payload) <= _REMEMBERED_BYTES else self._clean_resource(payload)

    def scope(self, payload: bytes) -> bytes:
        """A serialized instrumentation scope without what may not be stored."""
        return self._scope(payload) if len(payload) <= _REMEMBERED_BYTES else self._clean_scope(payload)

    def span(self, payload: bytes, framework: str) -> bytes:
        """A serialized span without what may not be stored."""
        return _cleaned(Span, payload, SPAN, lambda span: clean_span(span, framework, self.rules))

    def metric(self, payload: bytes, framework: str) -> bytes:
        """A serialized metric without what may not be stored."""
        return _cleaned(Metric, payload, METRIC, lambda metric: clean_metric(metric, framework, self.rules))

    def _clean_resource(self, payload: bytes) -> bytes:
        return _cleaned(Resource, payload, RESOURCE, lambda resource: clean_resource(resource, self.rules))

    def _clean_scope(self, payload: bytes) -> bytes:
        framework = _framework(payload)
        return _cleaned(InstrumentationScope, payload, SCOPE, lambda scope: clean_scope(scope, framework, self.rules))


def _cleaned(kind: type[_Part], payload: bytes, shape: Shape, clean: Callable[[_Part], None]) -> bytes:
    """The message without what may not be stored; the same object where that is nothing."""
    message, as_sent = _read(kind, payload, shape)
    clean(message)
    found = serialized(message)
    # Some senders put the fields in an order of their own: then it is as long, and says the same.
    return payload if as_sent and len(found) == len(payload) and kind.FromString(payload) == message else found


def _read(kind: type[_Part], payload: bytes, shape: Shape) -> tuple[_Part, bool]:
    """A message, and whether it is as it was sent: what no parser takes is left out."""
    try:
        return kind.FromString(payload), True
    except DecodeError:
        changed = readable(payload, shape)
    try:
        return kind.FromString(changed.payload if changed is not None else payload), False
    except DecodeError as error:
        raise OtlpDecodeError(f"the request holds a malformed {kind.DESCRIPTOR.name}") from error


@lru_cache(_REMEMBERED)
def _framework(scope: bytes) -> str:
    try:
        return framework_of(_read(InstrumentationScope, scope, SCOPE)[0].name)
    except OtlpDecodeError:
        return ""


def clean_schema(url: bytes) -> bytes:
    """The URL of a schema without personal data; the same object where there is not any."""
    if not url:
        return url
    text = url.decode("utf-8", "replace")
    kept = without_personal_data(text)
    return url if kept == text and text.encode() == url else kept.encode()
