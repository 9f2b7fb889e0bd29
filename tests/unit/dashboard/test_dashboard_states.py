"""Pages on stores in rare states: damaged, limited, of a service, without caches or health."""

import json
import re
import time
from dataclasses import replace
from datetime import UTC, datetime
from html import escape
from pathlib import Path

import altair as alt
import msgspec
import pytest

from dashboard import charts, descriptions
from dashboard.components.trust import overview
from dashboard.pages import now as now_page
from dashboard.source import ObjectivesInForce, Source
from telemetry.model import semconv
from telemetry.model.generator_health import GAUGES, gauge_metric
from telemetry.model.services import service_run_id
from telemetry.model.turns import Turn
from telemetry.objectives.slo import default_objectives
from telemetry.store.answers import Filter, RunRecord
from telemetry.store.questions.instrument import GaugeSeries
from telemetry.store.questions.timelines import CountsOverTime
from telemetry.store.reader import StoreReader
from telemetry.store.schema import Batch, PointRow
from telemetry.store.writer import StoreWriter
from tests.fixtures_turns import generator_points, synthetic_run
from tests.unit.dashboard.opened_pages import html_of, opened, pictures, says, text_of
from tests.unit.dashboard.scenes import S, Scene, fill, health, run_span, service_turn, turns_of

HOUR = 3_600 * S


def write(store: Path, scene: Scene, turns: list[Turn]) -> None:
    """Write these turns as those of a run that has ended."""
    with StoreWriter(store) as writer:
        spans = [run_span(scene, "start"), run_span(scene, "end")]
        writer.append(Batch(turns=turns, spans=spans, points=health(scene)))


@pytest.mark.slow
def test_objectives_state_how_many_turns_are_of_limited_runs(store: Path) -> None:
    now = time.time_ns()
    fill(store, Scene(turns=300, newest_unix_ns=now - 60 * S, run_id="run-limited", invalid_share=0.0))
    limited = html_of(opened("objectives"))
    says(limited, "generator-limited runs are among them", "not judged")
    assert "within" not in re.sub(r"within \d", "", limited)
    assert '<div class="vp-gauge">' not in limited
    fill(store, Scene(turns=40, newest_unix_ns=now - 9_000 * S, run_id="run-lost", invalid_share=0.0))
    fill(store, Scene(turns=300, newest_unix_ns=now - 4_000 * S, run_id="run-valid", ended=True, invalid_share=0.0))
    with_valid_run = html_of(opened("objectives"))
    says(with_valid_run, "within", no=("not judged",))
    says(with_valid_run, "340 turns of these are of 2 runs whose load generator was the limit")


@pytest.mark.slow
def test_objectives_of_valid_runs_have_no_such_sentence(full: Path) -> None:
    says(html_of(opened("objectives")), no=("load generator",))


@pytest.mark.slow
def test_limited_run_has_no_verdict_and_reason_before_figures(store: Path) -> None:
    # Its process never announced its end, and was not heard of for an hour.
    fill(store, Scene(turns=400, newest_unix_ns=time.time_ns() - HOUR))
    text = text_of(opened("now"))
    reason = "1 of 1 generator process was lost"
    assert text.count(reason) == 1
    places = [text.index(part) for part in ("generator-limited: no verdict", reason, "400 turns protocol")]
    assert places == sorted(places)
    says(text, "○ 7 not judged", "Not judged:", "Good turns not judged the load generator was the limit")
    # Of the state of the run and of its telemetry a chip may still be green, of no objective.
    assert not re.search(r"✓ met|✕ missed|Good turns \d|of the error budget left", text)
    text = text_of(opened("cohorts"))
    says(text, "it is not decided whether B is worse than A: the load generator was the limit", "shown, not judged")
    assert not re.search(r"✕ worse|✓ within", text)


@pytest.mark.slow
def test_stuck_calls_miss_objective_on_page_as_in_exit_code(store: Path) -> None:
    now = time.time_ns()
    scene = Scene(turns=240, newest_unix_ns=now, ended=True, invalid_share=0.0)
    fill(store, scene)
    attributes = {"run_id": scene.run_id, "process_id": "worker-1", "phase": "hold", "phase_kind": "hold"}
    changes = {"outcome": "timeout", "sequence": None}
    stuck = [
        msgspec.structs.replace(turn, span_id=f"f{turn.span_id[1:]}", call_id=f"stuck-{turn.call_id}", **changes)
        for turn in turns_of(scene)[:6]
    ]
    points = [
        PointRow(
            semconv.METRIC_GENERATOR_STARTS,
            now,
            float(count),
            {**attributes, "phase_begin_s": 0.0, "which": which},
            scope_name=semconv.SCOPE,
        )
        for which, count in zip(semconv.START_COUNTS, (400, 380, 0, 20), strict=True)
    ]
    with StoreWriter(store) as writer:
        writer.append(Batch(turns=stuck, points=points))
    reason = "20 of 400 calls that were due never began because as many as are allowed were under way"
    text = text_of(opened("now"))
    assert re.search(rf"✕ Miss[^✓]*; {reason}, kept by the service|✕ Missed: {reason}, kept by the service", text)


@pytest.mark.slow
def test_lost_turns_that_leave_an_objective_open_are_named(store: Path) -> None:
    fill(store, Scene(turns=240, newest_unix_ns=time.time_ns(), ended=True))
    with StoreWriter(store) as writer, writer.change() as cursor:
        cursor.execute("DELETE FROM turns WHERE sequence IN (SELECT sequence FROM turns ORDER BY sequence LIMIT 80)")
    text = text_of(opened("now"))
    opens = r"Good turns undecided \d+ of \d+ within 800 ms; \d+ turns are open \([^)]*80 telemetry lost\)"
    assert re.search(opens, text)
    says(text, "○ 6 undecided", no=("too few (160)",))


@pytest.mark.slow
def test_cohorts_page_states_that_chosen_cohort_does_not_filter(full: Path) -> None:
    hint = "The cohort that is chosen above does not narrow what is compared here."
    says(html_of(opened("cohorts", cohort="A")), hint)
    says(html_of(opened("cohorts")), "○ not decided", no=(hint,))


@pytest.mark.slow
def test_hardly_any_turns_are_counted_and_not_drawn(store: Path) -> None:
    fill(store, Scene(turns=1, newest_unix_ns=time.time_ns() - HOUR, ended=True, run_id="run-one", seed=2))
    fill(store, Scene(turns=8, newest_unix_ns=time.time_ns(), ended=True))
    says(html_of(opened("now", run="run-one")), "1 turn ", "too few (1)", no=("✓ met", "✕ missed"))
    now, cohorts, objectives = (opened(page, run="run-4c1d") for page in ("now", "cohorts", "objectives"))
    assert [pictures(app) for app in (now, cohorts, objectives)] == [[], [], []]
    # None of them is bad.
    says(html_of(now), "Voice to voice over time too few turns for a p95", no=("Which dimension explains it",))
    assert re.search(r"A 4 \d+ too few \(4\) too few \(4\) too few \(4\)", text_of(now)), "p95, p99 and good turns"
    few = "Too few turns to draw: 4 of the 20 that a p95 needs."
    says(html_of(cohorts), few, "1 caller on B and 1 caller on A")
    says(html_of(objectives), "too few (8)", "no calls")
    assert "Error budget over 28 days" not in {selectbox.label for selectbox in objectives.selectbox}


@pytest.mark.slow
def test_pages_of_unanswered_run_have_sentences_not_pictures(store: Path) -> None:
    scene = Scene(turns=240, newest_unix_ns=time.time_ns(), ended=True, service=False, invalid_share=0.0)
    gone = ("llm_first_token", "llm_first_sentence", "llm_last_token", "tts_first_chunk", "first_audio")
    nothing = dict.fromkeys([f"{name}_perf_ns" for name in (*gone, "tts_last_chunk", "reply_end")])
    write(store, scene, [msgspec.structs.replace(turn, outcome="timeout", **nothing) for turn in turns_of(scene)])
    cohorts = opened("cohorts")
    text = text_of(cohorts)
    # There are 120 turns of each.
    says(text, "No turn of these was answered.", "within 1 point yet", no=("Too few turns for bounds",))
    assert max(map(float, re.findall(r"to \+([\d.]+) points", text))) <= 100
    assert max(map(float, re.findall(r"\(−([\d.]+) to \+", text))) <= 100
    assert not pictures(cohorts)
    # There are no others to set them apart from.
    says(html_of(opened("now")), "no turn shows it", no=("Which dimension explains it",))
    runs = text_of(opened("runs"))
    assert runs.count("No turn of these has a voice-to-voice latency.") == 2
    says(runs, no=("did not report its calls in flight",))


@pytest.mark.slow
def test_hostile_names_stay_text_and_are_shortened(store: Path) -> None:
    name = "canary <b>bold</b> " + "a-very-long-name-" * 6
    scene = Scene(turns=200, newest_unix_ns=time.time_ns(), ended=True, cohorts=(name, "B"))
    write(store, scene, [msgspec.structs.replace(turn, model=name) for turn in turns_of(scene)])
    html = html_of(opened("now"))
    assert f'<span title="{escape(name)}">{escape(name[:31])}…</span>' in html
    says(html, no=(name,))
    cache = html_of(opened("cache"))
    says(cache, f"{name[:39]}…", no=(name,))
    assert "<b>bold" not in html + cache


@pytest.mark.slow
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


def test_nothing_is_waited_for_of_a_run_that_has_ended(full: Path) -> None:
    with StoreReader(full) as reader:
        assert reader.summary(Filter(run_id="run-4c1d")).heard_unix_ns is None


@pytest.mark.slow
def test_page_states_that_service_turns_were_not_heard(store: Path) -> None:
    view = service_run_id("front-desk bot", time.time_ns())
    heard = [turn for turn in turns_of(Scene(turns=60, newest_unix_ns=time.time_ns())) if turn.outcome == "ok"]
    services = [service_turn(turn, sequence) for sequence, turn in enumerate(heard)]
    with StoreWriter(store) as writer:
        writer.append(Batch([msgspec.structs.replace(turn, run_id=view) for turn in services]))
    for query in ({}, {"run": view}):
        app = opened("now", **query)
        says(
            html_of(app),
            *("reported by the service, not heard by a caller", "service front-desk bot"),
            *(datetime.now(UTC).date().isoformat(), "no caller of ours heard these turns", "Voice to voice p95"),
            *("Stages against objectives", "Where a turn's time goes", "Outcomes"),
            no=("speech bounds",),
        )
    labels = app.selectbox[0].options
    assert any(label.startswith("service front-desk bot · ") for label in labels), labels


def test_a_service_s_day_ends_with_the_day() -> None:
    noon_unix_ns = 1_794_398_400 * S  # 2026-11-11
    run = RunRecord("service:bot:2026-11-11", 0, noon_unix_ns, 9, None, None, ended=False, declared={})
    # A turn that is dated in the future shows a wrong clock, and not that turns come in.
    for after_s, state in ((0, "live"), (3600, "stale"), (86_400, "ended"), (-1, "live"), (-31, "stale")):
        assert descriptions.state_of(run, None, noon_unix_ns + after_s * S) == state
    for after_s, text in (
        (-1200, "last turn is dated 20 min ahead of this clock: set the clocks of the hosts"),
        (60, "last turn 1 min ago"),
    ):
        now_unix_ns = noon_unix_ns + after_s * S
        assert descriptions.describe_state("stale", noon_unix_ns, now_unix_ns, is_service=True) == text


def test_caches_and_routes_are_shown_with_their_waits(full: Path, full_scene: Scene) -> None:
    app, valid = opened("cache"), turns_of(full_scene)
    hits = sum(turn.cache_hit is True for turn in valid)
    says(
        html_of(app),
        f"{hits} of {len(valid)} turns with a hit or a miss reported",
        *("By cache", "By route", "By model", "By fallback", "any hit", "miss", "responder-1", "no fallback reported"),
        *("Money saved not observable on this wire", "False hits not observable on this wire"),
    )
    assert len(pictures(app)) == len(app.expander) == 2


def test_a_wire_that_says_nothing_of_caches_gives_no_zero(store: Path) -> None:
    plain = dict.fromkeys(("cache_hit", "cache_tier", "route", "fallback", "model"))
    scene = Scene(turns=60, newest_unix_ns=time.time_ns())
    write(store, scene, [msgspec.structs.replace(turn, **plain) for turn in turns_of(scene)])
    app = opened("cache")
    says(html_of(app), "Cache hits not observable on this wire", "By route not observable on this wire", no=("0 %",))
    assert pictures(app) == []


@pytest.mark.slow
def test_the_instrument_is_shown_over_time_with_what_is_missing(store: Path) -> None:
    run = synthetic_run(turns=120)
    client = [turn for turn in run.turns if turn.source == "client"]
    with StoreWriter(store) as writer:
        writer.append(Batch([turn for turn in run.turns if turn is not client[20]], (), generator_points("run-1", 60)))
    app = opened("instrument")
    assert pictures(app)
    received = "whose number never arrived process emitted received missing"
    says(html_of(app), received, "not calibrated", "stamp of received chunks: kernel")
    assert re.search(rf"{client[20].process_id} (not reported|\d+) \d+ 1 ", text_of(app))


@pytest.mark.slow
def test_values_missing_from_generator_are_shown_with_limit(store: Path) -> None:
    fill(store, Scene(turns=1, newest_unix_ns=time.time_ns() - 3 * S, ended=True))
    says(html_of(opened("instrument")), "No invalid turn in 1 turn", "not reported")
    with StoreWriter(store) as writer:
        writer.append(Batch(synthetic_run(turns=6).turns))
    limit = "between the first speech and the answer. not reported"
    says(html_of(opened("instrument", run="run-1")), limit)


PACING = GAUGES["frame_lateness_worst_ns"]


def gauge(*values_ms: float | None) -> GaugeSeries:
    values = tuple(None if value_ms is None else value_ms * 1e6 for value_ms in values_ms)
    return GaugeSeries(
        "frame_lateness_worst_ns", 5 * S, tuple(5 * S * at for at in range(len(values))), {"a": values}, 1
    )


def test_series_differ_without_color_and_lines_are_straight() -> None:
    both = replace(gauge(1.0, None), values={"a": (1e6, None), "b": (2e6, 3e6)})
    picture = charts.gauge_lines(GAUGES["loop_lag_worst_ns"], both, UTC)
    assert [(row["time"], row["name"], row["value"]) for row in picture.rows] == [
        (0.0, "a", 1.0), (5_000.0, "a", None), (0.0, "b", 2.0), (5_000.0, "b", 3.0),
    ]  # fmt: skip
    lines = picture.spec
    alt.LayerChart.from_dict(lines | {"data": {"name": "rows"}})
    # What is next to nothing is drawn as nothing: the axis reaches up to a tenth of a millisecond at the least.
    assert lines["layer"][0]["encoding"]["y"]["axis"]["tickMinStep"] == 0.1
    assert lines["layer"][1]["encoding"]["y"]["datum"] == 0.1
    assert '"interpolate": "linear"' in json.dumps(lines)
    assert lines["layer"][0]["encoding"]["strokeDash"]["scale"]["range"] == [[1, 0], [6, 3]]
    counts = CountsOverTime(5 * S, (5 * S, 10 * S), {"a": (1, 0), "b": (2, 3)})
    alt.LayerChart.from_dict(charts.count_bars("Turns", counts, UTC).spec | {"data": {"name": "rows"}})


def test_near_limit_is_dashed_line_with_label_and_far_one_hidden() -> None:
    spec = charts.gauge_lines(PACING, gauge(1.0, None, 15.5), UTC).spec
    alt.LayerChart.from_dict(spec | {"data": {"name": "rows"}})
    rules = [layer for layer in spec["layer"] if layer["mark"]["type"] == "rule"]
    assert [(rule["encoding"]["y"]["datum"], rule["mark"]["strokeDash"]) for rule in rules] == [(60.0, [2, 3])]
    assert {layer["mark"]["text"] for layer in spec["layer"] if layer["mark"]["type"] == "text"} == {"limit 60 ms"}
    # The axis reaches above the line, where its words are.
    assert max(layer["encoding"]["y"].get("datum", 0.0) for layer in spec["layer"]) > 60.0
    for far in (gauge(14.4, 0.1), gauge(None, None), gauge()):
        assert charts.has_far_limit(PACING, far)
        assert "limit" not in json.dumps(charts.gauge_lines(PACING, far, UTC).spec)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lateness_ms", "is_drawn", "seen"),
    [(0.6, False, "all far below the limit of 60 ms"), (72.0, True, "against the limit of 60 ms")],
)
def test_limit_of_valid_turn_is_shown_at_its_own_figure(
    store: Path, lateness_ms: float, is_drawn: bool, seen: str
) -> None:
    late = gauge_metric("frame_lateness_worst_ns")
    points = [
        replace(point, value=lateness_ms * 1e6) if point.name == late else point
        for point in generator_points("run-1", 60)
    ]
    with StoreWriter(store) as writer:
        writer.append(Batch(synthetic_run(turns=60).turns, (), points))
    app = opened("instrument")
    text = text_of(app)
    assert text.count("A turn is invalid if") == 1
    says(text, "A turn is invalid if a frame is more than 60 ms late between the first speech and the answer.")
    assert ("That limit is far above these values and not drawn." in text) is not is_drawn
    drawn = [element.proto for element in app.get("vega_lite_chart")]
    pacing, *others = sorted(drawn, key=lambda chart: "Pacing" not in chart.alt)
    assert pacing.alt.endswith(seen)
    assert ("limit 60 ms" in pacing.spec) is is_drawn
    assert len(others) >= 4
    assert not any("limit" in chart.alt or "limit 60 ms" in chart.spec for chart in others)
    captions = [expander.label for expander in app.expander if "limit" in expander.label]
    assert captions == ["Table: Pacing: worst lateness of a frame (limit 60 ms) over time"]
