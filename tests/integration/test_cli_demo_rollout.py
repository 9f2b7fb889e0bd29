"""`voiceprobe demo --rollout` with few callers and little time: all of it runs, and too few turns decide nothing."""

import json
import subprocess
import sys
from pathlib import Path

from loadtest.exit_codes import ExitCode
from telemetry.rollout.plan_document import parse_plan
from telemetry.store.reader import StoreReader

DEMO_FILES = Path(__file__).parents[2] / "loadtest" / "rollout" / "demo_files"


def test_real_callers_are_split_by_the_flag_and_too_few_turns_decide_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    flags = ("--users", "8", "--run-time", "15s", "--exit", "--out", str(out), "--json", str(tmp_path / "demo.json"))
    done = subprocess.run(
        [sys.executable, "-m", "loadtest.cli.main", "demo", "--rollout", *flags],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == ExitCode.UNDECIDED, done.stderr
    assert "Traceback" not in done.stderr
    assert "error level 5 %, at most this much worse: p95 of voice_to_voice 100 ms" in done.stdout
    assert "this machine did not get the turns that a decision needs" in done.stdout
    fractional = json.loads((out / "rollout" / "flags.json").read_text())["flags"]["voice"]["targeting"]["fractional"]
    assert fractional == [["stable", 95], ["fast-model", 5], ["large-model", 0]]
    (found,) = json.loads((tmp_path / "demo.json").read_text())["rollouts"]
    assert (found["name"], found["exit_code"]) == ("fast-model", ExitCode.UNDECIDED)
    with StoreReader(out / "store") as reader:
        (record,) = reader.rollouts()
        turns = reader.turns(limit=100_000, source="client")
    assert not record.faults
    assert {entry.decision for entry in record.verdicts} == {"hold"}
    assert "stable" in {turn.cohort for turn in turns}
    # The callers of the candidate hear what the flag gives them, as the service says in each reply.
    assert {turn.cohort for turn in turns} <= {"stable", "fast-model", None}


def test_the_plans_hide_no_weakened_error_level() -> None:
    plans = [parse_plan((DEMO_FILES / f"{name}.toml").read_text(), name) for name in ("fast-model", "large-model")]
    assert {(plan.error_level, plan.power) for plan in plans} == {(0.05, 0.9)}
    assert [[stage.share for stage in plan.stages] for plan in plans] == [[0.05, 0.25, 1.0]] * 2
    good, bad = plans
    assert (good.control, good.candidate) == ("stable", "fast-model")
    assert (bad.control, bad.candidate) == ("fast-model", "large-model")
    assert good.checks == bad.checks
