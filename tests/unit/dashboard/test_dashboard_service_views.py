"""What a service reports without callers of ours, on the page: named as such, and never as if somebody had heard it."""

import time
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from dashboard import descriptions
from dashboard.source_names import ENV_SLO, ENV_STORE
from telemetry.model.service_runs import service_run_id
from telemetry.store.answers import RunRecord
from telemetry.store.schema import Batch
from telemetry.store.writer import StoreWriter
from tests.unit.dashboard.scenes import S, Scene, service_turn, turns_of
from tests.unit.dashboard.test_dashboard_pages import shown


def reported(store: Path, turns: int) -> str:
    """A store with what a bot reported today; the name of its view."""
    now_unix_ns = time.time_ns()
    view = service_run_id("front-desk bot", now_unix_ns)
    heard = [turn for turn in turns_of(Scene(turns=turns, newest_unix_ns=now_unix_ns)) if turn.outcome == "ok"]
    services = [service_turn(turn, sequence) for sequence, turn in enumerate(heard)]
    with StoreWriter(store) as writer:
        writer.append(Batch([msgspec.structs.replace(turn, run_id=view) for turn in services]))
    return view


def test_the_page_says_that_nobody_heard_these_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENV_STORE, str(tmp_path))
    monkeypatch.delenv(ENV_SLO, raising=False)
    view = reported(tmp_path, 60)
    for query in ({}, {"run": view}):
        app, text = shown(**query)
        assert "reported by the service, not heard by a caller" in text
        assert "service front-desk bot" in text
        assert datetime.now(UTC).date().isoformat() in text
        assert "no caller of ours heard these turns" in text
        for part in ("Voice to voice p95", "Stages against objectives", "Where a turn's time goes", "Outcomes"):
            assert part in text
        assert "speech bounds" not in text
    labels = app.selectbox[0].options
    assert any(label.startswith("service front-desk bot · ") for label in labels), labels


def test_a_service_s_day_ends_with_the_day() -> None:
    noon_unix_ns = 1_794_398_400 * S  # 2026-11-11
    run = RunRecord("service:bot:2026-11-11", 0, noon_unix_ns, 9, None, None, ended=False, declared={})
    assert descriptions.state_of(run, None, noon_unix_ns) == "live"
    assert descriptions.state_of(run, None, noon_unix_ns + 3600 * S) == "stale"
    assert descriptions.state_of(run, None, noon_unix_ns + 86_400 * S) == "ended"
    # A turn that is dated in the future shows a wrong clock, and not that turns come in.
    assert descriptions.state_of(run, None, noon_unix_ns - S) == "live"
    for now_unix_ns in (noon_unix_ns - 1200 * S, noon_unix_ns - 31 * S):
        assert descriptions.state_of(run, None, now_unix_ns) == "stale"
    assert descriptions.describe_state("stale", noon_unix_ns, noon_unix_ns - 1200 * S, is_service=True) == (
        "last turn is dated 20 min ahead of this clock: set the clocks of the hosts"
    )
    assert descriptions.describe_state("stale", noon_unix_ns, noon_unix_ns + 60 * S, is_service=True) == (
        "last turn 1 min ago"
    )
