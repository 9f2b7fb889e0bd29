"""Phases of a run: each has figures of its own, and no figure is pooled over a ramp."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from telemetry.model import semconv
from telemetry.model.turns import Turn
from telemetry.objectives.judgment import EligibleTurns
from telemetry.objectives.slo import Objective
from telemetry.store.answers import Filter, StartCounts
from telemetry.store.reader import StoreReader
from telemetry.store.schema import PointRow
from tests.fixtures_turns import MS, SECOND, START_UNIX_NS, Run, client_turn
from tests.unit.telemetry.store.opened_stores import reader_of_runs

# 30 quick turns, a ramp of 40 slow ones, then 25 of which five have no reply and one is invalid.
LATENCIES_MS = [*range(300, 330), *range(2000, 2040), *range(500, 525)]


def _turns() -> list[Turn]:
    turns: list[Turn] = []
    for index, latency_ms in enumerate(LATENCIES_MS):
        phase, kind = (
            ("few", "hold") if index < 30 else ("up", "ramp") if index < 70 else ("many", "spike")  # as they came
        )
        answered = index < 90
        turn = client_turn(
            index, voice_to_voice_ms=float(latency_ms) if answered else None, phase=phase, phase_kind=kind
        )
        turns.append(turn)
    turns[-6] = client_turn(
        89, outcome="invalid", invalid_reasons=("drift",), voice_to_voice_ms=9_000, phase="many", phase_kind="spike"
    )
    return turns


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreReader]:
    with reader_of_runs(tmp_path_factory.mktemp("store"), Run(turns=_turns())) as opened:
        yield opened


def test_run_figures_leave_out_ramp_and_state_its_turns(reader: StoreReader) -> None:
    summary = reader.summary(Filter(run_id="run-1"))
    assert (summary.turns.total, summary.ramp_turns) == (55, 40)
    judged = [value * MS for value in (*range(300, 330), *range(500, 519))]
    heard = summary.metrics["voice_to_voice"]
    assert heard.n == 49
    assert (heard.p50, heard.p95) == pytest.approx([np.quantile(judged, q) for q in (0.5, 0.95)])
    assert heard.max == 518 * MS
    assert sorted(reader.metric_values(Filter(), "voice_to_voice")) == judged
    assert summary.loss.received == 95, "a turn of a ramp is not lost"


def test_phases_have_own_counts_and_percentiles_in_time_order(reader: StoreReader) -> None:
    phases = reader.summary(Filter(run_id="run-1")).phases
    assert [(phase.phase, phase.kind, phase.is_ramp) for phase in phases] == [
        ("few", "hold", False),
        ("up", "ramp", True),
        ("many", "spike", False),
    ]
    assert [phase.turns.total for phase in phases] == [30, 40, 25]
    assert phases[2].turns.by_outcome == {"ok": 19, "no_reply": 5, "invalid": 1}
    assert phases[2].turns.invalid_by_reason == {"drift": 1}
    few, up, many = (phase.metrics["voice_to_voice"] for phase in phases)
    assert few.p95 == pytest.approx(np.quantile([value * MS for value in range(300, 330)], 0.95))
    assert up.p50 == pytest.approx(np.quantile([value * MS for value in range(2000, 2040)], 0.5))
    assert (many.n, many.p95, many.max) == (19, None, 518 * MS), "19 values are too few for a p95"


def test_requested_phase_is_shown_even_if_it_is_ramp(reader: StoreReader) -> None:
    up = reader.summary(Filter(phase="up"))
    assert (up.turns.total, up.metrics["voice_to_voice"].n, up.ramp_turns) == (40, 40, 0)
    assert [phase.phase for phase in up.phases] == ["up"]
    assert reader.dimension_values()["phase"] == ("few", "many", "up")


def test_objectives_are_judged_without_ramps(reader: StoreReader) -> None:
    objective = Objective("quick", "metric", 0.9, "voice_to_voice", 1_000 * MS)
    assert reader.count(Filter())(objective) == EligibleTurns(49, 55, {"generator": 1}), "five without a reply are bad"
    assert reader.count(Filter(phase="up"))(objective) == EligibleTurns(0, 40)


def test_turns_of_no_phase_are_in_every_figure(tmp_path: Path) -> None:
    with reader_of_runs(tmp_path, Run(turns=[client_turn(0), client_turn(1)])) as reader:
        summary = reader.summary()
        assert (summary.turns.total, summary.phases, summary.ramp_turns) == (2, (), 0)


def _starts(process: str, phase: str, begin_s: float, at_s: int, *counts: int) -> list[PointRow]:
    return [
        PointRow(
            name=semconv.METRIC_GENERATOR_STARTS,
            unix_ns=START_UNIX_NS + at_s * SECOND,
            value=float(count),
            attributes={
                "run_id": "run-1",
                "process_id": process,
                "phase": phase,
                "phase_kind": "hold",
                "phase_begin_s": begin_s,
                "which": which,
            },
            scope_name=semconv.SCOPE,
        )
        for which, count in zip(semconv.START_COUNTS, counts, strict=True)
    ]


@pytest.mark.slow
def test_starts_are_last_counts_of_processes_also_without_turns(tmp_path: Path) -> None:
    points = [
        *_starts("a", "one", 0.0, 5, 4, 3, 1, 0),
        *_starts("a", "one", 0.0, 9, 9, 8, 2, 1),
        *_starts("b", "one", 0.0, 9, 5, 5, 0, 0),
        *_starts("a", "none began", 10.0, 20, 6, 0, 0, 6),
        *_starts("b", "two", 20.0, 30, 3, 3, 0, 0),
    ]
    turns = [client_turn(0, phase="two", phase_kind="hold"), client_turn(1, phase="one", phase_kind="hold")]
    with reader_of_runs(tmp_path, Run(turns=turns, points=points)) as reader:
        summary = reader.summary(Filter(run_id="run-1"))
        assert summary.starts == StartCounts(planned=23, started=16, late=2, dropped=7)
        assert [(phase.phase, phase.turns.total, phase.starts) for phase in summary.phases] == [
            ("one", 1, StartCounts(14, 13, 2, 1)),
            ("none began", 0, StartCounts(6, 0, 0, 6)),
            ("two", 1, StartCounts(3, 3, 0, 0)),
        ]
        only = reader.summary(Filter(run_id="run-1", phase="two"))
        assert (only.starts, [phase.phase for phase in only.phases]) == (StartCounts(3, 3, 0, 0), ["two"])
        assert reader.summary(Filter(run_id="run-1", cohort="mine")).starts is None
        assert reader.summary(Filter(run_id="run-2")).starts is None
