"""Files in a run's folder, and a report's access to them: files written together, and the same again."""

import json
import os
import shutil
from io import StringIO
from pathlib import Path

import jsonschema
import pytest
from rich.console import Console

from loadtest.errors import OutputError, UsageError
from loadtest.exit_codes import ExitCode
from loadtest.reports.run_info import SpoolInfo
from loadtest.reports.summary import schema
from loadtest.run.artifacts import NAMES, keep_objectives, write_together
from loadtest.run.judged_run import RunEnding, judged_run, leave_reports, print_and_write, read_pictures
from loadtest.run.report import ReportFiles, report
from loadtest.run.run_place import NamedRun, find_run
from telemetry.objectives.slo import default_objectives, load_objectives, objectives_text
from telemetry.store.answers import Filter
from telemetry.store.reader import StoreReader
from telemetry.store.run_folders.places import OBJECTIVES_NAME
from tests.fixtures_turns import START_UNIX_NS, fill_store, synthetic_run

HOUR_LATER_NS = START_UNIX_NS + 3_600 * 10**9
NOTHING_KNOWN = RunEnding()
NO_FILES = ReportFiles()
EARLY_NS = START_UNIX_NS + 10**9


def run_folder(folder: Path, run_id: str = "run-1", turns: int = 60, **changes: int) -> Path:
    """The folder of a run as `run` leaves it, but for its reports."""
    fill_store(folder / "store", synthetic_run(run_id, turns=turns, **changes))
    settings = folder / f"settings-{run_id}.json"
    settings.write_text(json.dumps({"sidecar": "http://127.0.0.1:1"}))
    keep_objectives(folder, objectives_text(None))
    return folder


def left(folder: Path, ending: RunEnding = NOTHING_KNOWN, run_id: str = "run-1") -> dict[str, bytes]:
    """Let the run leave its reports; their contents."""
    with StoreReader(folder / "store") as reader:
        objectives = load_objectives(folder / OBJECTIVES_NAME)
        result = leave_reports(reader, judged_run(reader, run_id, objectives, ending=ending), folder)
    assert (result.folder, result.unwritten) == (folder, None)
    return {name: (folder / name).read_bytes() for name in NAMES}


def reported(place: NamedRun, files: ReportFiles = NO_FILES) -> tuple[ExitCode, str]:
    text = StringIO()
    code = report(place, Console(file=text, width=200), files=files, now_unix_ns=HOUR_LATER_NS)
    return code, text.getvalue()


@pytest.mark.slow
@pytest.mark.parametrize(
    "ending",
    [
        RunEnding(),
        RunEnding(interrupted=True, spooled=SpoolInfo(turns=1, spans=3)),
        RunEnding(workers_missing=True),
        RunEnding(killed_by="SIGKILL", spooled=SpoolInfo(waiting_turns=2, waiting_spans=9)),
    ],
    ids=["ended", "interrupted", "missing", "killed"],
)
def test_report_command_writes_same_bytes_as_run(tmp_path: Path, ending: RunEnding) -> None:
    folder = run_folder(tmp_path / "a")
    first = left(folder, ending)
    jsonschema.validate(json.loads(first["summary.json"]), schema())
    again = {name: tmp_path / name for name in NAMES}
    json_file, html, junit, markdown = again.values()
    code, _ = reported(
        find_run(str(folder), None, None), ReportFiles(json=json_file, html=html, junit=junit, markdown=markdown)
    )
    assert code == json.loads(first["summary.json"])["exit_code"]
    assert {name: file.read_bytes() for name, file in again.items()} == first
    assert str(tmp_path) not in "".join(content.decode() for content in first.values()), "no place of this machine"
    if ending.killed_by is None:
        return
    # The first report writes the files that a killed command did not come to write.
    (folder / "report.html").unlink()
    (folder / "summary.md").unlink()
    os.utime(folder / "junit.xml", (1, 1))
    _, text = reported(find_run(str(folder), None, None))
    assert f"written to {folder}: report.html, summary.md" in text
    assert {name: (folder / name).read_bytes() for name in NAMES} == first
    assert (folder / "junit.xml").stat().st_mtime == 1, "what is there is left alone"
    assert "written to" not in reported(find_run(str(folder), None, None))[1]


@pytest.mark.slow
def test_report_of_running_or_rejudged_run_leaves_its_folder(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "a", turns=20, ended=0)
    place = find_run(str(folder), None, None)
    report(place, Console(file=StringIO()), now_unix_ns=EARLY_NS)
    report(place, Console(file=StringIO()), slo=folder / OBJECTIVES_NAME, now_unix_ns=HOUR_LATER_NS)
    assert not [name for name in NAMES if (folder / name).exists()]


@pytest.mark.slow
def test_run_is_judged_again_by_its_own_objectives(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "a")
    source = Path(__file__).parents[4] / "loadtest" / "run" / "demo-objectives.yaml"
    keep_objectives(folder, objectives_text(source))
    assert (folder / OBJECTIVES_NAME).read_text() == source.read_text()
    _, text = reported(find_run(str(folder), None, None))
    assert "voice to voice at most 1,000 ms" in text
    shutil.move(folder / OBJECTIVES_NAME, tmp_path / "other.yaml")
    assert "voice to voice at most 800 ms" in reported(find_run(str(folder), None, None))[1]


@pytest.mark.slow
def test_run_is_selected_by_folder_name_id_or_as_newest(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    older, newer = run_folder(runs / "b-older"), run_folder(runs / "a-newer", "run-2")
    os.utime(older / "settings-run-1.json", (1_000, 1_000))
    left(newer, run_id="run-2")
    of_older = NamedRun(str(older / "store"), "run-1", older)
    assert find_run(str(older), None, None, runs) == of_older
    assert find_run("b-older", None, None, runs) == of_older
    assert find_run("run-1", None, None, runs) == of_older
    assert find_run(None, None, "run-1", runs) == of_older
    assert find_run(None, None, None, runs) == NamedRun(str(newer / "store"), "run-2", newer)
    (newer / "settings-run-2.json").unlink()
    assert find_run("run-2", None, None, runs).folder == newer, "its summary names it, too"
    assert find_run("run-2", "http://h:4318", None, runs) == NamedRun("http://h:4318", "run-2")
    assert find_run(str(older / "store"), None, None, runs) == NamedRun(str(older / "store"))


def test_a_run_of_a_named_sidecar_is_found_in_that_one_s_store(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "settings-run-1.json").write_text(json.dumps({"sidecar": "http://127.0.0.1:4318"}))
    assert find_run(str(folder), None, None) == NamedRun("http://127.0.0.1:4318", "run-1", folder)


def test_missing_run_is_one_sentence(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    with pytest.raises(UsageError, match=r"there is no run in .*: name the folder of one, or give --store"):
        find_run(None, None, None, runs)
    (runs / "notes").mkdir(parents=True)
    with pytest.raises(UsageError, match="'nobody' is neither the folder of a run nor the id of one in"):
        find_run("nobody", None, None, runs)
    with pytest.raises(UsageError, match="is not the folder of a run: it has no store"):
        find_run(str(runs / "notes"), None, None, runs)
    with pytest.raises(UsageError, match="named already"):
        find_run("a", None, "b", runs)


@pytest.mark.parametrize("content", ["", "[]", "{", '{"run": 1}', '{"run": {"id": "run-2"}}', "\x00"])
def test_a_summary_that_cannot_be_read_tells_nothing(tmp_path: Path, content: str) -> None:
    (tmp_path / "summary.json").write_text(content)
    assert NamedRun("store", "run-1", tmp_path).ending("run-1") == RunEnding()


def test_summary_with_little_content_shows_that_run_is_over(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text('{"run": {"id": "run-1"}, "telemetry": 3}')
    assert NamedRun("store", "run-1", tmp_path).ending("run-1") == RunEnding(is_over=True)


@pytest.mark.slow
def test_report_after_run_has_its_outcome_despite_recent_process(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "a", turns=20, ended=0)
    place = find_run(str(folder), None, None)
    assert report(place, Console(file=StringIO()), now_unix_ns=EARLY_NS) == ExitCode.UNDECIDED
    assert left(folder)
    place = find_run(str(folder), None, None)
    assert report(place, Console(file=StringIO()), now_unix_ns=EARLY_NS) == ExitCode.GENERATOR_LIMITED


def test_files_are_written_all_or_none_and_older_ones_stay(tmp_path: Path) -> None:
    write_together(tmp_path, {"a": b"1", "b": b"1"})
    (tmp_path / "c").mkdir()
    with pytest.raises(OutputError, match=r"a, b, c could not be written: a folder is in its place; make room"):
        write_together(tmp_path, {"a": b"2", "b": b"2", "c": b"2"})
    assert [(tmp_path / name).read_bytes() for name in "ab"] == [b"1", b"1"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "c"], "nothing half-written is left"


@pytest.mark.slow
def test_run_with_unwritable_reports_still_prints_its_verdict(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "a")
    (folder / "report.html").mkdir()
    with StoreReader(folder / "store") as reader:
        result = leave_reports(reader, judged_run(reader, "run-1", default_objectives()), folder)
    text = StringIO()
    with pytest.raises(OutputError, match=r"report.html.* could not be written"):
        print_and_write(result, Console(file=text, width=100), tmp_path / "own.json")
    assert "Verdict" in text.getvalue()
    assert (tmp_path / "own.json").exists()
    assert not (folder / "summary.json").exists()


@pytest.mark.slow
def test_pictures_of_many_turns_have_no_dots_and_the_same_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = fill_store(tmp_path / "s", synthetic_run(turns=1_500))
    with StoreReader(store) as reader:
        summary = reader.summary(Filter(run_id="run-1"))
        few = read_pictures(reader, summary)
        monkeypatch.setattr("loadtest.run.judged_run.MOST_DOTS", 1_499)
        many = read_pictures(reader, summary)
        values = reader.metric_values(Filter(run_id="run-1"), "voice_to_voice")
    assert many.dots == []
    assert many.values_ns == few.values_ns == values
    assert len(few.dots) == summary.turns.eligible
    assert len(many.timeline) == len(few.timeline) > 12
    assert len(few.slowest) == 5
    assert all(slow.has_both_sides for slow in few.slowest)


def test_a_store_without_the_run_has_nothing_to_draw(tmp_path: Path) -> None:
    store = fill_store(tmp_path / "s", synthetic_run(turns=5))
    with StoreReader(store) as reader:
        nothing = read_pictures(reader, reader.summary(Filter(run_id="another")))
    assert (nothing.timeline, nothing.dots, nothing.slowest) == ((), (), ())
