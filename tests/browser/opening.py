"""Pages of the dashboard as tests of what its script draws open them."""

from typing import Any

from playwright.sync_api import Browser, Page

# Figures that stand over the page until its script has drawn them would be found twice for a moment.
_NO_FIRST_FIGURES = """(() => {
  const fetched = window.fetch;
  window.fetch = (address, ...more) => String(address).startsWith('./_first/')
    ? Promise.resolve(new Response(null, {status: 204})) : fetched(address, ...more);
})()"""


def page_without_first_figures(browser: Browser, **given: Any) -> Page:
    """A page, with Playwright's options, that shows nothing but what its script draws."""
    page = browser.new_page(**given)
    page.add_init_script(_NO_FIRST_FIGURES)
    return page
