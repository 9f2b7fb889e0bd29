"""How forwarding is shown."""

from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families

from telemetry.sidecar.counts.turns import Exposition
from telemetry.sidecar.forwarding.destinations import Destination
from telemetry.sidecar.forwarding.exposition import forwarding_families, shown_in_state, with_forwarding
from telemetry.sidecar.forwarding.link_messages import DestinationReport
from telemetry.sidecar.forwarding.tally import DROP_REASONS, Tally, Waiting
from telemetry.store.log_positions import START

DESTINATION = Destination("up", "https://otlp.example", "redact")
REPORT = DestinationReport(
    "up",
    START,
    Tally(forwarded_requests=12, rejected_items=3, dropped_requests={"age": 4}),
    Waiting(2048, 1.5),
    "HTTP status 503",
)
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def test_both_text_formats_hold_every_family() -> None:
    for accept, parsed in (("", text_string_to_metric_families), (OPENMETRICS, openmetrics_families)):
        body, _ = Exposition().render(accept)
        families = {family.name: family for family in parsed(with_forwarding(body, [REPORT]).decode())}
        assert {family.name for family in forwarding_families()} <= families.keys()
        values = {
            (sample.name, *sample.labels.values()): sample.value
            for family in families.values()
            for sample in family.samples
        }
        assert values["voice_forward_requests_total", "up"] == 12
        assert values["voice_forward_backlog_seconds", "up"] == 1.5
        assert values["voice_forward_up", "up"] == 0
        assert values["voice_forward_dropped_requests_total", "up", "age"] == 4
        assert all(("voice_forward_dropped_requests_total", "up", reason) in values for reason in DROP_REASONS)


def test_without_destinations_nothing_is_added() -> None:
    body, _ = Exposition().render(OPENMETRICS)
    assert with_forwarding(body, []) == body
    assert shown_in_state([], []) == {}


def test_the_state_names_where_it_goes_and_what_was_counted() -> None:
    shown = shown_in_state([DESTINATION], [REPORT])["up"]
    assert isinstance(shown, dict)
    assert shown["url"] == "https://otlp.example"
    assert shown["failure"] == "HTTP status 503"
    assert (shown["backlog_bytes"], shown["forwarded_requests"]) == (2048, 12)
