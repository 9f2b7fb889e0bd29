"""The content of an `Exposition`, read by prometheus_client's own parsers."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Exemplar

from telemetry.sidecar.counts.exposition import Exposition

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
Labels = frozenset[tuple[str, str]]


@dataclass
class Exposed:
    """The value and the exemplar of every series."""

    series: dict[tuple[str, Labels], float] = field(default_factory=dict)
    exemplars: dict[tuple[str, Labels], Exemplar] = field(default_factory=dict)
    size_bytes: int = 0

    def of(self, name: str, **labels: str) -> dict[Labels, float]:
        """The values of the series of one name that have these labels."""
        wanted = set(labels.items())
        return {shown: value for (series, shown), value in self.series.items() if series == name and wanted <= shown}

    def total(self, name: str, **labels: str) -> float:
        """Their sum."""
        return sum(self.of(name, **labels).values())

    def values(self, label: str) -> set[str]:
        """Every value of a label."""
        return {value for _, shown in self.series for name, value in shown if name == label}


def exposed(exposition: Exposition) -> Exposed:
    """Both formats, parsed; they are equal, and no series is there twice."""
    body, _ = exposition.render(OPENMETRICS)
    parsed = Exposed(size_bytes=len(body))
    for family in openmetrics.text_string_to_metric_families(body.decode()):
        for sample in family.samples:
            key = _key(sample.name, sample.labels)
            assert key not in parsed.series, key
            parsed.series[key] = sample.value
            if sample.exemplar is not None:
                parsed.exemplars[key] = sample.exemplar
    plain, content_type = exposition.render("")
    assert content_type.startswith("text/plain")
    families = text_string_to_metric_families(plain.decode())
    assert {_key(entry.name, entry.labels): entry.value for one in families for entry in one.samples} == parsed.series
    return parsed


def _key(name: str, labels: Mapping[str, str]) -> tuple[str, Labels]:
    return name, frozenset(labels.items())
