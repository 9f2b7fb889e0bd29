"""The page of rollouts says what `voiceprobe rollout check` says, from the same store."""

import json
import shutil
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from loadtest.run.rollout_check import RolloutCheckRequest, check
from telemetry.rollout.plan import encode_history
from telemetry.rollout.plan_document import parse_plan
from telemetry.store.questions.rollouts import RolloutPage
from telemetry.store.reader import StoreReader
from telemetry.store.writer import StoreWriter
from tests.fixtures_rollouts import read_rollouts
from tests.fixtures_turns import Run, client_turn, fill_store
from tests.unit.dashboard.rollout_scenes import PLAN, Rollout, S, fill_rollout

NOW = 1_795_000_000 * S


def page_of(store: Path, name: str | None = None) -> RolloutPage:
    with StoreReader(store, wall_clock_ns=lambda: NOW) as reader:
        return reader.rollout_page(name)


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill_rollout(tmp_path_factory.mktemp("bad"), Rollout(slower_ms=180, turns=1600, looks=2), NOW)


def test_the_page_has_the_figures_of_the_command(bad: Path, tmp_path: Path) -> None:
    (record,) = read_rollouts(bad)
    newest = record.entries[-1]
    assert newest.verdict is not None
    kept = StoreReader(bad).rollout_history("streaming")
    assert kept is not None
    history = msgspec.structs.replace(kept.history, looks=kept.history.looks[:-1])
    (tmp_path / "history.json").write_bytes(encode_history(history))
    (tmp_path / "plan.toml").write_text(PLAN)
    request = RolloutCheckRequest(
        plan=tmp_path / "plan.toml",
        store=str(bad),
        history_file=tmp_path / "history.json",
        json_file=tmp_path / "verdict.json",
    )
    check(request, Console(quiet=True), now_unix_ns=newest.at_unix_ns)
    parsed = json.loads((tmp_path / "verdict.json").read_text())
    answer = page_of(bad)
    assert answer.progress is not None
    assert parsed == json.loads(msgspec.json.encode(answer.progress.newest.verdict))
    assert (answer.control, answer.candidate, answer.stage) == ("stable", "streaming", "20-percent")
    assert answer.progress.stages[0].state == "rolled_back"
    assert [stage.state for stage in answer.progress.stages[1:]] == ["ahead", "ahead"]
    primary = parsed["checks"][0]
    newest = answer.progress.funnel.points[-1]
    assert (newest.estimate, newest.upper) == (primary["shares"]["beyond_margin"], primary["shares"]["upper"])
    assert answer.progress.checks[0].status == primary["status"]


def test_a_plan_that_cannot_be_read_leaves_the_verdicts(bad: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(bad, copy)
    with StoreWriter(copy) as writer, writer.change() as cursor:
        cursor.execute("UPDATE rollout_rows SET plan = 'name = 1' WHERE sequence = 0")
    answer = page_of(copy)
    assert answer.candidate is None
    assert answer.progress is not None
    assert [stage.name for stage in answer.progress.stages] == ["20-percent"]


def test_a_store_without_rollouts_and_an_unknown_name(bad: Path, tmp_path: Path) -> None:
    assert page_of(fill_store(tmp_path, Run(turns=[client_turn(0)]))) == RolloutPage()
    assert page_of(bad, "nobody's") == RolloutPage(("streaming",))
    assert parse_plan(PLAN, "p").name == page_of(bad).name
