"""Generates the page of Prometheus metrics from the sidecar's families of metrics."""

from typing import Final

from docs_build.markdown import cell, code, page, table
from telemetry.sidecar.counts.families import FAMILIES, SERVICE_FAMILIES
from telemetry.sidecar.counts.label_values import COHORTS_MAX, IDLE_S, MODELS_MAX
from telemetry.sidecar.counts.objectives import SERVICES_MAX
from telemetry.sidecar.forwarding.bounded_queue import FAMILIES as FORWARDING_FAMILIES

INTRODUCTION: Final = f"""
The sidecar serves these at `/metrics`, on its HTTP port; [rules and a dashboard](../how-to/prometheus.md) can be made
of them. The good and the eligible turns of each objective are counted, and its threshold is a boundary of the
histogram's buckets; use the store for percentiles that a decision depends on. No label names a call, a user or an
utterance. At most {COHORTS_MAX} cohorts, {MODELS_MAX} models and {SERVICES_MAX} services are distinguished at a time.
Another one is `other` until one that no turn has had for {IDLE_S / 60:g} minutes gives way to it; the series of that
one end, and begin at 0 if it comes back.
"""


def prometheus_page() -> str:
    """Return the page with every metric that a sidecar exposes, with its type and labels."""
    rows = [
        (code(family.shown_name), family.kind, ", ".join(map(code, family.labels)), cell(family.text))
        for family in (*FAMILIES, *SERVICE_FAMILIES, *FORWARDING_FAMILIES)
    ]
    return page("Prometheus metrics", INTRODUCTION, table(("Metric", "Type", "Labels", "Meaning"), rows))
