"""The pages about caches and about the instrument, run by Streamlit's own test runner over real stores."""

import re
import time
from dataclasses import replace
from pathlib import Path

import altair as alt
import msgspec
import pytest
from streamlit.testing.v1 import AppTest

from dashboard.palette import DARK, LIGHT, Palette
from dashboard.series_charts import bars_spec, limit_of, lines_spec, series_rows
from telemetry.model.generator_health import gauge_metric
from telemetry.store.schema import Batch
from telemetry.store.writer import StoreWriter
from tests.fixtures_turns import generator_points, synthetic_run
from tests.unit.dashboard.opened_pages import opened, text_of
from tests.unit.dashboard.scenes import S, Scene, fill, turns_of


def shown(page: str) -> tuple[AppTest, str]:
    app = opened(page)
    return app, text_of(app)


def test_caches_and_routes_are_shown_with_their_waits(store: Path) -> None:
    scene = Scene(turns=400, newest_unix_ns=time.time_ns(), ended=True)
    fill(store, scene)
    app, text = shown("cache")
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
    app, text = shown("cache")
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
    app, _ = shown("cache")
    html = " ".join(element.proto.body for element in app.get("html"))
    assert "&lt;script&gt;" in html
    assert "<script>" not in html


def test_the_instrument_is_shown_over_time_with_what_is_missing(store: Path) -> None:
    run = synthetic_run(turns=120)
    client = [turn for turn in run.turns if turn.source == "client"]
    with StoreWriter(store) as writer:
        writer.append(Batch([turn for turn in run.turns if turn is not client[20]], (), generator_points("run-1", 60)))
    app, text = shown("instrument")
    assert len(app.get("vega_lite_chart")) >= 1
    assert "whose number never arrived process emitted received missing" in text
    assert re.search(rf"{client[20].process_id} (not reported|\d+) \d+ 1 ", text)
    assert "not calibrated" in text
    assert "stamp of received chunks: kernel" in text


def test_what_the_generator_does_not_report_is_stated(store: Path) -> None:
    fill(store, Scene(turns=1, newest_unix_ns=time.time_ns() - 3 * S, ended=True))
    _, text = shown("instrument")
    assert "No invalid turn in 1 turn" in text
    assert "not reported" in text


@pytest.mark.parametrize("colors", [LIGHT, DARK])
def test_series_differ_without_color_and_lines_are_straight(colors: Palette) -> None:
    rows = series_rows([5 * S, 10 * S], {"a": (1.0, None), "b": (2.0, 3.0)})
    assert [(row["time"], row["name"], row["value"]) for row in rows] == [
        (5_000.0, "a", 1.0), (10_000.0, "a", None), (5_000.0, "b", 2.0), (10_000.0, "b", 3.0),
    ]  # fmt: skip
    lines = lines_spec(colors, ["a", "b"], "ms")
    alt.LayerChart.from_dict(lines | {"data": {"name": "rows"}})
    # What is next to nothing is drawn as nothing: the axis reaches up to a tenth of a millisecond at the least.
    assert lines["layer"][0]["encoding"]["y"]["axis"]["tickMinStep"] == 0.1
    assert lines["layer"][1]["encoding"]["y"]["datum"] == 0.1
    assert '"interpolate": "linear"' in msgspec.json.encode(lines).decode().replace('":', '": ')
    dashes = [layer["encoding"]["strokeDash"]["scale"]["range"] for layer in lines["layer"][:1]]
    assert dashes == [[[1, 0], [6, 3]]]
    alt.LayerChart.from_dict(bars_spec(colors, ["a", "b"], "turns", 5 * S) | {"data": {"name": "rows"}})


@pytest.mark.parametrize("colors", [LIGHT, DARK])
def test_a_limit_is_a_dashed_line_with_its_words_where_values_come_near_it(colors: Palette) -> None:
    near = limit_of(10.0, "10 ms", [(1.0, None), (2.5, 0.5)])
    spec = lines_spec(colors, ["a", "b"], "ms", near)
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
        assert lines_spec(LIGHT, ["a"], "ms", far) == lines_spec(LIGHT, ["a"], "ms")


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
    app, text = shown("instrument")
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
