"""The page of Prometheus metrics, read from the sidecar's own registry."""

from typing import Any, Final

from docs_build.markdown import cell, code, page, table
from telemetry.sidecar.otlp.ingest import IngestState
from telemetry.sidecar.prometheus import Exposition

INTRODUCTION: Final = """
The sidecar serves these at `/metrics`, on its HTTP port. Histograms have the thresholds of the objectives among their
buckets, so that good turns can be counted from them; percentiles for a decision come from the store. A label never
names a call, a user or an utterance, and the number of series is limited: what is beyond the limit is `other`.
"""


class _Nothing:
    """A receiver that has received nothing."""

    state = IngestState()


def prometheus_page() -> str:
    """Every metric that a sidecar exposes, with its type and labels."""
    rows = [
        (code(_shown_name(family)), family.type, ", ".join(map(code, labels)), cell(family.documentation))
        for family, labels in families()
    ]
    return page("Prometheus metrics", INTRODUCTION, table(("Metric", "Type", "Labels", "Meaning"), rows))


def families() -> list[tuple[Any, tuple[str, ...]]]:
    """Every metric family of a new exposition, with the names of its labels."""
    exposition = Exposition()
    exposition.watch(_Nothing())
    found: list[tuple[Any, tuple[str, ...]]] = []
    collectors: dict[Any, Any] = exposition.registry._collector_to_names  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - it has no other list of them
    for collector in collectors:
        for family in collector.collect():
            sampled = {name for sample in family.samples for name in sample.labels} - {"le"}
            found.append((family, tuple(getattr(collector, "_labelnames", sorted(sampled)))))
    return found


def _shown_name(family: Any) -> str:
    """As it stands in the exposition: a counter's name ends in `_total`."""
    return f"{family.name}_total" if family.type == "counter" else family.name
