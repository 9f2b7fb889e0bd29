"""A segment's content is verified before its rows enter an answer, and not before."""

import os
from pathlib import Path
from typing import Final

import pytest

from telemetry.store import manifest as manifests
from telemetry.store.answers import Filter
from telemetry.store.pages import PageQuestion
from telemetry.store.reader import StoreReader
from tests.fixtures_turns import fill_store, synthetic_run

TURNS: Final = 12


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with a segment of turns for each of two runs."""
    return fill_store(tmp_path, *(synthetic_run(f"run-{number}", turns=TURNS, seed=number) for number in (1, 2)))


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files whose content is verified."""
    found: list[str] = []
    crc32_of = manifests.crc32_of

    def heard(path: Path) -> int:
        found.append(path.name)
        return crc32_of(path)

    monkeypatch.setattr(manifests, "crc32_of", heard)
    return found


def turns_of(store: Path, run_id: str) -> Path:
    (only,) = (each for each in manifests.load(store).of("turns") if each.run_ids == (run_id,))
    return manifests.segment_path(store, only)


def damage(path: Path) -> bytes:
    """Change one byte of the rows, which leaves size and footer; the content before."""
    content = path.read_bytes()
    path.write_bytes(content[:40] + bytes([content[40] ^ 0xFF]) + content[41:])
    return content


def test_a_segment_is_verified_when_it_is_first_read(store: Path, read: list[str]) -> None:
    with StoreReader(store) as reader:
        assert len(reader.turns(Filter(run_id="run-1"))) == 2 * TURNS
        assert read == [turns_of(store, "run-1").name]
        reader.turns(Filter(run_id="run-1"))
        assert len(read) == 1
        reader.turns()
        assert sorted(read) == sorted(turns_of(store, f"run-{number}").name for number in (1, 2))
        reader.summary()
        assert len(read) == len(set(read)) > 2


def test_a_damaged_segment_is_named_by_the_first_question_that_would_read_it(store: Path) -> None:
    victim = turns_of(store, "run-2")
    damage(victim)
    with StoreReader(store) as reader:
        assert len(reader.turns(Filter(run_id="run-1"))) == 2 * TURNS
        assert reader.faults == ()
        assert reader.turns(Filter(run_id="run-2")) == []
        expected = (f"{victim}: {2 * TURNS} rows of turns left out, its content is not what was written",)
        assert reader.faults == expected
        assert len(reader.turns()) == 2 * TURNS
        assert reader.faults == expected


@pytest.mark.slow
@pytest.mark.parametrize("fewest_rolled_up", [0, 10**9], ids=["rolled-up", "turn-by-turn"])
def test_no_figure_holds_rows_of_a_damaged_segment(store: Path, fewest_rolled_up: int) -> None:
    victim = turns_of(store, "run-1")
    with StoreReader(store) as reader:
        before = reader.summary().turns.total
    content = damage(victim)
    with StoreReader(store, fewest_rolled_up=fewest_rolled_up) as reader:
        for _ in range(2):
            summary = reader.summary()
            assert (summary.turns.total, summary.skipped_segments) == (before // 2, 1)
            page = reader.page(PageQuestion())
            assert [victim.name in fault for fault in page.faults] == [True]
            assert [run.run_id for run in page.runs if run.turns] == ["run-2"]
        victim.write_bytes(content)
        assert reader.summary().turns.total == before
        assert reader.faults == ()


def test_a_missing_file_is_named_by_a_question_that_does_not_read_it(store: Path) -> None:
    victim = turns_of(store, "run-2")
    victim.unlink()
    with StoreReader(store) as reader:
        assert len(reader.turns(Filter(run_id="run-1"))) == 2 * TURNS
        assert reader.faults == (f"{victim}: {2 * TURNS} rows of turns left out, the file is missing",)


def test_a_file_that_changes_under_its_name_is_verified_again(store: Path, read: list[str]) -> None:
    path = turns_of(store, "run-1")
    with StoreReader(store) as reader:
        assert len(reader.turns()) == 4 * TURNS
        stat = path.stat()
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
        assert len(reader.turns()) == 4 * TURNS
    assert read.count(path.name) == 2
