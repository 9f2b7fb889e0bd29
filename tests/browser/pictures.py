"""Checks of a page that a browser drew, once its width is settled: cut-off parts, and violations that axe-core
finds."""

import contextlib
from collections.abc import Generator
from typing import Final

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect
from playwright.sync_api import TimeoutError as PlaywrightTimeoutError

SETTLED_WITHIN_MS: Final = 30_000
PICTURES: Final = '[data-testid="stVegaLiteChart"] svg.marks'

# A function for the page: the words that the left or the right edge of their picture cuts off. The box of a title that
# is upright is wider than its letters, and a label that would overlap another one is there without being seen.
CUT_WORDS: Final = """() => [...document.querySelectorAll('[data-testid="stVegaLiteChart"] svg.marks')].flatMap(e => {
  const edges = e.getBoundingClientRect();
  return [...e.querySelectorAll('text')].filter(t => getComputedStyle(t).opacity !== '0')
    .map(t => [t.getBoundingClientRect(), t.textContent])
    .filter(([box]) => box.width && (box.left < edges.left - 3 || box.right > edges.right + 1)).map(([, text]) => text);
  })"""
# Parts that reach out of the page though they are not in a region that scrolls, texts cut off by an edge, columns out
# of sight where there is room for all of them, and what is decided where there is not.
_CUT_OFF: Final = """() => {
  const main = document.querySelector('[data-testid="stMain"]'), found = [];
  const name = e => `${e.tagName} ${e.className.baseVal ?? e.className} ${(e.innerText || '').slice(0, 60)}`;
  const hides = e => ['auto', 'scroll', 'hidden', 'clip'].includes(getComputedStyle(e).overflowX);
  if (main.scrollWidth > main.clientWidth) found.push(`the page: ${main.scrollWidth} of ${main.clientWidth}`);
  for (const e of main.querySelectorAll('*')) {
    const box = e.getBoundingClientRect();
    if (box.width && box.right > main.clientWidth + 1) {
      let around = e.parentElement;
      while (around !== main && !hides(around)) around = around.parentElement;
      if (around === main) found.push(`beyond the edge: ${name(e)}`);
    }
    const isOutOfSight = main.clientWidth >= 760 && ['auto', 'scroll'].includes(getComputedStyle(e).overflowX)
      && e.scrollWidth > e.clientWidth + 1 && e.closest('.vp:not(SCROLLS)');
    if (isOutOfSight) found.push(`scrolls sideways: ${name(e)}`);
    const isCut = ['hidden', 'clip'].includes(getComputedStyle(e).overflowX) && e.scrollWidth > e.clientWidth + 1;
    if (isCut && e.clientWidth > 1 && e.closest('.vp') && (e.innerText || '').trim()) found.push(`cut off: ${name(e)}`);
  }
  for (const e of main.querySelectorAll('.vp:not(SCROLLS) table thead th')) {
    const isOut = e.getBoundingClientRect().right > main.clientWidth + 1;
    if (isOut && ['verdict', 'state'].includes(e.innerText)) found.push(`out of sight: ${e.innerText}`);
  }
  return [...found, ...(WORDS)()];
}"""
# What Streamlit's own parts violate and a page cannot mend: it renders the whole page inside one div, so that its
# header and its toolbar are no landmarks.
_OF_STREAMLIT: Final = '[data-testid="stHeader"], [data-testid="stAppViewContainer"], [data-testid="stToolbar"]'
# What WCAG 1.4.12 lets a reader force on texts.
_TEXT_SPACING: Final = """
  * { line-height: 1.5 !important; letter-spacing: 0.12em !important; word-spacing: 0.16em !important; }
  p { margin-bottom: 2em !important; }
"""


@contextlib.contextmanager
def texts_spaced(page: Page) -> Generator[None]:
    """A reader spaces the texts of a page that is drawn."""
    style = page.add_style_tag(content=_TEXT_SPACING)
    yield
    style.evaluate("style => style.remove()")


def left_over(page: Page, script: str) -> list[str]:
    """Return what a script finds in the page, once that is nothing or the time is over: charts are drawn again some
    time after the window changed."""
    with contextlib.suppress(PlaywrightTimeoutError):
        page.wait_for_function(f"() => ({script})().length === 0", timeout=SETTLED_WITHIN_MS)
    return page.evaluate(script)


def cut_off(page: Page, scrolls: str = ".vp-chart-table") -> list[str]:
    """Return what is cut off or out of sight; elements that `scrolls` selects may scroll sideways."""
    return left_over(page, _CUT_OFF.replace("SCROLLS", scrolls).replace("WORDS", CUT_WORDS))


def settled(page: Page) -> None:
    """Wait until nothing is on its way."""
    expect(page.locator('[data-testid="stSkeleton"]')).to_have_count(0)
    expect(page.locator('[data-testid="stApp"][data-test-script-state="running"]')).to_have_count(0)
    expect(page.locator('[data-testid="stException"]')).to_have_count(0)


def violations(page: Page) -> dict[str, list[str]]:
    """Return what axe-core finds, by rule, except in Streamlit's own parts."""
    parts = page.evaluate("s => [...document.querySelectorAll(s)].map(e => e.outerHTML.slice(0, 60))", _OF_STREAMLIT)
    by_rule: dict[str, list[str]] = {}
    for violation in Axe().run(page).response["violations"]:
        nodes = [node["html"][:200] for node in violation["nodes"]]
        nodes = [html for html in nodes if violation["id"] != "region" or not html.startswith(tuple(parts))]
        by_rule |= {violation["id"]: nodes} if nodes else {}
    return by_rule
