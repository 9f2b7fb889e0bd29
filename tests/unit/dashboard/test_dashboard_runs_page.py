"""The Runs page by Streamlit's own test runner: no run, many, damaged ones; comparisons; links that span stores."""

import json
import re
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest
from rich.console import Console
from streamlit.testing.v1 import AppTest

from dashboard import source
from dashboard.__main__ import named_places
from dashboard.charts import compared
from dashboard.pages.runs import newest
from dashboard.source import ENV_LOCUST, ENV_RUNS, ENV_SLO, ENV_STORE
from loadtest.run.compare import CompareRequest, compare
from telemetry.charts import compared as charts
from telemetry.charts.drawing import LIGHT
from telemetry.model.errors import StoreError
from telemetry.objectives.slo import objectives_text
from telemetry.store.run_folders.entries import EntryState, RunEntry
from telemetry.store.run_folders.places import OBJECTIVES_NAME, CapacityLatency, CapacityResult, CapacityStep
from tests.fixtures_turns import START_UNIX_NS, synthetic_run
from tests.run_folders import HOUR_NS, latency_run, run_folder, write_summary
from tests.unit.dashboard.opened_pages import opened, text_of

BOUND_S = 180


def script() -> None:
    from dashboard.pages.runs import page

    page()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    run_folder(root, "base", latency_run("r-base", 120))
    slow = latency_run("r-slow", 120, llm_ms=420, seed=3, began_unix_ns=START_UNIX_NS + HOUR_NS)
    run_folder(root, "slow", slow)
    run_folder(root, "mixed", synthetic_run("r-mixed", 240))
    (root / "empty").mkdir()
    return root


@pytest.fixture
def shows(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.delenv(ENV_STORE, raising=False)
    monkeypatch.delenv(ENV_SLO, raising=False)
    return monkeypatch


def drawn(*ticked: str) -> tuple[AppTest, str]:
    app = AppTest.from_function(script, default_timeout=BOUND_S)
    if ticked:
        app.query_params["ticked"] = json.dumps(ticked)
    app.run()
    assert not app.exception, app.exception
    html = " ".join(element.proto.body for element in app.get("html"))
    return app, re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))


def reference(root: Path, name: str) -> str:
    return f"{root / name / 'store'}#r-{name}"


def test_without_a_run_the_page_says_what_to_do(tmp_path: Path, shows: pytest.MonkeyPatch) -> None:
    shows.setenv(ENV_RUNS, json.dumps([str(tmp_path)]))
    _, text = drawn()
    assert "No runs yet" in text
    assert "Start one with voiceprobe run ws://… ; the run shows here while it goes on." in text
    with shows.context() as beside:
        beside.setenv(ENV_LOCUST, "http://127.0.0.1:8089")
        beginning, _, end = drawn()[1].partition("http://127.0.0.1:8089")
    assert beginning.endswith("no run is here. Start callers on Locust's page, ")
    assert end.lstrip().startswith("; the run shows here while it goes on.")
    shows.setenv(ENV_RUNS, json.dumps([str(tmp_path / "gone")]))
    assert "The runs cannot be listed" in drawn()[1]


@pytest.mark.slow
def test_where_nobody_has_run_anything_yet_every_page_says_so_and_the_first_run_shows(
    tmp_path: Path, shows: pytest.MonkeyPatch
) -> None:
    shows.chdir(tmp_path)
    shows.setenv(ENV_RUNS, json.dumps(named_places(None, [])))
    for page in ("now", "turns", "cohorts", "rollout", "objectives", "runs", "cache", "instrument"):
        text = text_of(opened(page))
        assert "No runs yet runs: no run is here. Start one with voiceprobe run ws://…" in text, page
        assert "cannot" not in text, page
    assert list(tmp_path.iterdir()) == [], "whoever looks leaves nothing"
    run_folder(tmp_path / "runs", "first", latency_run("r-first", 120))
    assert "r-first" in text_of(opened("now"))
    assert list(drawn()[0].dataframe[0].value["run"]) == ["first (r-first)"]


@pytest.mark.slow
def test_every_run_is_in_the_list_and_can_be_opened(root: Path, shows: pytest.MonkeyPatch) -> None:
    shows.setenv(ENV_RUNS, json.dumps([str(root)]))
    app, text = drawn()
    (table,) = app.dataframe
    assert set(table.value["run"]) == {"base (r-base)", "slow (r-slow)", "mixed (r-mixed)", "empty"}
    assert "empty: no turn is stored here" in text
    assert "Tick two runs or more" in text
    links = {row["run"]: row["open"] for _, row in table.value.iterrows() if isinstance(row["open"], str)}
    assert "empty" not in links
    query = parse_qs(urlsplit(links["slow (r-slow)"]).query)
    assert query == {"store": [str(root / "slow" / "store")], "run": ["r-slow"]}
    assert source.source_of({"store": query["store"][0]}).store == str(root / "slow" / "store")


@pytest.mark.slow
def test_what_is_ticked_is_compared_by_the_objectives_that_the_baseline_kept(
    tmp_path: Path, shows: pytest.MonkeyPatch
) -> None:
    for place, name in enumerate(("base", "slow")):
        run_folder(tmp_path, name, latency_run(f"r-{name}", 30, began_unix_ns=START_UNIX_NS + place * HOUR_NS))
    renamed = objectives_text(None).replace("The caller hears an answer in time", "An answer comes soon")
    (tmp_path / "base" / OBJECTIVES_NAME).write_text(renamed)
    shows.setenv(ENV_RUNS, json.dumps([str(tmp_path)]))
    ticked = (reference(tmp_path, "slow"), reference(tmp_path, "base"))
    _, text = drawn(*ticked)
    note = "good turns are counted by the objectives of base, the baseline: slow was judged by others"
    assert "An answer comes soon" in text
    assert note in text
    # The command says the same.
    console = Console(width=300)
    with console.capture() as printed:
        compare(CompareRequest(("base", "slow"), (str(tmp_path),)), console)
    assert "An answer comes soon" in printed.get()
    assert note in printed.get()
    # Where all kept the same, there is nothing to say.
    (tmp_path / "slow" / OBJECTIVES_NAME).write_text(renamed)
    _, text = drawn(*ticked)
    assert "An answer comes soon" in text
    assert "was judged by others" not in text
    # And a baseline whose objectives cannot be read is compared with nothing.
    write_summary(tmp_path / "base", "r-base")
    (tmp_path / "base" / OBJECTIVES_NAME).write_text("kind: SLO\n")
    assert "These runs cannot be compared" in drawn(*ticked)[1]


@pytest.mark.slow
def test_what_is_ticked_is_compared_with_the_oldest(root: Path, shows: pytest.MonkeyPatch) -> None:
    shows.setenv(ENV_RUNS, json.dumps([str(root)]))
    app, text = drawn(reference(root, "slow"), reference(root, "base"))
    assert "slow against base" in text
    assert "✕ regression Voice to voice p95 of slow is" in text
    assert "paired by utterance: 40 were heard by both runs" in text
    app.selectbox(key="margin").select(500).run()
    assert not app.exception
    again = " ".join(element.proto.body for element in app.get("html"))
    assert "within the margin" in again


def test_a_link_that_cannot_be_meant_compares_nothing(root: Path, shows: pytest.MonkeyPatch) -> None:
    shows.setenv(ENV_RUNS, json.dumps([str(root)]))
    for ticked in (("nowhere#r-1", "/etc#x"), ("{",)):
        assert "Tick two runs or more" in drawn(*ticked)[1]
    app = AppTest.from_function(script, default_timeout=BOUND_S)
    app.query_params["ticked"] = "{not json"
    app.run()
    assert not app.exception


def test_only_stores_that_are_shown_are_opened(root: Path, tmp_path: Path, shows: pytest.MonkeyPatch) -> None:
    shows.setenv(ENV_RUNS, json.dumps([str(root)]))
    secret = run_folder(tmp_path, "secret", latency_run("r-secret", 20))
    for wanted in (str(secret / "store"), "/etc", str(root / "base" / ".." / "base" / "store"), "http://127.0.0.1:1"):
        with pytest.raises(StoreError, match="not among those that are shown"):
            source.source_of({"store": wanted})
    newest = source.run_listing().entries
    assert source.source_of({}).store == next(each.store for each in newest if each.state != "damaged")
    assert {each.name for each in source.source_of({"store": str(root / "slow" / "store")}).elsewhere} == {
        "base",
        "mixed",
    }
    shows.delenv(ENV_RUNS)
    shows.setenv(ENV_STORE, str(secret / "store"))
    assert source.source_of({}).store == str(secret / "store")
    assert list(source.source_of({}).elsewhere) == []


def test_objectives_are_of_one_store_and_those_of_another_are_a_choice_away(
    root: Path, shows: pytest.MonkeyPatch
) -> None:
    shows.setenv(ENV_RUNS, json.dumps([str(root)]))
    app = opened("objectives", store=str(root / "slow" / "store"))
    # These runs are older than the windows: there is nothing to show, and still something to choose.
    other = str(root / "base" / "store")
    assert [name for name in app.selectbox(key="choice_run").options if name.startswith("base") and other in name]
    app.selectbox(key="choice_run").set_value(f"{other}\nr-base").run()
    assert not app.exception
    assert (app.query_params["store"], app.query_params["run"]) == (other, "r-base")
    assert app.selectbox(key="choice_run").options[0] == "every run of this store"


def test_load_and_profiles_are_those_of_the_store(root: Path, shows: pytest.MonkeyPatch) -> None:
    shows.setenv(ENV_RUNS, json.dumps([str(root)]))
    entry = next(each for each in source.run_listing().entries if each.name == "mixed")
    found = [("mixed", source.details(entry))]
    drawn = compared.load(found, None, None, LIGHT)
    assert drawn is not None
    rows = drawn.rows
    assert [row["level"] for row in rows] == ["2", "4", "6", "8"], "two workers of one to four calls each"
    turns = [
        t for t in synthetic_run("r-mixed", 240).turns if t.source == "client" and t.first_audio_perf_ns is not None
    ]
    assert sum(row["turns"] for row in rows) == sum(turn.outcome != "invalid" for turn in turns)
    by_profile = compared.latency_by_profile(found, LIGHT)
    latencies, table = by_profile.rows, by_profile.table
    assert [row["condition"] for row in latencies] == ["clean", "babble"]
    assert len(table.rows) == 2
    errors = compared.word_errors_by_profile(found, LIGHT)
    words, table = errors.rows, errors.table
    assert all(0 <= row["value"] < 0.5 for row in words)
    assert table.caption == "word and character error rate by profile", "every third text is in characters"
    assert table.columns[3:5] == ("words and characters", "word and character error rate")
    (name, details), *_ = found
    for characters, caption in ((0, "word error rate by profile"), (8, "character error rate by profile")):
        of_one = tuple(replace(each, characters=each.words * characters // 8) for each in details.word_errors)
        table = compared.word_errors_by_profile([(name, replace(details, word_errors=of_one))], LIGHT).table
        assert table.caption == caption


def test_a_search_for_capacity_has_its_steps() -> None:
    steps = (CapacityStep(4, 100, "met", CapacityLatency(100, 0.4, 0.6, (0.5, 0.7))), CapacityStep(8, 10, "too few"))
    found = CapacityResult("ws://x", "the endpoint serves 4 callers within its objectives", 4, 8, steps)
    rows = compared.capacity_rows(found)
    shown_steps = compared.load([], found, None, LIGHT)
    assert shown_steps is not None
    assert (rows[0]["p95"], rows[0]["lower"], rows[1]["p95"]) == (pytest.approx(600), pytest.approx(500), None)
    assert [row[0] for row in shown_steps.table.rows] == ["4", "8"]
    drawn_with = json.dumps(charts.load(["search"], LIGHT, 800.0, found.callers_met))
    assert '"capacity"' in drawn_with
    assert '"capacity"' not in json.dumps(charts.load(["search"], LIGHT, 800.0, None))


def test_without_a_tick_the_conditions_are_of_the_newest_run_that_has_ended() -> None:
    states: list[EntryState] = ["damaged", "under way", "missed", "met"]
    entries = [RunEntry(run_id=state, store="store", state=state) for state in states]
    assert [each.run_id for each in newest(entries)] == ["missed"]
    assert [each.run_id for each in newest(entries[:2])] == ["under way"]
    assert newest(entries[:1]) == []
    dead = RunEntry(run_id="dead", store="store", state="unreachable")
    assert [each.run_id for each in newest([dead, *entries])] == ["missed"]
    assert newest([dead]) == [dead]
    assert newest([msgspec.structs.replace(dead, turns=4), *entries])[0].run_id == "dead"


def test_a_run_of_which_nothing_is_stored_does_not_hide_the_one_before(
    tmp_path: Path, shows: pytest.MonkeyPatch
) -> None:
    shows.setenv(ENV_RUNS, json.dumps([str(tmp_path)]))
    run = {"id": "r-dead", "state": "ended", "started_unix_ns": START_UNIX_NS + HOUR_NS}
    write_summary(tmp_path / "dead", "r-dead", run=run, turns={"total": 0}, exit_code=5)
    (tmp_path / "dead" / "store").mkdir()
    assert source.source_of({}).store == str(tmp_path / "dead" / "store")
    run_folder(tmp_path, "base", latency_run("r-base", 20))
    assert [each.name for each in source.run_listing().entries] == ["dead", "base"]
    assert source.source_of({}).store == str(tmp_path / "base" / "store")


@pytest.mark.parametrize(("runs", "columns"), [(2, 1), (4, 1), (6, 2)])
def test_the_names_of_a_few_runs_stand_below_each_other(runs: int, columns: int) -> None:
    names = [f"20261126-025331-09bee{run}" for run in range(runs)]
    assert f'"columns": {columns}' in json.dumps(charts.load(names, LIGHT, 800.0, None))


def test_the_axis_of_a_word_error_rate_of_zero_has_no_run_of_zeros() -> None:
    # Vega gives an axis of one value six decimals, "0.000000%": the tilde trims them.
    spec = charts.by_profile(["clean"], ["a"], LIGHT, is_share=True)
    assert '"format": "~%"' in json.dumps(spec)
    # Without another value on it such an axis would have 0 in its middle.
    assert {"y": {"datum": 0.05}} in [layer["encoding"] for layer in spec["layer"]]
