"""`rollout run` in this process, over a store in which its candidate has no turn yet."""

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from loadtest.errors import UsageError
from loadtest.exit_codes import ExitCode
from loadtest.rollout.job import RolloutRunRequest, run_rollout
from telemetry.store.reader import StoreReader
from tests.fixtures_rollouts import PLAN_FILE, fill_rollout_store

APPLY = '[apply]\nflags = "flags.json"\nsettle = "10ms"\n'
VOICE = {"state": "ENABLED", "variants": {"stable": 1, "streaming": 2}, "defaultVariant": "stable"}


@pytest.fixture
def asked(tmp_path: Path) -> RolloutRunRequest:
    (tmp_path / "flags.json").write_text(json.dumps({"flags": {"voice": VOICE}}))
    (tmp_path / "rollout.toml").write_text(PLAN_FILE + APPLY)
    fill_rollout_store(tmp_path / "store", "few")
    log = tmp_path / "log"
    return RolloutRunRequest(tmp_path / "rollout.toml", str(tmp_path / "store"), log=log, every_s=0.05, at_most_s=0.2)


@pytest.mark.slow
def test_verdict_folder_serves_same_rollout_again_and_others(asked: RolloutRunRequest) -> None:
    assert asked.log is not None
    for name in ("streaming", "streaming", "second"):
        asked.plan.write_text(PLAN_FILE.replace('name = "streaming"', f'name = "{name}"') + APPLY)
        assert run_rollout(asked, Console(file=StringIO())) == ExitCode.UNDECIDED
    with StoreReader(asked.log) as reader:
        assert {record.name for record in reader.rollouts()} == {"streaming", "second"}


def test_a_file_in_place_of_the_folder_of_verdicts_is_refused(asked: RolloutRunRequest) -> None:
    assert asked.log is not None
    asked.log.write_text("")
    with pytest.raises(UsageError, match=r"^--log: .* is not a folder$"):
        run_rollout(asked, Console(file=StringIO()))
