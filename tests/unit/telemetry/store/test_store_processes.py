"""The generator's processes of a run, and who went without a goodbye."""

import random
from dataclasses import replace
from itertools import product
from pathlib import Path

import msgspec
import pytest

from telemetry.model.generator_health import gauge_metric
from telemetry.model.turn_spans import SpanRow
from telemetry.store.answers import Filter, ProcessInfo, TelemetryLoss
from telemetry.store.questions.instrument import NO_LOSS, lost_share
from telemetry.store.reader import StoreReader
from telemetry.store.schema import PointRow
from tests.fixtures_turns import SECOND, START_UNIX_NS, Run, client_turn, exchange, fill_store, run_span
from tests.unit.telemetry.store.opened_stores import reader_of, reader_of_runs


def _spoken(process: str, at_s: int, phase: str) -> SpanRow:
    span = run_span(f"run-1-{process}", START_UNIX_NS + at_s * SECOND, phase)
    attributes = {"voice.run.run_id": "run-1", "voice.run.process_id": process, "voice.run.worker": f"{process} of 2"}
    return replace(span, attributes={**attributes, "voice.run.phase": phase})


def _calls(process: str, at_s: int, calls: float) -> PointRow:
    attributes: dict[str, object] = {"run_id": "run-1", "process_id": process}
    return PointRow(gauge_metric("calls_in_flight"), START_UNIX_NS + at_s * SECOND, calls, attributes)


def test_which_processes_ended_properly(tmp_path: Path) -> None:
    turns = [client_turn(index, process_id=str(index % 2 + 1)) for index in range(5)]
    spans = [_spoken("1", 0, "start"), _spoken("2", 1, "start"), _spoken("1", 30, "end")]
    points = [_calls("1", 10, 4), _calls("2", 10, 4), _calls("2", 12, 3), _calls("1", 29, 0)]
    with reader_of(tmp_path, *turns, spans=spans, points=points) as reader:
        first, second = reader.processes("run-1")
        assert (first.process_id, first.ended, first.turns, first.calls_in_flight) == ("1", True, 3, 0)
        assert second == ProcessInfo(
            process_id="2",
            worker="2 of 2",
            began_unix_ns=START_UNIX_NS + SECOND,
            last_seen_unix_ns=START_UNIX_NS + 12 * SECOND,
            ended=False,
            turns=2,
            calls_in_flight=3,
            calls_reported_unix_ns=START_UNIX_NS + 12 * SECOND,
        )
        assert [run.ended for run in reader.runs()] == [False]
        assert reader.processes("another run") == []


def test_a_run_of_two_processes_has_ended_when_both_say_so(tmp_path: Path) -> None:
    spans = [_spoken(process, at_s, phase) for process in "12" for at_s, phase in ((0, "start"), (9, "end"))]
    with reader_of(tmp_path, spans=spans) as reader:
        assert [run.ended for run in reader.runs()] == [True]
        assert [process.ended for process in reader.processes("run-1")] == [True, True]


def test_process_without_start_span_is_known_from_its_turns(tmp_path: Path) -> None:
    service = client_turn(7, source="service", process_id="assistant")
    with reader_of(tmp_path, client_turn(0, process_id="1"), service) as reader:
        (process,) = reader.processes("run-1")
    assert (process.process_id, process.began_unix_ns, process.ended, process.turns) == ("1", None, False, 1)


def test_generator_points_have_one_row_per_process_and_time(tmp_path: Path) -> None:
    def point(name: str, process: str, at_s: int, value: float) -> PointRow:
        return PointRow(name, START_UNIX_NS + at_s * SECOND, value, {"run_id": "run-1", "process_id": process})

    output = [
        point(gauge_metric("cpu_ratio"), "b", 2, 0.5),
        point(gauge_metric("frames_sent"), "b", 2, 1000),
        point(gauge_metric("cpu_ratio"), "a", 1, 0.25),
        point(gauge_metric("calls_in_flight"), "a", 3, 7),
    ]
    with reader_of(tmp_path, points=output) as reader:
        points = reader.generator_points(Filter(run_id="run-1"))
        assert [(point.process_id, point.cpu_ratio, point.frames_sent) for point in points] == [
            ("a", 0.25, None),
            ("b", 0.5, 1000),
        ]
        assert reader.generator_points(Filter(run_id="other")) == []


def test_cpu_ratio_of_process_is_its_upper_quartile(tmp_path: Path) -> None:
    attributes: dict[str, object] = {"run_id": "run-1", "process_id": "1"}
    points = [
        PointRow(gauge_metric("cpu_ratio"), START_UNIX_NS + at_s * SECOND, ratio, attributes)
        for at_s, ratio in enumerate((0.9, 0.5, 0.4, 0.4, 0.3))
    ]
    with reader_of(tmp_path, spans=[_spoken("1", 0, "start"), _spoken("2", 0, "start")], points=points) as reader:
        assert [process.cpu_ratio for process in reader.processes("run-1")] == [0.5, None]


@pytest.mark.slow
def test_missing_turns_of_long_lived_process_are_counted_per_run(tmp_path: Path) -> None:
    def of(run_id: str, sequences: range, *missing: int) -> Run:
        turns = [exchange(index, run_id=run_id)[1] for index in sequences if index not in missing]
        return Run([msgspec.structs.replace(t, process_id="assistant") for t in turns])

    # Runs 1 and 2 share the numbers 30 to 39; 7 and 52 are lost; run 3 begins with 70.
    store = fill_store(
        tmp_path,
        of("run-1", range(0, 40, 1), 7, *range(30, 40, 2)),
        of("run-2", range(30, 60, 1), *range(31, 40, 2), 52),
        of("run-3", range(70, 80)),
    )
    with StoreReader(store) as reader:
        missing = [reader.summary(Filter(run_id=f"run-{number}")).loss.missing for number in (1, 2, 3)]
        received = [reader.summary(Filter(run_id=f"run-{number}")).loss.received for number in (1, 2, 3)]
    # Up to its last number, 39, run 1 lacks 7; run 2, from 30 to 59, lacks 52; run 3 begins where it began.
    assert missing == [1, 1, 0]
    assert received == [34, 24, 10]


@pytest.mark.slow
def test_missing_turns_equal_gaps_in_sets_of_numbers(tmp_path: Path) -> None:
    dice = random.Random(7)
    given: dict[tuple[str, str], set[int]] = {}
    for run_id, process in product(("run-1", "run-2"), ("alone-1", "alone-2", "shared", "other")):
        if not process.startswith("alone") or process.endswith(run_id[-1]):
            first = dice.randrange(200)
            given[run_id, process] = {number for number in range(first, first + 300) if dice.random() < 0.9}
    turns = [
        client_turn(index, run_id=run_id, process_id=process, sequence=number)
        for index, (run_id, process, number) in enumerate(
            (run_id, process, number) for (run_id, process), numbers in given.items() for number in sorted(numbers)
        )
    ]
    with reader_of_runs(tmp_path, Run(turns)) as reader:
        for run_id in ("run-1", "run-2"):
            missing = received = 0
            for (of_run, process), numbers in given.items():
                if of_run == run_id:
                    every = set[int]().union(*(numbers for (_, name), numbers in given.items() if name == process))
                    lower = min(numbers) if min(every) < min(numbers) else 0
                    missing += len(set(range(lower, max(numbers) + 1)) - every)
                    received += len(numbers)
            loss = reader.summary(Filter(run_id=run_id)).loss
            assert (loss.missing, loss.received) == (missing, received)


@pytest.mark.parametrize(
    ("loss", "share"),
    [
        pytest.param(NO_LOSS, None, id="no process gives numbers"),
        pytest.param(TelemetryLoss(processes=1, emitted=0, received=0, missing=0), None, id="nothing was emitted yet"),
        pytest.param(TelemetryLoss(processes=2, emitted=10, received=8, missing=2), 0.2, id="two of ten are missing"),
    ],
)
def test_the_lost_share_is_unknown_without_any_turn(loss: TelemetryLoss, share: float | None) -> None:
    assert lost_share(loss) == share
