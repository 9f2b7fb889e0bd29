"""Forwarding in `/metrics`."""

from collections import Counter

from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families

from telemetry.sidecar.counts.exposition import Exposition
from telemetry.sidecar.forwarding.bounded_queue import (
    DROP_REASONS,
    FAMILIES,
    DestinationState,
    forwarding_families,
    shown_in_state,
)
from telemetry.sidecar.forwarding.destinations import Destination

DESTINATION = Destination("up", "https://otlp.example", "redact")
STATE = DestinationState(
    "up",
    backlog_bytes=2048,
    backlog_s=1.5,
    forwarded_requests=12,
    rejected_items=3,
    refused_requests=Counter({"HTTP status 400": 2, "HTTP status 422": 1}),
    dropped_requests=Counter({"age": 4}),
    lost_items=99,
    failures={"metrics": "HTTP status 503"},
)
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def test_both_text_formats_hold_every_family() -> None:
    for accept, parsed in (("", text_string_to_metric_families), (OPENMETRICS, openmetrics_families)):
        body, _ = Exposition(shown=[lambda: forwarding_families([STATE])]).render(accept)
        families = {family.name: family for family in parsed(body.decode())}
        assert {family.name for family in FAMILIES} <= families.keys()
        values = {
            (sample.name, *sample.labels.values()): sample.value
            for family in families.values()
            for sample in family.samples
        }
        assert values["voice_forward_requests_total", "up"] == 12
        assert values["voice_forward_backlog_seconds", "up"] == 1.5
        assert values["voice_forward_up", "up"] == 0
        assert values["voice_forward_lost_items_total", "up"] == 99
        refused = {key[-1]: value for key, value in values.items() if key[0] == "voice_forward_refused_requests_total"}
        assert refused == {"HTTP status 400": 2, "HTTP status 413": 0, "HTTP status 422": 1}
        assert values["voice_forward_dropped_requests_total", "up", "age"] == 4
        assert all(("voice_forward_dropped_requests_total", "up", reason) in values for reason in DROP_REASONS)


def test_without_destinations_nothing_is_added() -> None:
    assert list(forwarding_families([])) == []
    assert shown_in_state([], []) == {}


def test_the_state_names_where_it_goes_and_what_was_counted() -> None:
    shown = shown_in_state([DESTINATION], [STATE])["up"]
    assert shown["url"] == "https://otlp.example"
    assert shown["failure"] == "HTTP status 503"
    assert (shown["backlog_bytes"], shown["forwarded_requests"]) == (2048, 12)
    assert shown["refused_requests"] == {"HTTP status 400": 2, "HTTP status 422": 1}
    assert shown["lost_items"] == 99
