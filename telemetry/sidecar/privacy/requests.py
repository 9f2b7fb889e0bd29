"""A request without what may not be stored: of a body in which nothing is to be changed, the same bytes."""

import contextlib

from google.protobuf.message import DecodeError, Message
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from telemetry.model.personal_data import label_without_personal_data
from telemetry.sidecar.otlp.framing import Framed
from telemetry.sidecar.otlp.opening import OpenedRequest
from telemetry.sidecar.privacy.messages import clean_metric, clean_resource, clean_scope, clean_span
from telemetry.sidecar.privacy.rules import PrivacyRules
from telemetry.sidecar.signals import Signal
from telemetry.store.redaction import framework_of


class Redactor:
    """Takes out of requests what may not be stored, before they are logged, stored or forwarded."""

    def __init__(self, rules: PrivacyRules) -> None:
        self.rules = rules

    def redact_request(self, body: bytes, signal: Signal) -> bytes:
        """The body of an export request in protobuf, without what may not be stored; the same object where that is
        nothing. Raises OtlpDecodeError when it is not one: then nothing of it can be stored either."""
        opened = OpenedRequest(body, signal, self)
        cut = opened.cut
        written = Framed(
            items=[b""] * opened.count,
            resource_of=cut.resource_of,
            scope_of=cut.scope_of,
            # Those without items are not looked at, and are not written.
            resources=[b""] * len(cut.resources),
            scopes=[b""] * len(cut.scopes),
            resource_of_scope=cut.resource_of_scope,
            resource_schemas=[*map(self._clean_schema, cut.resource_schemas)],
            scope_schemas=[*map(self._clean_schema, cut.scope_schemas)],
        )
        kept = [False] * opened.count
        for place, resource, scope, item in opened.items(_written, _written, _written):
            of, within, kept[place] = cut.resource_of[place], cut.scope_of[place], True
            written.resources[of] = _as_sent(resource, cut.resources[of])
            written.scopes[within] = _as_sent(scope, cut.scopes[within])
            written.items[place] = _as_sent(item, cut.items[place])
        return body if written == cut else written.assembled(kept)

    def clean(self, message: Message, framework: str) -> None:
        """Take out of a span, a metric, a resource or a scope what may not be stored, in place."""
        match message:
            case Span():
                clean_span(message, framework, self.rules)
            case Metric():
                clean_metric(message, framework, self.rules)
            case Resource():
                clean_resource(message, self.rules)
            case InstrumentationScope():
                clean_scope(message, framework_of(message.name), self.rules)
            case _:
                raise TypeError(type(message))

    def _clean_schema(self, url: bytes) -> bytes:
        """The URL of a schema without personal data; the same object where there is not any."""
        if not url:
            return url
        text = url.decode("utf-8", "replace")
        kept = label_without_personal_data(text)
        return url if kept == text and text.encode() == url else kept.encode()


def _written(message: Message, *_around: object) -> Message:
    message.DiscardUnknownFields()
    return message


def _as_sent(message: Message, payload: bytes) -> bytes:
    """A message serialized: as it was sent where it says the same, as some senders have an order of their own."""
    written = message.SerializeToString()
    if written != payload and len(written) == len(payload):
        with contextlib.suppress(DecodeError):
            return payload if type(message).FromString(payload) == message else written
    return written
