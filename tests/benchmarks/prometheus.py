"""Benchmark of counting turns for /metrics and of a scrape; prints one JSON object.

`reference` counts each turn with prometheus_client, one `observe` for each of its metrics, under labels that are
already known: what a client library would be used for. For developers of the exposition, who compare it before and
after a change; `python -m tests.benchmarks.bench` does not include it.

python -m tests.benchmarks.prometheus --turns 2500
"""

import argparse
import json
import resource
import time
from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics

from telemetry.model.metrics import METRICS, is_withheld
from telemetry.model.turns import Turn
from telemetry.objectives.slo import load_objectives
from telemetry.sidecar.counts.histograms import Buckets, series_name
from telemetry.sidecar.counts.label_values import LABELS
from telemetry.sidecar.counts.turns import Exposition
from tests.fixtures_turns import synthetic_run

ROUNDS = 5


class Reference:
    """The same counts by prometheus_client."""

    def __init__(self) -> None:
        disable_created_metrics()
        self.registry = CollectorRegistry()
        self._turns = Counter("voice_turns", "turns", (*LABELS, "outcome"), registry=self.registry)
        self._histograms = {
            name: Histogram(
                series_name(metric),
                name,
                LABELS,
                buckets=[float(bound) for bound in Buckets(metric, load_objectives(None)).bounds],
                registry=self.registry,
            )
            for name, metric in METRICS.items()
        }

    def observe(self, turns: Sequence[Turn]) -> None:
        """Count turns."""
        for turn in turns:
            if turn.source != "client":
                continue
            labels = (turn.cohort or "", turn.route or "", turn.cache_tier or "", turn.model or "")
            self._turns.labels(*labels, turn.outcome).inc()
            for name, metric in METRICS.items():
                value = None if is_withheld(turn, name) else metric.value(turn)
                if value is not None:
                    scaled = value / 1e9 if metric.unit == "ns" else value
                    self._histograms[name].labels(*labels).observe(scaled, {"trace_id": turn.trace_id})


def main() -> None:
    """Count the turns of one commit several times, by turns with each of the two."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--turns", type=int, default=2_500, help="turns of a commit, both sides of each counted")
    turns = [turn for turn in synthetic_run(turns=arguments.parse_args().turns).turns if turn.source == "client"]
    exposition, reference = Exposition(load_objectives(None)), Reference()
    counted_s: dict[str, list[float]] = {"turns": [], "reference": []}
    for _ in range(ROUNDS):
        for name, observe in (
            ("turns", lambda: exposition.observe(turns)),
            ("reference", lambda: reference.observe(turns)),
        ):
            begin_s = time.process_time()
            observe()
            counted_s[name].append(time.process_time() - begin_s)
    begin_s = time.process_time()
    body, _ = exposition.render("application/openmetrics-text; version=1.0.0")
    scrape_s = time.process_time() - begin_s
    found = {f"{name}_us_per_turn": round(min(taken) * 1e6 / len(turns), 2) for name, taken in counted_s.items()}
    found |= {"turns_per_commit": len(turns), "scrape_ms": round(scrape_s * 1e3, 1), "scrape_bytes": len(body)}
    found["peak_rss_mb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
