"""What a browser drew in the pictures of a page, once they have taken its width."""

import contextlib
from typing import Final

from playwright.sync_api import Page
from playwright.sync_api import TimeoutError as PlaywrightTimeoutError

SETTLED_WITHIN_MS: Final = 30_000

# A function for the page: the words that the right edge of their picture cuts off.
CUT_WORDS: Final = """() => [...document.querySelectorAll('[data-testid="stVegaLiteChart"] svg.marks')].flatMap(e => {
  const edge = e.getBoundingClientRect().right + 1;
  return [...e.querySelectorAll('text')].filter(t => t.getBoundingClientRect().right > edge).map(t => t.textContent);
})"""


def left_over(page: Page, script: str) -> list[str]:
    """What a function for the page finds once that is nothing, or when it never is: charts are drawn again some time
    after the window changed."""
    with contextlib.suppress(PlaywrightTimeoutError):
        page.wait_for_function(f"() => ({script})().length === 0", timeout=SETTLED_WITHIN_MS)
    return page.evaluate(script)
