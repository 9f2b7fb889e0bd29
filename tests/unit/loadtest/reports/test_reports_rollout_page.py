"""The page of a rollout: what it shows of a log, and that foreign text stays text."""

import re
from dataclasses import replace
from html import unescape

import msgspec
import pytest

from loadtest.reports.html.rollout_page import CohortCurve, RolloutReport, rollout_as_html
from telemetry.rollout.verdict import RolloutVerdict, rollout_verdict
from telemetry.store.rollout_rows import RolloutEntry
from tests.fixtures_rollouts import AT_UNIX_NS, MINUTE, SLOWER, two_stages, verdict_of
from tests.rollout_cohorts import SAME, Regression

# A page with all its pictures takes a second of a processor.
pytestmark = pytest.mark.slow


def report(turns: int = 4000, regression: Regression = SAME, looks: int = 3) -> RolloutReport:
    plan = two_stages()
    entries = [RolloutEntry(0, AT_UNIX_NS, plan.fingerprint, "canary", AT_UNIX_NS)]
    verdict = verdict_of(plan)
    for place in range(looks):
        at = AT_UNIX_NS + place * MINUTE
        verdict = verdict_of(plan, turns=turns * (place + 1) // looks, regression=regression, at_unix_ns=at)
        shown = rollout_verdict(plan, verdict)
        entries.append(RolloutEntry(place + 1, at, plan.fingerprint, plan.stages[0].name, AT_UNIX_NS, shown))
    return RolloutReport(
        plan=plan,
        verdict=rollout_verdict(plan, verdict),
        at_unix_ns=AT_UNIX_NS,
        here=plan.stages[0].name,
        entries=tuple(entries),
        candidate=CohortCurve(plan.candidate, tuple(float(n) * 1e6 for n in range(300, 700)), 410),
        control=CohortCurve(plan.control, tuple(float(n) * 1e6 for n in range(320, 720)), 400),
    )


@pytest.mark.parametrize(
    ("turns", "regression", "word", "css"),
    [(4000, SAME, "Promote", "met"), (4000, SLOWER, "Roll back", "missed"), (300, SAME, "Hold", "undecided")],
)
def test_rollout_verdict_is_first_and_every_picture_is_there(
    turns: int, regression: Regression, word: str, css: str
) -> None:
    rollout = report(turns, regression)
    page = rollout_as_html(rollout)
    assert f'<div class="verdict {css}"><p class="badge">{word}</p>' in page
    assert page.index('class="verdict') < page.index("<h2>")
    assert page.count('aria-label="Cumulative curves of voice to voice') == 2  # wide, and narrow for phones
    assert page.count('<li aria-current="step">') == 1
    funnels = [check for check in rollout.plan.checks if f"Bounds of {check.name} over time" in page]
    assert rollout.plan.primary in funnels
    assert rollout.verdict.sentence in unescape(page)


def test_the_page_asks_for_nothing_and_has_no_script() -> None:
    page = rollout_as_html(report())
    assert "default-src 'none'" in page
    assert not re.search(r"<script|<link|<img|src=|href=|@import|url\(", page)


def _drawn(rollout: RolloutReport) -> list[float]:
    """Return the heights of the corners of the primary's first band, as shares of the picture's height."""
    primary = rollout_as_html(rollout).split("<h3>")[1]
    (height,) = re.findall(r'class="background" d="M0,0h\d+v(\d+)', primary)[:1]
    (band,) = re.findall(r'<g class="mark-area[^>]*><path d="M([^"]+)Z"', primary)[:1]
    return [1 - float(corner.split(",")[1]) / float(height) for corner in band.split("L")]


def _corners(rollout: RolloutReport, lower: str, upper: str, of: str | None = None) -> list[float]:
    values: list[float] = []
    for entry, name in zip(
        [rollout.entries[place] for place in (1, 2, 2, 1)], (lower, lower, upper, upper), strict=True
    ):
        assert entry.verdict is not None
        check = next(check for check in entry.verdict.checks if check.name == rollout.plan.primary.name)
        values.append(getattr(check if of is None else getattr(check, of), name))
    return values


def test_shares_of_a_look_are_where_what_may_be_says() -> None:
    rollout = report(looks=2)
    # The scale ends at three times the 5 % that may be.
    expected = [min(0.15, value) / 0.15 for value in _corners(rollout, "beyond_margin", "upper", "shares")]
    assert _drawn(rollout) == pytest.approx(expected, abs=1e-3)
    page = unescape(rollout_as_html(rollout))
    assert "p95 of voice to voice: share of turns slower than the control's p95 by more than 100 ms" in page
    assert ">5 % may be<" in page
    assert "At most 5 % of the control's turns take longer than its p95: " in page


def test_checks_without_shares_show_their_differences() -> None:
    rollout = report(looks=2)
    changed = replace(
        rollout,
        verdict=_without_shares(rollout.verdict),
        entries=tuple(
            entry if entry.verdict is None else replace(entry, verdict=_without_shares(entry.verdict))
            for entry in rollout.entries
        ),
    )
    # The scale is three margins of 100 ms up and down.
    expected = [(0.3 + max(-0.3, min(0.3, value))) / 0.6 for value in _corners(rollout, "lower", "upper")]
    assert _drawn(changed) == pytest.approx(expected, abs=1e-3)
    page = rollout_as_html(changed)
    assert ">margin 100 ms<" in page
    assert "take longer than its p95" not in page


def _without_shares(verdict: RolloutVerdict) -> RolloutVerdict:
    checks = tuple(msgspec.structs.replace(check, shares=None, eligible=None) for check in verdict.checks)
    return msgspec.structs.replace(verdict, checks=checks)


def test_foreign_text_is_escaped() -> None:
    rollout = report()
    hostile = "<script>alert(1)</script>\x1b[2J"
    verdict = msgspec.structs.replace(
        rollout.verdict, verdict="hold", reasons=("x", hostile), sentence=hostile, notes=(hostile,)
    )
    page = rollout_as_html(replace(rollout, verdict=verdict))
    assert "<script" not in page
    assert "\x1b" not in page
    assert page.count("&lt;script&gt;") == 3


def test_a_rollout_without_a_log_or_turns_is_a_page_too() -> None:
    rollout = report()
    empty = CohortCurve("none", (), 0)
    page = rollout_as_html(replace(rollout, entries=(), candidate=empty, control=empty))
    assert "Bounds over time" not in page
    assert "Voice to voice of both cohorts" not in page
    assert "<h2>Checks</h2>" in page
