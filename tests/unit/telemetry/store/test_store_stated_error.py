"""What is stated of a figure's error holds whatever the clips' true errors are, as long as each is as its clip says."""

import random
from pathlib import Path

import msgspec
import numpy as np
import pytest

from telemetry.model import semconv
from telemetry.model.metrics import METRICS
from telemetry.model.spans import SpanRow
from telemetry.model.turns import Turn
from telemetry.store import writer as writing
from telemetry.store.answers import Filter, SpeechBoundErrors
from telemetry.store.reader import StoreReader
from telemetry.store.schema import Batch
from telemetry.store.writer import StoreWriter
from tests.fixtures_turns import MS, client_turn, synthetic_run

UNCERTAIN = [metric for metric in METRICS.values() if metric.counts_from is not None]


def reader_of(folder: Path, *turns: Turn, calibrated_to_ms: object = None) -> StoreReader:
    spans: list[SpanRow] = []
    if calibrated_to_ms is not None:
        declared: dict[str, object] = {"voice.run.run_id": "run-1", "voice.run.calibrated_to_ms": calibrated_to_ms}
        spans = [SpanRow("0" * 32, "1" * 16, None, semconv.SPAN_RUN, "loadtest", 1, 2, declared)]
    with StoreWriter(folder) as writer:
        writer.append(Batch(turns=turns, spans=spans))
    return StoreReader(folder, wall_clock_ns=lambda: 2**61)


def uncertain(turns: list[Turn], seed: int, unknown: float = 0.0) -> list[Turn]:
    """The turns, each with an uncertainty of its own, or with none."""
    dice = random.Random(seed)
    return [
        msgspec.structs.replace(
            turn,
            speech_start_uncertainty_ns=None if dice.random() < unknown else dice.randrange(60 * MS),
            speech_end_uncertainty_ns=None if dice.random() < unknown else dice.randrange(120 * MS),
            barge_in_stop_ns=dice.randrange(400 * MS) if dice.random() < 0.7 else None,
        )
        for turn in turns
    ]


def as_it_was(turn: Turn, dice: random.Random) -> Turn:
    """The turn as it truly was: its clip is wrong by anything up to what it states, and by anything if it does not."""

    def error_ns(stated_ns: int | None) -> int:
        return dice.choice((-1, 1)) * 10**12 if stated_ns is None else dice.randint(-stated_ns, stated_ns)

    start, end, stop = turn.speech_start_perf_ns, turn.speech_end_perf_ns, turn.barge_in_stop_ns
    assert start is not None
    assert end is not None
    started_later = error_ns(turn.speech_start_uncertainty_ns)
    return msgspec.structs.replace(
        turn,
        speech_start_perf_ns=start + started_later,
        speech_end_perf_ns=end + error_ns(turn.speech_end_uncertainty_ns),
        barge_in_stop_ns=None if stop is None else stop - started_later,
    )


@pytest.mark.parametrize(("seed", "unknown"), [(1, 0.0), (2, 0.0), (3, 0.02), (4, 0.3)])
def test_the_true_statistics_lie_within_what_is_stated(tmp_path: Path, seed: int, unknown: float) -> None:
    run = [turn for turn in synthetic_run(turns=220, seed=seed).turns if turn.source == "client"]
    turns = uncertain(run, seed, unknown)
    valid = [turn for turn in turns if turn.outcome != "invalid"]
    with reader_of(tmp_path, *turns) as reader:
        found = reader.summary().metrics
    checked = 0
    for again in range(20):
        dice = random.Random(f"{seed}/{again}")
        truly = [as_it_was(turn, dice) for turn in valid]
        for metric in UNCERTAIN:
            values = [value for turn in truly if (value := metric.value(turn)) is not None]
            error = found[metric.name].error
            assert error is not None
            for between, statistic in (
                (error.p50, np.percentile(values, 50)),
                (error.p95, np.percentile(values, 95)),
                (error.p99, np.percentile(values, 99)),
                (error.max, max(values)),
            ):
                if between is not None:
                    checked += 1
                    assert between[0] - 1 <= statistic <= between[1] + 1, (metric.name, between, statistic)
    assert checked > 100


def test_the_interval_is_worked_out_on_paper(tmp_path: Path) -> None:
    stated_ms = (10, 30, 5)
    turns = [
        client_turn(index, voice_to_voice_ms=ms, speech_end_uncertainty_ns=stated_ms[index] * MS)
        for index, ms in enumerate((500, 510, 600))
    ]
    with reader_of(tmp_path, *turns) as reader:
        summary = reader.summary()
    stats = summary.metrics["voice_to_voice"]
    assert stats.error is not None
    assert stats.p50 == 510 * MS
    assert stats.error.p50 == (490 * MS, 540 * MS)  # of 490, 480, 595 and of 510, 540, 605
    assert stats.error.max == (595 * MS, 605 * MS)
    assert (stats.error.p95, stats.error.turns_unknown, stats.error.instrument_ns) == (None, 0, None)
    assert summary.speech_bounds == SpeechBoundErrors(3, 3, None, None, 10.0 * MS, 30 * MS)
    # What does not count from the speech has no such error; what was not measured states none.
    assert summary.metrics["connect"].error is None
    assert summary.metrics["wer"].error is None
    silent = summary.metrics["asr_final_latency"].error
    assert silent is not None
    assert (silent.p50, silent.turns_unknown) == (None, 0)


def test_few_turns_of_unknown_uncertainty_leave_the_median_known_and_the_tail_not(tmp_path: Path) -> None:
    turns = [client_turn(i, voice_to_voice_ms=500 + i, speech_end_uncertainty_ns=10 * MS) for i in range(97)]
    turns += [client_turn(i, voice_to_voice_ms=300) for i in range(97, 100)]
    with reader_of(tmp_path, *turns) as reader:
        error = reader.summary().metrics["voice_to_voice"].error
        assert error is not None
        assert error.turns_unknown == 3
        assert error.p50 is not None
        low, high = error.p50
        # Three unknown turns may lie at either end: they move the median by three places at most, beside the 10 ms.
        assert (high - low) / MS == pytest.approx(23.0)
        assert error.p99 is None
        assert error.max is None
    with reader_of(tmp_path / "none", *(client_turn(i) for i in range(30))) as reader:
        error = reader.summary().metrics["voice_to_voice"].error
        assert error is not None
        assert (error.p50, error.p95, error.max, error.turns_unknown) == (None, None, None, 30)


def test_the_instrument_adds_what_the_run_cites_to_voice_to_voice_alone(tmp_path: Path) -> None:
    turn = client_turn(0, speech_end_uncertainty_ns=10 * MS, endpoint_perf_ns=3_200 * MS)
    with reader_of(tmp_path, turn, calibrated_to_ms="0.5") as reader:
        metrics = reader.summary(Filter(run_id="run-1")).metrics
        heard, closed = metrics["voice_to_voice"].error, metrics["endpointing"].error
        assert heard is not None
        assert closed is not None
        assert (heard.p50, heard.instrument_ns) == ((489.5 * MS, 510.5 * MS), 0.5 * MS)
        assert (closed.p50, closed.instrument_ns) == ((190 * MS, 210 * MS), None)
        # Of no run in particular nothing is known of the instrument.
        anyone = reader.summary().metrics["voice_to_voice"].error
        assert anyone is not None
        assert (anyone.p50, anyone.instrument_ns) == ((490 * MS, 510 * MS), None)


@pytest.mark.parametrize("declared", ["", "unknown", "nan", "-1", "0", "1e12", True])
def test_a_declared_bound_that_is_none_is_not_known(tmp_path: Path, declared: object) -> None:
    turn = client_turn(0, speech_end_uncertainty_ns=10 * MS)
    with reader_of(tmp_path, turn, calibrated_to_ms=declared) as reader:
        error = reader.summary(Filter(run_id="run-1")).metrics["voice_to_voice"].error
        assert error is not None
        assert error.instrument_ns is None


def test_segments_from_before_uncertainties_are_read_as_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = writing.turns_table
    names = ["speech_start_uncertainty_ns", "speech_end_uncertainty_ns"]
    monkeypatch.setattr(writing, "turns_table", lambda turns: full(turns).drop_columns(names))
    with reader_of(tmp_path, *(client_turn(i) for i in range(20))) as reader:
        summary = reader.summary()
        error = summary.metrics["voice_to_voice"].error
        assert error is not None
        assert (error.p50, error.turns_unknown) == (None, 20)
        assert summary.speech_bounds == SpeechBoundErrors(20, 20)
