"""Trust in each run of a list, from its summary and from its store."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from telemetry.objectives.slo import default_objectives
from telemetry.store.run_folders.catalog import RunCatalog
from telemetry.store.run_folders.entries import RunEntry, missing_turns
from tests.fixtures_turns import START_UNIX_NS, Run, fill_store
from tests.run_folders import HOUR_NS, latency_run, run_folder, write_summary

NOW = START_UNIX_NS + 100 * HOUR_NS


def only(place: Path, now_unix_ns: int = NOW) -> RunEntry:
    (entry,) = RunCatalog([str(place)], default_objectives()).entries(now_unix_ns=now_unix_ns)
    return entry


@pytest.mark.parametrize(
    ("emitted", "missing", "expected"), [(None, 0, None), (None, 3, 3), (180, 0, 0), (180, 2, 2), (0, 0, 0)]
)
def test_turns_are_missing_if_gap_or_higher_emitted_count(
    emitted: int | None, missing: int, expected: int | None
) -> None:
    assert missing_turns(emitted, missing) == expected


def test_a_summary_tells_cohorts_loss_and_calibration(tmp_path: Path) -> None:
    write_summary(
        tmp_path / "whole",
        "r-1",
        cohorts=[{"name": "B", "turns": {"total": 90}}, {"name": "A"}],
        telemetry={"emitted": 182, "received": 180, "missing": 2},
        generator={"limited": False, "processes_lost": 0, "calibration": {"error_s": 0.0049, "state": "calibrated"}},
    )
    entry = only(tmp_path)
    assert (entry.cohorts, entry.missing_turns, entry.calibrated_to_ms) == (("A", "B"), 2, 4.9)
    assert not entry.is_generator_limited


def test_values_absent_from_old_summary_are_unknown(tmp_path: Path) -> None:
    write_summary(tmp_path / "old", "r-1")
    entry = only(tmp_path)
    assert (entry.cohorts, entry.missing_turns, entry.calibrated_to_ms) == (None, None, None)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"exit_code": 4}, True),
        ({"exit_code": 130, "generator": {"limited": True}}, True),
        ({"exit_code": 130, "generator": {"processes_lost": 1}}, True),
        ({"exit_code": 3, "generator": {"limited": False, "processes_lost": 0}}, False),
    ],
)
def test_a_summary_tells_whether_the_generator_was_the_limit(
    tmp_path: Path, changes: dict[str, Any], expected: bool
) -> None:
    write_summary(tmp_path / "run", "r-1", **changes)
    assert only(tmp_path).is_generator_limited is expected


def _with(run: Run, *, cohorts: tuple[str, ...] = (), **declared: str) -> Run:
    """The run with its turns in cohorts, one after the other, and with more declared of it."""
    turns = [
        msgspec.structs.replace(turn, cohort=cohorts[place % len(cohorts)]) if cohorts else turn
        for place, turn in enumerate(run.turns)
    ]
    for span in run.spans:
        span.attributes.update({f"voice.run.{name}": value for name, value in declared.items()})
    return Run(turns, run.spans)


def test_a_store_tells_the_same(tmp_path: Path) -> None:
    run = latency_run("r-1", 20)
    fill_store(tmp_path / "store", _with(run, cohorts=("B", "B", "A", "A"), calibrated_to_ms="4.9"))
    entry = only(tmp_path / "store")
    # No process of these runs says how many turns it sent.
    assert (entry.cohorts, entry.missing_turns, entry.calibrated_to_ms) == (("A", "B"), None, 4.9)
    assert not entry.is_generator_limited


@pytest.mark.slow
def test_invalid_bound_is_not_a_bound(tmp_path: Path) -> None:
    texts = ("", "soon", "nan", "inf", "-1", "0", "1e6", "0.5")
    runs = [_with(latency_run(f"of {text}", 2), calibrated_to_ms=text) for text in texts]
    entries = RunCatalog([str(fill_store(tmp_path / "store", *runs))], default_objectives()).entries(now_unix_ns=NOW)
    bounds = {entry.run_id: entry.calibrated_to_ms for entry in entries}
    assert bounds == {f"of {text}": None if text != "0.5" else 0.5 for text in texts}


def test_a_gap_in_the_numbers_of_a_process_is_seen(tmp_path: Path) -> None:
    run = latency_run("r-1", 20)
    clients = [turn for turn in run.turns if turn.source == "client"]
    numbered = [
        msgspec.structs.replace(client, process_id="r-1-worker-0", sequence=place)
        for place, client in enumerate(clients)
    ]
    fill_store(tmp_path / "store", Run([*numbered[:7], *numbered[9:]], run.spans))
    assert only(tmp_path / "store").missing_turns == 2


def test_a_run_that_goes_on_has_its_cohorts_and_no_loss_yet(tmp_path: Path) -> None:
    run = _with(latency_run("r-1", 20), cohorts=("A", "A"))
    begun = [span for span in run.spans if span.attributes["voice.run.phase"] == "start"]
    fill_store(tmp_path / "store", Run(run.turns, begun))
    entry = only(tmp_path / "store", now_unix_ns=max(turn.started_unix_ns for turn in run.turns) + 1_000_000_000)
    assert (entry.state, entry.cohorts, entry.missing_turns) == ("under way", ("A",), None)


def test_run_with_lost_processes_is_generator_limited(tmp_path: Path) -> None:
    run = latency_run("r-1", 20)
    fill_store(tmp_path / "store", Run(run.turns, [e for e in run.spans if e.attributes["voice.run.phase"] == "start"]))
    entry = only(tmp_path / "store")
    assert (entry.state, entry.is_generator_limited) == ("not judged", True)


def test_the_list_keeps_what_it_found(tmp_path: Path) -> None:
    run_folder(tmp_path, "one", _with(latency_run("r-1", 20), cohorts=("A", "A"), calibrated_to_ms="3.5"))
    first, again = only(tmp_path), only(tmp_path)
    assert first == again
    assert (again.cohorts, again.calibrated_to_ms) == (("A",), 3.5)
