"""The Runs page narrowed: what is listed, drawn and counted, what is ticked, and what is offered."""

import json
import time
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from dashboard import runs_source
from dashboard.source_names import ENV_RUNS, ENV_SLO, ENV_STORE
from telemetry.model.errors import ConfigError
from telemetry.store.questions.run_figures import RunDetails
from telemetry.store.run_folders.catalog import RunListing
from telemetry.store.run_folders.entries import RunEntry
from tests.unit.dashboard.opened_pages import html_of, opened, text_of

DAY_NS = 24 * 3_600 * 1_000_000_000
NOW_NS = time.time_ns()
WHOLE: dict[str, Any] = {"turns": 100, "p95_ns": 5e8, "missing_turns": 0, "calibrated_to_ms": 3.8, "users": 8}


def run(name: str, days_ago: float, **changes: Any) -> RunEntry:
    values: dict[str, Any] = {
        "state": "met",
        "began_unix_ns": NOW_NS - round(days_ago * DAY_NS),
        "target": "ws://a",
        "cohorts": ("A",),
        **WHOLE,
        **changes,
    }
    return RunEntry(run_id=name, store=name, **values)


NEWEST = run("newest", 0.5, cohorts=("A", "B"))
MISSED = run("missed", 3, state="missed", missing_turns=4)
OTHER = run("other", 4, target="ws://b", cohorts=("B",))
OLDEST = run("oldest", 50, calibrated_to_ms=None)
ALL = [NEWEST, MISSED, OTHER, OLDEST]


@pytest.fixture
def shows(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in (ENV_STORE, ENV_SLO):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(ENV_RUNS, "[]")
    monkeypatch.setattr(runs_source, "details", lambda entry: RunDetails(entry.run_id))
    monkeypatch.setattr(runs_source, "compared", lambda entries, _margin, _given: ())
    monkeypatch.setattr(runs_source, "_offered", runs_source._Offered())
    monkeypatch.setattr(runs_source, "run_listing", lambda **_: RunListing(list(ALL)))
    return monkeypatch


def names(app: AppTest) -> list[str]:
    return list(app.dataframe[0].value["run"]) if app.dataframe else []


def ticked(*entries: RunEntry) -> str:
    return json.dumps([each.reference for each in entries])


def chip(app: AppTest) -> str:
    (found,) = [each.proto.popover.label for each in app.get("popover") if not each.proto.popover.label.startswith("F")]
    return str(found)


@pytest.mark.parametrize(
    ("link", "listed"),
    [
        ({}, ["newest", "missed", "other", "oldest"]),
        ({"began": "1d"}, ["newest"]),
        ({"began": "7d", "target": "ws://a"}, ["newest", "missed"]),
        ({"cohort": "B"}, ["newest", "other"]),
        ({"state": "missed"}, ["missed"]),
        ({"callers": "9"}, []),
    ],
)
def test_the_link_says_which_runs_are_listed(
    shows: pytest.MonkeyPatch, link: dict[str, str], listed: list[str]
) -> None:
    app = opened("runs", **link)
    assert names(app) == listed
    text = text_of(app)
    assert ("All runs" in text) == (not link)
    assert ("Runs that match the filter" in text) == bool(link and listed)
    assert ("No run matches the filter" in text) == (not listed)


def test_the_head_the_trend_and_the_newest_run_are_of_what_is_listed(shows: pytest.MonkeyPatch) -> None:
    whole, some = opened("runs"), opened("runs", target="ws://a", state="met", began="28d")
    assert chip(whole) == "✕ valid · telemetry lost in 1 of 4 runs · 3 of 4 runs calibrated"
    assert chip(some) == "✓ valid · telemetry complete · calibrated ± 3.8 ms"
    assert "4 runs" in text_of(whole)
    assert "400 turns" in text_of(whole)
    assert "1 of 4 runs" in text_of(some)
    assert "Under their own conditions newest" in text_of(some)
    assert "Under their own conditions other" in text_of(opened("runs", target="ws://b"))
    assert "p95 from run to run" in text_of(whole)
    assert "p95 from run to run" not in text_of(some)


def test_selectors_offer_what_occurs_in_all_runs(shows: pytest.MonkeyPatch) -> None:
    app = opened("runs", target="ws://b", state="failed")
    assert app.selectbox(key="choice_began").label == "Time"
    assert app.selectbox(key="choice_cohort").options == ["every cohort", "A", "B"]
    assert app.selectbox(key="choice_target").options == ["any target", "ws://a", "ws://b"]
    assert app.selectbox(key="choice_state").options == ["any state", "met", "missed", "failed"]
    assert "Filters (2)" in [each.proto.popover.label for each in app.get("popover")]
    app.selectbox(key="choice_state").select("").run()
    assert not app.exception
    assert app.query_params == {"target": "ws://b"}
    assert names(app) == ["other"]


def test_a_run_that_is_ticked_stays_so_when_the_filter_leaves_it_out(shows: pytest.MonkeyPatch) -> None:
    app = opened("runs", cohort="B", ticked=ticked(MISSED, NEWEST))
    text = text_of(app)
    assert names(app) == ["newest", "other"]
    sentence = "The filter leaves out 1 ticked run, which is shown below all the same: missed. Widen it to untick it."
    assert sentence in text
    assert "Compared" in text
    assert "Under their own conditions missed, newest" in text
    both = text_of(opened("runs", began="1d", ticked=ticked(MISSED, OTHER)))
    assert "The filter leaves out 2 ticked runs, which are shown below all the same: other, missed." in both
    assert "leaves out" not in text_of(opened("runs", ticked=ticked(MISSED, NEWEST)))


def test_where_no_run_matches_the_page_says_how_to_widen(shows: pytest.MonkeyPatch) -> None:
    app = opened("runs", callers="9", ticked=ticked(MISSED))
    text = text_of(app)
    assert "No run matches the filter There are 4 runs without it: widen the filter above, or show every run ." in text
    assert "ticked run, which is shown below all the same: missed" in text
    assert "Under their own conditions missed" in text
    (link,) = [part.partition('"')[0] for part in html_of(app).split('href="')[1:] if part.startswith("runs?")]
    assert "callers" not in link
    assert link.startswith("runs?ticked=")
    assert len(app.get("popover")) == 1, "no chip for no run"
    alone = text_of(opened("runs", callers="9"))
    assert "Tick two runs" not in alone
    assert "Under their own conditions" not in alone


def test_a_value_that_cannot_be_meant_is_left_out_with_a_sentence(shows: pytest.MonkeyPatch) -> None:
    app = opened("runs", began="soon", state="bad")
    assert names(app) == [each.run_id for each in ALL]
    text = text_of(app)
    assert "the link asks for began 'soon', not one of 1d, 7d, 28d, 90d: left out" in text
    assert "the link asks for state 'bad'" in text


def test_runs_whose_cohorts_are_not_known_are_not_left_out_silently(shows: pytest.MonkeyPatch) -> None:
    old = run("old", 1, cohorts=None)
    shows.setattr(runs_source, "run_listing", lambda **_: RunListing([*ALL, old]))
    assert "The cohorts of 1 run are not known: not in the list." in text_of(opened("runs", cohort="B"))
    assert "are not known" not in text_of(opened("runs"))


def test_a_list_without_a_run_has_its_selectors_and_one_that_fails_has_none(shows: pytest.MonkeyPatch) -> None:
    shows.setattr(runs_source, "run_listing", lambda **_: RunListing([]))
    app = opened("runs", cohort="B")
    assert "No runs yet" in text_of(app)
    assert app.selectbox(key="choice_cohort").value == "B"

    def fails(**_: object) -> RunListing:
        raise ConfigError("runs", ["no folder"])

    shows.setattr(runs_source, "run_listing", fails)
    app = opened("runs")
    assert "The runs cannot be listed" in text_of(app)
    assert not app.selectbox
