"""What pages say of stores in states that few look at: damaged, limited by the generator, with hardly a turn."""

import re
import time
from html import unescape
from pathlib import Path

import msgspec
import pytest
from streamlit.testing.v1 import AppTest

from dashboard.source import ENV_SLO, ENV_STORE
from telemetry.model import semconv
from telemetry.store.schema import Batch, PointRow
from telemetry.store.writer import StoreWriter
from tests.unit.dashboard.scenes import S, Scene, fill, turns_of

BOUND_S = 180


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(ENV_STORE, str(tmp_path / "store"))
    monkeypatch.delenv(ENV_SLO, raising=False)
    return tmp_path / "store"


def opened(page: str, **link: str) -> AppTest:
    app = AppTest.from_string(f"from dashboard.pages import {page}\n{page}.page()\n", default_timeout=BOUND_S)
    for name, value in link.items():
        app.query_params[name] = value
    app.run()
    assert not app.exception
    return app


def text_of(app: AppTest) -> str:
    html = " ".join(element.proto.body for element in app.get("html"))
    return unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html)))


def shown(page: str, **link: str) -> str:
    return text_of(opened(page, **link))


def test_objectives_say_how_many_turns_are_of_runs_that_claim_nothing(store: Path) -> None:
    now = time.time_ns()
    fill(store, Scene(turns=200, newest_unix_ns=now - 4_000 * S, run_id="run-valid", ended=True))
    fill(store, Scene(turns=300, newest_unix_ns=now - 60 * S, run_id="run-limited", ended=True, invalid_share=0.1))
    fill(store, Scene(turns=40, newest_unix_ns=now - 9_000 * S, run_id="run-lost", invalid_share=0.0))
    text = shown("objectives")
    (found,) = re.findall(r"(\d+) turns of these are of 2 runs whose load generator was the limit", text)
    assert 40 + 200 < int(found) < 40 + 300
    assert "generator-limited runs are among them" in text


def test_objectives_of_valid_runs_have_no_such_sentence(store: Path) -> None:
    fill(store, Scene(turns=200, newest_unix_ns=time.time_ns() - 60 * S, ended=True))
    assert "load generator" not in shown("objectives")


def test_objectives_name_damaged_segments(store: Path) -> None:
    fill(store, Scene(turns=240, newest_unix_ns=time.time_ns(), ended=True))
    broken = min((store / "segments").glob("turns-*.parquet"))
    broken.write_bytes(broken.read_bytes()[:-200])
    text = shown("objectives")
    assert "damaged data left out" in text
    assert broken.name in text


def test_a_budget_that_is_not_known_has_no_picture(store: Path) -> None:
    fill(store, Scene(turns=8, newest_unix_ns=time.time_ns(), ended=True))
    app = opened("objectives")
    assert "too few (8)" in text_of(app)
    assert "no calls" in text_of(app)
    assert not app.selectbox
    assert not app.get("arrow_vega_lite_chart")


def test_a_service_that_kept_its_calls_is_missed_on_the_page_as_by_the_exit_code(store: Path) -> None:
    now = time.time_ns()
    scene = Scene(turns=240, newest_unix_ns=now, ended=True, invalid_share=0.0)
    fill(store, scene)
    attributes = {
        "run_id": scene.run_id,
        "process_id": "worker-1",
        "phase": "hold",
        "phase_kind": "hold",
        "phase_begin_s": 0.0,
    }
    stuck = [
        msgspec.structs.replace(
            turn, outcome="timeout", span_id=f"f{turn.span_id[1:]}", call_id=f"stuck-{turn.call_id}", sequence=1_000 + i
        )
        for i, turn in enumerate(turns_of(scene)[:6])
    ]
    with StoreWriter(store) as writer:
        points = [
            PointRow(
                semconv.METRIC_GENERATOR_STARTS,
                now,
                float(count),
                {**attributes, "which": which},
                scope_name=semconv.SCOPE,
            )
            for which, count in zip(semconv.START_COUNTS, (400, 380, 0, 20), strict=True)
        ]
        writer.append(Batch(turns=stuck, points=points))
    text = shown("now")
    reason = "20 of 400 calls that were due never began because as many as are allowed were under way"
    assert re.search(rf"✕ Miss[^✓]*; {reason}, kept by the service|✕ Missed: {reason}, kept by the service", text)
