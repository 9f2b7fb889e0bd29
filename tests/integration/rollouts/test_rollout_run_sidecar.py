"""`voiceprobe rollout run` with the address of a real sidecar that evaluates the plan: one verdict, stage and log."""

import json
import signal
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from loadtest.exit_codes import ExitCode
from tests.fixtures_rollouts import read_rollouts
from tests.fixtures_sidecar import SidecarProcess, running_sidecar
from tests.integration.commands import carried_out
from tests.integration.rollouts.test_rollout_run import FLAGS, PLAN, output, running, send, weights
from tests.integration.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    (tmp_path / "flags.json").write_text(json.dumps(FLAGS))
    (tmp_path / "rollout.toml").write_text(PLAN)
    return tmp_path / "rollout.toml"


@contextmanager
def evaluating(plan: Path) -> Generator[SidecarProcess]:
    with running_sidecar(plan.parent / "store", "--rollout", str(plan), "--rollout-every", "1") as sidecar:
        yield sidecar


def verdict(sidecar: SidecarProcess) -> dict[str, Any]:
    answer = httpx.get(f"{sidecar.http}/v1/rollouts/streaming/verdict", timeout=60)
    return answer.json() if answer.status_code == 200 else {}


def begun(plan: Path) -> list[str]:
    """The stages that began, as the sidecar's log has them."""
    records = read_rollouts(plan.parent / "store")
    return [entry.stage for record in records for entry in record.entries[1:] if entry.verdict is None]


def test_the_share_follows_the_stage_of_the_sidecar_over_a_kill(plan: Path) -> None:
    with evaluating(plan) as sidecar:
        with running(plan, sidecar.http) as process:
            # Twice: once before the share is changed, and once it is in effect.
            wait_until(lambda: begun(plan) == ["canary", "canary"], what="a stage that counts")
            assert weights(plan) == {"stable": 75, "streaming": 25}
            send(sidecar.http, 1, 0.25)
            wait_until(lambda: begun(plan)[2:] == ["half", "half"], what="a second stage")
            process.send_signal(signal.SIGKILL)
        assert weights(plan) == {"stable": 50, "streaming": 50}
        assert verdict(sidecar)["stage"] == "half"
        # As it would be if it had been killed between the sidecar's yes and the change.
        (plan.parent / "flags.json").write_text(json.dumps(FLAGS))
        with running(plan, sidecar.http) as process:
            wait_until(lambda: weights(plan) == {"stable": 50, "streaming": 50}, what="the sidecar's share")
            assert begun(plan)[2:] == ["half", "half"]
            send(sidecar.http, 2, 0.5)
            assert process.wait(180) == ExitCode.OK
            assert "complete: streaming was promoted through every stage" in output(process)
        assert verdict(sidecar)["stage"] == "all"
    assert weights(plan) == {"stable": 0, "streaming": 100}
    (record,) = read_rollouts(plan.parent / "store")
    promoted = [logged.stage for logged in record.verdicts if logged.decision == "promote"]
    assert list(dict.fromkeys(promoted)) == ["canary", "half"]


@pytest.mark.nightly
def test_rollback_of_sidecar_rolls_candidate_back_for_good(plan: Path) -> None:
    with evaluating(plan) as sidecar:
        with running(plan, sidecar.http) as process:
            wait_until(lambda: begun(plan) == ["canary", "canary"], what="a stage that counts")
            send(sidecar.http, 1, 0.25, shift_ms=900.0)
            assert process.wait(180) == ExitCode.OBJECTIVE_MISSED
            assert "roll back streaming at stage canary: p95 of voice to voice is worse" in output(process)
        assert weights(plan) == {"stable": 100, "streaming": 0}
        with running(plan, sidecar.http) as process:
            assert process.wait(180) == ExitCode.OBJECTIVE_MISSED
        assert weights(plan) == {"stable": 100, "streaming": 0}
        assert begun(plan) == ["canary", "canary"]


def refused(plan: Path, sidecar: SidecarProcess, *flags: str) -> str:
    done = carried_out("rollout", "run", str(plan), "--store", sidecar.http, *flags, "--for", "1s", cwd=plan.parent)
    assert done.returncode == ExitCode.USAGE, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert weights(plan) == {}
    return done.stderr


def test_second_opinion_is_refused_before_any_share_changes(plan: Path) -> None:
    with evaluating(plan) as sidecar:
        wait_until(lambda: verdict(sidecar), what="a verdict")
        assert "keeps its verdicts; leave --log out" in refused(plan, sidecar, "--log", str(plan.parent / "log"))
        other = plan.with_name("other.toml")
        other.write_text(PLAN.replace('margin = "500ms"', 'margin = "900ms"'))
        assert "the sidecar evaluates another plan of the name streaming" in refused(other, sidecar)
        other.write_text(PLAN.replace('name = "streaming"', 'name = "elsewhere"'))
        assert "does not evaluate the rollout elsewhere: start it with --rollout" in refused(other, sidecar)
        assert begun(plan) == []
