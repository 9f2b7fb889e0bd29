"""A step of the search for a capacity: what counts, what is measured again, and who carries its callers."""

from pathlib import Path

import pytest

from loadtest.capacity import measure as measuring
from loadtest.capacity.measure import Bench, measure
from loadtest.reports.run_info import LostProcess, RunInfo
from loadtest.reports.run_report import RunReport
from loadtest.run.request import CheckedRun, RunRequest, check
from loadtest.run.sidecars import Sidecar
from loadtest.scenario.settings import SwarmSettings
from telemetry.store.writer import StoreWriter
from tests.unit.loadtest.reports import reports_material as material

LOST = (LostProcess(worker="2 of 4", after_s=3.0, calls_cut=2),)


class Runs:
    """Stands in for the runs: notes who was asked for, and gives what came of each in turn."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *info: RunInfo) -> None:
        self.asked: list[RunRequest] = []
        self._info = list(info)
        monkeypatch.setattr(measuring, "run", self._run)

    def _run(self, checked: CheckedRun, *_: object, **__: object) -> RunReport:
        self.asked.append(checked.request)
        return material.report(self._info.pop(0))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    StoreWriter(tmp_path / "store").close()
    settings = SwarmSettings(host="ws://127.0.0.1:9/v1/realtime", corpus="voiceprobe-en")
    request = RunRequest(settings, 8, None, None, None, tmp_path / "out", None, asked_processes=4)
    return Bench(check(request), Sidecar("http://127.0.0.1:9", tmp_path / "store"), 20, 60.0, lambda _: None)


@pytest.mark.slow
def test_no_more_processes_than_callers(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search bisects below its first step, too."""
    runs = Runs(monkeypatch, *[material.run_info()] * 3, *[material.run_info()] * 3)
    measure(bench, 16)
    measure(bench, 2)
    assert {(request.users, request.processes) for request in runs.asked} == {(16, 4), (2, 2)}


@pytest.mark.slow
def test_a_run_that_lost_a_process_says_nothing_of_the_endpoint(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    torn = material.run_info(lost=LOST, processes=4)
    runs = Runs(monkeypatch, torn, *[material.run_info()] * 3)
    assert len(measure(bench, 16).run_ids) == len(runs.asked) - 1
    Runs(monkeypatch, torn, torn, torn)
    step = measure(bench, 16)
    assert step.status == "generator-limited"
    assert step.reason is not None
    assert "1 of 4 generator processes was lost" in step.reason
