"""Charts, their tables and their colors: specifications that Vega accepts, and what everyone can read."""

import json
import re
from html.parser import HTMLParser

import altair as alt
import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from dashboard.charts import compared
from dashboard.charts.over_time import budget_days, latency_lines, load_strip
from dashboard.components import several_runs
from dashboard.components.markup import stylesheet
from dashboard.components.pictures import MOST_ROWS, table_html
from dashboard.player.turn_player import EVENTS, turn_data, view_ms, waterfall_table
from telemetry.charts import over_time as charts
from telemetry.charts.drawing import DARK, LIGHT, STAGE_NAMES, ChartTable, Palette, palette, time_axis
from telemetry.comparison.runs import ComparedRun
from telemetry.comparison.verdict import RegressionMargin, compare_runs
from telemetry.model.formatting import MINUS
from telemetry.model.waterfall import BAR_LABELS, BAR_NAMES, waterfall
from telemetry.objectives.error_budgets import DayBudget, EligibleTurns, ErrorBudget
from telemetry.store.questions.timelines import CohortLine, CohortLines, LinePoint, LoadPoint
from tests.rollout_cohorts import cohort_of, latencies_ms
from tests.unit.dashboard.scenes import MS, S, Scene, service_turn, turns_of

TURNS = turns_of(Scene(turns=300, newest_unix_ns=1_000 * S))
SLOW = max(
    (t for t in TURNS if t.outcome == "ok"), key=lambda t: (t.first_audio_perf_ns or 0) - (t.speech_end_perf_ns or 0)
)


LINES = CohortLines(
    "voice_to_voice",
    40 * S,
    [
        CohortLine("<b>a", [LinePoint(100 * S, 30, 640.0 * MS), LinePoint(110 * S, 12, None)]),
        CohortLine(None, [LinePoint(100 * S, 30, 700.0 * MS)]),
    ],
    [LoadPoint(90 * S, 3), LoadPoint(100 * S, None)],
)


def clock(unix_ns: int) -> str:
    return f"{unix_ns // S} s"


@pytest.mark.parametrize("colors", [LIGHT, DARK])
def test_a_line_per_cohort_is_straight_and_known_by_dash_and_shape(colors: Palette) -> None:
    spec = charts.latency_lines(colors, ("a", "b"), 800.0)
    output = json.dumps(spec)
    assert '"interpolate": "linear"' in output
    assert "monotone" not in output
    assert '"invalid": "break-paths-show-domains"' in output
    assert '"strokeDash": {' in output
    assert '"shape": {' in output
    assert "objective 800 ms" in output
    assert '"zero": true' in output
    assert "data" not in spec
    assert "datasets" not in spec
    alt.LayerChart.from_dict(spec | {"data": {"name": "rows"}})  # raises where it is no valid specification
    assert charts.latency_lines(colors, ("a", "b"), 800.0) == spec  # the browser keeps the picture
    assert "objective" not in json.dumps(charts.latency_lines(colors, ("a",), None))


def test_a_window_of_too_few_turns_is_a_gap_and_the_beginning_of_a_miss_is_marked() -> None:
    picture = latency_lines(LINES, "Voice to voice", LIGHT, clock, objective_ms=None, missed_ns=105 * S)
    first, gap, other, onset, begin = picture.rows
    assert (first["time"], first["value"], first["value_text"]) == (100_000.0, 640.0, "640 ms")
    assert (first["cohort"], first["from_text"], first["to_text"]) == ("<b>a", "60 s", "100 s")
    assert (gap["value"], gap["value_text"], gap["n"]) == (None, "too few", 12)
    assert other["cohort"] == "all turns"
    assert (onset["time"], onset["onset_text"], onset["cohort"]) == (105_000.0, "missed since 105 s", None)
    # As far back as the strip below: their times stand below each other.
    assert (begin["time"], begin["cohort"], begin["onset_text"]) == (90_000.0, None, None)
    assert picture.table.rows[1] == ("70 s", "<b>a", "12", "too few")


def test_a_rule_with_its_words_stands_where_the_objective_was_first_missed() -> None:
    spec = charts.latency_lines(LIGHT, ("a", "b"), None)
    marked = [layer for layer in spec["layer"] if {"filter": "isValid(datum.onset_text)"} in layer.get("transform", ())]
    assert [layer["mark"]["type"] for layer in marked] == ["rule", "text"]
    assert all(layer["encoding"]["x"]["field"] == "time" for layer in marked)
    assert marked[1]["encoding"]["text"]["field"] == "onset_text"


def test_the_load_is_a_strip_of_its_own() -> None:
    steps = [{"time": 90_000.0, "calls": 3}, {"time": 100_000.0, "calls": None}]
    strip = load_strip(LINES, LIGHT, clock)
    assert strip.rows == [*steps, {"time": 110_000.0, "calls": None}], "as far as the lines above"
    assert strip.table.rows == [("90 s", "3"), ("100 s", "–")]
    alt.LayerChart.from_dict(strip.spec | {"data": {"name": "rows"}})


def test_the_waterfall_shows_both_sides_and_the_whole_wait() -> None:
    """Without audio: the picture is the same, and begins with the wait."""
    picture = waterfall(SLOW, service_turn(SLOW, 0))
    data = turn_data(picture, None, SLOW.speech_end_perf_ns or 0, LIGHT, key="k")
    assert (data["audio"], data["peaks"]) == (None, [])
    assert [line["name"] for line in data["lines"]] == [*BAR_LABELS.values(), EVENTS]
    assert {bar["side"] for line in data["lines"] for bar in line["bars"]} == {0, 1}
    assert all(line["bars"] for line in data["lines"][:-1])
    assert data["lines"][-1]["marks"]
    low, high = data["view"]
    assert (low, high) == view_ms(picture)
    wait_ms = ((SLOW.first_audio_perf_ns or 0) - (SLOW.speech_end_perf_ns or 0)) / 1e6
    assert low < 0 < wait_ms < high
    speech = data["lines"][0]["bars"][0]
    assert speech["text"] == f"{(SLOW.speech_ns or 0) / 1e6:,.0f} ms"  # its whole length, though the view cuts it
    assert data["whole"][0] < speech["from"] < low, "a partial transcript of long ago is outside the view"
    assert data["origin"] == "the end of the caller's speech"
    assert set(BAR_LABELS) == set(BAR_NAMES)


def test_the_theme_of_the_viewer_decides_light_where_unknown() -> None:
    assert palette("dark") is DARK
    assert palette("light") is LIGHT
    assert palette(None) is LIGHT


def test_charts_and_style_sheet_paint_a_stage_alike() -> None:
    sheet = stylesheet()
    for index, name in enumerate(STAGE_NAMES):
        found = re.search(rf"--vp-{name}: light-dark\((#\w+), (#\w+)\)", sheet)
        assert found is not None
        assert found.groups() == (LIGHT.stages[index], DARK.stages[index])


def test_the_tables_of_pictures_have_the_minus_sign_of_their_axes() -> None:
    table = waterfall_table(waterfall(SLOW, service_turn(SLOW, 0)))
    begins = [row[2] for row in table.rows]
    assert any(each.startswith(MINUS) for each in begins)
    assert not any("-" in each for each in begins)


def test_a_difference_of_runs_has_one_sign_in_picture_and_tables() -> None:
    def run(name: str, shift_ms: float, seed: int) -> ComparedRun:
        values, calls = latencies_ms(np.random.default_rng(seed), 1500)
        return ComparedRun(name, cohort_of(name, values + shift_ms, calls), {"target": "ws://one"})

    found = compare_runs(run("base", 0.0, 1), run("faster", -300.0, 2), RegressionMargin(), ())
    picture = compared.run_differences([found], 1e8, LIGHT)
    shown = (
        " ".join(cell for row in picture.table.rows for cell in row),
        " ".join(row["text"] for row in picture.rows),
        re.sub(r"<[^>]*>", " ", several_runs.comparison_table(found)),
    )
    for text in shown:
        assert re.search(rf"{MINUS}3\d\d ms", text)
        assert not re.search(r"(?<!\w)-\d", text)


def test_an_interval_that_nothing_bounds_reaches_as_far_as_any_other() -> None:
    rng = np.random.default_rng(1)
    values, calls = latencies_ms(rng, 1500)
    base = ComparedRun("base", cohort_of("base", values, calls), {})
    slow = ComparedRun("slow", cohort_of("slow", values + 400, calls, np.arange(1500) % 25 == 0), {})
    rows = compared.run_differences([compare_runs(base, slow, RegressionMargin(), ())], 1e8, LIGHT).rows
    (p95,) = (row for row in rows if row["name"] == "Voice to voice p95")
    assert p95["text"].endswith(" or more)")
    ends = [row[end] for row in rows for end in ("lower", "upper", "estimate")]
    assert p95["upper"] == max(ends)
    assert np.isfinite(ends).all()


def test_labels_of_moments_have_seconds_as_long_as_a_picture_has_ticks_less_than_a_minute_apart() -> None:
    """Of 30 s and 1 min Vega takes the step that is nearer by its ratio; `test_browser_charts` has it drawn."""
    assert time_axis(7).to_dict()["labelExpr"] == (
        "span(domain('x')) < 296985 ? timeFormat(datum.value, '%H:%M:%S') : datum.label"
    )


APP = """
from dashboard.components.pictures import draw
from telemetry.charts.drawing import ChartTable, Picture

draw(Picture(
    [{"x": 1, "y": 2}],
    {"mark": "line", "encoding": {"x": {"field": "x"}, "y": {"field": "y"}}},
    "Latency rises from 1 to 2",
    ChartTable("Latency over time", ("from", "p95"), [("12:00", "640 ms")]),
))
"""


class _Cells(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_a_chart_is_drawn_with_its_sentence_and_the_rows_of_its_table_come_when_it_is_opened() -> None:
    app = AppTest.from_string(APP, default_timeout=60).run()
    assert not app.exception
    (drawn,) = app.get("vega_lite_chart")
    assert drawn.proto.alt == "Latency rises from 1 to 2"
    assert [each.label for each in app.expander] == ["Table: Latency over time"]
    assert not app.get("html")
    cells = _Cells(table_html(ChartTable("Latency over time", ("from", "p95"), [("12:00", "640 ms")])))
    assert [value for value in cells.text if value.strip()] == ["Latency over time", "from", "p95", "12:00", "640 ms"]


def test_a_table_names_its_columns_and_rows_and_can_be_scrolled_by_keyboard() -> None:
    cells = _Cells(table_html(ChartTable("Hits by tier", ("from", "device", "edge"), [("12:00", "1", "2")])))
    assert [attributes["scope"] for tag, attributes in cells.tags if tag == "th"] == ["col", "col", "col", "row"]
    region = dict(cells.tags)["div"]
    assert (region["role"], region["tabindex"], region["aria-label"]) == ("region", "0", "Hits by tier")


def test_texts_of_other_people_stay_text() -> None:
    html = table_html(ChartTable("Models", ("model", "n"), [("<img src=x onerror=alert(1)>", "<b>1</b>")]))
    assert [tag for tag, _ in _Cells(html).tags if tag in ("img", "b")] == []
    assert "&lt;img" in html


def test_a_long_table_says_what_it_leaves_out_and_an_empty_one_that_it_is() -> None:
    rows = [(str(number), "x") for number in range(MOST_ROWS + 3)]
    html = table_html(ChartTable("Turns", ("turn", "y"), rows))
    assert html.count("<tr>") == MOST_ROWS + 1
    assert f"the first {MOST_ROWS} of {MOST_ROWS + 3} rows" in html
    assert "no figures" in table_html(ChartTable("Turns", ("turn", "y"), []))


GROUNDS = {"light": "#ffffff", "dark": "#12151b"}


def luminance(color: str) -> float:
    """Relative luminance as WCAG 2.2 defines it."""
    channels = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def variables() -> dict[str, dict[str, str]]:
    """Each color of the style sheet by theme."""
    found = re.findall(r"--vp-([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", stylesheet())
    return {name: {"light": light, "dark": dark} for name, light, dark in found}


def test_the_formula_is_that_of_the_standard() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21.0)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)  # the well-known gray that just fails


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_stands_out_from_every_ground_it_is_on(theme: str) -> None:
    colors = {name: by_theme[theme] for name, by_theme in variables().items()}
    grounds = [GROUNDS[theme], colors["panel"]]
    pairs = [(name, ground) for name in ("ink", "soft", "latency", "met", "missed", "unknown") for ground in grounds]
    pairs += [(state, colors[f"{state}-soft"]) for state in ("met", "missed", "unknown")]
    pairs += [("ink", colors["unknown-soft"])]
    faint = {(name, ground): contrast(colors[name], ground) for name, ground in pairs}
    assert {pair: round(found, 2) for pair, found in faint.items() if found < 4.5} == {}


@pytest.mark.parametrize(("theme", "palette"), [("light", LIGHT), ("dark", DARK)])
def test_lines_and_bars_stand_out_from_the_page(theme: str, palette: Palette) -> None:
    drawn = {name: str(getattr(palette, name)) for name in ("p50", "p95", "p99", "speech", "playing")}
    drawn |= {f"series {place}": color for place, color in enumerate(palette.series)}
    drawn |= dict(zip(STAGE_NAMES, palette.stages, strict=True))
    cohorts = {name: by_theme[theme] for name, by_theme in variables().items() if name.startswith("cohort")}
    faint = {name: round(contrast(color, GROUNDS[theme]), 2) for name, color in (drawn | cohorts).items()}
    assert {name: found for name, found in faint.items() if found < 3} == {}
    assert palette.paper == GROUNDS[theme]


def budget(*left: float | None) -> ErrorBudget:
    days = tuple(
        DayBudget(ago, EligibleTurns(0, 0) if share is None else EligibleTurns(93, 100), share)
        for ago, share in zip(range(len(left) - 1, -1, -1), left, strict=True)
    )
    return ErrorBudget("answer", "The answer", "turns", "95 % of turns", 0.95, 100, (), (), days, left[-1], False)


def test_a_day_is_drawn_at_its_share_and_a_day_without_turns_not_at_all() -> None:
    rows = budget_days(budget(None, 1.0, 0.25, -1.5), LIGHT).rows
    assert [(row["day"], row["left"]) for row in rows] == [(-3, None), (-2, 1.0), (-1, 0.25), (0, -1.5)]


def test_what_is_overspent_beyond_the_axis_is_named_in_full() -> None:
    picture = budget_days(budget(-99.0), LIGHT)
    (row,) = picture.rows
    assert row["left"] == -2.0
    assert row["text"] == "overspent ×100.0"
    assert picture.table.rows[0][1] == "overspent ×100.0"


def test_the_axis_begins_at_all_of_the_budget_and_ends_with_or_less() -> None:
    spec = budget_days(budget(1.0), LIGHT).spec
    line = next(each for each in spec["layer"] if each["mark"]["type"] == "line")
    assert line["encoding"]["y"]["scale"]["domainMax"] == 1
    assert "datum.value <= -2.0 ? '≤ '" in json.dumps(line["encoding"]["y"]["axis"], ensure_ascii=False)
