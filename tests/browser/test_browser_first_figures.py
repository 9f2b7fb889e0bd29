"""What a browser shows of a page before it runs the page's program, and that the page takes its place."""

import time
from collections.abc import Iterator
from typing import Any, Final

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, Route, expect

from tests.browser.conftest import BOUND_MS
from tests.browser.test_browser_dashboard import Dashboard, painted, start
from tests.unit.dashboard.scenes import S, Scene, fill

pytestmark = [pytest.mark.browser, pytest.mark.slow]

FIRST: Final = ".vp-first"
DRAWN: Final = "#root .vp-first-end"
PROGRAM: Final = "**/static/js/index*"
PAGES: Final = ("", "turns", "cohorts", "objectives", "runs", "cache", "instrument")
# What the program would have set by then.
TITLE_RULE: Final = "document-title"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    store = tmp_path_factory.mktemp("first") / "store"
    # Its age is said in hours, and stays the same while the tests run.
    fill(store, Scene(turns=600, newest_unix_ns=time.time_ns() - 9_000 * S, ended=True))
    dashboard = start(store)
    yield dashboard
    dashboard.end()


@pytest.fixture
def contexts(browser: Browser) -> Iterator[list[BrowserContext]]:
    opened: list[BrowserContext] = []
    yield opened
    for context in opened:
        context.close()


def opened(browser: Browser, contexts: list[BrowserContext], **given: Any) -> Page:
    given = {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light", **given}
    contexts.append(browser.new_context(**given))
    page = contexts[-1].new_page()
    page.set_default_timeout(BOUND_MS)
    return page


def without_program(page: Page, address: str) -> list[Route]:
    """Open a page whose program does not come; it comes when the routes are continued."""
    held: list[Route] = []
    page.route(PROGRAM, lambda route: held.append(route))  # noqa: PLW0108 - Playwright marks the function
    page.goto(address, wait_until="commit")
    expect(page.locator(FIRST)).to_be_visible(timeout=BOUND_MS)
    return held


def release(page: Page, held: list[Route]) -> None:
    while held:
        held.pop().continue_()
    expect(page.locator(DRAWN)).to_be_attached(timeout=BOUND_MS)
    expect(page.locator(FIRST)).to_have_count(0, timeout=BOUND_MS)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_figures_are_there_before_the_program_and_stay_where_they_are(
    browser: Browser, served: Dashboard, contexts: list[BrowserContext], scheme: str, width: int
) -> None:
    page = opened(
        browser,
        contexts,
        viewport={"width": width, "height": 900},
        color_scheme=scheme,
        timezone_id="Asia/Kolkata",
    )
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    held = without_program(page, served.url)
    first, parts = page.locator(FIRST), (".vp-facts", ".vp-verdict", ".vp-tiles")
    before = {part: (first.locator(part).inner_text(), _top(first.locator(part))) for part in parts}
    assert "turns" in before[".vp-facts"][0]
    assert first.locator(".vp-tile").count() == 3
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    violations = [each["id"] for each in Axe().run(page).response["violations"] if each["id"] != "region"]
    assert violations == []

    release(page, held)
    painted(page)
    for part in parts:
        text, top = before[part]
        drawn = page.locator(f"#root {part}").first
        assert _words(drawn.inner_text()) == _words(text)
        # The chip beside the facts is a button on the page, of a line or two.
        assert abs(_top(drawn) - top) <= 40, part
    assert errors == []


def _words(text: str) -> list[str]:
    """Without the age of the newest turn, which time changes."""
    return [word for word in text.split() if not word.isdigit() or len(word) > 2]


def _top(part: Any) -> float:
    box = part.bounding_box()
    assert box is not None
    return float(box["y"])


@pytest.mark.parametrize("path", PAGES)
def test_every_page_takes_the_place_of_its_first_figures(
    browser: Browser, served: Dashboard, contexts: list[BrowserContext], path: str
) -> None:
    page = opened(browser, contexts)
    held = without_program(page, f"{served.url}/{path}")
    title = page.locator(f"{FIRST} h1").inner_text()
    expect(page).to_have_title(f"{title} · voiceprobe")
    assert any(character.isdigit() for character in page.locator(FIRST).inner_text())
    release(page, held)
    expect(page.locator("#root h1").first).to_have_text(title)


@pytest.mark.parametrize("path", ["runs?began=1d", "objectives"])
@pytest.mark.parametrize("width", [320, 390, 1280])
def test_the_head_of_a_page_of_its_own_stays_where_it_is(
    browser: Browser, served: Dashboard, contexts: list[BrowserContext], width: int, path: str
) -> None:
    page = opened(browser, contexts, viewport={"width": width, "height": 900})
    held = without_program(page, f"{served.url}/{path}")
    first = page.locator(FIRST)
    overview, top = first.locator(".vp-facts").inner_text(), _top(first.locator(".vp-facts"))
    chip = first.locator(".vp-first-head .vp-chip")
    assert "calibrated" in chip.inner_text()
    assert chip.evaluate("chip => chip.getBoundingClientRect().right <= document.documentElement.clientWidth")
    release(page, held)
    drawn = page.locator("#root .vp-facts").first
    assert drawn.inner_text().split() == overview.split()
    # Within the line or two of the chip beside the facts, once the selectors above have their room.
    page.wait_for_function(
        "top => Math.abs(document.querySelector('#root .vp-facts').getBoundingClientRect().top - top) <= 10", arg=top
    )
    expect(page.locator('#root [class*="st-key-trust-"] button')).to_contain_text("calibrated")


@pytest.mark.parametrize(("chosen", "background"), [("Dark", "rgb(18, 21, 27)"), ("Light", "rgb(255, 255, 255)")])
def test_first_figures_have_the_theme_that_the_viewer_chose(
    browser: Browser, served: Dashboard, contexts: list[BrowserContext], chosen: str, background: str
) -> None:
    # The system is of the other one.
    page = opened(browser, contexts, color_scheme="light" if chosen == "Dark" else "dark")
    # As Streamlit keeps it when its menu is used.
    page.add_init_script(f"localStorage.setItem('stActiveTheme-/-v2', JSON.stringify('{chosen}'))")
    held = without_program(page, served.url)
    ground = "e => getComputedStyle(e).backgroundColor"
    assert page.locator(FIRST).evaluate(ground) == background
    release(page, held)
    expect(page.locator(".stApp")).to_have_css("background-color", background)


def test_figures_that_nothing_refreshes_do_not_stay(
    browser: Browser, served: Dashboard, contexts: list[BrowserContext]
) -> None:
    page = opened(browser, contexts)
    page.clock.install()
    without_program(page, served.url)
    page.clock.run_for(19_000)
    expect(page.locator(FIRST)).to_be_visible()
    page.clock.run_for(1_500)
    expect(page.locator(FIRST)).to_have_count(0)


def test_a_page_that_has_no_figures_has_no_first_ones(
    browser: Browser, served: Dashboard, contexts: list[BrowserContext]
) -> None:
    page = opened(browser, contexts)
    answers: list[int] = []
    page.on("response", lambda answer: answers.append(answer.status) if "/_first/" in answer.url else None)
    page.goto(f"{served.url}/?run=no-such-run")
    expect(page.locator("#root .vp-empty")).to_be_visible(timeout=BOUND_MS)
    assert answers == [204]
    assert page.locator(FIRST).count() == 0


def test_figures_of_a_page_that_was_left_do_not_stand_over_the_next(
    browser: Browser, served: Dashboard, contexts: list[BrowserContext]
) -> None:
    page = opened(browser, contexts)
    without_program(page, served.url)
    # As the program does when another page is chosen in the navigation.
    page.evaluate(
        "history.pushState({}, '', '/turns'); document.getElementById('root').append('its own figures follow')"
    )
    expect(page.locator(FIRST)).to_have_count(0)
