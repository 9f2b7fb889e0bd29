"""The charts as data: what is drawn, on which axis, and that a refresh exchanges rows only."""

import json
import re
from pathlib import Path

import altair as alt
import pytest

import dashboard
from dashboard.charts import timeline_rows, timeline_spec
from dashboard.palette import DARK, LIGHT, STAGE_NAMES, Palette, palette
from dashboard.waterfall_chart import BAR_LABELS, EVENTS, view_ms, waterfall_rows, waterfall_spec
from telemetry.model.waterfall import BAR_NAMES, waterfall
from telemetry.store.answers import TimelinePoint
from tests.unit.dashboard.scenes import MS, S, Scene, service_turn, turns_of

TURNS = turns_of(Scene(turns=300, newest_unix_ns=1_000 * S))
SLOW = max(
    (t for t in TURNS if t.outcome == "ok"), key=lambda t: (t.first_audio_perf_ns or 0) - (t.speech_end_perf_ns or 0)
)


@pytest.mark.parametrize("colors", [LIGHT, DARK])
def test_the_timeline_has_its_percentiles_in_order_and_no_data_of_its_own(colors: Palette) -> None:
    spec = timeline_spec(colors, 800.0)
    output = json.dumps(spec)
    assert '"domain": ["p50", "p95", "p99"]' in output
    assert "objective 800 ms" in output
    assert '"zero": true' in output
    assert "data" not in spec
    assert "datasets" not in spec
    alt.LayerChart.from_dict(spec | {"data": {"name": "rows"}})  # raises where it is no valid specification
    assert timeline_spec(colors, 800.0) == spec  # the browser keeps the picture only while this holds


def test_calls_in_flight_have_an_axis_only_where_they_are_known() -> None:
    kinds = {
        known: set(
            re.findall(r'"type": "(area|line|circle)"', json.dumps(timeline_spec(LIGHT, None, with_calls=known)))
        )
        for known in (True, False)
    }
    assert kinds == {True: {"area", "line", "circle"}, False: {"line", "circle"}}


def test_without_an_objective_there_is_no_rule() -> None:
    assert "objective" not in json.dumps(timeline_spec(LIGHT, None))


def test_a_bucket_with_too_few_turns_has_no_percentile() -> None:
    points = [TimelinePoint(5 * S, 12, 400.0 * MS, None, None, 3)]
    assert timeline_rows(points, []) == [
        {
            "time": 5000.0,
            "n": 12,
            "calls": 3,
            "turn": None,
            "turn_text": None,
            "p50": 400.0,
            "p50_text": "400 ms",
            "p95": None,
            "p95_text": "–",
            "p99": None,
            "p99_text": "–",
        }
    ]


def test_each_valid_answered_turn_is_a_dot() -> None:
    (row,) = timeline_rows([TimelinePoint(5 * S, 12, 400.0 * MS, None, None, 3, approximate=True)], [])
    assert (row["p50_text"], row["p95_text"]) == ("≈ 400 ms", "–")
    rows = timeline_rows([], TURNS)
    assert len(rows) == sum(turn.outcome == "ok" for turn in TURNS)
    assert all(row["n"] is None and row["turn"] > 0 and row["turn_text"].endswith(" ms") for row in rows)


def test_the_waterfall_shows_both_sides_and_the_whole_wait() -> None:
    picture = waterfall(SLOW, service_turn(SLOW, 0))
    rows = waterfall_rows(picture)
    low, high = view_ms(picture)
    bars = [row for row in rows if row["event"] is None]
    assert {row["line"] for row in bars} == set(BAR_LABELS.values())
    assert {row["side"] for row in bars} == {"heard by the caller", "reported by the service"}
    assert all(low <= row["from"] <= row["to"] <= high for row in bars)
    assert low < 0 < high
    speech = next(row for row in bars if row["stage"] == "speech")
    assert speech["inside"] == f"{(SLOW.speech_ns or 0) / 1e6:,.0f} ms"  # its whole length, though the view cuts it
    assert any(row["line"] == EVENTS for row in rows)


def test_a_long_gone_partial_is_outside_the_view() -> None:
    rows = waterfall_rows(waterfall(SLOW, None))
    assert "asr first partial" not in {row["event"] for row in rows}


def test_the_waterfall_names_its_origin_and_every_stage() -> None:
    output = json.dumps(waterfall_spec(DARK, (-100.0, 900.0), "the end of the caller's speech"))
    alt.LayerChart.from_dict(json.loads(output) | {"data": {"name": "rows"}})
    assert "ms from the end of the caller's speech" in output
    for label in BAR_LABELS.values():
        assert label in output
    assert set(BAR_LABELS) == set(BAR_NAMES)


def test_the_theme_of_the_viewer_decides_light_where_unknown() -> None:
    assert palette("dark") is DARK
    assert palette("light") is LIGHT
    assert palette(None) is LIGHT


def test_charts_and_style_sheet_paint_a_stage_alike() -> None:
    sheet = (Path(dashboard.__file__).parent / "style.css").read_text()
    for index, name in enumerate(STAGE_NAMES):
        found = re.search(rf"--vp-{name}: light-dark\((#\w+), (#\w+)\)", sheet)
        assert found is not None
        assert found.groups() == (LIGHT.stages[index], DARK.stages[index])
