"""`/metrics` of turns that services report without a run of ours: families of their own, services limited in number."""

import msgspec
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from telemetry.model.turns import Turn
from telemetry.objectives.objective import Objective
from telemetry.sidecar.counts.label_values import IDLE_S, OTHER
from telemetry.sidecar.counts.services import SERVICES_MAX, ServiceExposition
from telemetry.sidecar.counts.turns import Exposition
from tests.fixtures_turns import MS, client_turn, exchange

# By name and labels.
Found = dict[tuple[str, frozenset[tuple[str, str]]], float]


def reported(index: int, service: str = "bot", **changes: object) -> Turn:
    return msgspec.structs.replace(exchange(index)[1], **{"run_id": f"service:{service}:2026-09-21"} | changes)


def samples(exposition: ServiceExposition, accept: str = "text/plain") -> Found:
    page, _ = Exposition().render(accept)
    text = exposition.add_to(page, {}).decode()
    parse = openmetrics if accept.startswith("application/openmetrics") else prometheus
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in parse(text)
        for sample in family.samples
        if sample.name.startswith("voice_service_")
    }


def turns_of(found: Found) -> dict[str, float]:
    name = "voice_service_turns_total"
    return {dict(labels)["service_name"]: value for (each, labels), value in found.items() if each == name}


def test_what_services_report_is_counted_apart_from_what_callers_heard() -> None:
    exposition = ServiceExposition([Objective("v2v", "metric", 0.95, "voice_to_voice", 733 * MS)])
    own = msgspec.structs.replace(exchange(4)[1], run_id="run-1")
    turns = [client_turn(0), own, *(reported(index) for index in range(3)), reported(3, "desk", fallback="rule")]
    exposition.observe(turns)
    for accept in ("text/plain", "application/openmetrics-text; version=1.0.0"):
        found = samples(exposition, accept)
        assert turns_of(found) == {"bot": 3.0, "desk": 1.0}
        name = "voice_service_turn_voice_to_voice_seconds"
        assert found[f"{name}_count", frozenset({("service_name", "bot")})] == 3.0
        assert found[f"{name}_bucket", frozenset({("service_name", "bot"), ("le", "0.733")})] == 3.0
        assert found["voice_service_fallbacks_total", frozenset({("service_name", "desk"), ("kind", "rule")})] == 1.0
    assert 'trace_id="' in exposition.add_to(b"# EOF\n", {}).decode()


def test_a_turn_is_counted_once_and_what_becomes_of_it_later_apart() -> None:
    exposition = ServiceExposition()
    exposition.observe([reported(0, outcome="no_reply"), reported(1)])
    exposition.observe_revised([reported(0, late_spans=3), client_turn(5)])
    found = samples(exposition)
    assert turns_of(found) == {"bot": 1.0}, "the last of its outcomes"
    by_outcome = {
        (name, dict(labels)["outcome"]): value for (name, labels), value in found.items() if "outcome" in dict(labels)
    }
    assert by_outcome == {
        ("voice_service_turns_total", "no_reply"): 1.0,
        ("voice_service_turns_total", "ok"): 1.0,
        ("voice_service_turns_revised_total", "ok"): 1.0,
    }


def test_values_that_cannot_be_are_counted_by_source_and_cause() -> None:
    exposition = Exposition()
    causes = {"contradicted_metrics": ("endpointing", "connect"), "contradicted_causes": ("longer_than_span", "newer")}
    exposition.observe([reported(0, **causes), client_turn(1, **causes), client_turn(2)])
    for accept in ("text/plain", "application/openmetrics-text; version=1.0.0"):
        parse = openmetrics if accept.startswith("application/openmetrics") else prometheus
        found = {
            (sample.labels["source"], sample.labels["cause"]): sample.value
            for family in parse(exposition.render(accept)[0].decode())
            for sample in family.samples
            if sample.name == "voice_contradicted_values_total"
        }
        counted = {key: value for key, value in found.items() if value}
        assert counted == {
            (source, cause): 1.0 for source in ("client", "service") for cause in ("longer_than_span", OTHER)
        }
        assert found["client", "before_turn"] == 0.0, "an increase from 0 is seen"


def test_without_a_service_the_page_stays_as_it_is() -> None:
    exposition = ServiceExposition()
    exposition.observe([client_turn(0)])
    for page in (b"a 1\n", b"a 1\n# EOF\n"):
        assert exposition.add_to(page, {}) == page


def test_services_that_senders_make_up_do_not_grow_the_page() -> None:
    now_s = [0.0]
    exposition = ServiceExposition(clock_s=lambda: now_s[0])
    for index in range(SERVICES_MAX + 5):
        exposition.observe([reported(index, f"made up {index}\n")])
    found = turns_of(samples(exposition))
    assert len(found) == SERVICES_MAX + 1
    assert found[OTHER] == 5.0
    # One that is not heard of any more gives way, and what takes its place begins at nothing.
    now_s[0] += IDLE_S + 1
    exposition.observe([reported(99, "new"), reported(100, "new")])
    found = turns_of(samples(exposition))
    assert found["new"] == 2.0
    assert len(found) == SERVICES_MAX + 1


def test_spans_that_no_adapter_knows_are_counted_by_name() -> None:
    unmapped = {f"scope/span {index}": index + 1 for index in range(40)}
    for page, parse in ((b"", prometheus), (b"# EOF\n", openmetrics)):
        (family,) = parse(ServiceExposition().add_to(page, unmapped).decode())
        found = {sample.labels["span"]: sample.value for sample in family.samples}
        assert len(found) == 33
        assert found["scope/span 31"] == 32.0
        assert found[OTHER] == sum(range(33, 41))
