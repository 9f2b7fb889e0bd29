"""Rows read from the store equal those written, and answers are those of the raw values."""

from pathlib import Path

import numpy as np
import pytest

from telemetry.model.metrics import METRICS
from telemetry.objectives.judgment import EligibleTurns
from telemetry.objectives.objective import Objective
from telemetry.store.reader import StoreReader
from telemetry.store.schema import Batch
from telemetry.store.writer import StoreWriter
from tests.fixtures_turns import MS, client_turn, fill_store, synthetic_run


def test_turns_spans_and_points_come_back_as_they_were_written(tmp_path: Path) -> None:
    run = synthetic_run(turns=60)
    with StoreReader(fill_store(tmp_path / "store", run)) as reader:
        assert sorted(reader.turns(limit=1000), key=lambda t: t.span_id) == sorted(run.turns, key=lambda t: t.span_id)
        trace_id = run.turns[0].trace_id
        expected = sorted((s for s in run.spans if s.trace_id == trace_id), key=lambda s: s.span_id)
        assert sorted(reader.spans(trace_id), key=lambda s: s.span_id) == expected


@pytest.mark.slow
def test_quantiles_are_those_of_the_raw_values(tmp_path: Path) -> None:
    run = synthetic_run(turns=240)
    valid = [t for t in run.turns if t.source == "client" and t.outcome != "invalid"]
    with StoreReader(fill_store(tmp_path, run)) as reader:
        metrics = reader.summary().metrics
    for name, metric in METRICS.items():
        values = [value for turn in valid if (value := metric.value(turn)) is not None]
        assert metrics[name].n == len(values), name
        if len(values) >= 100:
            figures = (metrics[name].p50, metrics[name].p95, metrics[name].p99)
            assert figures == pytest.approx(np.percentile(values, [50, 95, 99]), rel=1e-12), name
            assert metrics[name].max == max(values)
    gaps = [gap for turn in valid for gap in turn.llm_chunk_gaps_ns]
    assert metrics["itl"].n == len(gaps)
    assert metrics["itl"].p95 == pytest.approx(np.percentile(gaps, 95), rel=1e-12)


@pytest.mark.slow
def test_an_empty_directory_answers_that_nothing_is_known(tmp_path: Path) -> None:
    with StoreReader(tmp_path) as reader:
        summary = reader.summary()
        assert (summary.turns.total, summary.newest_unix_ns, summary.cohorts) == (0, None, ())
        assert all(stats.n == 0 and stats.p50 is None for stats in summary.metrics.values())
        assert (summary.cache.hit_rate, summary.loss.emitted, summary.loss.missing) == (None, None, 0)
        assert (reader.runs(), reader.timeline(), reader.slowest(), reader.stage_budget()) == ([], [], [], {})
        assert reader.turn("0" * 32, 0) == (None, None)
        assert reader.count()(Objective("v2v", "metric", 0.9, "voice_to_voice", 800 * MS)) == EligibleTurns()


def test_a_reader_sees_what_was_appended_since_it_was_opened(tmp_path: Path) -> None:
    with StoreWriter(tmp_path) as writer, StoreReader(tmp_path) as reader:
        assert reader.summary().turns.total == 0
        writer.append(Batch(turns=[client_turn(0)]))
        assert reader.summary().turns.total == 1
        writer.append(Batch(turns=[client_turn(1), client_turn(2)]))
        assert reader.summary().turns.total == 3
