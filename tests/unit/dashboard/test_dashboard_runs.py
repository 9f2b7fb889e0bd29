"""The Runs page by Streamlit's own test runner: what is listed, narrowed, ticked, compared and drawn; many stores."""

import json
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest
from rich.console import Console
from streamlit.testing.v1 import AppTest

from dashboard import charts, source
from dashboard.__main__ import named_places
from dashboard.components import several_runs
from dashboard.pages.runs import newest
from dashboard.source import ENV_LOCUST, ENV_RUNS, ENV_STORE
from loadtest.capacity.report import Capacity, LoadStep, StepStatus, capacity_object
from loadtest.run.compare import CompareRequest, compare
from loadtest.run.json_file import write_json
from telemetry.charts import compared
from telemetry.charts.drawing import LIGHT
from telemetry.model.errors import ConfigError, StoreError
from telemetry.objectives.slo import objectives_text
from telemetry.store.answers import Behavior, MetricStats
from telemetry.store.questions.run_figures import RunDetails
from telemetry.store.run_folders.catalog import RunListing
from telemetry.store.run_folders.entries import EntryState, RunEntry
from telemetry.store.run_folders.places import (
    CAPACITY_NAME,
    OBJECTIVES_NAME,
    CapacityLatency,
    CapacityResult,
    CapacityStep,
)
from tests.fixtures_turns import START_UNIX_NS, synthetic_run
from tests.run_folders import HOUR_NS, MS, latency_run, run_folder, write_summary
from tests.unit.dashboard.opened_pages import chip, html_of, opened, pictures, says, text_of
from tests.unit.telemetry.store.opened_stores import reader_of_runs

SECOND = 1_000_000_000
TREND, FOREST = "p95 of voice to voice from run to run", "Differences of the latencies from the baseline"
LOAD = "p50 and p95 of voice to voice against the calls in flight"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    run_folder(root, "base", latency_run("r-base", 120))
    slow = latency_run("r-slow", 120, llm_ms=420, seed=3, began_unix_ns=START_UNIX_NS + HOUR_NS)
    run_folder(root, "slow", slow)
    run_folder(root, "mixed", synthetic_run("r-mixed", 240))
    (root / "empty").mkdir()
    return root


def page_of(shows: pytest.MonkeyPatch, *places: Path, ticked: tuple[str, ...] = ()) -> AppTest:
    """The page of some folders; the ticked runs are named by their references."""
    shows.setenv(ENV_RUNS, json.dumps([str(place) for place in places]))
    return opened("runs", **({"ticked": json.dumps(ticked)} if ticked else {}))


def reference(root: Path, name: str) -> str:
    return f"{root / name / 'store'}#r-{name}"


def rows_of(html: str) -> list[list[str]]:
    """The cells of each row below the head of a table."""
    rows = re.findall(r"<tr>(.*?)</tr>", html.split("<tbody>", 1)[1])
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in rows]


def test_without_a_run_the_page_says_what_to_do(tmp_path: Path, shows: pytest.MonkeyPatch) -> None:
    app = page_of(shows, tmp_path)
    says(html_of(app), "No runs yet", "Start one with voiceprobe run ws://… ; the run shows here while it goes on.")
    with shows.context() as environment:
        environment.setenv(ENV_LOCUST, "http://127.0.0.1:8089")
        beginning, _, end = text_of(page_of(shows, tmp_path)).partition("http://127.0.0.1:8089")
    assert beginning.endswith("no run is here. Start callers on Locust's page, ")
    assert end.lstrip().startswith("; the run shows here while it goes on.")
    says(html_of(page_of(shows, tmp_path / "gone")), "The runs cannot be listed")


@pytest.mark.slow
def test_every_page_reports_no_runs_until_first_run_exists(tmp_path: Path, shows: pytest.MonkeyPatch) -> None:
    shows.chdir(tmp_path)
    shows.setenv(ENV_RUNS, json.dumps(named_places(None, [])))
    for page in ("now", "turns", "cohorts", "rollout", "objectives", "runs", "cache", "instrument"):
        first = "No runs yet runs: no run is here. Start one with voiceprobe run ws://…"
        says(html_of(opened(page)), first, no=("cannot",))
    assert list(tmp_path.iterdir()) == [], "looking leaves nothing"
    run_folder(tmp_path / "runs", "first", latency_run("r-first", 120))
    says(html_of(opened("now")), "r-first")
    assert list(opened("runs").dataframe[0].value["run"]) == ["first (r-first)"]


@pytest.mark.slow
def test_every_run_is_in_the_list_and_can_be_opened(root: Path, shows: pytest.MonkeyPatch) -> None:
    app = page_of(shows, root)
    (table,) = app.dataframe
    assert set(table.value["run"]) == {"base (r-base)", "slow (r-slow)", "mixed (r-mixed)", "empty"}
    says(html_of(app), "empty: no turn is stored here", "Tick two runs or more")
    links = {row["run"]: row["open"] for _, row in table.value.iterrows() if isinstance(row["open"], str)}
    assert "empty" not in links
    query = parse_qs(urlsplit(links["slow (r-slow)"]).query)
    assert query == {"store": [str(root / "slow" / "store")], "run": ["r-slow"]}
    assert source.source_of({"store": query["store"][0]}).store == str(root / "slow" / "store")
    for ticked in ("nowhere#r-1", "/etc#x", "{"):
        says(html_of(page_of(shows, root, ticked=(ticked,))), "Tick two runs or more")
    says(html_of(opened("runs", ticked="{not json")), "Tick two runs or more")


@pytest.mark.slow
def test_ticked_runs_are_compared_by_objectives_of_baseline(tmp_path: Path, shows: pytest.MonkeyPatch) -> None:
    for place, name in enumerate(("base", "slow")):
        run_folder(tmp_path, name, latency_run(f"r-{name}", 30, began_unix_ns=START_UNIX_NS + place * HOUR_NS))
    renamed = objectives_text(None).replace("The caller hears an answer in time", "An answer comes soon")
    (tmp_path / "base" / OBJECTIVES_NAME).write_text(renamed)
    ticked = (reference(tmp_path, "slow"), reference(tmp_path, "base"))
    note = "good turns are counted by the objectives of base, the baseline: slow was judged by others"
    says(html_of(page_of(shows, tmp_path, ticked=ticked)), "An answer comes soon", note)
    # The command says the same.
    console = Console(width=300)
    with console.capture() as printed:
        compare(CompareRequest(("base", "slow"), (str(tmp_path),)), console)
    assert "An answer comes soon" in printed.get()
    assert note in printed.get()
    # Where all kept the same, there is nothing to say.
    (tmp_path / "slow" / OBJECTIVES_NAME).write_text(renamed)
    says(html_of(page_of(shows, tmp_path, ticked=ticked)), "An answer comes soon", no=("was judged by others",))
    # And a baseline whose objectives cannot be read is compared with nothing.
    write_summary(tmp_path / "base", "r-base")
    (tmp_path / "base" / OBJECTIVES_NAME).write_text("kind: SLO\n")
    says(html_of(page_of(shows, tmp_path, ticked=ticked)), "These runs cannot be compared")


@pytest.mark.slow
def test_each_ticked_run_is_compared_with_the_oldest(root: Path, shows: pytest.MonkeyPatch) -> None:
    app = page_of(shows, root, ticked=(reference(root, "slow"), reference(root, "base")))
    says(html_of(app), "✕ regression Voice to voice p95 of slow is", "paired by utterance: 40 were heard by both runs")
    assert sum(alt.startswith(FOREST) for alt in pictures(app)) == 1
    app.selectbox(key="choice_margin").select("500").run()
    assert not app.exception
    says(html_of(app), "within the margin")
    assert app.query_params["margin"] == "500", "the link keeps it"
    app = page_of(shows, root, ticked=tuple(reference(root, name) for name in ("mixed", "slow", "base")))
    heads = re.findall(r'vp-compared"><h3>(.*?)</h3>', html_of(app))
    labels = [expander.label for expander in app.expander if expander.label.startswith("All figures:")]
    assert len(heads) == 2
    assert labels == [f"All figures: {head}" for head in heads]


@pytest.mark.slow
def test_only_stores_that_are_shown_are_opened(root: Path, tmp_path: Path, shows: pytest.MonkeyPatch) -> None:
    shows.setenv(ENV_RUNS, json.dumps([str(root)]))
    secret = run_folder(tmp_path, "secret", latency_run("r-secret", 20))
    for wanted in (str(secret / "store"), "/etc", str(root / "base" / ".." / "base" / "store"), "http://127.0.0.1:1"):
        with pytest.raises(StoreError, match="not among those that are shown"):
            source.source_of({"store": wanted})
    entries = source.run_listing().entries
    assert source.source_of({}).store == next(entry.store for entry in entries if entry.state != "damaged")
    elsewhere = source.source_of({"store": str(root / "slow" / "store")}).elsewhere
    assert {entry.name for entry in elsewhere} == {"base", "mixed"}
    shows.delenv(ENV_RUNS)
    shows.setenv(ENV_STORE, str(secret / "store"))
    assert source.source_of({}).store == str(secret / "store")
    assert list(source.source_of({}).elsewhere) == []


@pytest.mark.slow
def test_objectives_page_offers_runs_of_other_stores(root: Path, shows: pytest.MonkeyPatch) -> None:
    shows.setenv(ENV_RUNS, json.dumps([str(root)]))
    app = opened("objectives", store=str(root / "slow" / "store"))
    # These runs are older than the windows: there is nothing to show, and still something to choose.
    other = str(root / "base" / "store")
    assert [name for name in app.selectbox(key="choice_run").options if name.startswith("base") and other in name]
    app.selectbox(key="choice_run").set_value(f"{other}\nr-base").run()
    assert not app.exception
    assert (app.query_params["store"], app.query_params["run"]) == (other, "r-base")
    assert app.selectbox(key="choice_run").options[0] == "every run of this store"


@pytest.mark.slow
def test_load_and_profiles_are_those_of_the_store(root: Path, shows: pytest.MonkeyPatch) -> None:
    shows.setenv(ENV_RUNS, json.dumps([str(root)]))
    entry = next(listed for listed in source.run_listing().entries if listed.name == "mixed")
    details = source.details(entry)
    drawn = charts.load([("mixed", details)], None, None)
    assert drawn is not None
    assert [row["level"] for row in drawn.rows] == ["2", "4", "6", "8"], "two workers of one to four calls each"
    clients = [turn for turn in synthetic_run("r-mixed", 240).turns if turn.source == "client"]
    heard = [turn for turn in clients if turn.first_audio_perf_ns is not None and turn.outcome != "invalid"]
    assert sum(row["turns"] for row in drawn.rows) == len(heard)
    by_profile = charts.latency_by_profile([("mixed", details)])
    assert [row["condition"] for row in by_profile.rows] == ["clean", "babble"]
    assert len(by_profile.table.rows) == 2
    errors = charts.word_errors_by_profile([("mixed", details)])
    assert all(0 <= row["value"] < 0.5 for row in errors.rows)
    assert errors.table.columns[3:5] == ("words and characters", "word and character error rate")
    # Every third text is in characters; where all are, or none is, the rate has that name.
    for characters, caption in (
        (None, "word and character error rate"),
        (0, "word error rate"),
        (8, "character error rate"),
    ):
        of = details.word_errors
        if characters is not None:
            of = tuple(replace(condition, characters=condition.words * characters // 8) for condition in of)
        table = charts.word_errors_by_profile([("mixed", replace(details, word_errors=of))]).table
        assert table.caption == f"{caption} by profile"


def test_a_search_for_capacity_has_its_steps() -> None:
    steps = (CapacityStep(4, 100, "met", CapacityLatency(100, 0.4, 0.6, (0.5, 0.7))), CapacityStep(8, 10, "too few"))
    capacity_result = CapacityResult("ws://x", "the endpoint serves 4 callers within its objectives", 4, 8, steps)
    shown = charts.load([], capacity_result, None)
    assert shown is not None
    first, second = shown.rows
    assert (first["p95"], first["lower"], second["p95"]) == (pytest.approx(600), pytest.approx(500), None)
    assert [row[0] for row in shown.table.rows] == ["4", "8"]
    assert '"capacity"' in json.dumps(shown.spec)
    assert '"capacity"' not in json.dumps(compared.load(["search"], LIGHT, 800.0, None))


@pytest.mark.slow
def test_result_of_capacity_search_is_above_its_steps(tmp_path: Path, shows: pytest.MonkeyPatch) -> None:
    def measured(callers: int, status: StepStatus, p95_ms: int) -> LoadStep:
        rest: dict[str, Any] = {"run_ids": (f"run-{callers}",), "turns": 100, "invalid": 0, "ok_share": 1.0}
        values = (float(p95_ms * MS),) * 100
        rest |= {"voice_to_voice_ns": values, "verdicts": (), "sure": True, "measured_s": 30.0}
        return LoadStep(callers=callers, status=status, **rest)

    folder = run_folder(tmp_path, "search", latency_run("r-search", 20))
    says(html_of(page_of(shows, tmp_path)), no=("callers within its objectives",))
    capacity = Capacity(
        target="ws://x", steps=(measured(12, "met", 700), measured(16, "missed", 2000)), met=12, missed=16
    )
    write_json(folder / CAPACITY_NAME, capacity_object(capacity))  # as `voiceprobe capacity` does
    app = opened("runs")
    assert capacity.sentence
    says(html_of(app), capacity.sentence)
    (drawn,) = (element.proto for element in app.get("vega_lite_chart") if element.proto.alt.startswith(LOAD))
    assert '"capacity"' in drawn.spec


@pytest.mark.slow
def test_conditions_are_of_newest_ended_run_without_ticks(tmp_path: Path, shows: pytest.MonkeyPatch) -> None:
    states: list[EntryState] = ["damaged", "under way", "missed", "met"]
    entries = [RunEntry(run_id=state, store="store", state=state) for state in states]
    dead = RunEntry(run_id="dead", store="store", state="unreachable")
    assert [entry.run_id for entry in newest(entries)] == ["missed"]
    assert [entry.run_id for entry in newest(entries[:2])] == ["under way"]
    assert newest(entries[:1]) == []
    assert [entry.run_id for entry in newest([dead, *entries])] == ["missed"]
    assert newest([dead]) == [dead]
    assert newest([msgspec.structs.replace(dead, turns=4), *entries])[0].run_id == "dead"
    # A run of which nothing is stored does not hide the one before.
    shows.setenv(ENV_RUNS, json.dumps([str(tmp_path)]))
    run = {"id": "r-dead", "state": "ended", "started_unix_ns": START_UNIX_NS + HOUR_NS}
    write_summary(tmp_path / "dead", "r-dead", run=run, turns={"total": 0}, exit_code=5)
    (tmp_path / "dead" / "store").mkdir()
    assert source.source_of({}).store == str(tmp_path / "dead" / "store")
    run_folder(tmp_path, "base", latency_run("r-base", 20))
    assert [entry.name for entry in source.run_listing().entries] == ["dead", "base"]
    assert source.source_of({}).store == str(tmp_path / "base" / "store")


def test_axes_and_legends_of_pictures_of_runs_stay_readable() -> None:
    for runs, columns in ((2, 1), (4, 1), (6, 2)):
        names = [f"20261126-025331-09bee{run}" for run in range(runs)]
        assert f'"columns": {columns}' in json.dumps(compared.load(names, LIGHT, 800.0, None))
    # Vega gives an axis of one value six decimals, "0.000000%": the tilde trims them. Without another value on it such
    # an axis would have 0 in its middle.
    spec = compared.by_profile(["clean"], ["a"], LIGHT, is_share=True)
    assert '"format": "~%"' in json.dumps(spec)
    assert {"y": {"datum": 0.05}} in [layer["encoding"] for layer in spec["layer"]]


@pytest.mark.slow
def test_the_page_shows_barge_in_and_patience_of_its_runs(tmp_path: Path, shows: pytest.MonkeyPatch) -> None:
    with reader_of_runs(tmp_path, synthetic_run("r", 240)) as reader:
        known = reader.run_details("r")
    shows.setattr(source, "run_listing", lambda: RunListing([run("r", 0)]))
    shows.setattr(source, "details", lambda _entry: known)
    app = opened("runs")
    says(html_of(app), "Barge-in and patience callers who interrupt a reply")
    (table,) = (
        element.proto.body for element in app.get("html") if 'aria-label="barge-in and patience"' in element.proto.body
    )
    turns = [turn for turn in synthetic_run("r", 240).turns if turn.source == "client" and turn.outcome != "invalid"]
    gone = sum(turn.outcome == "abandoned" for turn in turns)
    assert gone
    ((name, barge_ins, *others, gave_up, between, _),) = rows_of(table)
    assert (name, barge_ins, others) == ("r", "none asked", ["–"] * 4)
    assert gave_up == f"{gone} of {len(turns)} turns"
    low, high = map(float, re.findall(r"([\d.]+) %", between))
    assert low < 100 * gone / len(turns) < high


def test_behavior_of_callers_is_a_row_per_run() -> None:
    busy = RunDetails(
        "r-1",
        behavior=Behavior(40, 28, 4, 3, 5, 30),  # 35 whose end is known
        barge_in_stop=MetricStats("barge_in_stop", "ns", 40, 210.0 * MS, 480.0 * MS, None, 500.0 * MS),
        abandoned=5,
        eligible=200,
        abandoned_interval=(0.011, 0.057),
        waited_p50=2.5 * SECOND,
    )
    first, second = rows_of(several_runs.behavior([("<one>", busy), ("two", RunDetails("r-2"))]))
    stops = ["75 %", "80 %", "210 ms", "480 ms"]
    assert first == ["&lt;one&gt;", "40", *stops, "5 of 200 turns", "1.1 % to 5.7 %", "2.5 s"]
    assert second == ["two", "none asked", "–", "–", "–", "–", "0 of 0 turns", "–", "–"]


DAY_NS = 24 * HOUR_NS
NOW_NS = time.time_ns()
WHOLE: dict[str, Any] = {"turns": 100, "p95_ns": 5e8, "missing_turns": 0, "calibrated_to_ms": 3.8, "users": 8}


def run(name: str, days_ago: float, **changes: Any) -> RunEntry:
    began = NOW_NS - round(days_ago * DAY_NS)
    values: dict[str, Any] = {"state": "met", "began_unix_ns": began, "target": "ws://a", "cohorts": ("A",)}
    return RunEntry(run_id=name, store=name, **{**values, **WHOLE, **changes})


NEWEST = run("newest", 0.5, cohorts=("A", "B"))
MISSED = run("missed", 3, state="missed", missing_turns=4)
OTHER = run("other", 4, target="ws://b", cohorts=("B",))
OLDEST = run("oldest", 50, calibrated_to_ms=None)
ALL = [NEWEST, MISSED, OTHER, OLDEST]


@pytest.fixture
def listed_shows(shows: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The page of these runs, of whose details nothing is known."""
    shows.setattr(source, "details", lambda entry: RunDetails(entry.run_id))
    shows.setattr(source, "compared", lambda entries, _margin, _given: ())
    shows.setattr(source, "run_listing", lambda: RunListing(list(ALL)))
    return shows


def names(app: AppTest) -> list[str]:
    return list(app.dataframe[0].value["run"]) if app.dataframe else []


def ticked(*entries: RunEntry) -> str:
    return json.dumps([entry.reference for entry in entries])


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
    listed_shows: pytest.MonkeyPatch, link: dict[str, str], listed: list[str]
) -> None:
    app = opened("runs", **link)
    assert names(app) == listed
    text = text_of(app)
    assert ("All runs" in text) == (not link)
    assert ("Runs that match the filter" in text) == bool(link and listed)
    assert ("No run matches the filter" in text) == (not listed)


def test_runs_page_head_trend_and_newest_follow_the_filter(listed_shows: pytest.MonkeyPatch) -> None:
    whole, some = opened("runs"), opened("runs", target="ws://a", state="met", began="28d")
    assert chip(whole) == "✕ valid · telemetry lost in 1 of 4 runs · 3 of 4 runs calibrated"
    assert chip(some) == "✓ valid · telemetry complete · calibrated ± 3.8 ms"
    says(html_of(whole), "4 runs", "400 turns", "p95 from run to run runs that were asked the same")
    says(html_of(some), "1 of 4 runs", "Load, conditions and behavior newest", no=("p95 from run to run",))
    assert [sum(alt.startswith(TREND) for alt in pictures(app)) for app in (whole, some)] == [1, 0]
    says(html_of(opened("runs", target="ws://b")), "Load, conditions and behavior other")
    under_way = run("now", 0.1, state="under way")
    listed_shows.setattr(source, "run_listing", lambda: RunListing([under_way, *ALL]))
    says(html_of(opened("runs")), "1 run in no trend: too few turns for a p95, or not included in the trend")


def test_selectors_offer_what_occurs_in_all_runs(listed_shows: pytest.MonkeyPatch) -> None:
    app = opened("runs", target="ws://b", state="failed")
    assert app.selectbox(key="choice_began").label == "Time"
    assert app.selectbox(key="choice_cohort").options == ["every cohort", "A", "B"]
    assert app.selectbox(key="choice_target").options == ["any target", "ws://a", "ws://b"]
    assert app.selectbox(key="choice_state").options == ["any state", "met", "missed", "failed"]
    assert "Filters (2)" in [element.proto.popover.label for element in app.get("popover")]
    app.selectbox(key="choice_state").select("").run()
    assert not app.exception
    assert app.query_params == {"target": "ws://b"}
    assert names(app) == ["other"]


@pytest.mark.slow
def test_ticked_run_stays_when_filter_leaves_it_out(listed_shows: pytest.MonkeyPatch) -> None:
    app = opened("runs", cohort="B", ticked=ticked(MISSED, NEWEST))
    assert names(app) == ["newest", "other"]
    below = "which is shown below all the same: missed. Widen it to untick it."
    conditions = "Load, conditions and behavior missed, newest"
    says(html_of(app), f"The filter leaves out 1 ticked run, {below}", "Compared", conditions)
    both = opened("runs", began="1d", ticked=ticked(MISSED, OTHER))
    says(html_of(both), "The filter leaves out 2 ticked runs, which are shown below all the same: other, missed.")
    says(html_of(opened("runs", ticked=ticked(MISSED, NEWEST))), no=("leaves out",))


def test_page_without_matching_run_offers_wider_filter(listed_shows: pytest.MonkeyPatch) -> None:
    app = opened("runs", callers="9", ticked=ticked(MISSED))
    says(
        html_of(app),
        "No run matches the filter There are 4 runs without it: widen the filter above, or show every run .",
        "ticked run, which is shown below all the same: missed",
        "Load, conditions and behavior missed",
    )
    (link,) = [part.partition('"')[0] for part in html_of(app).split('href="')[1:] if part.startswith("runs?")]
    assert "callers" not in link
    assert link.startswith("runs?ticked=")
    assert len(app.get("popover")) == 1, "no chip for no run"
    says(html_of(opened("runs", callers="9")), no=("Tick two runs", "Load, conditions and behavior"))


def test_invalid_filter_and_unknown_cohorts_have_sentences(listed_shows: pytest.MonkeyPatch) -> None:
    app = opened("runs", began="soon", state="bad")
    assert names(app) == [entry.run_id for entry in ALL]
    fault = "the link asks for began 'soon', not one of 1d, 7d, 28d, 90d: left out"
    says(html_of(app), fault, "the link asks for state 'bad'")
    listed_shows.setattr(source, "run_listing", lambda: RunListing([*ALL, run("old", 1, cohorts=None)]))
    says(html_of(opened("runs", cohort="B")), "The cohorts of 1 run are not known: not in the list.")
    says(html_of(opened("runs")), no=("are not known",))


def test_empty_list_has_selectors_and_failed_list_has_none(listed_shows: pytest.MonkeyPatch) -> None:
    listed_shows.setattr(source, "run_listing", lambda: RunListing([]))
    app = opened("runs", cohort="B")
    says(html_of(app), "No runs yet")
    assert app.selectbox(key="choice_cohort").value == "B"

    def fails() -> RunListing:
        raise ConfigError("runs", ["no folder"])

    listed_shows.setattr(source, "run_listing", fails)
    app = opened("runs")
    says(html_of(app), "The runs cannot be listed")
    assert not app.selectbox
