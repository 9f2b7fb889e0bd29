"""The list of runs: what each folder holds, what cannot be read, what is kept, notes, and removing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from telemetry.model.errors import ConfigError, StoreError
from telemetry.objectives.objective import Objective
from telemetry.objectives.openslo import parse_objectives
from telemetry.objectives.slo import default_objectives, objectives_text
from telemetry.store.database import DATABASE_NAME, owned
from telemetry.store.reader import StoreReader, open_store
from telemetry.store.run_folders import catalog as catalogs
from telemetry.store.run_folders.catalog import RunCatalog, find_run
from telemetry.store.run_folders.changes import (
    LONGEST_NOTE_CHARS,
    finish_removals,
    read_notes,
    remove_folder,
    write_note,
    writer_in,
)
from telemetry.store.run_folders.entries import RunEntry
from telemetry.store.run_folders.places import OBJECTIVES_NAME, REMOVING_PREFIX, RUNS_FOLDER, StorePlace, places_of
from tests.fixtures_turns import SECOND, START_UNIX_NS, Run, fill_store
from tests.run_folders import HOUR_NS, latency_run, run_folder, run_of, write_summary

NOW = START_UNIX_NS + 100 * HOUR_NS
UNREACHABLE = "http://127.0.0.1:9"
OBJECTIVES = default_objectives()


def listed(*places: Path | str, now_unix_ns: int = NOW) -> list[RunEntry]:
    return RunCatalog([str(place) for place in places], OBJECTIVES).entries(now_unix_ns=now_unix_ns)


def never_opened(store: str, _token: str | None) -> StoreReader:
    raise AssertionError(f"{store} was opened")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    run_folder(root, "first", latency_run("r-first", 40))
    run_folder(root, "second", latency_run("r-second", 40, llm_ms=900, began_unix_ns=START_UNIX_NS + HOUR_NS))
    return root


@pytest.mark.slow
def test_every_run_is_listed_the_newest_first(root: Path) -> None:
    second, first = listed(root)
    assert (first.run_id, first.name, first.folder) == ("r-first", "first", str(root / "first"))
    assert (first.state, second.state) == ("met", "missed")
    assert second.sentence.startswith("Missing the objective")
    assert (first.turns, first.invalid, first.users) == (120, 0, 8)
    assert (first.target, first.protocol) == ("ws://127.0.0.1:8080/v1/realtime", "openai-realtime")
    with StoreReader(root / "first" / "store") as reader:
        stats = reader.summary().metrics["voice_to_voice"]
    assert (first.p50_ns, first.p95_ns, first.p99_ns) == (stats.p50, stats.p95, stats.p99)
    assert first.reference == f"{root / 'first' / 'store'}#r-first"


def test_summary_replaces_reading_its_store(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = run_folder(tmp_path, "mine", latency_run("r-mine", 40))
    write_summary(folder, "r-mine", exit_code=6, exit_reason="voice-to-voice undecided")
    monkeypatch.setattr(catalogs, "open_store", never_opened)
    (entry,) = listed(tmp_path)
    assert (entry.state, entry.sentence, entry.profile) == (
        "undecided",
        "voice-to-voice undecided",
        "babble 10 dB, clean",
    )
    assert entry.p95_ns == pytest.approx(750 * 1e6)


def test_a_level_below_0_has_the_minus_sign_of_other_figures(tmp_path: Path) -> None:
    write_summary(tmp_path / "loud", "r-1", run={"id": "r-1", "profile": {"noise": "babble", "snr_db": -5.0}})
    (entry,) = listed(tmp_path)
    assert entry.profile == "babble −5 dB"


def test_a_run_of_another_sidecar_s_store_has_its_summary(tmp_path: Path) -> None:
    write_summary(tmp_path / "elsewhere", "r-1", exit_code=4)
    (entry,) = listed(tmp_path)
    assert (entry.state, entry.fault) == ("not judged", None)


def test_other_runs_in_the_store_of_a_summary_are_listed_too(tmp_path: Path) -> None:
    folder = tmp_path / "capacity"
    fill_store(folder / "store", latency_run("step-1", 20), latency_run("step-2", 20, seed=2))
    write_summary(folder, "step-2")
    for step in ("step-1", "step-2"):
        (folder / f"settings-{step}.json").write_text("{}")
    entries = {entry.run_id: entry for entry in listed(tmp_path)}
    assert set(entries) == {"step-1", "step-2"}
    assert entries["step-2"].p95_ns == pytest.approx(750 * 1e6), "by its summary"
    assert entries["step-1"].turns == 60


@pytest.mark.slow
def test_folders_and_the_sidecar_that_has_their_turns_are_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sidecar, store, root = "http://sidecar:4318", tmp_path / "store", tmp_path / "runs"
    for place, run_id in enumerate(("r-mine", "r-going", "r-elsewhere")):
        fill_store(store, run_of(run_id, START_UNIX_NS + place * HOUR_NS, 20))
    for name in ("mine", "going"):
        (root / name).mkdir(parents=True)
        (root / name / f"settings-r-{name}.json").write_text(json.dumps({"sidecar": f"{sidecar}/"}))
    write_summary(root / "mine", "r-mine", exit_code=6, exit_reason="undecided")
    write_note(root / "mine" / "notes", "r-mine", "cold cache")
    asked: list[str] = []

    def opened(place: str, _token: str | None) -> StoreReader:
        asked.append(place)
        return StoreReader(store)

    monkeypatch.setattr(catalogs, "open_store", opened)
    # The folder's entry for its run stays, the turns are with the sidecar, and so are the other runs.
    elsewhere, going, mine = listed(root, sidecar)
    assert (mine.name, mine.store, mine.state, mine.note) == ("mine", sidecar, "undecided", "cold cache")
    assert mine.p95_ns == pytest.approx(750 * 1e6), "by its summary"
    assert (going.name, going.run_id, going.store, going.turns) == ("going", "r-going", sidecar, 60)
    assert (elsewhere.run_id, elsewhere.folder, elsewhere.turns) == ("r-elsewhere", None, 60)
    assert asked == [sidecar], "once"
    assert [entry.run_id for entry in listed(root)] == ["r-going", "r-mine"]
    # By the folder of its store, or while the sidecar that a folder names is gone, it is the same run.
    monkeypatch.setattr(
        catalogs, "open_store", lambda place, token: open_store(place.replace(sidecar, UNREACHABLE), token)
    )
    elsewhere, going, mine = listed(root, store)
    assert (mine.name, mine.store, mine.state) == ("mine", str(store), "undecided")
    assert (going.name, going.store, going.turns, going.fault) == ("going", str(store), 60, None)
    (alone, _) = listed(root)
    assert (alone.run_id, alone.state) == ("r-going", "damaged")
    assert "sidecar" in (alone.fault or "") or UNREACHABLE in (alone.fault or "")


@pytest.mark.slow
def test_unreadable_folder_is_listed_with_its_fault(root: Path, tmp_path: Path) -> None:
    torn = run_folder(tmp_path, "torn", latency_run("r", 20))
    (torn / "store" / DATABASE_NAME).write_bytes(b"torn" * 5_000)
    (tmp_path / "empty").mkdir()
    earlier = tmp_path / "earlier" / "store"
    earlier.mkdir(parents=True)
    (earlier / "manifest.json").write_text("{}")
    half = run_folder(tmp_path, "half-summary", latency_run("r-half", 20))
    (half / "summary.json").write_text('{"run": {"id":')
    other = run_folder(tmp_path, "other-summary", latency_run("r-other", 20))
    (other / "summary.json").write_text("[1, 2]")
    summed = run_folder(tmp_path, "summed", latency_run("r-summed", 20))
    write_summary(summed, "r-summed")
    (tmp_path / "a-file").write_text("no run")
    by_name = {entry.name: entry for entry in listed(tmp_path)}
    assert set(by_name) == {"torn", "empty", "earlier", "half-summary", "other-summary", "summed"}
    assert by_name["torn"].state == "damaged"
    assert "cannot be opened" in (by_name["torn"].fault or "")
    assert by_name["empty"].state == "damaged"
    assert "no turn is stored here" in (by_name["empty"].fault or "")
    assert "earlier version" in (by_name["earlier"].fault or "")
    assert by_name["half-summary"].turns == by_name["other-summary"].turns == 60
    assert "summary.json cannot be understood" in (by_name["half-summary"].fault or "")
    assert (by_name["summed"].state, by_name["summed"].turns) == ("met", 180)


@pytest.mark.slow
def test_a_run_under_way_is_not_kept_as_it_is(tmp_path: Path) -> None:
    run = latency_run("r", 20)
    ends = [span for span in run.spans if span.attributes["voice.run.phase"] == "end"]
    run_folder(tmp_path, "live", Run(run.turns, [span for span in run.spans if span not in ends]))
    moment = START_UNIX_NS + 70 * SECOND
    catalog = RunCatalog([str(tmp_path)], OBJECTIVES)
    assert [entry.state for entry in catalog.entries(now_unix_ns=moment)] == ["under way"]
    (later,) = catalog.entries(now_unix_ns=NOW)
    assert later.state == "not judged"
    assert later.sentence.startswith("Not judged: 2 of 2 generator processes were lost after 63 s and 64 s")


def test_other_objectives_are_other_verdicts(tmp_path: Path) -> None:
    run_folder(tmp_path, "one", latency_run("r-1", 40, llm_ms=900))
    assert listed(tmp_path)[0].state == "missed"
    (entry,) = RunCatalog([str(tmp_path)], OBJECTIVES[-1:]).entries(now_unix_ns=NOW)
    assert entry.state != "missed"


@pytest.mark.slow
def test_several_places_each_once(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill_store(tmp_path / "shared", latency_run("r-a", 20), latency_run("r-b", 20, seed=2))
    assert len(listed(root, tmp_path / "shared", root / "first")) == 4
    assert {entry.folder for entry in listed(tmp_path / "shared")} == {None}
    assert listed(root / "first" / "store")[0].folder == str(root / "first")
    with pytest.raises(ConfigError, match=r"gone is not a folder.*also-gone is not a folder"):
        places_of(["gone", str(root), "also-gone"])
    monkeypatch.chdir(tmp_path)
    assert places_of([RUNS_FOLDER]) == [], "the first run makes it"
    (tmp_path / RUNS_FOLDER).touch()
    with pytest.raises(ConfigError, match="runs is not a folder"):
        places_of([RUNS_FOLDER])
    assert places_of(["http://127.0.0.1:4318/"]) == [StorePlace("http://127.0.0.1:4318")]
    (unreachable,) = listed("http://127.0.0.1:9")
    assert unreachable.state == "damaged"


@pytest.mark.slow
def test_a_run_is_found_by_what_people_call_it(root: Path) -> None:
    known = listed(root)

    def find(text: str) -> str:
        return find_run(text, lambda: known, lambda place: RunCatalog([place], OBJECTIVES)).run_id

    for text in ("first", "r-first", "r-f", "fir", str(root / "first"), str(root / "first" / "store")):
        assert find(text) == "r-first", text
    assert find(f"{root / 'first'}#r-first") == "r-first"
    assert find(f"{root}#second") == "r-second"
    for text, why in (("r-", "is 2 runs"), ("x", "is no run: known are second, first"), (str(root), "is 2 runs")):
        with pytest.raises(ConfigError, match=why):
            find(text)
    with pytest.raises(ConfigError, match="is no run"):
        find("")
    with pytest.raises(ConfigError, match="is no run"):
        find(f"{root / 'first'}#r-second")


@pytest.mark.slow
def test_note_is_kept_next_to_its_run(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, "one", latency_run("r-1", 20))
    for run_id in ("r-1", "service:a/../b", "a b\n"):
        write_note(folder / "notes", run_id, f" about {run_id!r} \n")
    assert read_notes(folder / "notes") == {
        run_id: f"about {run_id!r}" for run_id in ("r-1", "service:a/../b", "a b\n")
    }
    assert {path.parent for path in folder.rglob("*.txt")} == {folder / "notes"}
    (entry,) = listed(tmp_path)
    assert entry.note == "about 'r-1'"
    write_note(folder / "notes", "r-1", "")
    write_note(folder / "notes", "r-1", "  ")
    assert listed(tmp_path)[0].note is None
    with pytest.raises(StoreError, match="at most"):
        write_note(folder / "notes", "r-1", "x" * (LONGEST_NOTE_CHARS + 1))
    with pytest.raises(StoreError, match="too long"):
        write_note(folder / "notes", "r" * 300, "x")
    (folder / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be kept"):
        write_note(folder / "file", "r-1", "x")
    assert not list(folder.rglob(".*"))


def test_a_removed_run_is_gone_and_nothing_else(tmp_path: Path) -> None:
    for name in ("one", "two"):
        run_folder(tmp_path, name, latency_run(name, 20))
    remove_folder(tmp_path / "one")
    assert [path.name for path in tmp_path.iterdir()] == ["two"]
    with pytest.raises(StoreError, match="cannot be removed"):
        remove_folder(tmp_path / "gone")
    (tmp_path / "link").symlink_to(tmp_path / "two")
    with pytest.raises(StoreError, match="is a link"):
        remove_folder(tmp_path / "link")
    assert (tmp_path / "two" / "store").is_dir()


@pytest.mark.slow
def test_a_run_under_way_is_never_removed(tmp_path: Path) -> None:
    one = run_folder(tmp_path, "one", latency_run("r", 20))
    with owned(one / "store"), pytest.raises(StoreError, match="under way"):
        remove_folder(one)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with (elsewhere / "locust.log").open("w"):
        assert writer_in(elsewhere) == os.getpid()
        with pytest.raises(StoreError, match="under way"):
            remove_folder(elsewhere)
        # The list says so, too, though it has no store yet.
        assert {entry.name: entry.state for entry in listed(tmp_path)}["elsewhere"] == "under way"
    with (elsewhere / "locust.log").open():
        assert writer_in(elsewhere) is None, "who reads does not hold it up"
    remove_folder(elsewhere)
    remove_folder(one)
    assert list(tmp_path.iterdir()) == []


_KILLED_AT_THE_RENAME = """
import os, pathlib, shutil, signal, sys
from telemetry.store.run_folders import changes
shutil.rmtree = lambda path: os.kill(os.getpid(), signal.SIGKILL)
changes.remove_folder(pathlib.Path(sys.argv[1]))
"""


@pytest.mark.slow
def test_a_killed_removal_leaves_no_half_of_a_run(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, "one", latency_run("r", 20))
    done = subprocess.run([sys.executable, "-c", _KILLED_AT_THE_RENAME, str(folder)], check=False, timeout=60)
    assert done.returncode == -9
    assert not folder.exists()
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(REMOVING_PREFIX)
    assert listed(tmp_path) == []
    assert finish_removals(tmp_path) == 1
    assert [path.name for path in tmp_path.iterdir()] == []


@pytest.mark.slow
def test_run_is_judged_again_by_objectives_other_than_reported(tmp_path: Path) -> None:
    """`voiceprobe runs --slo FILE` and a dashboard with a file: one verdict on a run, whatever its command said."""
    first = objectives_text(None).split("\n---\n")[0]
    strict, lax = (parse_objectives(first.replace("800ms", limit), "file") for limit in ("1ms", "60s"))
    folder = run_folder(tmp_path, "one", latency_run("r-1", 60))
    write_summary(folder, "r-1", verdict={"state": "met", "sentence": "Met: by the objectives of the run"})
    (folder / OBJECTIVES_NAME).write_text(first.replace("800ms", "60s"))

    def listed(objectives: list[Objective] | None) -> tuple[str, str, int]:
        (entry,) = RunCatalog([str(tmp_path)], objectives).entries(now_unix_ns=NOW)
        return entry.state, entry.sentence[:12], entry.turns

    # The figures stay those of the summary.
    assert listed(None) == listed(lax) == ("met", "Met: by the ", 180)
    assert listed(strict) == ("missed", "Missing the ", 180)
    assert listed(None) == ("met", "Met: by the ", 180)
    # How a run ended otherwise, no objective changes.
    write_summary(folder, "r-1", exit_code=130, exit_reason="the run was interrupted after 180 turns")
    assert listed(strict)[0] == "interrupted"


@pytest.mark.slow
def test_turns_in_other_store_are_judged_again_by_new_objectives(tmp_path: Path) -> None:
    """The folder of a run whose turns went to a shared store, or whose own store is gone."""
    first = objectives_text(None).split("\n---\n")[0]
    strict, lax = (parse_objectives(first.replace("800ms", limit), "file") for limit in ("1ms", "60s"))
    folder, store = tmp_path / "runs" / "one", tmp_path / "store"
    fill_store(store, latency_run("r-1", 60))
    folder.mkdir(parents=True)
    write_summary(folder, "r-1", verdict={"state": "met", "sentence": "Met: by the objectives of the run"})
    (folder / OBJECTIVES_NAME).write_text(first.replace("800ms", "60s"))

    def listed(objectives: list[Objective] | None, *places: Path) -> tuple[str, str, bool]:
        (entry,) = RunCatalog([*map(str, places)], objectives).entries(now_unix_ns=NOW)
        return entry.state, entry.sentence[:12], entry.fault is None

    assert listed(strict, folder.parent, store) == ("missed", "Missing the ", True)
    for objectives in (lax, None):
        assert listed(objectives, folder.parent, store) == ("met", "Met: by the ", True)
        assert listed(objectives, folder.parent) == ("met", "Met: by the ", True)
    # Without its turns nothing can be said of it by others, and the list says so.
    assert listed(strict, folder.parent) == ("met", "Met: by the ", False)


def test_folder_without_summary_is_judged_by_its_kept_objectives(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, "one", latency_run("r-1", 60))
    first = objectives_text(None).split("\n---\n")[0]
    for threshold, state in (("1ms", "missed"), ("60s", "met")):
        (folder / OBJECTIVES_NAME).write_text(first.replace("800ms", threshold))
        (entry,) = RunCatalog([str(tmp_path)], None).entries(now_unix_ns=NOW)
        assert entry.state == state
    (folder / OBJECTIVES_NAME).write_text("kind: nonsense\n")
    (entry,) = RunCatalog([str(tmp_path)], None).entries(now_unix_ns=NOW)
    assert entry.state == "damaged"
    assert OBJECTIVES_NAME in (entry.fault or "")
