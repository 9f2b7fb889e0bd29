"""`/metrics` of turns that services report without a run of ours: families of their own, services limited in number."""

from collections import Counter

import msgspec
import pytest

from telemetry.model.turns import Turn
from telemetry.objectives.objective import Objective
from telemetry.sidecar.counts.exposition import Exposition
from telemetry.sidecar.counts.label_values import IDLE_S, OTHER
from telemetry.sidecar.counts.objectives import SERVICES_MAX
from telemetry.sidecar.counts.state import IngestState
from tests.exposed import exposed
from tests.fixtures_turns import MS, client_turn, exchange

TURNS = "voice_service_turns_total"


def reported(index: int, service: str = "bot", **changes: object) -> Turn:
    return msgspec.structs.replace(exchange(index)[1], **{"run_id": f"service:{service}:2026-09-21"} | changes)


def turns_of(exposition: Exposition) -> dict[str, float]:
    return {dict(labels)["service_name"]: value for labels, value in exposed(exposition).of(TURNS).items()}


def test_service_reports_are_counted_apart_from_caller_turns() -> None:
    exposition = Exposition([Objective("v2v", "metric", 0.95, "voice_to_voice", 733 * MS)])
    own = msgspec.structs.replace(exchange(4)[1], run_id="run-1")
    turns = [client_turn(0), own, *(reported(index) for index in range(3)), reported(3, "desk", fallback="rule")]
    exposition.observe(turns)
    shown = exposed(exposition)
    assert turns_of(exposition) == {"bot": 3.0, "desk": 1.0}
    assert shown.total("voice_turns_total") == 1.0
    name = "voice_service_turn_voice_to_voice_seconds"
    assert shown.total(f"{name}_count", service_name="bot") == 3.0
    assert shown.total(f"{name}_bucket", service_name="bot", le="0.733") == 3.0
    assert shown.total("voice_service_fallbacks_total", service_name="desk", kind="rule") == 1.0
    assert any(series == f"{name}_bucket" for series, _ in shown.exemplars)


def test_turn_is_counted_once_and_its_revisions_separately() -> None:
    exposition = Exposition()
    exposition.observe([reported(0, outcome="no_reply"), reported(1)])
    exposition.observe_revised([reported(0, late_spans=3), client_turn(5)])
    shown = exposed(exposition)
    for name, outcomes in ((TURNS, {"no_reply", "ok"}), ("voice_service_turns_revised_total", {"ok"})):
        assert {dict(labels)["outcome"]: value for labels, value in shown.of(name).items()} == dict.fromkeys(
            outcomes, 1
        )


def test_values_that_cannot_be_are_counted_by_source_and_cause() -> None:
    exposition = Exposition()
    causes = {"contradicted_metrics": ("endpointing", "connect"), "contradicted_causes": ("longer_than_span", "newer")}
    exposition.observe([reported(0, **causes), client_turn(1, **causes), client_turn(2)])
    counts = exposed(exposition).of("voice_contradicted_values_total")
    assert {labels: value for labels, value in counts.items() if value} == {
        frozenset({("source", source), ("cause", cause)}): 1.0
        for source in ("client", "service")
        for cause in ("longer_than_span", OTHER)
    }
    assert counts[frozenset({("source", "client"), ("cause", "before_turn")})] == 0.0, "an increase from 0 is seen"


def test_without_a_service_there_are_no_families_of_services() -> None:
    exposition = Exposition(state=IngestState())
    exposition.observe([client_turn(0)])
    assert b"voice_service_" not in exposition.render("")[0]


@pytest.mark.slow
def test_services_that_senders_make_up_do_not_grow_the_page() -> None:
    now_s = [0.0]
    exposition = Exposition(clock_s=lambda: now_s[0])
    for index in range(SERVICES_MAX + 5):
        exposition.observe([reported(index, f"made up {index}\n")])
    shown = turns_of(exposition)
    assert (len(shown), shown[OTHER]) == (SERVICES_MAX + 1, 5.0)
    # One that is not heard of any more gives way, and what takes its place begins at nothing.
    now_s[0] += IDLE_S + 1
    exposition.observe([reported(99, "new"), reported(100, "new")])
    shown = turns_of(exposition)
    assert (len(shown), shown["new"]) == (SERVICES_MAX + 1, 2.0)


def test_spans_that_no_adapter_knows_are_counted_by_name() -> None:
    state = IngestState(unmapped_spans=Counter({f"scope/span {index}": index + 1 for index in range(40)}))
    shown = exposed(Exposition(state=state)).of("voice_service_unmapped_spans_total")
    by_name = {dict(labels)["span"]: count for labels, count in shown.items()}
    assert len(by_name) == 33
    assert by_name["scope/span 31"] == 32.0
    assert by_name[OTHER] == sum(range(33, 41))
