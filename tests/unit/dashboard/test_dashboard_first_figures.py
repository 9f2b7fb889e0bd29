"""The first figures of a page are sent before the rest: how long the rest waits, and that it waits once."""

from types import SimpleNamespace

import pytest

from dashboard import first_figures
from dashboard.first_figures import LONGEST_S, SHORTEST_S, Pace


@pytest.fixture(autouse=True)
def session(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """What Streamlit keeps for one viewer."""
    state: dict[str, object] = {}
    monkeypatch.setattr(first_figures, "st", SimpleNamespace(session_state=state))
    return state


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0
        self.waits: list[float] = []

    def wait(self, wait_s: float) -> None:
        self.waits.append(wait_s)
        self.now_s += wait_s


@pytest.mark.parametrize(
    ("started_s", "answered_s", "wait_s"),
    [
        (0.5, 0.0, 0.4),  # the share of what the browser took
        (0.5, 0.25, 0.15),  # less what the answer took
        (0.5, 0.35, SHORTEST_S),
        (0.5, 9.0, SHORTEST_S),
        (0.0, 0.0, SHORTEST_S),
        (7.0, 0.0, LONGEST_S),
    ],
)
def test_the_rest_of_a_page_waits_until_its_browser_has_drawn(
    started_s: float, answered_s: float, wait_s: float
) -> None:
    clock = Clock()
    pace = Pace(lambda: clock.now_s, clock.wait)
    pace.page_requested()
    clock.now_s += started_s
    first_figures.session_runs(pace)
    clock.now_s += answered_s
    first_figures.draw_first(pace)
    assert clock.waits == [pytest.approx(wait_s)]


def test_a_refresh_and_the_next_page_of_a_viewer_wait_for_nothing() -> None:
    clock = Clock()
    pace = Pace(lambda: clock.now_s, clock.wait)
    pace.page_requested()
    for _ in range(3):
        first_figures.session_runs(pace)
        first_figures.draw_first(pace)
        first_figures.draw_first(pace)
    assert clock.waits == [SHORTEST_S]


def test_a_viewer_whose_browser_requested_no_page_waits_for_nothing() -> None:
    clock = Clock()
    pace = Pace(lambda: clock.now_s, clock.wait)
    first_figures.session_runs(pace)
    first_figures.draw_first(pace)
    assert not clock.waits
