"""`voiceprobe rollout run` and `watch` as processes, over the store of a real sidecar that turns come into: with the
verdicts of the command itself over the folder, and with those of a sidecar that evaluates the plan."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest

from loadtest.exit_codes import ExitCode
from telemetry.store.rollout_rows import RolloutEntry
from tests.fixtures_rollouts import read_rollouts
from tests.fixtures_sidecar import SidecarProcess, running_sidecar, turns_request
from tests.fixtures_turns import client_turn
from tests.integration.commands import carried_out, completed
from tests.integration.waiting import wait_until
from tests.rollout_cohorts import latencies_ms

pytestmark = pytest.mark.slow

PLAN = """
name = "streaming"
unit = "call"
[cohorts]
control = "stable"
candidate = "streaming"
[primary]
margin = "500ms"
[[stages]]
name = "canary"
share = 0.25
shortest = "0s"
[[stages]]
name = "half"
share = 0.5
shortest = "0s"
[[stages]]
name = "all"
share = 1.0
[[guardrails]]
check = "tail"
margin = 0.2
[apply]
flags = "flags.json"
settle = "100ms"
"""
FLAGS = {
    "flags": {
        "voice": {"state": "ENABLED", "variants": {"stable": 1, "streaming": 2}, "defaultVariant": "stable"},
        "kept": {"state": "DISABLED", "variants": {"on": True}},
    }
}
CANDIDATES = 500
ENDLESS = ("--every", "300ms")


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    (tmp_path / "flags.json").write_text(json.dumps(FLAGS))
    (tmp_path / "rollout.toml").write_text(PLAN)
    return tmp_path / "rollout.toml"


def send(url: str, batch: int, share: float, *, shift_ms: float = 0.0, candidates: int = CANDIDATES) -> None:
    """Turns of both cohorts that begin now, in the proportion of a share."""
    turns = []
    for cohort, count, shift in (
        ("streaming", candidates, shift_ms),
        ("stable", round(candidates * (1 - share) / share), 0.0),
    ):
        rng = np.random.default_rng([batch, len(cohort)])
        values, _ = latencies_ms(rng, count)
        for index, value in enumerate(values):
            number = batch * 100_000 + (50_000 if cohort == "stable" else 0) + index
            turn = client_turn(number, voice_to_voice_ms=float(value) + shift)
            turns.append(
                msgspec.structs.replace(
                    turn, cohort=cohort, process_id=f"{cohort}-{batch}", sequence=index, started_unix_ns=time.time_ns()
                )
            )
    for begin in range(0, len(turns), 500):
        content = turns_request(turns[begin : begin + 500]).SerializeToString()
        httpx.post(
            f"{url}/v1/traces", content=content, headers={"content-type": "application/x-protobuf"}
        ).raise_for_status()


@contextmanager
def running(plan: Path, store: str) -> Generator[subprocess.Popen[str]]:
    """`rollout run` over a folder, or over the address of a sidecar; killed at the end, if it goes on."""
    process = subprocess.Popen(
        [sys.executable, "-m", "loadtest.cli.main", "rollout", "run", str(plan), "--store", store, *ENDLESS],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(60)
        assert process.stdout is not None
        process.stdout.close()


def weights(plan: Path) -> dict[str, int]:
    voice = json.loads((plan.parent / "flags.json").read_text())["flags"]["voice"]
    return dict(voice.get("targeting", {"fractional": []})["fractional"])


@contextmanager
def judged_by(judge: str, plan: Path) -> Generator[tuple[SidecarProcess, str]]:
    """A sidecar, and the store that the command is given: a folder that it judges, or the sidecar, which judges."""
    store = plan.parent / "store"
    evaluates = ("--rollout", str(plan), "--rollout-every", "1") if judge == "sidecar" else ()
    with running_sidecar(store, *evaluates) as sidecar:
        yield sidecar, sidecar.http if evaluates else str(store)


def entries(plan: Path) -> list[RolloutEntry]:
    """Entries of the rollout's log after its plan."""
    return [entry for record in read_rollouts(plan.parent / "store") for entry in record.entries[1:]]


def begun(plan: Path) -> list[str]:
    """The stages that began: each once before its share is changed, and once it is in effect."""
    return [entry.stage for entry in entries(plan) if entry.verdict is None]


def verdict(sidecar: SidecarProcess) -> dict[str, Any]:
    answer = httpx.get(f"{sidecar.http}/v1/rollouts/streaming/verdict", timeout=60)
    return answer.json() if answer.status_code == 200 else {}


def output(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.read()


@pytest.mark.parametrize("judge", ["command", "sidecar"])
def test_a_rollout_is_carried_through_every_stage_over_a_kill(plan: Path, judge: str) -> None:
    with judged_by(judge, plan) as (sidecar, store):
        with running(plan, store) as process:
            wait_until(lambda: begun(plan) == ["canary"] * 2, what="a stage that counts")
            assert weights(plan) == {"stable": 75, "streaming": 25}
            send(sidecar.http, 1, 0.25)
            wait_until(lambda: begun(plan)[2:] == ["half"] * 2, what="a second stage")
            process.send_signal(signal.SIGKILL)
        assert weights(plan) == {"stable": 50, "streaming": 50}
        if judge == "sidecar":
            assert verdict(sidecar)["stage"] == "half"
            # As it would be if it had been killed between the sidecar's yes and the change.
            (plan.parent / "flags.json").write_text(json.dumps(FLAGS))
        before = len(entries(plan))
        with running(plan, store) as process:
            # It goes on at the stage where it was: no turn of this one is there, so nothing moves.
            wait_until(lambda: weights(plan) == {"stable": 50, "streaming": 50}, what="the share of the stage")
            wait_until(lambda: len(entries(plan)) > before + 2, what="more verdicts")
            assert set(begun(plan)[2:]) == {"half"}
            assert judge == "command" or len(begun(plan)) == 4, "the sidecar begins a stage once"
            send(sidecar.http, 2, 0.5)
            assert process.wait(180) == ExitCode.OK
            assert "complete: streaming was promoted through every stage" in output(process)
        assert judge == "command" or verdict(sidecar)["stage"] == "all"
    assert [*dict.fromkeys(begun(plan))] == ["canary", "half", "all"]
    promoted = [entry.stage for entry in entries(plan) if entry.decision == "promote"]
    assert [*dict.fromkeys(promoted)] == ["canary", "half"]
    assert weights(plan) == {"stable": 0, "streaming": 100}
    assert json.loads((plan.parent / "flags.json").read_text())["flags"]["kept"] == FLAGS["flags"]["kept"]


@pytest.mark.nightly
@pytest.mark.parametrize("judge", ["command", "sidecar"])
def test_regression_rolls_candidate_back_at_once_and_for_good(plan: Path, judge: str) -> None:
    with judged_by(judge, plan) as (sidecar, store):
        with running(plan, store) as process:
            wait_until(lambda: begun(plan) == ["canary"] * 2, what="a stage that counts")
            send(sidecar.http, 1, 0.25, shift_ms=900.0)
            assert process.wait(180) == ExitCode.OBJECTIVE_MISSED
            assert "roll back streaming at stage canary: p95 of voice to voice is worse" in output(process)
        assert weights(plan) == {"stable": 100, "streaming": 0}
        # Better turns do not bring it back.
        send(sidecar.http, 2, 0.25, candidates=1500)
        with running(plan, store) as process:
            assert process.wait(180) == ExitCode.OBJECTIVE_MISSED
        assert weights(plan) == {"stable": 100, "streaming": 0}
        assert begun(plan) == ["canary"] * 2
        watched = completed("rollout", "watch", str(plan), "--store", store, "--until-verdict")
    assert watched.returncode == ExitCode.OBJECTIVE_MISSED
    assert "roll back streaming at stage canary: rolled back at" in watched.stdout


def refused(plan: Path, store: str, *flags: str) -> str:
    """Start a run that does not begin, and return its sentence."""
    done = carried_out("rollout", "run", str(plan), "--store", store, *flags, "--for", "1s", cwd=plan.parent)
    assert done.returncode == ExitCode.USAGE, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def test_second_process_and_plan_without_apply_are_refused(plan: Path) -> None:
    with judged_by("command", plan) as (_, store), running(plan, store):
        wait_until(lambda: begun(plan) == ["canary"] * 2, what="a stage that counts")
        second = carried_out("rollout", "run", str(plan), "--store", store, cwd=plan.parent)
        assert second.returncode != ExitCode.OK
        assert "another process evaluates the rollout streaming" in second.stderr
        assert "Traceback" not in second.stderr
        plan.write_text(PLAN.split("[apply]", maxsplit=1)[0])
        assert "apply is missing" in refused(plan, store)


def test_second_opinion_is_refused_before_any_share_changes(plan: Path) -> None:
    with judged_by("sidecar", plan) as (sidecar, store):
        wait_until(lambda: verdict(sidecar), what="a verdict")
        assert "keeps its verdicts; leave --log out" in refused(plan, store, "--log", str(plan.parent / "log"))
        other = plan.with_name("other.toml")
        other.write_text(PLAN.replace('margin = "500ms"', 'margin = "900ms"'))
        assert "the sidecar evaluates another plan of the name streaming" in refused(other, store)
        other.write_text(PLAN.replace('name = "streaming"', 'name = "elsewhere"'))
        assert "does not evaluate the rollout elsewhere: start it with --rollout" in refused(other, store)
        assert (begun(plan), weights(plan)) == ([], {})
