"""Colors, axes, and what all charts share: a picture is rows, a specification without data, a sentence, and a table."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import altair as alt

STAGE_NAMES: Final = ("endpointing", "asr", "llm", "tts", "leading_silence", "unexplained")


@dataclass(frozen=True, slots=True)
class Palette:
    """One theme's colors, as in `style.css`. Percentiles are one hue in three strengths; a stage has one color."""

    ink: str
    paper: str
    soft: str
    line: str
    p50: str
    p95: str
    p99: str
    behind: str
    speech: str
    playing: str
    stages: tuple[str, ...]  # in the order of STAGE_NAMES
    cohorts: tuple[str, ...]  # one after the other, and from the first again: shapes and dashes differ
    series: tuple[str, ...]  # of lines and bars without a meaning of their own
    met: str
    missed: str
    unknown: str


LIGHT: Final = Palette(
    ink="#1b1f27",
    paper="#ffffff",
    soft="#596273",
    line="#e3e6eb",
    p50="#8580ea",
    p95="#4f46e5",
    p99="#2a2390",
    behind="#cfd5df",
    speech="#3f4a5c",
    playing="#0f766e",
    stages=("#64718a", "#5b8fd6", "#a87a14", "#9a6fc4", "#8b95a6", "#c96060"),
    cohorts=("#1d6fd1", "#b0359b", "#596273"),
    series=("#1d6fd1", "#b0359b", "#0f766e", "#b93815", "#6d5bd0", "#7a5c00", "#596273", "#2a2390"),
    met="#0f766e",
    missed="#b93815",
    unknown="#5b6474",
)
DARK: Final = Palette(
    ink="#e6e9ef",
    paper="#12151b",
    soft="#9aa4b5",
    line="#2a303b",
    p50="#6f6bd0",
    p95="#a5b4fc",
    p99="#e4e8ff",
    behind="#343c4a",
    speech="#b4bfd0",
    playing="#5eead4",
    stages=("#7b879b", "#6ea0e4", "#d9b04e", "#b48bdc", "#657189", "#b66a6a"),
    cohorts=("#7ab8ff", "#f0a0e0", "#9aa4b5"),
    series=("#7ab8ff", "#f0a0e0", "#5eead4", "#fdba74", "#c4b5fd", "#facc15", "#9aa4b5", "#e4e8ff"),
    met="#5eead4",
    missed="#fdba74",
    unknown="#98a2b3",
)


def palette(theme: str | None) -> Palette:
    """The colors for a viewer's theme; light where the browser does not report one."""
    return DARK if theme == "dark" else LIGHT


def page_palette() -> Palette:
    """The colors of the style sheet of the page that holds a picture, which decides on light, dark and paper."""
    plain = ("ink", "paper", "soft", "line", "p50", "p95", "p99", "speech", "playing", "met", "missed")
    return Palette(
        **{name: f"var(--{name})" for name in plain},
        behind="var(--calls)",
        unknown="var(--open)",
        stages=tuple(f"var(--{name})" for name in STAGE_NAMES),
        cohorts=("var(--p95)", "var(--calls)", "var(--dot)"),
        series=tuple(f"var(--{name})" for name in ("llm", "asr", "tts", "playing", "speech", "unexplained")),
    )


Row = dict[str, Any]
# The rows of a chart, which are passed separately from its specification, and one row for what is drawn once.
ROWS: Final = alt.Chart(alt.NamedData("rows"))
ONCE: Final = ROWS.transform_aggregate(rows="count()")
SHAPES: Final = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
DASHES: Final = ([1, 0], [6, 3], [2, 2], [8, 2, 2, 2], [1, 3], [10, 4], [4, 4], [12, 4, 2, 4])
LABEL_SIZE: Final = 11
# The widest spacing that a reader may force on texts by WCAG 1.4.12, in em.
_LETTER_SPACING: Final = 0.12
_WORD_SPACING: Final = 0.16
# What Vega itself leaves between an axis and its title.
TITLE_PADDING: Final = 4
_WITH_SECONDS: Final = "%H:%M:%S"
# Vega takes the step between ticks whose ratio to the wanted one is smaller: below this one 30 s, from there on 1 min.
_MINUTES_FROM_MS: Final = math.sqrt(30_000 * 60_000)
# A moment in a tooltip, which has no axis with its day.
MOMENT: Final = "%d %b %H:%M:%S"
# A browser draws text wider than the picture's layout takes it to be: without room, the edge cuts off the last label.
_PADDING: Final = 5
_CLOCK: Final = {
    **dict.fromkeys(("milliseconds", "seconds"), _WITH_SECONDS),
    **dict.fromkeys(("minutes", "hours"), "%H:%M"),
    "date": "%d %b",
}


@dataclass(frozen=True, slots=True)
class ChartTable:
    """A chart's figures as text, with their units: `caption`, of our own words, says what they are,
    the first column names its row. `links` are where a click on each row's mark in the picture leads."""

    caption: str
    columns: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    links: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Picture:
    """A chart: its rows, its specification without data, a sentence that says what it shows, and its figures as a
    table. While the specification stays the same, a refresh exchanges the rows of the picture in the browser."""

    rows: Sequence[Row]
    spec: Row
    alt: str
    table: ChartTable = field(default_factory=lambda: ChartTable("", (), ()))


def table_of(caption: str, rows: Iterable[Row], columns: Mapping[str, str], links: Sequence[str] = ()) -> ChartTable:
    """Make the table of a picture from the texts in its rows: `columns` has the field of each."""
    return ChartTable(caption, tuple(columns), [tuple(row[name] for name in columns.values()) for row in rows], links)


def having(*names: str) -> alt.Chart:
    """Select the rows that have a value for each of these."""
    return ROWS.transform_filter(" && ".join(f"isValid(datum.{name})" for name in names))


def tips(*fields: str) -> list[alt.Tooltip]:
    """Tooltips, each as `field`, `field|title` or `field:type|title|format`."""
    made: list[alt.Tooltip] = []
    for stated in fields:
        name, *more = stated.split("|")
        made.append(
            alt.Tooltip(name if ":" in name else f"{name}:N", **dict(zip(("title", "format"), more, strict=False)))
        )
    return made


def amount(name: str, title: str, **axis: Any) -> alt.Y:
    """A y axis from zero on."""
    given: dict[str, Any] = {"tickCount": 5, **axis}
    made = alt.Axis(**given)
    return alt.Y(f"{name}:Q", title=title, scale=alt.Scale(zero=True, nice=True), axis=made)


def scale_of(names: Sequence[str], range_: Sequence[Any]) -> alt.Scale:
    """A scale that gives names colors, dashes or shapes, and begins from the first again where there are more names."""
    return alt.Scale(domain=list(names), range=[range_[place % len(range_)] for place in range(len(names))])


def time_axis(ticks: int) -> alt.Axis:
    """An axis of moments on x with about so many labels. All of them have seconds where some need them."""
    # Vega chooses the format of each label by itself: a full minute would have no seconds among others that do.
    needs_seconds = f"span(domain('x')) < {ticks * _MINUTES_FROM_MS:.0f}"
    label = f"{needs_seconds} ? timeFormat(datum.value, '{_WITH_SECONDS}') : datum.label"
    return alt.Axis(grid=False, labelOverlap=True, tickCount=ticks, format=dict(_CLOCK), labelExpr=label)


def elapsed_axis() -> alt.Axis:
    """An axis of the time since a begin on x, as minutes and seconds, with hours where there are some."""
    hours = "floor(datum.value / 3600000) + timeFormat(datum.value, ':%M:%S')"
    label = f"datum.value < 3600000 ? timeFormat(datum.value, '%-M:%S') : {hours}"
    return alt.Axis(grid=False, labelOverlap=True, tickCount=7, labelExpr=label)


def spacing_room(texts: Iterable[str]) -> int:
    """Return by how many px the longest text grows where a reader spaces letters and words: a browser draws that
    spacing, while the picture's layout measures texts without it."""
    grown = (LABEL_SIZE * (_LETTER_SPACING * len(text) + _WORD_SPACING * text.count(" ")) for text in texts)
    return math.ceil(max(grown, default=0.0))


def finished(layers: Sequence[alt.Chart], colors: Palette, height: int, *, left: int = 0) -> Row:
    """The specification in the theme's colors, without data; `left` is kept free at the left edge."""
    # Altair's own layering copies and checks every part several times, 40 ms a chart: the tests check specifications.
    drawn: list[Row] = []
    selections: list[Row] = []
    for place, layer in enumerate(layers):
        made = layer.to_dict(validate=False)
        for name in ("$schema", "config", "data", "datasets"):
            made.pop(name, None)  # the rows are passed separately
        for selection in made.pop("params", ()):
            made["name"] = f"layer_{place}"
            selections.append({**selection, "views": [made["name"]]})
        drawn.append(made)
    text = {"labelFontSize": LABEL_SIZE, "labelColor": colors.soft}
    title: Row = {"titleFontSize": LABEL_SIZE, "titleColor": colors.soft, "titleFontWeight": "normal"}
    return {
        "layer": drawn,
        "height": height,
        "padding": {"left": left, "right": _PADDING},
        "config": {
            "background": "transparent",
            "font": "inherit",
            "view": {"stroke": None},
            # The table of each chart says what its marks would, and marks without a name would say nothing.
            "aria": False,
            "mark": {"aria": False},
            "axis": {**text, **title, "domain": False, "ticks": False, "gridColor": colors.line},
            "legend": {**text, "symbolType": "stroke", "symbolSize": 260, "symbolStrokeWidth": 2.5},
        },
        **({"params": selections} if selections else {}),
    }


def named_rule(colors: Palette, at: float, words: str, dashes: Sequence[int] = (2, 3)) -> list[alt.Chart]:
    """A line across the picture at a value of the y axis, with its words at the right end."""
    text: dict[str, Any] = {"align": "right", "baseline": "bottom", "dy": -3, "fontSize": 11, "text": words}
    y, x = alt.YDatum(at), alt.value("width")
    return [
        ONCE.mark_rule(color=colors.ink, strokeDash=list(dashes), strokeWidth=1.3).encode(y=y),
        # The words have a ground of their own, so that lines behind them leave them readable.
        ONCE.mark_text(stroke=colors.paper, strokeWidth=4, **text).encode(y=y, x=x),
        ONCE.mark_text(color=colors.ink, **text).encode(y=y, x=x),
    ]


def upright_rule(colors: Palette, at: float, words: str, **mark: Any) -> list[alt.Chart]:
    """A line from top to bottom at a value of the x axis, with its words at the top; `mark` is of the line, and
    `place` of the words."""
    place: dict[str, Any] = {"align": "left", "dx": 4, "baseline": "top", "y": 1, **mark.pop("place", {})}
    line: dict[str, Any] = {"color": colors.ink, **mark}
    x, y = alt.XDatum(at), alt.value(place.pop("y"))
    return [
        ONCE.mark_rule(**line).encode(x=x),
        ONCE.mark_text(color=colors.ink, text=words, **place).encode(x=x, y=y),
    ]
