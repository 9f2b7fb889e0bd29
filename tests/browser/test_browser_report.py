"""The report of a run in a real browser: on a phone, on a desk, in the dark and on paper, and without any network."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from loadtest.reports.html.page import as_html
from loadtest.run.judged_run import judged_run, read_pictures
from telemetry.objectives.slo import default_objectives
from telemetry.store.reader import StoreReader
from tests.fixtures_turns import fill_store, synthetic_run

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a run with two cohorts, cache hits, turns that went unanswered and long names."""
    folder = tmp_path_factory.mktemp("report")
    fill_store(folder / "store", synthetic_run(turns=300))
    with StoreReader(folder / "store") as reader:
        result = judged_run(reader, "run-1", default_objectives())
        shown = replace(result, pictures=read_pictures(reader, result.summary))
    file = folder / "report.html"
    file.write_text(as_html(shown), encoding="utf-8")
    return file


@pytest.fixture
def opened(browser: Browser, report: Path, request: pytest.FixtureRequest) -> Iterator[tuple[Page, list[str]]]:
    """The page at a width and in a color scheme, and everything that it asked the network for."""
    width, scheme = request.param
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page, asked = context.new_page(), list[str]()
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: asked.append(message.text))
    page.goto(report.as_uri())
    yield page, asked
    context.close()


WAYS = [(390, "light"), (390, "dark"), (768, "light"), (1280, "dark")]
# What reaches beyond the page or is hidden, as the browser lays it out; tables scroll inside of their own frame.
_BEYOND = """() => {
  const wide = document.documentElement.clientWidth;
  return [...document.querySelectorAll('main *')]
    .filter(each => !each.closest('.scroll') && each.tagName !== 'CAPTION' && each.getClientRects().length)
    .filter(each => each.getBoundingClientRect().right > wide + 1 || each.getBoundingClientRect().left < -1)
    .map(each => each.outerHTML.slice(0, 120));
}"""
_SMALLEST = """() => Math.min(...[...document.querySelectorAll('svg text')].filter(each => each.getClientRects().length)
  .map(each => [parseFloat(getComputedStyle(each).fontSize), each.getScreenCTM()])
  .map(([size, matrix]) => size * Math.hypot(matrix.a, matrix.b)))"""


@pytest.mark.parametrize("opened", WAYS, indirect=True, ids=lambda way: f"{way[0]}-{way[1]}")
def test_report_fits_width_loads_nothing_and_is_legible(opened: tuple[Page, list[str]]) -> None:
    page, asked = opened
    assert asked == [page.url], "one file, and nothing to complain about"
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]  # type: ignore[index]
    assert page.evaluate(_BEYOND) == []
    assert page.evaluate(_SMALLEST) >= 11, "the type of a picture, in CSS pixels"
    drawn = page.locator("svg:visible")
    labels = [drawn.nth(index).get_attribute("aria-label") for index in range(drawn.count())]
    assert len(labels) == page.locator("svg").count() // 2, "one of each picture's two sizes"
    assert page.get_by_role("img").count() == len(labels)


@pytest.mark.parametrize("opened", [(1280, "light")], indirect=True)
def test_everything_can_be_reached_by_keyboard(opened: tuple[Page, list[str]]) -> None:
    page, _ = opened
    folded = page.locator("details")
    assert folded.count() >= 4
    page.keyboard.press("Tab")
    seen = set[Any]()
    for _ in range(folded.count() + page.locator(".scroll:visible").count() + 5):
        seen.add(page.evaluate("document.activeElement.tagName + document.activeElement.textContent.slice(0, 40)"))
        page.keyboard.press("Tab")
    assert len([text for text in seen if text.startswith("SUMMARY")]) >= 4
    page.locator("summary").first.focus()
    page.keyboard.press("Enter")
    assert page.get_by_role("table", name="Voice to voice over time").is_visible()


@pytest.mark.parametrize("opened", [(1280, "dark")], indirect=True)
def test_on_paper_it_is_black_on_white_and_in_its_wide_form(opened: tuple[Page, list[str]]) -> None:
    page, _ = opened
    page.emulate_media(media="print", color_scheme="dark")
    colors = page.evaluate("[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]")
    assert colors == ["rgb(0, 0, 0)", "rgb(255, 255, 255)"]
    assert page.locator("svg.narrow:visible").count() == 0
    assert page.locator("svg.wide:visible").count() > 3
    paper = page.pdf(format="A4")
    assert paper.startswith(b"%PDF")
    assert paper.count(b"/Type /Page\n") >= 3
