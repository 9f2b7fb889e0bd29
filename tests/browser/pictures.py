"""What a browser drew in the pictures of a page, once they have taken its width."""

import contextlib
from collections.abc import Generator
from typing import Final

from playwright.sync_api import Page
from playwright.sync_api import TimeoutError as PlaywrightTimeoutError

SETTLED_WITHIN_MS: Final = 30_000

# A function for the page: the words that the left or the right edge of their picture cuts off. The box of a title that
# stands upright is wider than its letters, and a label that would overlap another one is there without being seen.
CUT_WORDS: Final = """() => [...document.querySelectorAll('[data-testid="stVegaLiteChart"] svg.marks')].flatMap(e => {
  const edges = e.getBoundingClientRect();
  return [...e.querySelectorAll('text')].filter(t => getComputedStyle(t).opacity !== '0')
    .map(t => [t.getBoundingClientRect(), t.textContent])
    .filter(([box]) => box.width && (box.left < edges.left - 3 || box.right > edges.right + 1)).map(([, text]) => text);
})"""

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
    """What a function for the page finds once that is nothing, or when it never is: charts are drawn again some time
    after the window changed."""
    with contextlib.suppress(PlaywrightTimeoutError):
        page.wait_for_function(f"() => ({script})().length === 0", timeout=SETTLED_WITHIN_MS)
    return page.evaluate(script)
