"""Takes out of OTLP messages what may not be stored, in place.

What a message holds beyond the fields that OTLP has (an unknown field, a value that was set twice) is left out when it
is serialized anew.
"""

from collections.abc import Callable
from typing import Any, Final

from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from telemetry.model.personal_data import label_without_personal_data
from telemetry.sidecar.privacy.rules import PrivacyRules
from telemetry.store.redaction import NameKind, kinds_of_names

_Pairs = Any  # protobuf's containers have no type that can be named


def clean_span(span: Span, framework: str, rules: PrivacyRules) -> None:
    """Take out of a span, its events, links and status what may not be stored."""
    _clean_text(span, "name", label_without_personal_data)
    _clean_state(span)
    clean_pairs(span.attributes, framework, rules)
    for event in span.events:
        _clean_text(event, "name", label_without_personal_data)
        clean_pairs(event.attributes, framework, rules)
    for link in span.links:
        _clean_state(link)
        clean_pairs(link.attributes, framework, rules)
    if span.status.message:
        _clean_text(span.status, "message", rules.free_text)


def clean_resource(resource: Resource, rules: PrivacyRules) -> None:
    """Take out of a resource what may not be stored."""
    clean_pairs(resource.attributes, "", rules)
    if "entity_refs" in resource.DESCRIPTOR.fields_by_name:
        resource.ClearField("entity_refs")


def clean_scope(scope: InstrumentationScope, framework: str, rules: PrivacyRules) -> None:
    """Take out of an instrumentation scope what may not be stored."""
    _clean_text(scope, "name", label_without_personal_data)
    _clean_text(scope, "version", label_without_personal_data)
    clean_pairs(scope.attributes, framework, rules)


def clean_metric(metric: Metric, framework: str, rules: PrivacyRules) -> None:
    """Take out of a metric, its points and their exemplars what may not be stored.

    A metric's description is the program's own text and is kept as a label is.
    """
    for name in ("name", "description", "unit"):
        _clean_text(metric, name, label_without_personal_data)
    clean_pairs(metric.metadata, framework, rules)
    kind = metric.WhichOneof("data")
    for point in getattr(metric, kind).data_points if kind is not None else ():
        clean_pairs(point.attributes, framework, rules)
        for exemplar in getattr(point, "exemplars", ()):
            clean_pairs(exemplar.filtered_attributes, framework, rules)


def clean_pairs(pairs: _Pairs, framework: str, rules: PrivacyRules) -> None:
    """Take out of attributes what may not be stored."""
    kinds, own = kinds_of_names(framework), NameKind.OWN
    left_out = [
        place
        for place, pair in enumerate(pairs)
        if (kind := kinds[pair.key]) is not own and not rules.keep(pair.value, kind)
    ]
    for place in reversed(left_out):
        del pairs[place]


def _clean_state(holder: Any) -> None:
    """A trace state in which personal data stands is worth nothing without it."""
    if holder.trace_state and label_without_personal_data(holder.trace_state) != holder.trace_state:
        holder.trace_state = ""


def _clean_text(holder: Any, name: str, clean: Callable[[str], str]) -> None:
    text: Final = getattr(holder, name)
    kept = clean(text)
    if kept != text:
        setattr(holder, name, kept)
