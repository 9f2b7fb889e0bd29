"""A search for the capacity of an endpoint that cannot be reached, from the beginning or from some step on."""

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from loadtest.capacity import job
from loadtest.capacity.job import CapacityRequest, capacity
from loadtest.capacity.measure import Bench
from loadtest.capacity.report import LoadStep, StepStatus
from loadtest.errors import EndpointUnreachable
from loadtest.exit_codes import ExitCode
from loadtest.run.artifacts import NAMES, SUMMARY
from loadtest.run.request import CheckedRun, RunRequest
from loadtest.run.sidecars import Sidecar
from loadtest.scenario.settings import SwarmSettings
from telemetry.store.run_folders.places import CAPACITY_NAME

WHY = "cannot connect to 127.0.0.1:9: Connection refused"


def asked(out: Path, first: int = 4) -> CapacityRequest:
    settings = SwarmSettings(host="ws://127.0.0.1:9/v1/realtime", corpus="voiceprobe-en")
    run = RunRequest(settings, first, None, None, None, out, out.parent / "found.json")
    return CapacityRequest(run, first, 64, 0.1, 20, 60.0, 0.0)


class Endpoint:
    """Stands in for an endpoint, its sidecar and the runs of the steps: `steps` are what each comes to, by callers;
    `probes` is what each try to open one session comes to, of which the first is before the search."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, steps: dict[int, StepStatus], *probes: bool) -> None:
        self.measured: list[int] = []
        self._steps, self.probes = steps, list(probes)
        monkeypatch.setattr(job, "measure", self._measure)
        monkeypatch.setattr(job, "preflight", self._preflight)
        monkeypatch.setattr(job, "destination", self._destination)

    def _destination(self, *_: object) -> tuple[Sidecar, list[str]]:
        return Sidecar("http://127.0.0.1:9", Path("store")), []

    def _preflight(self, _: CheckedRun) -> None:
        if not self.probes.pop(0):
            raise EndpointUnreachable(WHY)

    def _measure(self, _: Bench, callers: int) -> LoadStep:
        self.measured.append(callers)
        return LoadStep(
            callers=callers,
            run_ids=(f"run-{callers}",),
            turns=40,
            invalid=0,
            ok_share=0.5,
            voice_to_voice_ns=(),
            verdicts=(),
            status=self._steps[callers],
            sure=True,
            measured_s=8.0,
            reason="no session" if self._steps[callers] == "refused" else None,
        )


def search(request: CapacityRequest) -> tuple[ExitCode, dict[str, Any]]:
    code = capacity(request, Console(quiet=True))
    found = json.loads((request.run.out / CAPACITY_NAME).read_text())
    assert request.run.json_file is not None
    assert json.loads(request.run.json_file.read_text()) == found
    return code, found


@pytest.mark.slow
def test_an_endpoint_that_was_never_there_leaves_every_report(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(EndpointUnreachable, match=r"cannot connect to 127\.0\.0\.1:9"):
        capacity(asked(out), Console(quiet=True))
    assert {*NAMES, CAPACITY_NAME} <= {each.name for each in out.iterdir()}
    summary = json.loads((out / SUMMARY).read_text())
    assert (summary["exit_code"], summary["exit_reason"]) == (ExitCode.UNREACHABLE, WHY)
    found = json.loads((tmp_path / "found.json").read_text())
    assert (found["exit_code"], found["sentence"], found["steps"]) == (ExitCode.UNREACHABLE, WHY, [])


@pytest.mark.slow
@pytest.mark.parametrize("ended", ["missed", "too few", "refused"])
def test_an_endpoint_that_ends_during_a_step_ends_the_search(
    ended: StepStatus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = Endpoint(monkeypatch, {4: "met", 8: ended}, True, False, False)
    code, found = search(asked(tmp_path / "out"))
    assert endpoint.measured == [4, 8]
    assert code == found["exit_code"] == ExitCode.UNREACHABLE
    assert (found["callers_met"], found["callers_missed"]) == (4, None), "the last step says nothing of the endpoint"
    assert [step["status"] for step in found["steps"]] == ["met", "unreachable"]
    assert found["sentence"] == (
        "the endpoint could not be reached after the step of 8 callers: the endpoint serves at least 4 callers, as far "
        f"as it was measured ({WHY})"
    )
    summary = json.loads((tmp_path / "out" / SUMMARY).read_text())
    assert (summary["exit_code"], summary["exit_reason"]) == (ExitCode.UNREACHABLE, found["sentence"])
    assert set(NAMES) <= {each.name for each in (tmp_path / "out").iterdir()}


def test_an_endpoint_that_is_busy_for_a_moment_is_searched_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = Endpoint(monkeypatch, {4: "met", 8: "missed", 6: "missed", 5: "met"}, True, False, True, True)
    code, found = search(asked(tmp_path / "out"))
    assert (endpoint.measured, endpoint.probes) == ([4, 8, 6, 5], [])
    assert (code, found["callers_met"], found["callers_missed"]) == (ExitCode.OK, 5, 6)
    assert not {each.name for each in (tmp_path / "out").iterdir()} & set(NAMES), "each step has its own"


@pytest.mark.slow
def test_an_endpoint_that_opens_one_session_but_none_of_a_step_is_not_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Endpoint(monkeypatch, {2: "refused", 1: "refused"}, True, True, True)
    code, found = search(asked(tmp_path / "out", first=2))
    assert code == ExitCode.UNREACHABLE
    assert found["sentence"].endswith("no step was met, as far as it was measured (no session)")
    assert set(NAMES) <= {each.name for each in (tmp_path / "out").iterdir()}
