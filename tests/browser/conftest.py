"""The browser that all these tests look at pages with."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from tests.programs import needed

BOUND_MS = 60_000  # only ends a hopeless wait
CHROMIUM_ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

_CLICKS = 10
_OPENED_MS = 5_000


def choose(field: Locator, option: str) -> None:
    """Choose an option of a list; a click that a page being drawn does not take is repeated, as a person repeats it."""
    choice = field.page.get_by_role("option", name=option, exact=True)
    for _ in range(_CLICKS):
        field.click()
        try:
            expect(choice).to_be_visible(timeout=_OPENED_MS)
        except AssertionError:
            continue
        choice.click()
        return
    raise AssertionError(f"the list does not open, or has no {option!r}")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    executable = needed("chromium", "chromium-browser", "google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=list(CHROMIUM_ARGUMENTS))
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page of a desktop's size, in which no script may fail."""
    opened = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme="light")
    errors: list[str] = []
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.set_default_timeout(BOUND_MS)
    yield opened
    opened.close()
    assert errors == []
