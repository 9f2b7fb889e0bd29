"""A chart's figures as a table, and that all style sheets reach the page."""

from html.parser import HTMLParser
from pathlib import Path

from streamlit.testing.v1 import AppTest

import dashboard
from dashboard.accessible_chart import MOST_ROWS, ChartTable, table_html
from dashboard.stylesheet import stylesheet

APP = """
from dashboard.accessible_chart import ChartTable, chart

chart(
    [{"x": 1, "y": 2}],
    {"mark": "line", "encoding": {"x": {"field": "x"}, "y": {"field": "y"}}},
    "Latency rises from 1 to 2",
    ChartTable("Latency over time", ("from", "p95"), [("12:00", "640 ms")]),
    table_at_once=AT_ONCE,
)
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


def test_a_chart_is_drawn_with_its_sentence_and_its_table() -> None:
    app = AppTest.from_string(APP.replace("AT_ONCE", "True"), default_timeout=60).run()
    assert not app.exception
    (drawn,) = app.get("vega_lite_chart")
    assert drawn.proto.alt == "Latency rises from 1 to 2"
    assert [each.label for each in app.expander] == ["Table: Latency over time"]
    (html,) = app.get("html")
    cells = _Cells(html.proto.body)
    assert [value for value in cells.text if value.strip()] == ["Latency over time", "from", "p95", "12:00", "640 ms"]


def test_the_rows_of_a_table_come_when_it_is_opened() -> None:
    app = AppTest.from_string(APP.replace("AT_ONCE", "False"), default_timeout=60).run()
    assert not app.exception
    assert [each.label for each in app.expander] == ["Table: Latency over time"]
    assert not app.get("html")


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


def test_every_sheet_is_in_the_style_of_the_page() -> None:
    folder = Path(dashboard.__file__).parent
    sheets = [folder / "style.css", *(folder / "styles").glob("*.css")]
    assert len(sheets) > 1
    found = stylesheet()
    assert all(sheet.read_text() in found for sheet in sheets)
    # The shared parts come first, so that a page's own rules can differ from them.
    assert found.index((folder / "style.css").read_text()) < min(found.index(s.read_text()) for s in sheets[1:])
    assert found.count("<style>") == found.count("</style>") == 1
