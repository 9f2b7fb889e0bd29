"""The turns of a run out of its store, compared with the turns themselves."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from telemetry.comparison.figures import METRICS_COMPARED, REPORTED
from telemetry.comparison.runs import ComparedRun
from telemetry.model.metrics import METRICS
from telemetry.model.turns import Turn
from telemetry.objectives.slo import default_objectives
from telemetry.sidecar.queries import Asked, reply_to
from telemetry.store.answers import Filter
from telemetry.store.questions.comparisons import RunTurnsQuestion
from telemetry.store.reader import StoreReader
from telemetry.store.wire import question_named
from tests.fixtures_turns import SECOND, START_UNIX_NS, Run, client_turn, fill_store, synthetic_run
from tests.unit.telemetry.store.opened_stores import reader_of, reader_of_runs

NOW = START_UNIX_NS + 10_000 * SECOND
RUN = synthetic_run(turns=240)
ASKED = RunTurnsQuestion("run-1", METRICS_COMPARED, REPORTED, tuple(default_objectives()))


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreReader]:
    store = fill_store(tmp_path_factory.mktemp("store"), RUN, synthetic_run("run-2", turns=30))
    with StoreReader(store, wall_clock_ns=lambda: NOW) as opened:
        yield opened


def asked(reader: StoreReader, question: RunTurnsQuestion = ASKED) -> ComparedRun:
    rows = reader.run_turns(question)
    assert rows is not None
    return rows


def spoken() -> list[Turn]:
    return [turn for turn in RUN.turns if turn.source == "client"]


def test_the_columns_are_those_of_the_client_s_turns(reader: StoreReader) -> None:
    answer = asked(reader)
    assert (answer.run_id, answer.turns.turns) == ("run-1", len(spoken()))
    column = answer.turns.number("voice_to_voice")
    assert column is not None
    values = [METRICS["voice_to_voice"].value(turn) for turn in spoken()]
    assert sorted(map(str, column.tolist())) == sorted(str(float("nan") if v is None else float(v)) for v in values)
    hits = answer.turns.number("cache_hit")
    assert hits is not None
    assert sorted(map(str, hits.tolist())) == sorted(
        str(float("nan") if turn.cache_hit is None else float(turn.cache_hit)) for turn in spoken()
    )
    assert answer.asked["target"] == "ws://127.0.0.1:8080/v1/realtime"
    assert answer.telemetry_lost == 0.0


def test_words_have_a_code_that_any_program_can_find(reader: StoreReader) -> None:
    def code(turn: Turn) -> int:
        parts = (turn.utterance_id, turn.noise_profile, turn.channel_profile, turn.snr_asked_db, turn.audio_variant)
        text = "\x1f".join("" if part is None else str(part) for part in parts)
        lower = int.from_bytes(hashlib.md5(text.encode(), usedforsecurity=False).digest()[8:], "little")
        return lower & 0x7FFFFFFF

    assert sorted(asked(reader).turns.code("audio").tolist()) == sorted(code(turn) for turn in spoken())


def test_unheard_interrupted_reply_is_no_reply(tmp_path: Path) -> None:
    broken = {"outcome": "interrupted", "failure_kind": "interrupted"}
    turns = [
        client_turn(0, **broken),  # something of it was heard
        client_turn(1, voice_to_voice_ms=None, **broken),
        client_turn(2, voice_to_voice_ms=None, outcome="interrupted"),  # by its caller
    ]
    with reader_of_runs(tmp_path, Run(turns), wall_clock_ns=lambda: NOW) as reader:
        answer = asked(reader, RunTurnsQuestion("run-1"))
    assert (answer.turns.has_outcome("no_reply").sum(), answer.turns.has_outcome("interrupted").sum()) == (1, 2)


def test_unknown_run_has_no_turns(reader: StoreReader) -> None:
    assert reader.run_turns(RunTurnsQuestion("gone")) is None


def test_the_answer_travels(reader: StoreReader) -> None:
    replied = reply_to(reader, Asked("run_turns", msgspec.json.encode({"asked": ASKED}), True))
    there: ComparedRun = msgspec.msgpack.decode(replied.body, type=question_named("run_turns").type_of_answer)
    here = asked(reader)
    assert (there.run_id, there.asked, there.generator_limit) == (here.run_id, here.asked, here.generator_limit)
    assert sorted(there.turns.code("audio").tolist()) == sorted(here.turns.code("audio").tolist())
    none = reply_to(reader, Asked("run_turns", msgspec.json.encode({"asked": {"run_id": "gone"}}), True))
    assert msgspec.msgpack.decode(none.body) is None


@pytest.mark.slow
def test_a_run_of_which_percentiles_leave_out_many_turns_says_so(tmp_path: Path) -> None:
    cases = (
        (100, 2, None),  # two turns are one pause of the machine
        (100, 3, "3 of 100 turns are invalid, more than 1 %"),
        (300, 3, None),
        (300, 4, "4 of 300 turns are invalid, more than 1 %"),
    )
    turns = [
        client_turn(1_000 * case + i, run_id=f"run-{case}", outcome="invalid" if i < invalid else "ok")
        for case, (total, invalid, _) in enumerate(cases)
        for i in range(total)
    ]
    with reader_of(tmp_path, *turns) as reader:
        for case, (_, _, left_out) in enumerate(cases):
            answer = asked(reader, RunTurnsQuestion(f"run-{case}"))
            assert answer.left_out == left_out
            assert answer.generator_limit is not None, "no process announced its end"


@pytest.mark.slow
def test_a_run_of_which_no_call_reached_a_session_says_so(tmp_path: Path) -> None:
    failed = {"voice_to_voice_ms": None, "outcome": "error", "outcome_reason": "connection refused"}
    runs: dict[str, dict[str, Any]] = {
        "refused": {"target": "ws://gone", "connect_ns": None, **failed},
        "connected": {"target": "ws://gone", "connect_ns": 5_000_000, **failed},
        "answered": {},
    }
    whys = {"refused": "none of 30 calls reached a session at ws://gone: connection refused"}
    turns = [
        client_turn(100 * place + i, run_id=name, **runs[name]) for place, name in enumerate(runs) for i in range(30)
    ]
    with reader_of(tmp_path, *turns) as reader:
        for name in runs:
            answer, summed = asked(reader, RunTurnsQuestion(name)), reader.summary(Filter(run_id=name))
            assert answer.unreached == summed.unreached == whys.get(name), name


@pytest.mark.slow
def test_lost_first_turns_count_as_in_the_report(tmp_path: Path) -> None:
    worker = "run-1-worker-0"
    late = [turn for turn in RUN.turns if turn.process_id != worker or (turn.sequence or 0) >= 20]
    other = [turn for turn in RUN.turns if turn.process_id != worker]
    for name, kept, missing in (("late", late, 20), ("other", other, 120)):
        store = fill_store(tmp_path / name, Run(kept, RUN.spans, RUN.points))
        with StoreReader(store, wall_clock_ns=lambda: NOW) as reader:
            answer, lost = asked(reader), reader.summary(Filter(run_id="run-1")).loss.missing
        assert (answer.unmeasured, lost) == (missing, missing), name
        assert answer.telemetry_lost == pytest.approx(missing / 240), name


def test_call_that_could_not_be_connected_took_longest(tmp_path: Path) -> None:
    turns = [
        client_turn(0, connect_ns=5_000_000, turn_index=0),
        client_turn(1, connect_ns=None, turn_index=1),
        client_turn(2, connect_ns=None, turn_index=0, outcome="error", voice_to_voice_ms=None),
        client_turn(3, connect_ns=None, turn_index=1, outcome="error", voice_to_voice_ms=None),
    ]
    with reader_of(tmp_path, *turns) as reader:
        column = asked(reader, RunTurnsQuestion("run-1", ("connect",))).turns.number("connect")
    assert column is not None
    assert sorted(map(str, column.tolist())) == ["5000000.0", "inf", "nan", "nan"]
