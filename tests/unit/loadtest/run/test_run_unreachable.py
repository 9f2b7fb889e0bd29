"""Files of a run whose target could not be reached before the first call, and other commands' output for it."""

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import jsonschema
import pytest
from rich.console import Console

from loadtest.errors import EndpointUnreachable, OutputError, UsageError
from loadtest.exit_codes import ExitCode
from loadtest.reports.junit import RUN_CASE
from loadtest.reports.summary import schema
from loadtest.run.artifacts import HTML, JUNIT, MARKDOWN, NAMES, SUMMARY
from loadtest.run.compare import CompareRequest, compare
from loadtest.run.job import leave_unreachable
from loadtest.run.report import report
from loadtest.run.request import CheckedRun, RunRequest, check
from loadtest.run.run_place import find_run
from loadtest.scenario.sections import RunLoad
from loadtest.scenario.settings import SwarmSettings
from telemetry.model.durations import Duration
from telemetry.model.errors import StoreError
from telemetry.store.run_folders.catalog import RunCatalog
from telemetry.store.run_folders.places import OBJECTIVES_NAME
from tests.fixtures_turns import fill_store
from tests.run_folders import latency_run

WHY = "cannot connect to 127.0.0.1:9: Connection refused"


def checked_run(out: Path, json_file: Path | None = None, run_id: str = "r-1") -> CheckedRun:
    host = "ws://user:secret@127.0.0.1:9/v1/realtime?key=secret-too"
    settings = SwarmSettings(host=host, corpus="voiceprobe-en", run_id=run_id)
    return check(RunRequest(settings, RunLoad(users=2, run_time=Duration.of_s(5)), None, out, json_file))


@pytest.mark.slow
def test_every_report_says_why_and_claims_nothing(tmp_path: Path) -> None:
    out, file = tmp_path / "out", tmp_path / "again.json"
    assert leave_unreachable(checked_run(out, file), EndpointUnreachable(WHY)) == out / HTML
    assert {path.name for path in out.iterdir()} == {*NAMES, OBJECTIVES_NAME, "store"}
    assert list((out / "store").iterdir()) == []
    summary = json.loads((out / SUMMARY).read_text())
    jsonschema.validate(summary, schema())
    assert json.loads(file.read_text()) == summary
    assert (summary["exit_code"], summary["exit_reason"]) == (ExitCode.UNREACHABLE, WHY)
    assert summary["verdict"] == {"state": "not_judged", "sentence": f"Not judged: {WHY}"}
    assert {(objective["met"], objective["eligible"]) for objective in summary["objectives"]} == {(None, 0)}
    assert (summary["generator"]["limited"], summary["generator"]["lost"]) == (False, [])
    assert (summary["turns"]["total"], summary["run"]["state"]) == (0, "ended")
    assert summary["run"]["started_unix_ns"] > 0
    for name in NAMES:
        text = (out / name).read_text()
        assert WHY in text, name
        assert "secret" not in text, name
    assert (out / MARKDOWN).read_text().splitlines()[0] == "## voiceprobe: unreachable (exit code 5)"
    cases = list(ET.parse(out / JUNIT).getroot().iter("testcase"))  # noqa: S314 - made right here
    (own,) = [case for case in cases if case.get("name") == RUN_CASE]
    assert own.find("failure") is not None
    assert all(case.find("skipped") is not None for case in cases if case is not own), "nothing passes"


@pytest.mark.slow
def test_the_list_of_runs_has_it_without_a_fault(tmp_path: Path) -> None:
    leave_unreachable(checked_run(tmp_path / "runs" / "dead"), EndpointUnreachable(WHY))
    (entry,) = RunCatalog([str(tmp_path / "runs")], None).entries()
    assert (entry.run_id, entry.name, entry.state, entry.fault) == ("r-1", "dead", "unreachable", None)
    assert (entry.sentence, entry.turns) == (f"Not judged: {WHY}", 0)


@pytest.mark.slow
def test_commands_that_need_its_turns_say_why_there_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    dead = tmp_path / "runs" / "dead"
    leave_unreachable(checked_run(dead), EndpointUnreachable(WHY))
    with pytest.raises(UsageError) as raised:
        report(find_run(None, None, None), Console(quiet=True))
    assert str(raised.value) == f"runs/dead has no turn to judge: {WHY}; its own reports say so: runs/dead/{HTML}"
    fill_store(tmp_path / "runs" / "other" / "store", latency_run("r-2", 5))
    with pytest.raises(StoreError, match=f"dead .*: no turn of it is stored: Not judged: {WHY}"):
        compare(CompareRequest(("dead", "other")), Console(quiet=True))


@pytest.mark.slow
def test_an_earlier_run_in_the_same_folder_stays_in_the_list(tmp_path: Path) -> None:
    fill_store(tmp_path / "out" / "store", latency_run("r-before", 5))
    (tmp_path / "out" / "settings-r-before.json").write_text("{}")  # as its command left them
    leave_unreachable(checked_run(tmp_path / "out"), EndpointUnreachable(WHY))
    entries = RunCatalog([str(tmp_path / "out")], None).entries()
    assert {entry.run_id: entry.state for entry in entries} == {"r-1": "unreachable", "r-before": "undecided"}
    assert json.loads((tmp_path / "out" / SUMMARY).read_text())["turns"]["total"] == 0


@pytest.mark.slow
def test_reports_that_cannot_be_written_do_not_hide_why(tmp_path: Path) -> None:
    checked = checked_run(tmp_path / "out")
    (tmp_path / "out" / HTML).mkdir(parents=True)
    with pytest.raises(OutputError) as raised:
        leave_unreachable(checked, EndpointUnreachable(WHY))
    first, second = str(raised.value).splitlines()
    assert first == WHY
    assert "could not be written" in second
    (tmp_path / "file" / "store").parent.mkdir()
    (tmp_path / "file" / "store").write_text("")
    with pytest.raises(OutputError) as raised:
        leave_unreachable(checked_run(tmp_path / "file"), EndpointUnreachable(WHY))
    assert str(raised.value).splitlines()[0] == WHY
