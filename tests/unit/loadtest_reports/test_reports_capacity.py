"""What is said of a search for capacity."""

import dataclasses
from io import StringIO

import pytest
from rich.console import Console

from loadtest.exit_codes import ExitCode
from loadtest.reports.capacity import Capacity, Rung, Standing, capacity_object, capacity_view, stand
from telemetry.slo import Verdict

MS = 1_000_000.0


def verdict(good: int, eligible: int, target: float = 0.95, *, name: str = "v2v", reason: str | None = None) -> Verdict:
    met = None if reason is not None else good / eligible >= target
    return Verdict(name, name, met, good, eligible, None, target, None, 20, reason)


def rung(callers: int, standing: Standing, p95_ms: float, count: int = 100) -> Rung:
    return Rung(
        callers=callers,
        run_ids=(f"run-{callers}",),
        turns=count,
        invalid=0,
        ok_share=1.0,
        voice_to_voice_ns=tuple(p95_ms * MS for _ in range(count)),
        verdicts=(verdict(count, count),),
        standing=standing,
        sure=True,
        measured_s=30.0,
    )


def found(**changes: object) -> Capacity:
    rungs = (rung(4, "met", 500), rung(8, "met", 520), rung(16, "missed", 2000), rung(12, "met", 700))
    known = Capacity(target="ws://x", rungs=rungs, met=12, missed=16, most=64)
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
        ([verdict(100, 100), verdict(5, 5, reason="not shown: 5 turns, needs 20")], ("too few", False)),
        ([verdict(100, 100), verdict(0, 0, reason="not observable: no text on this wire")], ("met", True)),
        ([verdict(0, 0, reason="not observable: no text on this wire")], ("too few", False)),
    ],
)
def test_a_rung_stands_by_its_objectives(verdicts: list[Verdict], expected: tuple[Standing, bool]) -> None:
    assert stand(verdicts) == expected


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({}, ExitCode.OK, "serves 12 callers within its objectives, and 16 no more"),
        ({"missed": None, "most": 12}, ExitCode.OK, "at least 12 callers, the most that were asked for"),
        ({"met": None, "missed": 1}, ExitCode.OBJECTIVE_MISSED, "not met with 1 caller"),
        ({"stopped": "generator", "missed": None, "reason": "why"}, ExitCode.GENERATOR_LIMITED, "the generator was"),
        ({"stopped": "interrupted", "missed": None}, ExitCode.INTERRUPTED, "at least 12 callers"),
        ({"reason": "14 callers could not be judged"}, ExitCode.OK, "(14 callers could not be judged)"),
    ],
)
def test_the_sentence_and_the_exit_code(changes: dict[str, object], code: ExitCode, words: str) -> None:
    capacity = found(**changes)
    assert capacity.exit_code is code
    assert words in capacity.sentence


def test_the_bend_is_where_the_curve_runs_away() -> None:
    assert found().bend_callers == 12
    flat = tuple(rung(callers, "met", 500 + callers) for callers in (4, 8, 12, 16))
    assert found(rungs=flat).bend_callers is None, "a straight line has no bend"
    assert found(rungs=flat[:3]).bend_callers is None


def test_the_table_and_the_object_hold_the_same_rungs() -> None:
    capacity = found(rungs=(*found().rungs, rung(14, "generator-limited", 600, count=10)))
    text = StringIO()
    Console(file=text, width=120).print(capacity_view(capacity))
    shown = capacity_object(capacity)
    assert [each["callers"] for each in shown["rungs"]] == [4, 8, 12, 14, 16]
    assert shown["rungs"][3]["voice_to_voice"] == {
        "n": 10,
        "p50_s": 0.6,
        "p95_s": None,
        "p95_interval_s": None,
        "p99_s": None,
    }
    assert shown["rungs"][0]["voice_to_voice"]["p95_interval_s"] == [0.5, 0.5]
    lines = text.getvalue()
    assert "too few" in lines
    assert "generator-limited" in lines
    assert "missed" in lines
