"""Samples of turns: which turns they are, that a segment is read once for them, and that damage is left out."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pyarrow.parquet as pq
import pytest

from telemetry.model.metrics import HEADLINE
from telemetry.objectives.objective import Objective
from telemetry.objectives.run_verdict import MissCause
from telemetry.store import explanation, first_turns, manifest, run_verdict
from telemetry.store import turn_samples as samples
from telemetry.store.answers import Filter
from telemetry.store.explanation import Explanation, ExplanationQuestion, TurnSelection
from telemetry.store.reader import StoreReader
from telemetry.store.schema import Batch
from telemetry.store.writer import StoreWriter
from tests.fixtures_turns import MS, SECOND, START_UNIX_NS, client_turn

ASKED = ExplanationQuestion(TurnSelection(metric=HEADLINE, at_least=700 * MS), Filter(run_id="run-1"))


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Six segments of 40 turns, of which every fourth is slow and of one model."""
    with StoreWriter(tmp_path) as writer:
        for part in range(6):
            writer.append(
                Batch(
                    [
                        client_turn(
                            index,
                            voice_to_voice_ms=800 if index % 4 == 0 else 400,
                            model="large" if index % 4 == 0 else "small",
                        )
                        for index in range(40 * part, 40 * part + 40)
                    ]
                )
            )
    monkeypatch.setattr(samples, "MOST_TURNS", 100)
    monkeypatch.setattr(samples, "STRETCH_TURNS", 8)
    return tmp_path


def test_a_sample_is_the_first_turns_of_row_groups_over_the_whole_time(store: Path) -> None:
    of_file = [
        pq.read_table(manifest.segment_path(store, segment)).column("span_id").to_pylist()[:8]
        for segment in manifest.load(store).of("turns")
    ]
    with StoreReader(store) as reader:
        found = reader.explanation(ASKED)
    assert found.is_sample
    assert found.selected + found.others == sum(map(len, of_file)) == 48
    assert found.selected == 12


def test_what_was_read_of_a_segment_is_not_read_again(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with StoreReader(store) as reader:
        before = reader.explanation(ASKED)
        monkeypatch.setattr(first_turns.FirstTurns, "_read", None)
        assert reader.explanation(ASKED) == before
        monkeypatch.undo()
        monkeypatch.setattr(samples, "MOST_TURNS", 100)
        monkeypatch.setattr(samples, "STRETCH_TURNS", 8)
        with StoreWriter(store) as writer:
            writer.append(Batch([client_turn(240 + index) for index in range(40)]))
        after = reader.explanation(ASKED)
        assert after.selected + after.others == 56
        of_window = reader.explanation(
            ExplanationQuestion(ASKED.selection, Filter(run_id="run-1", since_unix_ns=START_UNIX_NS + 40 * SECOND))
        )
        assert of_window.selected + of_window.others == 48


def test_a_damaged_segment_is_left_out_of_a_sample(store: Path) -> None:
    first = manifest.segment_path(store, manifest.load(store).of("turns")[0])
    content = bytearray(first.read_bytes())
    content[-200:-8] = bytes(192)
    first.write_bytes(content)
    with StoreReader(store) as reader:
        found = reader.explanation(ASKED)
        assert found.selected + found.others == 40
        assert len(reader.faults) == 1


def test_an_answer_about_the_same_sample_is_worked_out_once(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    objective = Objective("fast", "metric", 0.99, metric=HEADLINE, threshold=700 * MS)
    asked: list[str] = []

    def counted(name: str, module: ModuleType) -> None:
        of: Callable[..., object] = getattr(module, name)

        def counting(*given: object) -> object:
            asked.append(name)
            return of(*given)

        monkeypatch.setattr(module, name, counting)

    counted("rank_dimensions", explanation)
    counted("find_cause", run_verdict)

    def answers() -> tuple[Explanation, MissCause | None]:
        return reader.explanation(ASKED), reader.run_verdict(ASKED.filter, [objective]).cause

    with StoreReader(store) as reader:
        before = answers()
        assert sorted(asked) == ["find_cause", "rank_dimensions"]
        # A turn more changes the store, and not the sample.
        with StoreWriter(store) as writer:
            writer.append(Batch([client_turn(0, run_id="run-2")]))
        assert answers() == before
        assert len(asked) == 2
        # Another selection is another question.
        other = ExplanationQuestion(TurnSelection(metric=HEADLINE, at_least=300 * MS), ASKED.filter)
        assert reader.explanation(other).selected == 48
        # Another segment of the run makes another sample.
        with StoreWriter(store) as writer:
            writer.append(Batch([client_turn(240 + index) for index in range(40)]))
        after = answers()
        assert after[0].selected + after[0].others == 56
        assert asked.count("find_cause") == 2
    with StoreReader(store) as reader:
        assert answers() == after
