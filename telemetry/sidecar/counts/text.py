"""Metric families as they are declared, made by prometheus_client, and put behind one another on a page."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder

disable_created_metrics()

_OPENMETRICS_END: Final = b"# EOF\n"
_OPENMETRICS: Final = "application/openmetrics-text"
Values = Iterable[tuple[Sequence[str], float]]


@dataclass(frozen=True, slots=True)
class Family:
    """A metric family: its name without `_total`, its type, its meaning and the names of its labels."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    text: str
    labels: tuple[str, ...] = ()

    @property
    def shown_name(self) -> str:
        """The name of its series, or what they begin with."""
        return f"{self.name}_total" if self.kind == "counter" else self.name

    def counter(self, registry: CollectorRegistry) -> Counter:
        """A counter of its own that is shown with a registry."""
        return Counter(self.name, self.text, self.labels, registry=registry)

    def gauge(self, registry: CollectorRegistry) -> Gauge:
        """A gauge of its own that is shown with a registry."""
        return Gauge(self.name, self.text, self.labels, registry=registry)

    def histogram(self, registry: CollectorRegistry, buckets: Sequence[float]) -> Histogram:
        """A histogram of its own that is shown with a registry."""
        return Histogram(self.name, self.text, self.labels, registry=registry, buckets=buckets)

    def of(self, values: Values) -> CounterMetricFamily | GaugeMetricFamily:
        """The family with values that somebody else keeps."""
        kind = CounterMetricFamily if self.kind == "counter" else GaugeMetricFamily
        found = kind(self.name, self.text, labels=self.labels)
        for labels, value in values:
            found.add_metric(labels, value)
        return found


@dataclass(frozen=True, slots=True)
class ShownFamilies:
    """A collector of prometheus_client: what `collect` gives is shown."""

    collect: Callable[[], Iterable[Any]]


def page_of(registry: CollectorRegistry, accept: str) -> tuple[bytes, str]:
    """A page of all that a registry shows, and its content type, for an Accept header."""
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


def with_registry(page: bytes, registry: CollectorRegistry) -> bytes:
    """A page with what another registry shows behind its own."""
    is_openmetrics = page.endswith(_OPENMETRICS_END)
    more, _ = page_of(registry, _OPENMETRICS if is_openmetrics else "")
    return page.removesuffix(_OPENMETRICS_END) + more if is_openmetrics else page + more
