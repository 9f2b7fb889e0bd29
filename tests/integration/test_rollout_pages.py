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
from telemetry.store.rollout_log import LOG_NAME, PLAN_NAME, history_of, read_rollouts
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
    history = history_of("streaming", record.entries[:-1])
    assert history is not None
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
    found = page_of(bad)
    assert found.progress is not None
    shown = found.progress.newest.verdict
    assert {name: parsed[name] for name in shown} == json.loads(msgspec.json.encode(shown))
    assert (found.control, found.candidate, found.stage) == ("stable", "streaming", "20-percent")
    assert found.progress.stages[0].state == "rolled_back"
    assert [each.state for each in found.progress.stages[1:]] == ["ahead", "ahead"]
    primary = parsed["checks"][0]
    newest = found.progress.funnel.points[-1]
    assert (newest.estimate, newest.upper) == (primary["shares"]["beyond_margin"], primary["shares"]["upper"])
    assert found.progress.checks[0].status == primary["status"]


def test_a_log_that_was_edited_is_named_first(bad: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(bad, copy)
    log = copy / "rollouts" / "streaming" / LOG_NAME
    log.write_text(log.read_text().replace("roll_back", "promote"))
    assert any("edited" in fault for fault in page_of(copy).faults)


def test_a_plan_that_cannot_be_read_leaves_the_verdicts(bad: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(bad, copy)
    (copy / "rollouts" / "streaming" / PLAN_NAME).write_text("name = 1")
    found = page_of(copy)
    assert found.candidate is None
    assert found.faults
    assert found.progress is not None
    assert [each.name for each in found.progress.stages] == ["20-percent"]


def test_a_store_without_rollouts_and_an_unknown_name(bad: Path, tmp_path: Path) -> None:
    assert page_of(fill_store(tmp_path, Run(turns=[client_turn(0)]))) == RolloutPage()
    assert page_of(bad, "nobody's") == RolloutPage(("streaming",))
    assert parse_plan(PLAN, "p").name == page_of(bad).name
