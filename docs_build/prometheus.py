"""Generates the page of Prometheus metrics from the sidecar's registry."""

from typing import Any, Final

from docs_build.markdown import cell, code, page, table
from telemetry.sidecar.otlp.ingest import IngestState
from telemetry.sidecar.prometheus import Exposition

INTRODUCTION: Final = """
The sidecar serves these at `/metrics`, on its HTTP port. The thresholds of the objectives are among the histogram
buckets, so that good turns can be counted; use the store for percentiles that a decision depends on. No label names a
call, a user or an utterance, and the number of series is limited: beyond the limit, the label is `other`.
"""


class _Nothing:
    """An ingest that has received nothing."""

    state = IngestState()


def prometheus_page() -> str:
    """Return the page with every metric that a sidecar exposes, with its type and labels."""
    rows = [
        (code(_shown_name(family)), family.type, ", ".join(map(code, labels)), cell(family.documentation))
        for family, labels in families()
    ]
    return page("Prometheus metrics", INTRODUCTION, table(("Metric", "Type", "Labels", "Meaning"), rows))


def families() -> list[tuple[Any, tuple[str, ...]]]:
    """Return every metric family of a new exposition, with the names of its labels."""
    exposition = Exposition()
    exposition.watch(_Nothing())
    found: list[tuple[Any, tuple[str, ...]]] = []
    collectors: dict[Any, Any] = exposition.registry._collector_to_names  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - there is no public list
    for collector in collectors:
        for family in collector.collect():
            sampled = {name for sample in family.samples for name in sample.labels} - {"le"}
            found.append((family, tuple(getattr(collector, "_labelnames", sorted(sampled)))))
    return found


def _shown_name(family: Any) -> str:
    """Return the name in the exposition format, where a counter's name ends with `_total`."""
    return f"{family.name}_total" if family.type == "counter" else family.name
