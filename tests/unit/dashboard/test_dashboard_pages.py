"""The pages run by Streamlit's own test runner over real stores, full, empty, damaged and missing."""

import re
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

import dashboard
from dashboard.components.frame import OLD_TURNS_GONE
from dashboard.source import ENV_LOCUST
from telemetry.store.questions.pages import PageAnswer, PageQuestion
from telemetry.store.reader import StoreReader
from telemetry.store.retention import Keep, Retention
from telemetry.store.run_folders.places import SUMMARY_NAME
from telemetry.store.wire import AskedQuestion
from telemetry.store.writer import StoreWriter
from tests.run_folders import write_summary
from tests.unit.dashboard.opened_pages import opened, text_of
from tests.unit.dashboard.scenes import S, Scene, fill

APP = Path(dashboard.__file__).with_name("app.py")
BOUND_S = 180
LABELS = ["Run", "Time", "Cohort", "Phase", "Length of the utterance", "Noise", "Route"]


def shown(**query: str) -> tuple[AppTest, str]:
    app = AppTest.from_file(str(APP), default_timeout=BOUND_S)
    for name, value in query.items():
        app.query_params[name] = value
    app.run()
    assert not app.exception
    html = " ".join(element.proto.body for element in app.get("html"))
    return app, re.sub(r"\s+", " ", re.sub(r"<style>.*?</style>|<[^>]+>", " ", html, flags=re.DOTALL))


def test_a_missing_store_says_where_and_what_to_do(store: Path) -> None:
    _, text = shown()
    assert "The store cannot be read" in text
    assert str(store) in text


@pytest.mark.slow
def test_a_generator_limited_run_claims_nothing_of_the_service(store: Path) -> None:
    # Its process never announced its end, and was not heard of for an hour.
    fill(store, Scene(turns=240, newest_unix_ns=time.time_ns() - 3_600 * 10**9))
    app, text = shown()
    assert "generator-limited: nothing is claimed about the service" in text
    assert "1 of 1 generator process was lost" in text or "generator processes was lost" in text
    bodies = " ".join(element.proto.body for element in app.get("html"))
    # Of the state of the run and of its telemetry a chip may still be green, of no objective.
    assert not re.search(r"✓ met|✕ missed|Good turns \d|of the error budget left", text)
    assert bodies.count("○ not judged") >= 7
    assert "Good turns not judged" in text
    assert "Not judged:" in text


@pytest.mark.parametrize(("ended", "title"), [(True, "This run has no turn"), (False, "No turns yet")])
def test_a_run_without_a_turn_says_whether_one_may_come(store: Path, ended: bool, title: str) -> None:
    fill(store, Scene(turns=0, newest_unix_ns=time.time_ns(), run_id="run-none", ended=ended))
    _, text = shown(run="run-none")
    assert title in text
    assert ("voiceprobe report says what is known" in text) == ended


def leave_unreachable(folder: Path, run_id: str) -> None:
    """A run's folder as `voiceprobe run` leaves it where the target cannot be reached before the first call."""
    sentence = "Not judged: cannot connect to 127.0.0.1:9: Connection refused"
    of_run = {"id": run_id, "target": "ws://127.0.0.1:9", "state": "ended", "started_unix_ns": time.time_ns()}
    verdict = {"state": "not_judged", "sentence": sentence}
    write_summary(folder, run_id, run=of_run, turns={"total": 0}, metrics={}, exit_code=5, verdict=verdict)


@pytest.mark.parametrize("page", ["now", "turns", "cohorts", "cache", "instrument", "objectives"])
def test_a_run_whose_target_was_not_reached_says_why_on_every_page(store: Path, page: str) -> None:
    store.mkdir()
    leave_unreachable(store.parent, "run-dead")
    text = text_of(opened(page))
    assert f"Run {store.parent.name} (run-dead) has ended." in text
    assert "Not judged: cannot connect to 127.0.0.1:9: Connection refused" in text
    assert "Start a run with ./voiceprobe demo" in text
    assert "No turns yet" not in text


def test_a_link_to_a_run_whose_target_was_not_reached_says_why(store: Path) -> None:
    store.mkdir()
    leave_unreachable(store.parent, "run-dead")
    text = text_of(opened("now", run="run-dead"))
    assert "This run has no turn" in text
    assert "cannot connect to 127.0.0.1:9" in text
    other = text_of(opened("now", run="run-other"))
    assert "That run is not in this store" in other
    assert "cannot connect" not in other


@pytest.mark.slow
def test_a_run_that_is_stored_without_a_turn_says_what_its_command_found(store: Path) -> None:
    fill(store, Scene(turns=0, newest_unix_ns=time.time_ns(), run_id="run-none", ended=True))
    leave_unreachable(store.parent, "run-none")
    text = text_of(opened("now", run="run-none"))
    assert "cannot connect to 127.0.0.1:9" in text
    assert "voiceprobe report" not in text
    leave_unreachable(store.parent, "another")
    text = text_of(opened("now", run="run-none"))
    assert "cannot connect" not in text
    assert "voiceprobe report says what is known" in text


@pytest.mark.parametrize("summary", ["damaged", "of turns that are elsewhere", "under way"])
def test_what_a_summary_does_not_say_of_an_empty_store_is_not_made_up(store: Path, summary: str) -> None:
    store.mkdir()
    if summary == "damaged":
        (store.parent / SUMMARY_NAME).write_text("{")
    elif summary == "under way":
        write_summary(store.parent, "run-1", run={"id": "run-1", "state": "running"}, turns={"total": 0})
    else:
        write_summary(store.parent, "run-1")
    assert "No turns yet" in text_of(opened("now"))


def test_an_empty_store_says_how_to_start(store: Path) -> None:
    StoreWriter(store).close()
    _, text = shown()
    assert "No turns yet" in text
    assert "Start a run with ./voiceprobe demo or voiceprobe run ws://… , or point a service's" in text


def test_an_empty_store_beside_locusts_page_sends_there(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENV_LOCUST, 'http://127.0.0.1:8089/?a="&b')
    StoreWriter(store).close()
    app, text = shown()
    address = "http://127.0.0.1:8089/?a=&quot;&amp;b"
    assert f"Start callers on Locust's page, {address} , or point a service's OTEL_EXPORTER_OTLP_ENDPOINT" in text
    assert f'<a href="{address}">' in " ".join(element.proto.body for element in app.get("html"))
    assert "voiceprobe run" not in text


@pytest.mark.slow
@pytest.mark.parametrize("page", ["now", "turns", "cohorts", "rollout", "objectives", "cache", "instrument"])
def test_a_page_is_one_request_and_so_one_snapshot(store: Path, monkeypatch: pytest.MonkeyPatch, page: str) -> None:
    fill(store, Scene(turns=24, newest_unix_ns=time.time_ns(), ended=False))
    asked, together = list[int](), StoreReader.together

    def counted(reader: StoreReader, *questions: AskedQuestion[Any]) -> tuple[Any, ...]:
        asked.append(len(questions))
        return together(reader, *questions)

    monkeypatch.setattr(StoreReader, "together", counted)
    app = opened(page)
    if page not in ("rollout", "objectives"):
        assert next(each for each in app.selectbox if each.label == "Cohort").options[1:] == ["A", "B"]
    assert len(asked) == 1


@pytest.mark.slow
def test_a_full_store_shows_every_part(store: Path) -> None:
    fill(store, Scene(turns=240, newest_unix_ns=time.time_ns(), ended=True))
    app, text = shown()
    for part in (
        "Voice to voice p95",
        "Stages against objectives",
        "Where a turn&#x27;s time goes",
        "Cohorts",
        "Outcomes",
        "Slowest turns",
        "240 turns",
        "none lost",
        "partials come on a fixed cadence",
    ):
        assert part in text
    assert app.selectbox[0].value == ""
    assert [box.label for box in app.selectbox] == [*LABELS, "Stage"]
    assert "Voice to voice over time" in text
    assert re.search(r"(Meeting all|Missing the objective|Undecided:)", text)
    _, of_stage = shown(stage="llm_ttft")
    assert "LLM after transcript over time" in of_stage
    _, unknown = shown(stage="nonsense")
    assert "Voice to voice over time" in unknown


@pytest.mark.slow
def test_the_calls_in_flight_are_drawn_below_the_lines_that_they_explain(store: Path) -> None:
    fill(store, Scene(turns=240, newest_unix_ns=time.time_ns(), ended=True))
    app = opened("now")
    lines, load = [element.proto.alt for element in app.get("vega_lite_chart")]
    assert lines.startswith("Voice to voice over time")
    assert load == "Calls in flight over the same time"
    assert [each.label for each in app.expander][:2] == [
        "Table: Voice to voice over time",
        "Table: Calls in flight over time",
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("quiet_s", "is_ended", "took_s", "again_s"),
    [
        (20, False, 0.3, 2.0),
        (20, False, 0.5, 4.0),
        (20, False, 7.0, 64.0),
        (200, False, 0.3, 5.0),
        (200, False, 1.1, 10.0),
        (200, True, 7.0, None),
        (-600, False, 0.3, 5.0),
    ],
    ids=["live", "live and dear", "live and dearer", "stale", "stale and dear", "ended", "of a clock that is ahead"],
)
def test_a_page_asks_again_no_sooner_than_five_times_what_its_answer_took(
    store: Path,
    monkeypatch: pytest.MonkeyPatch,
    quiet_s: int,
    is_ended: bool,
    took_s: float,
    again_s: float | None,
) -> None:
    """Left out here, the part that is drawn again takes all figures with it; the selectors around it stay."""
    now_unix_ns, now_s = time.time_ns(), [0.0]
    fill(store, Scene(turns=24, newest_unix_ns=now_unix_ns - quiet_s * S, ended=is_ended))
    ask = StoreReader.page

    def takes(reader: StoreReader, question: PageQuestion) -> PageAnswer:
        now_s.append(now_s[-1] + took_s)
        return ask(reader, question)

    # However slow the machine is, the page is opened at this moment.
    clocks = SimpleNamespace(time_ns=lambda: now_unix_ns, monotonic=lambda: now_s[-1])
    monkeypatch.setattr("dashboard.components.frame.time", clocks)
    monkeypatch.setattr(StoreReader, "page", takes)
    assert "24 turns" in text_of(opened("now"))
    paces: list[float | None] = []

    def fragment(_body: Callable[[], None], *, run_every: float | None) -> Callable[[], None]:
        paces.append(run_every)
        return lambda: None

    monkeypatch.setattr("streamlit.fragment", fragment)
    app = opened("now")
    of_title, of_figures = paces
    assert (of_title, of_figures) == (2.0, again_s)
    assert of_figures is None or of_figures >= 5 * took_s
    assert "24 turns" not in text_of(app)
    assert [box.label for box in app.selectbox] == LABELS


@pytest.mark.slow
def test_a_refresh_that_takes_longer_slows_the_pace(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now_unix_ns, now_s = time.time_ns(), [0.0]
    fill(store, Scene(turns=24, newest_unix_ns=now_unix_ns))
    takes_s, paces, ask = iter((0.1, 3.0, 3.0, 3.0)), list[float | None](), StoreReader.page

    def page(reader: StoreReader, question: PageQuestion) -> PageAnswer:
        now_s.append(now_s[-1] + next(takes_s))
        return ask(reader, question)

    def fragment(body: Callable[[], None], *, run_every: float | None) -> Callable[[], None]:
        def drawn_and_refreshed() -> None:
            paces.append(run_every)
            body()
            body()

        return body if body.__name__ == "title" else drawn_and_refreshed

    clocks = SimpleNamespace(time_ns=lambda: now_unix_ns, monotonic=lambda: now_s[-1])
    monkeypatch.setattr("dashboard.components.frame.time", clocks)
    monkeypatch.setattr(StoreReader, "page", page)
    monkeypatch.setattr("streamlit.fragment", fragment)
    # Drawn twice in one run of the script, elements with keys would clash.
    monkeypatch.setattr("dashboard.components.frame.DashboardPage._draw_body", lambda _page, _asked, _link: None)
    opened("now")
    assert paces == [2.0, 16.0], "3 s of every 16 s, not of every 2 s"
    assert next(takes_s, None) is None, "one question to draw, one for each refresh, and nothing kept"


@pytest.mark.slow
def test_a_page_says_when_it_asked_and_how_long_ago_that_is(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    began_unix_ns = 1_795_000_000 * S
    fill(store, Scene(turns=24, newest_unix_ns=began_unix_ns, ended=True))
    moments = iter([began_unix_ns])
    clocks = SimpleNamespace(time_ns=lambda: next(moments, began_unix_ns + 190 * S), monotonic=time.monotonic)
    monkeypatch.setattr("dashboard.components.frame.time", clocks)
    assert f"as of {time.strftime('%H:%M:%S', time.gmtime(1_795_000_000))}, 3 min ago" in text_of(opened("now"))


@pytest.mark.slow
def test_a_long_run_is_shown_by_its_newest_hour_unless_the_whole_is_chosen(store: Path) -> None:
    hour = 3_600 * S
    newest = time.time_ns() - 60 * S
    fill(store, Scene(turns=240, newest_unix_ns=newest - 2 * hour))
    fill(store, Scene(turns=60, newest_unix_ns=newest, seed=8))
    fill(store, Scene(turns=40, newest_unix_ns=newest - 9 * hour, run_id="run-short", ended=True))
    for page in ("now", "turns", "cache", "instrument"):
        app = opened(page, run="run-4c1d")
        assert "time last hour 60 turns" in text_of(app), page
        time_box = next(box for box in app.selectbox if box.label == "Time")
        assert time_box.options == ["last hour", "last minute", "last 5 min", "last 15 min", "whole run"]
        assert time_box.value == ""
        whole = text_of(opened(page, run="run-4c1d", window="whole"))
        assert "300 turns" in whole, page
        assert "last hour" not in whole
    # What began at chosen times is not left out for being older.
    chosen = text_of(
        opened("turns", run="run-4c1d", since_s=str((newest - 3 * hour) // S), until_s=str((newest - hour) // S))
    )
    assert "last hour" not in chosen
    assert "240 turns began" in chosen
    # A link to the hour is a link to what is shown.
    named = opened("now", run="run-4c1d", window="1h")
    assert "time last hour 60 turns" in text_of(named)
    short = opened("now", run="run-short")
    assert "run run-short target" in text_of(short)
    assert "40 turns" in text_of(short)
    assert "last hour" not in text_of(short)
    time_box = next(box for box in short.selectbox if box.label == "Time")
    assert time_box.options == ["whole run", "last minute", "last 5 min", "last 15 min", "last hour"]


def test_one_turn_has_no_percentiles_beyond_the_median_and_no_verdict(store: Path) -> None:
    fill(store, Scene(turns=1, newest_unix_ns=time.time_ns(), ended=True))
    _, text = shown()
    assert "1 turn " in text
    assert "too few (1)" in text
    assert "✓ met" not in text
    assert "✕ missed" not in text


@pytest.mark.slow
def test_a_link_narrows_what_is_shown(store: Path) -> None:
    fill(store, Scene(turns=240, newest_unix_ns=time.time_ns(), ended=True))
    app, text = shown(cohort="B")
    assert "120 turns" in text
    assert next(box for box in app.selectbox if box.label == "Cohort").value == "B"


@pytest.mark.slow
def test_choosing_rewrites_the_link(store: Path) -> None:
    fill(store, Scene(turns=240, newest_unix_ns=time.time_ns(), ended=True))
    app, _ = shown()
    next(box for box in app.selectbox if box.label == "Cohort").select("A").run()
    assert not app.exception
    assert app.query_params["cohort"] == "A"


def test_a_filter_that_matches_nothing_says_so(store: Path) -> None:
    fill(store, Scene(turns=24, newest_unix_ns=time.time_ns(), ended=True))
    _, text = shown(cohort="Z")
    assert "No turn matches the filter" in text


def test_a_link_to_a_run_that_is_not_there_says_so(store: Path) -> None:
    fill(store, Scene(turns=4, newest_unix_ns=time.time_ns(), ended=True))
    _, text = shown(run="run-gone")
    assert "That run is not in this store" in text
    assert "run-gone" in text


@pytest.mark.slow
def test_a_link_that_cannot_be_meant_is_reported(store: Path) -> None:
    fill(store, Scene(turns=4, newest_unix_ns=time.time_ns(), ended=True))
    _, text = shown(length="huge")
    assert "'huge'" in text.replace("&#x27;", "'")
    assert "4 turns" in text


@pytest.mark.slow
def test_a_stale_run_has_not_reported_that_it_ended_and_an_ended_one_has(store: Path) -> None:
    fill(store, Scene(turns=4, newest_unix_ns=time.time_ns() - 200 * S))
    fill(store, Scene(turns=4, newest_unix_ns=time.time_ns() - 400 * S, run_id="run-done", ended=True, seed=8))
    _, text = shown(run="run-4c1d")
    assert "stale" in text
    assert "last turn 3 min ago; the run has not said that it ended" in text
    _, text = shown(run="run-done")
    assert "ended" in text
    assert "has not said" not in text


@pytest.mark.slow
def test_a_run_whose_oldest_turns_are_gone_is_not_shown_as_if_whole(store: Path) -> None:
    fill(store, Scene(turns=240, newest_unix_ns=time.time_ns(), ended=True))
    assert OLD_TURNS_GONE not in shown()[1]
    with StoreWriter(store) as writer:
        assert Retention(writer, Keep(age_ns=0), portion_rows=80).remove_some() == 80
    _, text = shown()
    assert OLD_TURNS_GONE in text
    assert "160 turns" in text


def test_a_turn_is_reached_by_its_link(store: Path) -> None:
    turns = fill(store, Scene(turns=8, newest_unix_ns=time.time_ns(), ended=True))
    _, text = shown(trace=turns[5].trace_id, turn=str(turns[5].turn_index))
    assert "One turn on one clock" in text
    assert "Was it measured well?" in text
    assert "ASR partial, caller" in text


def test_a_turn_that_is_not_there_says_so(store: Path) -> None:
    fill(store, Scene(turns=4, newest_unix_ns=time.time_ns(), ended=True))
    _, text = shown(trace="0" * 32, turn="7")
    assert "That turn is not in this store" in text
    _, text = shown(trace="0" * 32, turn="x")
    assert "The link names no turn" in text
