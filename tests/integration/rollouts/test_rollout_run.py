"""`voiceprobe rollout run` and `watch` as processes, over the store of a real sidecar that turns come into."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx
import msgspec
import numpy as np
import pytest

from loadtest.exit_codes import ExitCode
from telemetry.store.reader import StoreReader
from telemetry.store.rollout_rows import RolloutRecord
from tests.fixtures_sidecar import running_sidecar, turns_request
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
[[stages]]
name = "half"
share = 0.5
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
def running(plan: Path, store: Path | str) -> Generator[subprocess.Popen[str]]:
    """`rollout run` over a folder, or over the address of a sidecar; killed at the end, if it goes on."""
    process = subprocess.Popen(
        [sys.executable, "-m", "loadtest.cli.main", "rollout", "run", str(plan), "--store", str(store), *ENDLESS],
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


def record(store: Path) -> RolloutRecord | None:
    with StoreReader(store) as reader:
        return next(iter(reader.rollouts()), None)


def begun(store: Path) -> list[str]:
    """The stages that began: each once before its share is changed, and once it is in effect."""
    log = record(store)
    return [] if log is None else [entry.stage for entry in log.entries[1:] if entry.verdict is None]


def output(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.read()


def test_a_rollout_is_carried_through_every_stage_over_a_kill(plan: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    with running_sidecar(store) as sidecar:
        with running(plan, store) as process:
            wait_until(lambda: begun(store) == ["canary"] * 2)
            assert weights(plan) == {"stable": 75, "streaming": 25}
            send(sidecar.http, 1, 0.25)
            wait_until(lambda: begun(store)[2:] == ["half"] * 2)
            process.send_signal(signal.SIGKILL)
        assert weights(plan) == {"stable": 50, "streaming": 50}
        before = record(store)
        assert before is not None
        with running(plan, store) as process:
            # It goes on at the stage where it was: no turn of this one is there, so nothing moves.
            wait_until(lambda: len((record(store) or before).entries) > len(before.entries) + 2)
            assert begun(store)[2:] == ["half"] * len(begun(store)[2:])
            assert weights(plan) == {"stable": 50, "streaming": 50}
            send(sidecar.http, 2, 0.5)
            assert process.wait(180) == ExitCode.OK
            assert "complete: streaming was promoted through every stage" in output(process)
    assert [*dict.fromkeys(begun(store))] == ["canary", "half", "all"]
    assert weights(plan) == {"stable": 0, "streaming": 100}
    assert json.loads((plan.parent / "flags.json").read_text())["flags"]["kept"] == FLAGS["flags"]["kept"]
    log = record(store)
    assert log is not None


@pytest.mark.nightly
def test_regression_rolls_candidate_back_at_once_and_for_good(plan: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    with running_sidecar(store) as sidecar:
        with running(plan, store) as process:
            wait_until(lambda: begun(store) == ["canary"] * 2)
            send(sidecar.http, 1, 0.25, shift_ms=900.0)
            assert process.wait(180) == ExitCode.OBJECTIVE_MISSED
            text = output(process)
        assert "roll back streaming at stage canary: p95 of voice to voice is worse" in text
        assert weights(plan) == {"stable": 100, "streaming": 0}
        # Better turns do not bring it back.
        send(sidecar.http, 2, 0.25, candidates=1500)
        with running(plan, store) as process:
            assert process.wait(180) == ExitCode.OBJECTIVE_MISSED
        assert weights(plan) == {"stable": 100, "streaming": 0}
        watched = completed("rollout", "watch", str(plan), "--store", str(store), "--until-verdict")
    assert watched.returncode == ExitCode.OBJECTIVE_MISSED
    assert "roll back streaming at stage canary: rolled back at" in watched.stdout


def test_second_process_and_plan_without_apply_are_refused(plan: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    with running_sidecar(store), running(plan, store):
        wait_until(lambda: begun(store) == ["canary"] * 2)
        second = carried_out("rollout", "run", str(plan), "--store", str(store), cwd=tmp_path)
        assert second.returncode != ExitCode.OK
        assert "another process evaluates the rollout streaming" in second.stderr
        assert "Traceback" not in second.stderr
        plan.write_text(PLAN.split("[apply]", maxsplit=1)[0])
        third = carried_out("rollout", "run", str(plan), "--store", str(store), cwd=tmp_path)
        assert third.returncode == ExitCode.USAGE
        assert "apply is missing" in third.stderr
