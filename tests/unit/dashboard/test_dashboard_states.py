"""What pages say of stores in states that few look at: damaged, limited, of a service, without caches or health."""

import re
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

import altair as alt
import msgspec
import pytest
from streamlit.testing.v1 import AppTest

from dashboard import descriptions
from dashboard.charts.over_time import Series, count_bars, gauge_lines, limit_of
from dashboard.components import frame
from dashboard.components.trust import overview
from dashboard.pages import now as now_page
from dashboard.source import ENV_SLO, ENV_STORE, ObjectivesInForce, Source
from telemetry.charts.drawing import DARK, LIGHT, Palette
from telemetry.model import semconv
from telemetry.model.generator_health import gauge_metric
from telemetry.model.services import service_run_id
from telemetry.objectives.slo import default_objectives
from telemetry.store.answers import Filter, RunRecord
from telemetry.store.questions.timelines import CountsOverTime
from telemetry.store.reader import StoreReader
from telemetry.store.run_folders.catalog import RunCatalog
from telemetry.store.schema import Batch, PointRow
from telemetry.store.writer import StoreWriter
from tests.fixtures_turns import generator_points, synthetic_run
from tests.unit.dashboard.opened_pages import html_of, opened, text_of
from tests.unit.dashboard.scenes import S, Scene, fill, health, run_span, service_turn, turns_of
from tests.unit.dashboard.test_dashboard_pages import shown as shown_now


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
    with StoreWriter(store) as writer, writer.change() as cursor:
        cursor.execute("DELETE FROM turns WHERE sequence IN (SELECT sequence FROM turns ORDER BY sequence LIMIT 80)")
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
        view = now_page.ask(Source("", reader, ObjectivesInForce(tuple(default_objectives()))), {})
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
        app, text = shown_now(**query)
        assert "reported by the service, not heard by a caller" in text
        assert "service front-desk bot" in text
        assert datetime.now(UTC).date().isoformat() in text
        assert "no caller of ours heard these turns" in text
        for part in ("Voice to voice p95", "Stages against objectives", "Where a turn&#x27;s time goes", "Outcomes"):
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


def drawn_and_read(page: str) -> tuple[AppTest, str]:
    app = opened(page)
    return app, text_of(app)


def test_caches_and_routes_are_shown_with_their_waits(store: Path) -> None:
    scene = Scene(turns=400, newest_unix_ns=time.time_ns(), ended=True)
    fill(store, scene)
    app, text = drawn_and_read("cache")
    valid = [turn for turn in turns_of(scene) if turn.source == "client" and turn.outcome != "invalid"]
    hits = sum(turn.cache_hit is True for turn in valid)
    assert f"{hits} of {len(valid)} turns with a hit or a miss reported" in text
    for part in (
        "By cache",
        "By route",
        "By model",
        "By fallback",
        "any hit",
        "miss",
        "responder-1",
        "no fallback reported",
    ):
        assert part in text
    assert "Money saved not observable on this wire" in text
    assert "False hits not observable on this wire" in text
    assert len(app.get("vega_lite_chart")) == len(app.expander) == 2


def test_a_wire_that_says_nothing_of_caches_gives_no_zero(store: Path) -> None:
    plain = {"cache_hit": None, "cache_tier": None, "route": None, "fallback": None, "model": None}
    turns = [
        msgspec.structs.replace(turn, **plain) for turn in turns_of(Scene(turns=60, newest_unix_ns=time.time_ns()))
    ]
    with StoreWriter(store) as writer:
        writer.append(Batch(turns))
    app, text = drawn_and_read("cache")
    assert "Cache hits not observable on this wire" in text
    assert "By route not observable on this wire" in text
    assert "0 %" not in text
    assert app.get("vega_lite_chart") == []


def test_names_from_the_wire_stay_text(store: Path) -> None:
    turns = [
        msgspec.structs.replace(turn, model="<script>alert(1)</script>")
        for turn in turns_of(Scene(turns=60, newest_unix_ns=time.time_ns()))
    ]
    with StoreWriter(store) as writer:
        writer.append(Batch(turns))
    app, _ = drawn_and_read("cache")
    html = " ".join(element.proto.body for element in app.get("html"))
    assert "&lt;script&gt;" in html
    assert "<script>" not in html


def test_the_instrument_is_shown_over_time_with_what_is_missing(store: Path) -> None:
    run = synthetic_run(turns=120)
    client = [turn for turn in run.turns if turn.source == "client"]
    with StoreWriter(store) as writer:
        writer.append(Batch([turn for turn in run.turns if turn is not client[20]], (), generator_points("run-1", 60)))
    app, text = drawn_and_read("instrument")
    assert len(app.get("vega_lite_chart")) >= 1
    assert "whose number never arrived process emitted received missing" in text
    assert re.search(rf"{client[20].process_id} (not reported|\d+) \d+ 1 ", text)
    assert "not calibrated" in text
    assert "stamp of received chunks: kernel" in text


def test_what_the_generator_does_not_report_is_stated(store: Path) -> None:
    fill(store, Scene(turns=1, newest_unix_ns=time.time_ns() - 3 * S, ended=True))
    _, text = drawn_and_read("instrument")
    assert "No invalid turn in 1 turn" in text
    assert "not reported" in text


@pytest.mark.parametrize("colors", [LIGHT, DARK])
def test_series_differ_without_color_and_lines_are_straight(colors: Palette) -> None:
    series = Series("Pacing", [5 * S, 10 * S], {"a": (1.0, None), "b": (2.0, 3.0)}, [["1", "2"], ["3", "4"]])
    rows = series.rows()
    assert [(row["time"], row["name"], row["value"]) for row in rows] == [
        (5_000.0, "a", 1.0), (10_000.0, "a", None), (5_000.0, "b", 2.0), (10_000.0, "b", 3.0),
    ]  # fmt: skip
    lines = gauge_lines(series, "ms", colors, UTC).spec
    alt.LayerChart.from_dict(lines | {"data": {"name": "rows"}})
    # What is next to nothing is drawn as nothing: the axis reaches up to a tenth of a millisecond at the least.
    assert lines["layer"][0]["encoding"]["y"]["axis"]["tickMinStep"] == 0.1
    assert lines["layer"][1]["encoding"]["y"]["datum"] == 0.1
    assert '"interpolate": "linear"' in msgspec.json.encode(lines).decode().replace('":', '": ')
    dashes = [layer["encoding"]["strokeDash"]["scale"]["range"] for layer in lines["layer"][:1]]
    assert dashes == [[[1, 0], [6, 3]]]
    counts = CountsOverTime(5 * S, (5 * S, 10 * S), {"a": (1, 0), "b": (2, 3)})
    alt.LayerChart.from_dict(count_bars("Turns", counts, colors, UTC).spec | {"data": {"name": "rows"}})


NO_VALUES = Series("Pacing", [], {"a": (), "b": ()}, [[], []])


@pytest.mark.parametrize("colors", [LIGHT, DARK])
def test_a_limit_is_a_dashed_line_with_its_words_where_values_come_near_it(colors: Palette) -> None:
    near = limit_of(10.0, "10 ms", [(1.0, None), (2.5, 0.5)])
    spec = gauge_lines(NO_VALUES, "ms", colors, UTC, near).spec
    alt.LayerChart.from_dict(spec | {"data": {"name": "rows"}})
    rules = [layer for layer in spec["layer"] if layer["mark"]["type"] == "rule"]
    assert [(rule["encoding"]["y"]["datum"], rule["mark"]["strokeDash"]) for rule in rules] == [(10.0, [2, 3])]
    assert {layer["mark"]["text"] for layer in spec["layer"] if layer["mark"]["type"] == "text"} == {"limit 10 ms"}
    # The axis reaches above the line, where its words stand.
    assert max(layer["encoding"]["y"].get("datum", 0.0) for layer in spec["layer"]) > 10.0


def test_a_limit_far_above_all_values_leaves_the_lines_their_height() -> None:
    for values in ((2.4, 0.1), (None, None), ()):
        far = limit_of(10.0, "10 ms", [values])
        assert not far.is_drawn
        assert gauge_lines(NO_VALUES, "ms", LIGHT, UTC, far).spec == gauge_lines(NO_VALUES, "ms", LIGHT, UTC).spec


@pytest.mark.parametrize(
    ("lateness_ms", "is_drawn", "seen"),
    [(0.6, False, "all far below the limit of 60 ms"), (72.0, True, "against the limit of 60 ms")],
)
def test_the_limit_of_a_valid_turn_is_at_the_figure_that_it_is_about(
    store: Path, lateness_ms: float, is_drawn: bool, seen: str
) -> None:
    late = gauge_metric("frame_lateness_worst_ns")
    points = [
        replace(point, value=lateness_ms * 1e6) if point.name == late else point
        for point in generator_points("run-1", 60)
    ]
    with StoreWriter(store) as writer:
        writer.append(Batch(synthetic_run(turns=60).turns, (), points))
    app, text = drawn_and_read("instrument")
    assert text.count("A turn is invalid if") == 1
    assert "A turn is invalid if a frame is more than 60 ms late between the first speech and the answer." in text
    assert ("That limit is far above these values and not drawn." in text) is not is_drawn
    charts = [element.proto for element in app.get("vega_lite_chart")]
    pacing, *others = sorted(charts, key=lambda each: "Pacing" not in each.alt)
    assert pacing.alt.endswith(seen)
    assert ("limit 60 ms" in pacing.spec) is is_drawn
    assert len(others) >= 4
    assert not any("limit" in each.alt or "limit 60 ms" in each.spec for each in others)
    captions = [each.label for each in app.expander]
    assert [each for each in captions if "limit" in each] == [
        "Table: Pacing: worst lateness of a frame (limit 60 ms) over time"
    ]


def test_a_figure_that_is_not_reported_still_has_its_limit(store: Path) -> None:
    fill(store, Scene(turns=1, newest_unix_ns=time.time_ns() - 3 * S, ended=True))
    with StoreWriter(store) as writer:
        writer.append(Batch(synthetic_run(turns=6).turns))
    app = opened("instrument", run="run-1")
    assert "between the first speech and the answer. not reported" in text_of(app)
