"""What is said of a search for capacity."""

import dataclasses
from io import StringIO

import pytest
from rich.console import Console

from loadtest.capacity.report import (
    Capacity,
    LoadStep,
    StepStatus,
    capacity_object,
    capacity_view,
    stand,
    undecided_reason,
)
from loadtest.exit_codes import ExitCode
from telemetry.objectives.judgment import EligibleTurns
from telemetry.objectives.objective import Objective
from telemetry.objectives.slo import Verdict, judge

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


def found(**changes: object) -> Capacity:
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
def test_a_step_stands_by_its_objectives(verdicts: list[Verdict], expected: tuple[StepStatus, bool]) -> None:
    assert stand(verdicts) == expected


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
    capacity = found(**changes)
    assert capacity.exit_code is code
    assert words in capacity.sentence


def test_the_bend_is_where_the_curve_runs_away() -> None:
    assert found().bend_callers == 12
    flat = tuple(step(callers, "met", 500 + callers) for callers in (4, 8, 12, 16))
    assert found(steps=flat).bend_callers is None, "a straight line has no bend"
    assert found(steps=flat[:3]).bend_callers is None


def test_the_table_and_the_object_hold_the_same_steps() -> None:
    capacity = found(steps=(*found().steps, step(14, "generator-limited", 600, count=10)))
    text = StringIO()
    Console(file=text, width=120).print(capacity_view(capacity))
    shown = capacity_object(capacity)
    assert [each["callers"] for each in shown["steps"]] == [4, 8, 12, 14, 16]
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


def test_the_object_has_the_processes_of_each_step_and_what_the_calibration_advises() -> None:
    two = dataclasses.replace(step(8, "met", 9.4), processes=2)
    shown = capacity_object(found(steps=(step(4, "met", 9.4), two), advice="8 callers want 2 processes"))
    assert [each["processes"] for each in shown["steps"]] == [1, 2]
    assert shown["advice"] == "8 callers want 2 processes"


def _widest() -> Capacity:
    """Each column as wide as it comes, with long names of objectives and a long reason."""
    late, name = 123_456.0, "voice-to-voice-p95-under-one-and-a-half-seconds"
    missed = dataclasses.replace(step(10_000, "missed", late, count=3000), verdicts=(verdict(1, 9, name=name),) * 3)
    reason = "the machine was busy elsewhere for 4.1 s, so that more than 1 % of the turns are invalid"
    limited = dataclasses.replace(step(1234, "generator-limited", late, count=3000), reason=reason)
    close = dataclasses.replace(step(800, "met", 9.4), sure=False)
    return found(steps=(*found().steps, missed, limited, close))


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
    # A row stays one line: its callers and its standing stand on it.
    for each in capacity.steps:
        (row,) = [line for line in lines if line.split()[:2] == [f"{each.callers:,}", f"{each.turns:,}"]]
        assert row.rstrip().endswith(each.status)


def test_what_was_missed_and_why_stands_below_the_table() -> None:
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
    assert stand([verdict(100, 100), few]) == ("met", True)
    assert stand([verdict(80, 100), few]) == ("missed", True)
    assert stand([few]) == ("too few", False)


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
    found = judged(good, bad, causes)
    assert stand([found])[0] == expected
    few = judged(9, 0, {})
    assert undecided_reason([few, found]) == (found if expected == "generator-limited" else few).reason
    # A miss stands whatever else is undecided.
    assert stand([found, judged(0, 40, {})])[0] == "missed"
    shown = dataclasses.replace(verdict(60, 100), counts="calls")
    assert stand([verdict(100, 100), shown]) == ("missed", True)
