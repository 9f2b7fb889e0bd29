"""Charts, their tables and their colors: specifications that Vega accepts, and what everyone can read."""

import json
import re
from html.parser import HTMLParser

import altair as alt
import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from dashboard import charts
from dashboard.charts import MOST_ROWS, table_html
from dashboard.components import several_runs
from dashboard.components.markup import stylesheet
from dashboard.player.turn_player import EVENTS, turn_data, view_ms, waterfall_table
from telemetry.charts import over_time
from telemetry.charts.drawing import DARK, LIGHT, STAGE_NAMES, ChartTable, Palette, Row, palette
from telemetry.comparison.runs import ComparedRun
from telemetry.comparison.verdict import RegressionMargin, RunComparison, compare_runs
from telemetry.model.formatting import MINUS
from telemetry.model.waterfall import BAR_LABELS, waterfall
from telemetry.objectives.error_budgets import DayBudget, EligibleTurns, ErrorBudget
from telemetry.store.questions.timelines import CohortLine, CohortLines, LinePoint, LoadPoint, TurnDot
from tests.contrast import contrast
from tests.rollout_cohorts import cohort_of, latencies_ms
from tests.unit.dashboard.opened_pages import pictures, plain
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
    dots=[TurnDot(95 * S, 655.0 * MS)],
)


def clock(unix_ns: int) -> str:
    return f"{unix_ns // S} s"


def accepted(spec: Row) -> str:
    """The specification as text, once Vega-Lite's schema takes it; it holds no data."""
    assert not {"data", "datasets"} & set(spec)
    alt.LayerChart.from_dict(spec | {"data": {"name": "rows"}})
    return json.dumps(spec)


@pytest.mark.slow
@pytest.mark.parametrize("colors", [LIGHT, DARK])
def test_latency_line_per_cohort_is_straight_with_dash_and_shape(colors: Palette) -> None:
    spec = over_time.latency_lines(colors, ("a", "b"), 800.0)
    output = accepted(spec)
    for part in ("linear", "break-paths-show-domains", "strokeDash", "shape", "objective 800 ms"):
        assert f'"{part}"' in output
    assert "monotone" not in output
    assert '"zero": true' in output
    assert over_time.latency_lines(colors, ("a", "b"), 800.0) == spec  # the browser keeps the picture
    assert "objective" not in json.dumps(over_time.latency_lines(colors, ("a",), None))
    marked = [layer for layer in spec["layer"] if {"filter": "isValid(datum.onset_text)"} in layer.get("transform", ())]
    assert [layer["mark"]["type"] for layer in marked] == ["rule", "text"]
    assert all(layer["encoding"]["x"]["field"] == "time" for layer in marked)


def test_window_of_too_few_turns_is_gap_and_miss_is_marked() -> None:
    picture = charts.latency_lines(LINES, "Voice to voice", clock, objective_ms=None, missed_ns=105 * S)
    first, gap, other, turn, onset, begin = picture.rows
    assert (turn["time"], turn["dot"], turn["cohort"], turn["value"]) == (95_000.0, 655.0, None, None)
    assert (first["time"], first["value"], first["value_text"]) == (100_000.0, 640.0, "640 ms")
    assert (first["cohort"], first["from_text"], first["to_text"]) == ("<b>a", "60 s", "100 s")
    assert (gap["value"], gap["value_text"], gap["n"]) == (None, "too few", 12)
    assert other["cohort"] == "all turns"
    assert (onset["time"], onset["onset_text"], onset["cohort"]) == (105_000.0, "missed since 105 s", None)
    # As far back as the strip below: their times are below each other.
    assert (begin["time"], begin["cohort"], begin["onset_text"]) == (90_000.0, None, None)
    assert picture.table.rows[1] == ("70 s", "<b>a", "12", "too few")
    strip = charts.load_strip(LINES, clock)
    steps = [{"time": 90_000.0, "calls": 3}, {"time": 100_000.0, "calls": None}]
    assert strip.rows == [*steps, {"time": 110_000.0, "calls": None}], "as far as the lines above"
    assert strip.table.rows == [("90 s", "3"), ("100 s", "–")]
    accepted(strip.spec)


def test_the_waterfall_shows_both_sides_and_the_whole_wait() -> None:
    """Without audio: the picture is the same, and begins with the wait."""
    picture = waterfall(SLOW, service_turn(SLOW, 0))
    data = turn_data(picture, None, SLOW.speech_end_perf_ns or 0, key="k")
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
    begins = [row[2] for row in waterfall_table(picture).rows]
    assert any(begin.startswith(MINUS) for begin in begins)
    assert not any("-" in begin for begin in begins)


def compared_with_base(shift_ms: float, *, is_unanswered: bool = False) -> RunComparison:
    (values, calls), (others, of_others) = (latencies_ms(np.random.default_rng(seed), 1500) for seed in (1, 2))
    base = ComparedRun("base", cohort_of("base", values, calls), {"target": "ws://one"})
    silent = (np.arange(1500) % 25 == 0,) if is_unanswered else ()
    other = ComparedRun("other", cohort_of("other", others + shift_ms, of_others, *silent), {"target": "ws://one"})
    return compare_runs(base, other, RegressionMargin(), ())


def test_a_difference_of_runs_has_one_sign_in_picture_and_tables() -> None:
    comparison = compared_with_base(-300.0)
    picture = charts.run_differences([comparison], 1e8)
    cells = " ".join(cell for row in picture.table.rows for cell in row)
    texts = " ".join(row["text"] for row in picture.rows)
    for text in (cells, texts, plain(several_runs.comparison_table(comparison))):
        assert re.search(rf"{MINUS}[23]\d\d ms", text)
        assert not re.search(r"(?<!\w)-\d", text)


def test_unbounded_interval_reaches_as_far_as_longest_other() -> None:
    rows = charts.run_differences([compared_with_base(400.0, is_unanswered=True)], 1e8).rows
    (p95,) = (row for row in rows if row["name"] == "Voice to voice p95")
    assert p95["text"].endswith(" or more)")
    ends = [row[end] for row in rows for end in ("lower", "upper", "estimate")]
    assert p95["upper"] == max(ends)
    assert np.isfinite(ends).all()


APP = """
from dashboard.charts import draw
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
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


@pytest.mark.slow
def test_chart_has_its_sentence_and_its_table_on_demand() -> None:
    app = AppTest.from_string(APP, default_timeout=60).run()
    assert not app.exception
    assert pictures(app) == ["Latency rises from 1 to 2"]
    assert [expander.label for expander in app.expander] == ["Table: Latency over time"]
    assert not app.get("html")
    html = table_html(ChartTable("Latency over time", ("from", "p95"), [("12:00", "640 ms")]))
    assert plain(html) == "Latency over time from p95 12:00 640 ms"


def test_table_names_columns_scrolls_by_keys_and_escapes_text() -> None:
    html = table_html(ChartTable("Hits by tier", ("from", "device", "edge"), [("<img src=x>", "<b>1</b>", "2")]))
    tags = _Cells(html).tags
    assert [attributes["scope"] for tag, attributes in tags if tag == "th"] == ["col", "col", "col", "row"]
    region = dict(tags)["div"]
    assert (region["role"], region["tabindex"], region["aria-label"]) == ("region", "0", "Hits by tier")
    assert not {"img", "b"} & {tag for tag, _ in tags}
    assert "&lt;img" in html


def test_long_table_states_omitted_rows_and_empty_one_that_it_is() -> None:
    rows = [(str(number), "x") for number in range(MOST_ROWS + 3)]
    html = table_html(ChartTable("Turns", ("turn", "y"), rows))
    assert html.count("<tr>") == MOST_ROWS + 1
    assert f"the first {MOST_ROWS} of {MOST_ROWS + 3} rows" in html
    assert "no figures" in table_html(ChartTable("Turns", ("turn", "y"), []))


GROUNDS = {"light": "#ffffff", "dark": "#12151b"}


def variables(theme: str) -> dict[str, str]:
    """Each color of the style sheet."""
    pairs = re.findall(r"--vp-([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", stylesheet())
    return {name: {"light": light, "dark": dark}[theme] for name, light, dark in pairs}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_and_marks_contrast_with_every_background(theme: str) -> None:
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)  # the well-known gray that just fails
    colors, drawn = variables(theme), palette(theme)
    assert drawn is {"light": LIGHT, "dark": DARK}[theme]
    assert drawn.paper == GROUNDS[theme]
    # Charts and the style sheet paint a stage alike.
    assert tuple(colors[name] for name in STAGE_NAMES) == drawn.stages
    grounds = [GROUNDS[theme], colors["panel"]]
    pairs = [(name, ground) for name in ("ink", "soft", "latency", "met", "missed", "unknown") for ground in grounds]
    pairs += [(state, colors[f"{state}-soft"]) for state in ("met", "missed", "unknown")]
    pairs += [("ink", colors["unknown-soft"])]
    faint = {(name, ground): contrast(colors[name], ground) for name, ground in pairs}
    assert {pair: round(ratio, 2) for pair, ratio in faint.items() if ratio < 4.5} == {}
    marks = {name: getattr(drawn, name) for name in ("p50", "p95", "p99", "speech", "playing")}
    marks |= {f"series {place}": color for place, color in enumerate((*drawn.series, *drawn.stages))}
    marks |= {name: color for name, color in colors.items() if name.startswith("cohort")}
    faint_marks = {name: round(contrast(color, GROUNDS[theme]), 2) for name, color in marks.items()}
    assert {name: ratio for name, ratio in faint_marks.items() if ratio < 3} == {}


def budget(*left: float | None) -> ErrorBudget:
    days = tuple(
        DayBudget(ago, EligibleTurns(0, 0) if share is None else EligibleTurns(93, 100), share)
        for ago, share in zip(range(len(left) - 1, -1, -1), left, strict=True)
    )
    return ErrorBudget("answer", "The answer", "turns", "95 % of turns", 0.95, 100, (), (), days, left[-1], False)


def test_budget_day_is_drawn_at_its_share_and_overspent_is_named() -> None:
    picture = charts.budget_days(budget(None, 1.0, 0.25, -99.0))
    assert [(row["day"], row["left"]) for row in picture.rows] == [(-3, None), (-2, 1.0), (-1, 0.25), (0, -2.0)]
    assert picture.rows[-1]["text"] == picture.table.rows[-1][1] == "overspent ×100.0"
    line = next(layer for layer in picture.spec["layer"] if layer["mark"]["type"] == "line")
    assert line["encoding"]["y"]["scale"]["domainMax"] == 1
    assert "datum.value <= -2.0 ? '≤ '" in json.dumps(line["encoding"]["y"]["axis"], ensure_ascii=False)
