"""What the benchmark of demos beside a busy core prints, and how it ends; no demo is run."""

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.demo_hog import DemoRun, busy_cores, main


def summary(open_turns: dict[str, int], sentence: str) -> dict[str, Any]:
    return {
        "turns": {"total": 72, "invalid": 2},
        "objectives": [
            {"name": "voice-to-voice", "open": open_turns},
            {"name": "good-turns", "open": {}},
        ],
        "verdict": {"sentence": sentence},
    }


MET = DemoRun(0, summary({}, "Meeting all 6 objectives over 72 turns"), 61.4)
LIMITED = DemoRun(4, summary({"generator": 3, "telemetry lost": 1}, "Not judged"))


def run_main(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], runs: list[DemoRun], *arguments: str
) -> tuple[int, list[str]]:
    ended: Iterator[DemoRun] = iter(runs)

    def run_demo(_out: Path, _hogs: int, _ordinary: bool, _options: Sequence[str]) -> DemoRun:
        return next(ended)

    monkeypatch.setattr("tests.benchmarks.demo_hog.run_demo", run_demo)
    monkeypatch.setattr(sys, "argv", ["demo_hog", "--runs", str(len(runs)), *arguments])
    try:
        main()
    except SystemExit as left:
        return int(left.code or 0), capsys.readouterr().out.splitlines()
    return 0, capsys.readouterr().out.splitlines()


def test_demos_with_a_verdict_are_a_success(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    missed = DemoRun(3, summary({"generator": 1}, "Missing 1 of 6 objectives"))
    code, lines = run_main(monkeypatch, capsys, [MET, missed], "--out", str(tmp_path))
    assert code == 0
    assert lines == [
        "run 1: exit 0; 72 turns, 2 invalid; open: none; Meeting all 6 objectives over 72 turns; "
        "busy processes used 61 s of processor time",
        "run 2: exit 3; 72 turns, 2 invalid; open: voice-to-voice: 1 generator; Missing 1 of 6 objectives",
        "2 demos beside 1 busy core ended: 1 in 0, 1 in 3, 0 in 4, 0 in 6, 0 otherwise",
    ]


@pytest.mark.parametrize(
    ("failed", "line", "counted"),
    [
        (
            LIMITED,
            "exit 4; 72 turns, 2 invalid; open: voice-to-voice: 3 generator, 1 telemetry lost; Not judged",
            "1 in 0, 0 in 3, 1 in 4, 0 in 6, 0 otherwise",
        ),
        (
            DemoRun(1, None, output="log\nthe sidecar ended\n"),
            "exit 1, no summary: the sidecar ended",
            "1 in 0, 0 in 3, 0 in 4, 0 in 6, 1 otherwise",
        ),
    ],
)
def test_one_demo_without_a_verdict_is_a_failure(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    failed: DemoRun,
    line: str,
    counted: str,
) -> None:
    code, lines = run_main(monkeypatch, capsys, [MET, failed], "--hog", "0", "--out", str(tmp_path))
    assert code == 1
    assert lines[1:] == [f"run 2: {line}", f"2 demos beside 0 busy cores ended: {counted}", f"results: {tmp_path}"]


def test_busy_processes_are_pinned_to_a_core_each_and_end_with_the_demo() -> None:
    cores = os.sched_getaffinity(0)
    with busy_cores(1) as (hog,):
        while os.sched_getaffinity(hog.pid) == cores and len(cores) > 1:
            assert hog.poll() is None
        assert os.sched_getaffinity(hog.pid) == {max(cores)}
    assert hog.poll() is not None
    with busy_cores(0) as none:
        assert none == []
    with pytest.raises(SystemExit, match="cores can be used here"), busy_cores(len(cores) + 1):
        pass


def test_a_busy_process_that_ended_early_is_no_result() -> None:
    hogs = busy_cores(1)
    (hog,) = hogs.__enter__()
    hog.kill()
    hog.wait()
    with pytest.raises(RuntimeError, match="ended before the demo did"):
        hogs.__exit__(None, None, None)
