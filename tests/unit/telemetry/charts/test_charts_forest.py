"""A forest plot as a specification and as SVG: what is drawn where, by which color, and in which words."""

import re
from itertools import pairwise
from typing import Any

import altair as alt
import pytest

from telemetry.charts.drawing import LIGHT, Picture
from telemetry.charts.forest import forest
from telemetry.charts.static import PAGE, both_sizes, svg

HOSTILE = "</svg><script>alert(1)</script>\x1b[2J"


def row(name: str, estimate: float, lower: float | None, upper: float | None, verdict: str, **more: Any) -> Any:
    given = {"name": name, "estimate": estimate, "lower": lower, "upper": upper, "verdict": verdict}
    return {**given, "text": f"{name}: {estimate:g}", **more}


ROWS = [
    row("p50", 0.02, -0.01, 0.05, "within the margin"),
    row("p95", 0.2, 0.1, 0.3, "worse"),
    row("p99", -0.2, None, None, HOSTILE),
]


def points(drawn: str) -> dict[str, tuple[float, float]]:
    """The place of each estimate, by its words; its symbol is moved there from the origin."""
    groups = re.findall(r'<path [^>]*transform="translate\(([\d.]+),([\d.]+)\)[^>]*><title>([^<]*)</title>', drawn)
    return {words: (float(x), float(y)) for x, y, words in groups}


def test_a_forest_is_a_valid_specification_without_data() -> None:
    spec = forest(ROWS, LIGHT, "s", margin=0.1, margin_text="100 ms")
    assert not {"data", "datasets"} & set(spec)
    alt.LayerChart.from_dict(spec | {"data": {"name": "rows"}})
    assert spec == forest(ROWS, LIGHT, "s", margin=0.1, margin_text="100 ms")


@pytest.mark.slow
def test_estimates_are_placed_by_row_order_and_value() -> None:
    at = points(svg(Picture(ROWS, forest(ROWS, PAGE, "s"), "differences")))
    places = [at[f"{row['name']}: {row['estimate']:g}"] for row in ROWS]
    assert all(above[1] < below[1] for above, below in pairwise(places))
    (x50, _), (x95, _), (x99, _) = places
    assert (x95 - x50) / (x50 - x99) == pytest.approx((0.2 - 0.02) / (0.02 + 0.2), rel=1e-3)


def test_no_difference_and_margin_lines_have_separate_names() -> None:
    spec = forest(ROWS, LIGHT, "s", margin=0.1, margin_text="100 ms")
    names = {layer["mark"]["text"]: layer["mark"]["align"] for layer in spec["layer"] if "text" in layer["mark"]}
    assert names == {"no difference": "right", "margin 100 ms": "left"}
    assert ">margin" not in svg(Picture(ROWS, forest(ROWS, PAGE, "s"), "differences"))


def test_rows_of_one_name_lie_below_each_other_by_group() -> None:
    rows = [row("p95", 0.1, 0.0, 0.2, "undecided", text="one", group="one"),
            row("p95", 0.1, 0.0, 0.2, "undecided", text="other", group="other")]  # fmt: skip
    at = points(svg(Picture(rows, forest(rows, PAGE, "share"), "differences")))
    assert at["one"][0] == at["other"][0]
    assert at["one"][1] < at["other"][1]


def test_svg_has_label_page_colors_and_escapes_foreign_text() -> None:
    drawn = both_sizes(Picture(ROWS, forest(ROWS, PAGE, "s"), f"of {HOSTILE}"))
    wide, narrow = re.findall(r"<svg [^>]*>", drawn)
    assert ('class="wide"' in wide, 'class="narrow"' in narrow) == (True, True)
    assert all('role="img"' in picture and 'aria-label="of &lt;/svg&gt;' in picture for picture in (wide, narrow))
    assert "<script" not in drawn
    assert "\x1b" not in drawn
    assert not re.search(r'(?:fill|stroke)="(?:#|rgb)|style=|href=', drawn)
    assert 'fill="var(--missed)"' in drawn


def test_a_forest_of_nothing_is_drawn_without_a_fault() -> None:
    assert svg(Picture([], forest([], PAGE, "s"), "nothing")).endswith("</svg>")
