"""Changes of shares: in a file, by a command, over HTTP; and what each of them says when it does not succeed."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from loadtest.errors import UsageError
from loadtest.rollout.share_changes import ChangeShare, ShareUnchangedError, share_changer
from telemetry.rollout.plan import RolloutPlan
from telemetry.rollout.plan_document import parse_plan

PLAN = """
name = "streaming"
unit = "call"
[cohorts]
control = "stable"
candidate = "streaming"
[[stages]]
name = "canary"
share = 0.05
control_share = 0.85
[[stages]]
name = "quarter"
share = 0.25
control_share = 0.65
[apply]
"""
FLAGS = {
    "flags": {
        "voice": {
            "state": "ENABLED",
            "variants": {"stable": 1, "streaming": 2, "local": 3},
            "defaultVariant": "stable",
            "targeting": {"fractional": [["stable", 90], ["local", 10]]},
        }
    },
    "$evaluators": {"kept": {"==": [1, 1]}},
}


def plan(apply: str) -> RolloutPlan:
    return parse_plan(PLAN + apply, "rollout.toml")


def stage(of: RolloutPlan, name: str, *, is_back: bool = False) -> ChangeShare:
    return ChangeShare(of.stage(name), is_back)


@pytest.fixture
def flags(tmp_path: Path) -> Path:
    (tmp_path / "flags.json").write_text(json.dumps(FLAGS))
    return tmp_path / "flags.json"


def weights(flags: Path) -> Any:
    return json.loads(flags.read_text())["flags"]["voice"]["targeting"]["fractional"]


def test_the_file_gets_the_shares_of_a_stage_and_of_its_end(flags: Path, tmp_path: Path) -> None:
    of = plan('flags = "flags.json"')
    change = share_changer(of, tmp_path / "rollout.toml")
    assert change(stage(of, "canary")) == f"{flags} gives streaming 0.05 of the callers"
    assert weights(flags) == [["stable", 85], ["streaming", 5], ["local", 10]]
    change(stage(of, "quarter"))
    assert weights(flags) == [["stable", 65], ["streaming", 25], ["local", 10]]
    change(stage(of, "quarter", is_back=True))
    assert weights(flags) == [["stable", 90], ["streaming", 0], ["local", 10]]
    assert json.loads(flags.read_text())["$evaluators"] == FLAGS["$evaluators"]


def test_a_file_that_cannot_take_every_stage_is_refused_before_anything_begins(flags: Path, tmp_path: Path) -> None:
    of = plan('flags = "flags.json"\nflag = "speech"')
    with pytest.raises(UsageError, match="has no flag 'speech'"):
        share_changer(of, tmp_path / "rollout.toml")
    with pytest.raises(UsageError, match=r"missing\.json: cannot be read"):
        share_changer(plan('flags = "missing.json"'), tmp_path / "rollout.toml")
    assert json.loads(flags.read_text()) == FLAGS


def test_a_file_that_breaks_later_is_left_as_it_is(flags: Path, tmp_path: Path) -> None:
    of = plan('flags = "flags.json"')
    change = share_changer(of, tmp_path / "rollout.toml")
    flags.write_text("{")
    with pytest.raises(ShareUnchangedError, match="is not JSON"):
        change(stage(of, "canary"))
    assert flags.read_text() == "{"


def test_a_change_is_newer_than_the_file_that_it_replaces(flags: Path, tmp_path: Path) -> None:
    of = plan('flags = "flags.json"')
    future_ns = 4_000_000_000 * 10**9
    os.utime(flags, ns=(future_ns, future_ns))
    share_changer(of, tmp_path / "rollout.toml")(stage(of, "canary"))
    assert flags.stat().st_mtime_ns > future_ns


def script(tmp_path: Path, text: str) -> str:
    file = tmp_path / "set_share.py"
    file.write_text(f"import json, os, sys\n{text}\n")
    return f"command = [{json.dumps(sys.executable)}, {json.dumps(str(file))}, '{{share}}', '{{stage}}']"


def test_a_command_gets_the_share_in_its_arguments_and_environment(tmp_path: Path) -> None:
    seen = tmp_path / "seen.json"
    text = (
        "names = {k: v for k, v in os.environ.items() if k.startswith('VOICEPROBE_ROLLOUT_')}\n"
        f"open({str(seen)!r}, 'w').write(json.dumps([sys.argv[1:], names]))"
    )
    of = plan(script(tmp_path, text))
    share_changer(of, tmp_path / "rollout.toml")(stage(of, "canary"))
    arguments, names = json.loads(seen.read_text())
    assert arguments == ["0.05", "canary"]
    assert names == {
        "VOICEPROBE_ROLLOUT_ROLLOUT": "streaming",
        "VOICEPROBE_ROLLOUT_STAGE": "canary",
        "VOICEPROBE_ROLLOUT_CANDIDATE": "streaming",
        "VOICEPROBE_ROLLOUT_CONTROL": "stable",
        "VOICEPROBE_ROLLOUT_SHARE": "0.05",
        "VOICEPROBE_ROLLOUT_CONTROL_SHARE": "0.85",
    }
    share_changer(of, tmp_path / "rollout.toml")(stage(of, "canary", is_back=True))
    assert json.loads(seen.read_text())[0] == ["0", ""]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("sys.exit('quota\\x1b[2J exceeded')", "ended with code 1: quota\\x1b[2J exceeded"),
        ("import time\ntime.sleep(600)", "did not end within 1s"),
    ],
)
def test_a_command_that_does_not_succeed_says_why(tmp_path: Path, text: str, sentence: str) -> None:
    of = plan(script(tmp_path, text) + '\ntimeout = "1s"')
    with pytest.raises(ShareUnchangedError) as caught:
        share_changer(of, tmp_path / "rollout.toml")(stage(of, "canary"))
    assert sentence in str(caught.value)


def test_a_command_that_is_not_there_is_named(tmp_path: Path) -> None:
    of = plan('command = ["/nowhere/set-share"]')
    with pytest.raises(ShareUnchangedError, match="/nowhere/set-share cannot be run: No such file"):
        share_changer(of, tmp_path / "rollout.toml")(stage(of, "canary"))


def test_a_plan_that_does_not_say_how_can_only_be_watched(tmp_path: Path) -> None:
    of = parse_plan(PLAN.replace("[apply]", ""), "rollout.toml")
    with pytest.raises(UsageError, match="apply is missing; say how the shares are changed"):
        share_changer(of, tmp_path / "rollout.toml")
