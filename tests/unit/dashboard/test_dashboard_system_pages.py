"""The pages about caches and about the instrument, run by Streamlit's own test runner over real stores."""

import re
import time
from pathlib import Path

import altair as alt
import msgspec
import pytest
from streamlit.testing.v1 import AppTest

from dashboard.palette import DARK, LIGHT, Palette
from dashboard.series_charts import bars_spec, lines_spec, series_rows
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
    for part in ("By cache", "By route", "By model", "By fallback", "any hit", "miss", "responder-1", "no fallback"):
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
