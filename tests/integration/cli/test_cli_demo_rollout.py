"""`voiceprobe demo --rollout` with few callers and little time: all of it runs, and too few turns decide nothing. With
more of both, and margins that a busy machine can keep, both of its rollouts end as they should."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dashboard.source import objectives_in_force
from loadtest.exit_codes import ExitCode
from loadtest.run.demo import OBJECTIVES
from telemetry.objectives.slo import load_objectives
from telemetry.rollout.plan_document import parse_plan
from telemetry.store.reader import StoreReader
from tests.integration.commands import completed

DEMO_FILES = Path(__file__).parents[3] / "loadtest" / "rollout" / "demo_files"


@pytest.mark.nightly
def test_callers_are_split_by_flag_and_few_turns_decide_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    flags = ("--users", "8", "--run-time", "15s", "--exit", "--out", str(out), "--json", str(tmp_path / "demo.json"))
    done = completed("demo", "--rollout", *flags)
    assert done.returncode == ExitCode.UNDECIDED, done.stderr
    assert "Traceback" not in done.stderr
    assert "two rollouts of 20 % -> 50 % -> 100 % of the calls, 8 callers" in done.stdout
    assert "compressed: a stage lasts 10s at least instead of hours or days; the first gets 20 % of the" in done.stdout
    assert "the margins are wide: p95 of voice to voice 250 ms, share of turns with voice to voice not" in done.stdout
    assert "not compressed: the error level is 5 %, and every part" in done.stdout
    assert "this machine did not get the turns that a decision needs" in done.stdout
    fractional = json.loads((out / "rollout" / "flags.json").read_text())["flags"]["voice"]["targeting"]["fractional"]
    assert fractional == [["stable", 80], ["fast-model", 20], ["large-model", 0]]
    (rollout,) = json.loads((tmp_path / "demo.json").read_text())["rollouts"]
    assert (rollout["name"], rollout["exit_code"]) == ("fast-model", ExitCode.UNDECIDED)
    assert objectives_in_force(str(out / "store")).objectives == tuple(load_objectives(OBJECTIVES)), "as while it ran"
    with StoreReader(out / "store") as reader:
        (record,) = reader.rollouts()
        turns = reader.turns(limit=100_000, source="client")
    assert {entry.decision for entry in record.verdicts} == {"hold"}
    assert "stable" in {turn.cohort for turn in turns}
    # The callers of the candidate hear what the flag gives them, as the service says in each reply.
    assert {turn.cohort for turn in turns} <= {"stable", "fast-model", None}


def test_the_plans_hide_no_weakened_error_level() -> None:
    plans = [parse_plan((DEMO_FILES / f"{name}.toml").read_text(), name) for name in ("fast-model", "large-model")]
    assert {plan.error_level for plan in plans} == {0.05}
    assert [[stage.share for stage in plan.stages] for plan in plans] == [[0.2, 0.5, 1.0]] * 2
    good, bad = plans
    assert (good.control, good.candidate) == ("stable", "fast-model")
    assert (bad.control, bad.candidate) == ("fast-model", "large-model")
    assert good.checks == bad.checks


# Margins that a machine which does other things as well can keep; the bad change grows with them.
WIDER = {
    'statistic = "p95"': 'statistic = "p50"',
    'margin = "250ms"': 'margin = "2s"',
    'within = "1500ms"': 'within = "4s"',
    "margin = 0.05": "margin = 0.1",
    "invalid_turns = 0.05 ": "invalid_turns = 0.99 ",
    "telemetry_loss = 0.05 ": "telemetry_loss = 0.9 ",
    "tail=0.1:2.5s": "tail=0.2:6s",
}
RUN = """
import sys
from pathlib import Path
from rich.console import Console
from loadtest.rollout.demo import RolloutDemoRequest, demo_rollout
from loadtest.run import processes
from loadtest.scenario.options import load_from
# Demos of other tests may take the usual ports between the look and the start.
any_port = processes.free_port
processes.free_port = lambda _preferred=None: any_port()
out, files = map(Path, sys.argv[1:])
load = load_from({"users": 48, "run_time": "15m"})
sys.exit(int(demo_rollout(RolloutDemoRequest(load, True, out, out / "demo.json", files), Console())))
"""


@pytest.mark.nightly
def test_good_change_passes_all_stages_and_bad_is_rolled_back(
    tmp_path: Path,
) -> None:
    files, out = tmp_path / "files", tmp_path / "out"
    files.mkdir()
    for file in DEMO_FILES.iterdir():
        text = file.read_text()
        for before, after in WIDER.items():
            text = text.replace(before, after)
        (files / file.name).write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(out), str(files)], capture_output=True, text=True, timeout=1200, check=False
    )
    assert done.returncode == ExitCode.OK, done.stdout + done.stderr
    good, bad = json.loads((out / "demo.json").read_text())["rollouts"]
    assert (good["name"], good["exit_code"]) == ("fast-model", ExitCode.OK)
    assert (bad["name"], bad["exit_code"]) == ("large-model", ExitCode.OBJECTIVE_MISSED)
    with StoreReader(out / "store") as reader:
        records = {record.name: record for record in reader.rollouts()}
    # A stage begins again when its share is in effect.
    begun = {
        name: [*dict.fromkeys(entry.stage for entry in of.entries[1:] if entry.verdict is None)]
        for name, of in records.items()
    }
    assert begun == {"fast-model": ["20-percent", "50-percent", "all"], "large-model": ["20-percent"]}
    assert "roll_back" not in {verdict.decision for verdict in records["fast-model"].verdicts}
    assert [verdict.decision for verdict in records["large-model"].verdicts if verdict.decision != "hold"] == [
        "roll_back"
    ]
    fractional = json.loads((out / "rollout" / "flags.json").read_text())["flags"]["voice"]["targeting"]["fractional"]
    assert dict(fractional)["large-model"] == 0
    assert "the candidate is taken back" in done.stdout
