"""What pages say of stores in states that few look at: damaged, limited by the generator, with hardly a turn."""

import re
import time
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC
from html import escape
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dashboard import frame
from dashboard.filters import Choice
from dashboard.header import overview
from dashboard.source import Source
from telemetry.model import semconv
from telemetry.objectives.slo import default_objectives
from telemetry.store.answers import Filter
from telemetry.store.reader import StoreReader
from telemetry.store.run_folders.catalog import RunCatalog
from telemetry.store.schema import Batch, PointRow
from telemetry.store.writer import StoreWriter
from tests.unit.dashboard.opened_pages import html_of, opened, text_of
from tests.unit.dashboard.scenes import S, Scene, fill, health, run_span, turns_of


def shown(page: str, **link: str) -> str:
    return text_of(opened(page, **link))


def test_objectives_say_how_many_turns_are_of_runs_that_claim_nothing(store: Path) -> None:
    now = time.time_ns()
    fill(store, Scene(turns=200, newest_unix_ns=now - 4_000 * S, run_id="run-valid", ended=True))
    fill(store, Scene(turns=300, newest_unix_ns=now - 60 * S, run_id="run-limited", invalid_share=0.1))
    fill(store, Scene(turns=40, newest_unix_ns=now - 9_000 * S, run_id="run-lost", invalid_share=0.0))
    text = shown("objectives")
    (found,) = re.findall(r"(\d+) turns of these are of 2 runs whose load generator was the limit", text)
    assert 40 + 200 < int(found) < 40 + 300
    assert "generator-limited runs are among them" in text


def test_no_objective_is_within_its_budget_by_turns_of_runs_that_claim_nothing(store: Path) -> None:
    now = time.time_ns()
    fill(store, Scene(turns=300, newest_unix_ns=now - 60 * S, run_id="run-limited", invalid_share=0.0))
    limited = html_of(opened("objectives"))
    assert "generator-limited runs are among them" in limited
    assert "not judged" in limited
    assert "within" not in re.sub(r"within \d", "", limited)
    assert '<div class="vp-gauge">' not in limited
    fill(store, Scene(turns=300, newest_unix_ns=now - 4_000 * S, run_id="run-valid", ended=True, invalid_share=0.0))
    beside_a_valid_run = html_of(opened("objectives"))
    assert "within" in beside_a_valid_run
    assert "not judged" not in beside_a_valid_run


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
    assert "Error budget over 28 days" not in {each.label for each in app.selectbox}
    assert not app.get("vega_lite_chart")


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


def test_what_is_missing_stands_where_lost_turns_leave_an_objective_open(store: Path) -> None:
    fill(store, Scene(turns=240, newest_unix_ns=time.time_ns(), ended=True))
    broken = min((store / "segments").glob("turns-*.parquet"))
    broken.write_bytes(broken.read_bytes()[:-200])
    text = shown("now")
    assert re.search(
        r"Good turns undecided \d+ of \d+ within 800 ms; \d+ turns are open \([^)]*80 telemetry lost\)", text
    )
    assert "too few (160)" not in text
    assert "○ 6 undecided" in text


def test_the_reason_of_a_limit_stands_once_and_before_every_figure(store: Path) -> None:
    fill(store, Scene(turns=240, newest_unix_ns=time.time_ns() - 3_600 * S))
    text = shown("now")
    assert text.count("generator process was lost") == 1
    reason = text.index("generator process was lost")
    assert (
        text.index("generator-limited: nothing is claimed about the service")
        < reason
        < text.index("240 turns protocol")
    )
    assert "○ 7 not judged" in text
    assert "Good turns not judged the load generator was the limit" in text


def test_the_page_of_cohorts_says_that_a_chosen_cohort_does_not_narrow_it(store: Path) -> None:
    fill(store, Scene(turns=200, newest_unix_ns=time.time_ns(), ended=True))
    hint = "The cohort that is chosen above does not narrow what is compared here."
    assert hint in shown("cohorts", cohort="A")
    assert hint not in shown("cohorts")


def test_a_limited_run_has_no_cohort_that_is_worse_or_within(store: Path) -> None:
    fill(store, Scene(turns=400, newest_unix_ns=time.time_ns(), ended=True, invalid_share=0.0))
    assert "✕ worse" in shown("cohorts")
    fill(store, Scene(turns=400, newest_unix_ns=time.time_ns() - 3_600 * S, run_id="run-x"))
    text = shown("cohorts", run="run-x")
    assert "it is not decided whether B is worse than A: the load generator was the limit" in text
    assert not re.search(r"✕ worse|✓ within", text)
    assert "shown, not judged" in text


def test_hardly_any_turns_are_counted_and_not_drawn(store: Path) -> None:
    fill(store, Scene(turns=8, newest_unix_ns=time.time_ns(), ended=True))
    now = opened("now")
    text = text_of(now)
    assert "Voice to voice over time too few turns for a p95" in text
    assert "Which dimension explains it" not in text, "none of them is bad"
    assert re.search(r"A 4 \d+ too few \(4\) too few \(4\) too few \(4\)", text), "p95, p99 and good turns"
    assert not now.get("vega_lite_chart")
    cohorts = opened("cohorts")
    assert "Too few turns to draw: 4 of the 20 that a p95 needs." in text_of(cohorts)
    assert "1 caller on B and 1 caller on A" in text_of(cohorts)
    assert not cohorts.get("vega_lite_chart")


def failed(store: Path) -> None:
    """A run of which not one turn was answered."""
    scene = Scene(turns=240, newest_unix_ns=time.time_ns(), ended=True, service=False, invalid_share=0.0)
    gone = ("llm_first_token", "llm_first_sentence", "llm_last_token", "tts_first_chunk", "first_audio")
    nothing = dict.fromkeys([f"{name}_perf_ns" for name in (*gone, "tts_last_chunk", "reply_end")])
    turns = [msgspec.structs.replace(turn, outcome="timeout", **nothing) for turn in turns_of(scene)]
    with StoreWriter(store) as writer:
        spans = [run_span(scene, "start"), run_span(scene, "end")]
        writer.append(Batch(turns=turns, spans=spans, points=health(scene)))


def test_pages_of_a_run_without_an_answer_say_so_in_place_of_pictures(store: Path) -> None:
    failed(store)
    cohorts = opened("cohorts")
    assert "No turn of these was answered." in text_of(cohorts)
    assert "Too few turns for bounds" not in text_of(cohorts), "there are 120 of each"
    assert max(map(float, re.findall(r"to \+([\d.]+) points", text_of(cohorts)))) <= 100
    assert max(map(float, re.findall(r"\(−([\d.]+) to \+", text_of(cohorts)))) <= 100
    assert "within 1 point yet" in text_of(cohorts)
    assert not cohorts.get("vega_lite_chart")
    assert "Which dimension explains it" not in shown("now"), "there are no others to set them apart from"
    assert "no turn shows it" in shown("now")
    text = shown("runs")
    assert text.count("No turn of these has a voice-to-voice latency.") == 2
    assert "did not report its calls in flight" not in text


def test_long_names_leave_room_for_figures(store: Path) -> None:
    name = "canary <b>bold</b> " + "a-very-long-name-" * 6
    scene = Scene(turns=200, newest_unix_ns=time.time_ns(), ended=True, cohorts=(name, "B"))
    with StoreWriter(store) as writer:
        turns = [msgspec.structs.replace(turn, model=name) for turn in turns_of(scene)]
        writer.append(Batch(turns=turns, spans=[run_span(scene, "start"), run_span(scene, "end")]))
    app = opened("now")
    html = " ".join(element.proto.body for element in app.get("html"))
    assert f'<span title="{escape(name)}">{escape(name[:31])}…</span>' in html
    assert name not in text_of(app)
    assert "<b>bold" not in html
    text = shown("cache")
    assert name not in text
    assert f"{name[:39]}…" in text


def test_moments_have_the_names_that_people_read(store: Path) -> None:
    turn = fill(store, Scene(turns=4, newest_unix_ns=time.time_ns(), ended=True, invalid_share=0.0))[1]
    text = shown("turn", trace=turn.trace_id, turn=str(turn.turn_index))
    assert "ASR final, caller" in text
    assert "LLM first token, service" in text
    assert "TTS first chunk" in text


@pytest.mark.parametrize(
    ("quiet_s", "shown_text"), [(4, ""), (12, "a process of the load generator was last heard 12 s ago")]
)
def test_a_live_run_says_since_when_nothing_was_heard(store: Path, quiet_s: int, shown_text: str) -> None:
    now = 1_795_000_000 * S
    fill(store, Scene(turns=40, newest_unix_ns=now - quiet_s * S - 5 * S, invalid_share=0.0))
    with StoreReader(store, wall_clock_ns=lambda: now) as reader:
        view = Source(reader, tuple(default_objectives())).now(Choice())
        heard = reader.processes("run-4c1d")[0].last_seen_unix_ns
    assert view.run is not None
    assert view.summary is not None
    assert view.summary.heard_unix_ns == heard
    text = overview(view.run, view.summary, "live", heard + quiet_s * S, UTC)
    assert ("last heard" in text) == bool(shown_text)
    assert shown_text in text
    assert "last heard" not in overview(view.run, view.summary, "stale", heard + 60 * S, UTC)


def test_nothing_is_waited_for_of_a_run_that_has_ended(store: Path) -> None:
    fill(store, Scene(turns=40, newest_unix_ns=time.time_ns(), ended=True))
    with StoreReader(store) as reader:
        assert reader.summary(Filter(run_id="run-4c1d")).heard_unix_ns is None


@pytest.mark.parametrize(
    ("page", "asks", "method"),
    [
        ("now", StoreReader, "page"),
        ("turn", StoreReader, "turn_view"),
        ("rollout", StoreReader, "rollout_page"),
        ("runs", RunCatalog, "listing"),
        ("runs", StoreReader, "run_details"),
    ],
)
def test_a_page_says_that_it_reads_the_store_for_as_long_as_it_does(
    store: Path, monkeypatch: pytest.MonkeyPatch, page: str, asks: type, method: str
) -> None:
    fill(store, Scene(turns=8, newest_unix_ns=time.time_ns(), ended=True))
    seen: list[str] = []

    @contextmanager
    def spinner(text: str) -> Generator[None]:
        seen.append(text)
        yield
        seen.append("read")

    asked = getattr(asks, method)

    def asking(*given: Any, **named: Any) -> Any:
        seen.append("asked")
        return asked(*given, **named)

    monkeypatch.setattr("streamlit.spinner", spinner)
    monkeypatch.setattr(asks, method, asking)
    opened(page, **({"trace": "a" * 32, "turn": "0"} if page == "turn" else {}))
    place = seen.index("asked")
    assert seen[place - 1 : place + 2] == [frame.READING, "asked", "read"]
