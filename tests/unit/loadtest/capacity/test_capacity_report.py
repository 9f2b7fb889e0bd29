"""The search for a capacity: where it looks, what counts, where it stops, and what is said of it."""

import dataclasses
import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from loadtest.capacity import job
from loadtest.capacity.job import Bench, CapacityRequest, capacity, measure
from loadtest.capacity.report import (
    Capacity,
    LoadStep,
    StepStatus,
    capacity_object,
    capacity_view,
    step_status,
    undecided_reason,
)
from loadtest.capacity.search import CallerRange, bounds, next_step
from loadtest.errors import EndpointUnreachable
from loadtest.exit_codes import ExitCode
from loadtest.reports.run_info import LostProcess, RunInfo
from loadtest.reports.run_report import RunReport
from loadtest.run.artifacts import NAMES, SUMMARY
from loadtest.run.request import CheckedRun, RunRequest, check
from loadtest.run.sidecars import Sidecar
from loadtest.scenario.sections import RunLoad
from loadtest.scenario.settings import SwarmSettings
from telemetry.objectives.judgment import EligibleTurns
from telemetry.objectives.objective import Objective
from telemetry.objectives.slo import Verdict, judge
from telemetry.store.run_folders.places import CAPACITY_NAME
from telemetry.store.writer import StoreWriter
from tests.unit.loadtest.reports import reports_material as material

MS = 1_000_000.0


def verdict(
    good: int, eligible: int, target: float = 0.95, *, name: str = "v2v", undecided: bool = False, seen: bool = True
) -> Verdict:
    met = None if undecided or not seen else good / eligible >= target
    return Verdict(name, name, met, good, eligible, None, target, None, 20, None, is_observable=seen)


def step(callers: int, status: StepStatus, p95_ms: float, count: int = 100) -> LoadStep:
    return LoadStep(
        callers=callers,
        run_ids=(f"run-{callers}",),
        turns=count,
        invalid=0,
        ok_share=1.0,
        voice_to_voice_ns=tuple(p95_ms * MS for _ in range(count)),
        verdicts=(verdict(count, count),),
        status=status,
        sure=True,
        measured_s=30.0,
    )


def make_capacity(**changes: object) -> Capacity:
    steps = (step(4, "met", 500), step(8, "met", 520), step(16, "missed", 2000), step(12, "met", 700))
    known = Capacity(target="ws://x", steps=steps, met=12, missed=16)
    return dataclasses.replace(known, **changes)  # type: ignore[arg-type] - fields by name


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ([verdict(100, 100)], ("met", True)),
        ([verdict(199, 200)], ("met", True)),  # the interval is 97.2 to 99.9 %
        ([verdict(96, 100)], ("met", False)),  # 90.2 to 98.4 % holds both answers
        ([verdict(94, 100)], ("missed", False)),
        ([verdict(80, 100)], ("missed", True)),
        ([verdict(100, 100), verdict(80, 100)], ("missed", True)),
        ([verdict(100, 100), verdict(5, 5, undecided=True)], ("too few", False)),
        ([verdict(80, 100), verdict(5, 5, undecided=True)], ("missed", True)),
        ([verdict(94, 100), verdict(5, 5, undecided=True)], ("missed", False)),
        ([verdict(100, 100), verdict(0, 0, seen=False)], ("met", True)),
        ([verdict(0, 0, seen=False)], ("too few", False)),
    ],
)
def test_step_is_met_or_missed_by_its_objectives(verdicts: list[Verdict], expected: tuple[StepStatus, bool]) -> None:
    assert step_status(verdicts) == expected


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({}, ExitCode.OK, "serves 12 callers within its objectives, and 16 no more"),
        ({"missed": None}, ExitCode.OK, "at least 12 callers, the most that were asked for"),
        ({"met": None, "missed": 1}, ExitCode.OBJECTIVE_MISSED, "not met with 1 caller"),
        (
            {"met": None, "missed": None, "reason": "too few turns at 4 callers"},
            ExitCode.UNDECIDED,
            "undecided: no number of callers could be judged (too few turns at 4 callers)",
        ),
        ({"stopped": "generator", "missed": None, "reason": "why"}, ExitCode.GENERATOR_LIMITED, "the generator was"),
        ({"stopped": "interrupted", "missed": None}, ExitCode.INTERRUPTED, "at least 12 callers"),
        (
            {"stopped": "unreachable", "reason": "cannot connect"},
            ExitCode.UNREACHABLE,
            "the endpoint could not be reached after the step of 12 callers: the endpoint serves at least 12 callers, "
            "as far as it was measured (cannot connect)",
        ),
        ({"stopped": "unreachable", "steps": (), "reason": "cannot connect"}, ExitCode.UNREACHABLE, "cannot connect"),
        ({"reason": "14 callers could not be judged"}, ExitCode.OK, "(14 callers could not be judged)"),
    ],
)
def test_the_sentence_and_the_exit_code(changes: dict[str, object], code: ExitCode, words: str) -> None:
    capacity = make_capacity(**changes)
    assert capacity.exit_code is code
    assert words in capacity.sentence


def test_the_bend_is_where_the_curve_runs_away() -> None:
    assert make_capacity().bend_callers == 12
    flat = tuple(step(callers, "met", 500 + callers) for callers in (4, 8, 12, 16))
    assert make_capacity(steps=flat).bend_callers is None, "a straight line has no bend"
    assert make_capacity(steps=flat[:3]).bend_callers is None


def test_the_table_and_the_object_hold_the_same_steps() -> None:
    capacity = make_capacity(steps=(*make_capacity().steps, step(14, "generator-limited", 600, count=10)))
    text = StringIO()
    Console(file=text, width=120).print(capacity_view(capacity))
    shown = capacity_object(capacity)
    assert [step["callers"] for step in shown["steps"]] == [4, 8, 12, 14, 16]
    assert shown["steps"][3]["voice_to_voice"] == {
        "n": 10,
        "p50_s": 0.6,
        "p95_s": None,
        "p95_interval_s": None,
        "p99_s": None,
    }
    assert shown["steps"][0]["voice_to_voice"]["p95_interval_s"] == [0.5, 0.5]
    lines = text.getvalue()
    assert "too few" in lines
    assert "generator-limited" in lines
    assert "missed" in lines


def test_capacity_object_has_processes_per_step_and_advice() -> None:
    two = dataclasses.replace(step(8, "met", 9.4), processes=2)
    shown = capacity_object(make_capacity(steps=(step(4, "met", 9.4), two), advice="8 callers want 2 processes"))
    assert [step["processes"] for step in shown["steps"]] == [1, 2]
    assert shown["advice"] == "8 callers want 2 processes"


def _widest() -> Capacity:
    """Each column as wide as it comes, with long names of objectives and a long reason."""
    late, name = 123_456.0, "voice-to-voice-p95-under-one-and-a-half-seconds"
    missed = dataclasses.replace(step(10_000, "missed", late, count=3000), verdicts=(verdict(1, 9, name=name),) * 3)
    reason = "the machine was busy elsewhere for 4.1 s, so that more than 1 % of the turns are invalid"
    limited = dataclasses.replace(step(1234, "generator-limited", late, count=3000), reason=reason)
    close = dataclasses.replace(step(800, "met", 9.4), sure=False)
    return make_capacity(steps=(*make_capacity().steps, missed, limited, close))


@pytest.mark.parametrize("width", [80, 99, 100, 120])
def test_nothing_is_cut_or_folded_inside_a_word(width: int) -> None:
    capacity, text, unbounded = _widest(), StringIO(), StringIO()
    Console(file=text, width=width).print(capacity_view(capacity))
    Console(file=unbounded, width=1000).print(capacity_view(capacity))
    lines = text.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    bars = "█" in text.getvalue()
    assert bars is (width >= 100)
    words = text.getvalue().replace("█", "").split()
    assert words == unbounded.getvalue().replace("█", "").split()
    # A row stays one line: its callers and its status are on it.
    for step in capacity.steps:
        (row,) = [line for line in lines if line.split()[:2] == [f"{step.callers:,}", f"{step.turns:,}"]]
        assert row.rstrip().endswith(step.status)


def test_missed_steps_are_listed_with_reasons_below_table() -> None:
    text = StringIO()
    Console(file=text, width=200).print(capacity_view(_widest()))
    name = "voice-to-voice-p95-under-one-and-a-half-seconds"
    shown = text.getvalue()
    assert f"10,000 callers: missed {name}, {name}, {name}" in shown
    assert "1,234 callers: the machine was busy elsewhere" in shown
    assert "800 callers: close: the interval holds both answers" in shown
    assert "\n4 callers:" not in shown, "a step that is met has nothing more to say"


def test_a_step_does_not_wait_for_an_objective_of_calls() -> None:
    few = dataclasses.replace(verdict(5, 5, undecided=True), counts="calls")
    assert step_status([verdict(100, 100), few]) == ("met", True)
    assert step_status([verdict(80, 100), few]) == ("missed", True)
    assert step_status([few]) == ("too few", False)


def judged(good: int, bad: int, causes: dict[str, int]) -> Verdict:
    objective = Objective("fast", "metric", 0.95, "voice_to_voice", 8e8)
    counted = EligibleTurns(good, good + bad + sum(causes.values()), causes)
    return judge([objective], lambda _: counted)[0]


@pytest.mark.parametrize(
    ("good", "bad", "causes", "expected"),
    [
        (98, 0, {"generator": 4}, "met"),
        (60, 40, {"generator": 4}, "missed"),
        (90, 3, {"generator": 7}, "generator-limited"),
        (90, 3, {"speech bounds uncertain": 7}, "undecided"),
        (90, 3, {"telemetry lost": 7}, "undecided"),
        (9, 0, {"telemetry lost": 7}, "too few"),
    ],
)
def test_a_step_is_judged_by_the_worst_and_the_best_case(
    good: int, bad: int, causes: dict[str, int], expected: str
) -> None:
    judgment = judged(good, bad, causes)
    assert step_status([judgment])[0] == expected
    few = judged(9, 0, {})
    assert undecided_reason([few, judgment]) == (judgment if expected == "generator-limited" else few).reason
    # A miss is one, whatever else is undecided.
    assert step_status([judgment, judged(0, 40, {})])[0] == "missed"
    shown = dataclasses.replace(verdict(60, 100), counts="calls")
    assert step_status([verdict(100, 100), shown]) == ("missed", True)


LOST = (LostProcess(worker="2 of 4", after_s=3.0, calls_cut=2),)


class Runs:
    """Stands in for the runs: notes who was asked for, and gives what came of each in turn."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *info: RunInfo) -> None:
        self.asked: list[RunRequest] = []
        self._info = list(info)
        monkeypatch.setattr(job, "run", self._run)

    def _run(self, checked: CheckedRun, *_: object, **__: object) -> RunReport:
        self.asked.append(checked.request)
        return material.report(self._info.pop(0))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    StoreWriter(tmp_path / "store").close()
    settings = SwarmSettings(host="ws://127.0.0.1:9/v1/realtime", corpus="voiceprobe-en")
    request = RunRequest(settings, RunLoad(users=8, processes=4), None, tmp_path / "out", None)
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


def _search(serves: int, *, first: int, most: int, resolution: float) -> dict[int, bool]:
    judged: dict[int, bool] = {}
    while (callers := next_step(judged, first=first, most=most, resolution=resolution)) is not None:
        assert callers not in judged, "no step is measured twice"
        judged[callers] = callers <= serves
    return judged


@given(
    serves=st.integers(0, 5000),
    first=st.integers(1, 300),
    more=st.integers(0, 5000),
    resolution=st.floats(0.01, 1.0),
)
def test_a_search_closes_in_on_whatever_the_endpoint_serves(
    serves: int, first: int, more: int, resolution: float
) -> None:
    most = first + more
    judged = _search(serves, first=first, most=most, resolution=resolution)
    bracket = bounds(judged)
    assert len(judged) <= 40
    assert max(judged) <= most
    if serves == 0:
        assert bracket == CallerRange(None, 1)
    elif serves >= most:
        assert bracket == CallerRange(most, None)
    else:
        assert bracket.met is not None
        assert bracket.missed is not None
        assert bracket.met <= serves < bracket.missed
        assert bracket.missed - bracket.met <= max(1, resolution * bracket.met)


def test_a_search_doubles_then_halves() -> None:
    assert list(_search(11, first=4, most=64, resolution=0.1)) == [4, 8, 16, 12, 10, 11]
    assert list(_search(3, first=8, most=64, resolution=0.1)) == [8, 4, 2, 3]


def test_a_step_met_above_a_missed_one_does_not_count() -> None:
    assert bounds({4: True, 8: False, 16: True}) == CallerRange(4, 8)
    assert next_step({4: True, 8: False, 16: True}, first=4, most=64, resolution=0.1) == 6


@pytest.mark.parametrize(("first", "most", "resolution"), [(0, 4, 0.1), (5, 4, 0.1), (1, 4, 0.0)])
def test_impossible_search_is_refused(first: int, most: int, resolution: float) -> None:
    with pytest.raises(ValueError, match="no search"):
        next_step({}, first=first, most=most, resolution=resolution)


WHY = "cannot connect to 127.0.0.1:9: Connection refused"


def asked(out: Path, first: int = 4) -> CapacityRequest:
    settings = SwarmSettings(host="ws://127.0.0.1:9/v1/realtime", corpus="voiceprobe-en")
    run = RunRequest(settings, RunLoad(users=first), None, out, out.parent / "found.json")
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
    result = json.loads((request.run.out / CAPACITY_NAME).read_text())
    assert request.run.json_file is not None
    assert json.loads(request.run.json_file.read_text()) == result
    return code, result


@pytest.mark.slow
def test_an_endpoint_that_was_never_there_leaves_every_report(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(EndpointUnreachable, match=r"cannot connect to 127\.0\.0\.1:9"):
        capacity(asked(out), Console(quiet=True))
    assert {*NAMES, CAPACITY_NAME} <= {path.name for path in out.iterdir()}
    summary = json.loads((out / SUMMARY).read_text())
    assert (summary["exit_code"], summary["exit_reason"]) == (ExitCode.UNREACHABLE, WHY)
    result = json.loads((tmp_path / "found.json").read_text())
    assert (result["exit_code"], result["sentence"], result["steps"]) == (ExitCode.UNREACHABLE, WHY, [])


@pytest.mark.slow
@pytest.mark.parametrize("ended", ["missed", "too few", "refused"])
def test_an_endpoint_that_ends_during_a_step_ends_the_search(
    ended: StepStatus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = Endpoint(monkeypatch, {4: "met", 8: ended}, True, False, False)
    code, result = search(asked(tmp_path / "out"))
    assert endpoint.measured == [4, 8]
    assert code == result["exit_code"] == ExitCode.UNREACHABLE
    assert (result["callers_met"], result["callers_missed"]) == (4, None), "the last step says nothing of the endpoint"
    assert [step["status"] for step in result["steps"]] == ["met", "unreachable"]
    assert result["sentence"] == (
        "the endpoint could not be reached after the step of 8 callers: the endpoint serves at least 4 callers, as far "
        f"as it was measured ({WHY})"
    )
    summary = json.loads((tmp_path / "out" / SUMMARY).read_text())
    assert (summary["exit_code"], summary["exit_reason"]) == (ExitCode.UNREACHABLE, result["sentence"])
    assert set(NAMES) <= {path.name for path in (tmp_path / "out").iterdir()}


def test_an_endpoint_that_is_busy_for_a_moment_is_searched_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = Endpoint(monkeypatch, {4: "met", 8: "missed", 6: "missed", 5: "met"}, True, False, True, True)
    code, result = search(asked(tmp_path / "out"))
    assert (endpoint.measured, endpoint.probes) == ([4, 8, 6, 5], [])
    assert (code, result["callers_met"], result["callers_missed"]) == (ExitCode.OK, 5, 6)
    assert not {path.name for path in (tmp_path / "out").iterdir()} & set(NAMES), "each step has its own"


@pytest.mark.slow
def test_step_without_any_session_makes_target_unreachable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Endpoint(monkeypatch, {2: "refused", 1: "refused"}, True, True, True)
    code, result = search(asked(tmp_path / "out", first=2))
    assert code == ExitCode.UNREACHABLE
    assert result["sentence"].endswith("no step was met, as far as it was measured (no session)")
    assert set(NAMES) <= {path.name for path in (tmp_path / "out").iterdir()}
