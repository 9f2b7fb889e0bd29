"""Turns of runs that say nothing about the service."""

from dataclasses import replace
from pathlib import Path
from zlib import crc32

import msgspec
import pytest

from telemetry.model.generator_health import gauge_metric
from telemetry.model.turn_spans import SpanRow
from telemetry.model.turns import Turn
from telemetry.objectives.objective import Objective
from telemetry.store.questions.burn_rates import LimitedTurns
from telemetry.store.reader import StoreReader
from telemetry.store.schema import Batch, PointRow
from telemetry.store.writer import StoreWriter
from tests.fixtures_turns import SECOND, START_UNIX_NS, client_turn, run_span

FAST = Objective("fast", "metric", 0.9, "voice_to_voice", 800e6)
NOW = START_UNIX_NS + 3600 * SECOND


def of_run(run_id: str, turns: int, *, invalid: int = 0, silent: int = 0) -> list[Turn]:
    """Turns of which the first are invalid; of the silent ones, that asked nothing, every one."""
    made = [
        msgspec.structs.replace(
            client_turn(index, run_id=run_id, process_id=f"worker-{run_id}", call_id=f"{run_id}-{index}"),
            span_id=f"{crc32(run_id.encode()):08x}{index:08x}",
            outcome="invalid" if index < invalid else "ok",
        )
        for index in range(turns)
    ]
    return made + [
        msgspec.structs.replace(turn, turn_kind="silence", outcome="invalid", span_id=f"f{turn.span_id[1:]}")
        for turn in made[:silent]
    ]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store")
    runs = {
        "valid": of_run("valid", 100, invalid=1),
        "many invalid": of_run("many invalid", 50, invalid=5),  # which its objectives judge, turn by turn
        "lost": of_run("lost", 30),
        "silent": of_run("silent", 40, silent=20),  # of silent turns alone many are invalid
    }
    with StoreWriter(folder) as writer:
        for run_id, turns in runs.items():
            phases = ("start",) if run_id == "lost" else ("start", "end")
            spans = [_with_process(run_span(run_id, START_UNIX_NS, phase), f"worker-{run_id}") for phase in phases]
            writer.append(Batch(turns, spans))
    return folder


def _with_process(span: SpanRow, process_id: str) -> SpanRow:
    return replace(span, attributes={**span.attributes, "voice.run.process_id": process_id})


@pytest.mark.parametrize(
    ("now_unix_ns", "limited"),
    [
        (NOW, LimitedTurns(runs=1, turns=30)),
        (START_UNIX_NS + 40 * SECOND, LimitedTurns()),
        (NOW + 29 * 86_400 * SECOND, LimitedTurns()),
    ],
    ids=["a lost process", "all at work", "before the longest window"],
)
def test_valid_turns_of_lost_runs_of_the_period_are_counted(
    store: Path, now_unix_ns: int, limited: LimitedTurns
) -> None:
    with StoreReader(store, wall_clock_ns=lambda: now_unix_ns) as reader:
        assert reader.burn_rates([FAST]).limited == limited


def test_runs_without_end_are_judged_by_their_own_processes(tmp_path: Path) -> None:
    """A gauge of one run says that its process is at work; of the other run nothing was heard for as long."""
    at_work = PointRow(
        gauge_metric("calls_in_flight"), NOW - SECOND, 3.0, {"run_id": "going", "process_id": "worker-going"}
    )
    with StoreWriter(tmp_path) as writer:
        for run_id, turns in (("going", 30), ("lost", 20), ("lost too", 10)):
            begun = _with_process(run_span(run_id, START_UNIX_NS, "start"), f"worker-{run_id}")
            writer.append(Batch(of_run(run_id, turns), [begun], [at_work] if run_id == "going" else []))
    with StoreReader(tmp_path, wall_clock_ns=lambda: NOW) as reader:
        assert reader.burn_rates([FAST]).limited == LimitedTurns(runs=2, turns=20 + 10)
    with StoreReader(tmp_path, wall_clock_ns=lambda: NOW + 3600 * SECOND) as reader:
        assert reader.burn_rates([FAST]).limited == LimitedTurns(runs=3, turns=30 + 20 + 10)
