"""Cut turns and what arrived outside the conversations, in the store's answers."""

from itertools import product
from pathlib import Path

import pytest

from telemetry.model.turns import Turn
from telemetry.objectives.judgment import WAITED_FROM, EligibleTurns
from telemetry.objectives.slo import Objective, count_turns, default_objectives
from telemetry.store.answers import Beside, ContradictedValue, Contradictions, Filter
from tests.fixtures_turns import MS, client_turn
from tests.unit.telemetry.store.opened_stores import reader_of

ENDED = 3_000 * MS  # the speech of every turn


def cut(index: int, waited_ms: float = 200, **changes: object) -> Turn:
    by = "the stop time-out of 1 s" if index % 2 else "the end of the caller"
    fields = {"outcome": "cut", "cut_by": by, "hangup_perf_ns": ENDED + round(waited_ms * MS)} | changes
    return client_turn(index, voice_to_voice_ms=None, **fields)


def test_cut_turns_are_counted_by_cause_and_not_eligible(tmp_path: Path) -> None:
    with reader_of(tmp_path, client_turn(0), *(cut(index) for index in range(1, 6)), client_turn(6)) as reader:
        turns = reader.summary().turns
    assert (turns.total, turns.ok, turns.cut, turns.invalid, turns.eligible) == (7, 2, 5, 0, 2)
    assert turns.cut_by == {"the stop time-out of 1 s": 3, "the end of the caller": 2}


@pytest.mark.slow
def test_the_store_counts_cut_turns_by_the_one_rule(tmp_path: Path) -> None:
    heard = {"first_audio_perf_ns": ENDED + 500 * MS}
    spoke = {"speech_end_perf_ns": None}
    connecting = {"speech_start_perf_ns": None, "speech_end_perf_ns": None}
    shapes: list[dict[str, object]] = [{}, heard, heard | {"underrun_worst_ns": 900 * MS}, spoke, connecting]
    shapes += [connecting | {"turn_index": 1}, {"connect_ns": 900 * MS}, {"llm_first_token_perf_ns": ENDED + 1}]
    waits = (-2_900, 100, 800, 801, 5_000)
    turns = [cut(index, wait, **shape) for index, (wait, shape) in enumerate(product(waits, shapes))]
    turns += [client_turn(len(turns) + index, voice_to_voice_ms=400 * index) for index in range(4)]
    objectives = [Objective("end", "outcome", 0.99, outcomes=("ok",))]
    for metric in (*WAITED_FROM, "underrun_worst", "tokens_per_s"):
        threshold = 800 if metric == "tokens_per_s" else 800 * MS
        objectives.append(Objective(metric, "metric", 0.95, metric, threshold))
    with reader_of(tmp_path, *turns) as reader:
        for objective in objectives:
            assert reader.count(Filter())(objective) == count_turns(turns)(objective), objective.name


def test_nothing_looks_better_for_turns_that_were_cut(tmp_path: Path) -> None:
    """All 20 answers would have been late: the ones cut before they came count as late, too."""
    late = [client_turn(index, voice_to_voice_ms=2_000) for index in range(20)]
    some_cut = [*late[:10], *(cut(index, 1_500) for index in range(10, 20))]
    (fast,) = [objective for objective in default_objectives() if objective.metric == "voice_to_voice"]
    with reader_of(tmp_path / "whole", *late) as whole, reader_of(tmp_path / "cut", *some_cut) as cut_off:
        assert whole.count(Filter())(fast) == cut_off.count(Filter())(fast) == EligibleTurns(0, 20)


@pytest.mark.slow
def test_unknown_and_duplicate_events_are_added_up(tmp_path: Path) -> None:
    turns = [
        client_turn(0, unknown_events=2, unknown_event_names=("b", "a"), duplicate_events=0, service_latency_reports=2),
        client_turn(1, unknown_events=1, unknown_event_names=("a",), duplicate_events=3, service_latency_reports=0),
        client_turn(2),
    ]
    with reader_of(tmp_path, *turns) as reader:
        assert reader.summary().beside == Beside(3, 3, 1, ("a", "b"))
    with reader_of(tmp_path / "none") as reader:
        assert reader.summary().beside == Beside()


@pytest.mark.slow
def test_impossible_values_and_late_spans_are_counted_by_cause(tmp_path: Path) -> None:
    """Those that a client heard, and those that a service reports of the same trace under a run of its own."""
    heard = client_turn(0, contradicted_metrics=("connect",), contradicted_causes=("negative",))
    reported = [
        client_turn(
            index,
            source="service",
            run_id=run_id,
            span_id=f"{index + 100:016x}",
            late_spans=late,
            contradicted_metrics=("endpointing", "voice_to_voice"),
            contradicted_causes=("longer_than_span", "not_a_number"),
        )
        for index, run_id, late in (
            (0, "service:bot:2026-11-11", 3),
            (1, "run-1", None),
            (7, "service:bot:2026-11-11", 2),
        )
    ]
    with reader_of(tmp_path, heard, client_turn(1), client_turn(2), *reported) as reader:
        contradictions = reader.summary(Filter(run_id="run-1")).contradictions
        assert contradictions == Contradictions(
            (
                ContradictedValue("service", "endpointing", "longer_than_span", 2),
                ContradictedValue("service", "voice_to_voice", "not_a_number", 2),
                ContradictedValue("client", "connect", "negative", 1),
            ),
            late_spans=3,
            revised_turns=1,
        )
        of_service = reader.summary(Filter(run_id="service:bot:2026-11-11")).contradictions
        assert [(value.metric, value.turns) for value in of_service.values] == [
            ("endpointing", 2),
            ("voice_to_voice", 2),
        ]
        assert (of_service.late_spans, of_service.revised_turns) == (5, 2)
        assert contradictions.texts == {
            "withheld": (
                "5 impossible values (2 × endpointing, reported: longer than the span that states it; "
                "2 × voice to voice, reported: not a number, or more than a day; "
                "1 × connect, heard: a duration below zero)"
            ),
            "late": "3 spans of services came late: 1 turn judged again",
        }
    with reader_of(tmp_path / "none", client_turn(3)) as reader:
        assert reader.summary().contradictions == Contradictions()
        assert reader.summary().contradictions.texts == {}
