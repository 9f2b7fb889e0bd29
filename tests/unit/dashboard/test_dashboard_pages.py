"""Common behavior of all pages, by Streamlit's own test runner: stores without turns, links, and refreshes."""

import re
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

import dashboard
from dashboard.components import frame
from dashboard.source import ENV_LOCUST
from telemetry.store.questions.pages import PageAnswer, PageQuestion
from telemetry.store.reader import StoreReader
from telemetry.store.retention import Keep, Retention
from telemetry.store.run_folders.catalog import RunCatalog
from telemetry.store.run_folders.places import SUMMARY_NAME
from telemetry.store.wire import AskedQuestion
from telemetry.store.writer import StoreWriter
from tests.run_folders import write_summary
from tests.unit.dashboard.opened_pages import BOUND_S, html_of, opened, pictures, plain, says, text_of
from tests.unit.dashboard.scenes import S, Scene, fill

pytestmark = pytest.mark.slow

APP = Path(dashboard.__file__).with_name("app.py")
LABELS = ["Run", "Time", "Cohort", "Phase", "Length of the utterance", "Noise", "Route"]
DEAD = "Not judged: cannot connect to 127.0.0.1:9: Connection refused"
KNOWN_OF_WHY = "voiceprobe report says what is known"


def shown(**query: str) -> str:
    """Return the whole dashboard at a link, as text."""
    app = AppTest.from_file(str(APP), default_timeout=BOUND_S)
    for name, value in query.items():
        app.query_params[name] = value
    app.run()
    assert not app.exception
    return plain(html_of(app))


def leave_unreachable(folder: Path, run_id: str) -> None:
    """A run's folder as `voiceprobe run` leaves it where the target cannot be reached before the first call."""
    of_run = {"id": run_id, "target": "ws://127.0.0.1:9", "state": "ended", "started_unix_ns": time.time_ns()}
    verdict = {"state": "not_judged", "sentence": DEAD}
    write_summary(folder, run_id, run=of_run, turns={"total": 0}, metrics={}, exit_code=5, verdict=verdict)


def test_a_store_that_is_missing_or_empty_says_what_to_do(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    says(shown(), "The store cannot be read", str(store))
    StoreWriter(store).close()
    says(shown(), "No turns yet", "Start a run with ./voiceprobe demo or voiceprobe run ws://… , or point a service's")
    monkeypatch.setenv(ENV_LOCUST, 'http://127.0.0.1:8089/?a="&b')
    html = html_of(opened("now"))
    assert '<a href="http://127.0.0.1:8089/?a=&quot;&amp;b">' in html
    page = "Start callers on Locust's page, http://127.0.0.1:8089/?a=\"&b , or point a service's OTEL_EXPORTER"
    says(html, page, no=("voiceprobe run",))


@pytest.mark.parametrize(("ended", "title"), [(True, "This run has no turn"), (False, "No turns yet")])
def test_a_run_without_a_turn_says_whether_one_may_come(store: Path, ended: bool, title: str) -> None:
    fill(store, Scene(turns=0, newest_unix_ns=time.time_ns(), run_id="run-none", ended=ended))
    text = shown(run="run-none")
    assert title in text
    assert (KNOWN_OF_WHY in text) == ended


@pytest.mark.parametrize("page", ["now", "turns", "cohorts", "cache", "instrument", "objectives"])
def test_run_that_never_reached_target_gives_cause_on_each_page(store: Path, page: str) -> None:
    store.mkdir()
    leave_unreachable(store.parent, "run-dead")
    ended = f"Run {store.parent.name} (run-dead) has ended."
    says(html_of(opened(page)), ended, DEAD, "Start a run with ./voiceprobe demo", no=("No turns yet",))
    if page == "now":
        says(html_of(opened("now", run="run-dead")), "This run has no turn", "cannot connect to 127.0.0.1:9")
        other = html_of(opened("now", run="run-other"))
        says(other, "That run is not in this store", no=("cannot connect",))


def test_run_stored_without_turns_gives_cause_from_its_command(store: Path) -> None:
    fill(store, Scene(turns=0, newest_unix_ns=time.time_ns(), run_id="run-none", ended=True))
    leave_unreachable(store.parent, "run-none")
    says(html_of(opened("now", run="run-none")), "cannot connect to 127.0.0.1:9", no=("voiceprobe report",))
    leave_unreachable(store.parent, "another")
    says(html_of(opened("now", run="run-none")), KNOWN_OF_WHY, no=("cannot connect",))


@pytest.mark.parametrize("summary", ["damaged", "of turns that are elsewhere", "under way"])
def test_empty_store_shows_no_cause_that_summary_does_not_state(store: Path, summary: str) -> None:
    store.mkdir()
    if summary == "damaged":
        (store.parent / SUMMARY_NAME).write_text("{")
    elif summary == "under way":
        write_summary(store.parent, "run-1", run={"id": "run-1", "state": "running"}, turns={"total": 0})
    else:
        write_summary(store.parent, "run-1")
    says(html_of(opened("now")), "No turns yet")


@pytest.mark.parametrize("page", ["now", "turns", "cohorts", "rollout", "objectives", "cache", "instrument"])
def test_a_page_is_one_request_and_so_one_snapshot(full: Path, monkeypatch: pytest.MonkeyPatch, page: str) -> None:
    asked, together = list[int](), StoreReader.together

    def counted(reader: StoreReader, *questions: AskedQuestion[Any]) -> tuple[Any, ...]:
        asked.append(len(questions))
        return together(reader, *questions)

    monkeypatch.setattr(StoreReader, "together", counted)
    app = opened(page)
    if page not in ("rollout", "objectives"):
        assert next(selectbox for selectbox in app.selectbox if selectbox.label == "Cohort").options[1:] == ["A", "B"]
    assert len(asked) == 1


def test_a_full_store_shows_every_part_and_a_link_narrows_it(full: Path) -> None:
    app = opened("now")
    says(
        html_of(app),
        *("Voice to voice p95", "Stages against objectives", "Where a turn's time goes", "Cohorts", "Outcomes"),
        *("Slowest turns", "240 turns", "none lost", "partials come on a fixed cadence", "Voice to voice over time"),
    )
    assert re.search(r"(Meeting all|Missing the objective|Undecided:)", text_of(app))
    assert [box.label for box in app.selectbox] == [*LABELS, "Stage"]
    assert app.selectbox[0].value == ""
    lines, load = pictures(app)
    assert lines.startswith("Voice to voice over time")
    assert load == "Calls in flight over the same time"
    captions = [expander.label for expander in app.expander][:2]
    assert captions == ["Table: Voice to voice over time", "Table: Calls in flight over time"]
    next(box for box in app.selectbox if box.label == "Cohort").select("A").run()
    assert not app.exception
    assert app.query_params["cohort"] == "A"
    narrowed = opened("now", cohort="B", length="huge", stage="llm_ttft")
    says(html_of(narrowed), "120 turns", "LLM after transcript over time", "the link asks for length 'huge'")
    assert next(box for box in narrowed.selectbox if box.label == "Cohort").value == "B"
    says(html_of(opened("now", stage="nonsense")), "Voice to voice over time")
    says(html_of(opened("now", cohort="Z")), "No turn matches the filter")
    says(html_of(opened("now", run="run-gone")), "That run is not in this store", "run-gone")


def test_turn_is_reached_by_link_and_missing_turn_is_reported(store: Path) -> None:
    turns = fill(store, Scene(turns=8, newest_unix_ns=time.time_ns(), ended=True, invalid_share=0.0))
    says(
        shown(trace=turns[5].trace_id, turn=str(turns[5].turn_index)),
        *("One turn on one clock", "Was it measured well?", "ASR partial, caller"),
        *("ASR final, caller", "LLM first token, service", "TTS first chunk"),
    )
    says(shown(trace="0" * 32, turn="7"), "That turn is not in this store")
    says(shown(trace="0" * 32, turn="x"), "The link names no turn")


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
def test_page_refresh_interval_is_at_least_five_times_query_time(
    store: Path, monkeypatch: pytest.MonkeyPatch, quiet_s: int, is_ended: bool, took_s: float, again_s: float | None
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
    paces: list[float | None] = []

    def fragment(_body: Callable[[], None], *, run_every: float | None) -> Callable[[], None]:
        paces.append(run_every)
        return lambda: None

    monkeypatch.setattr("streamlit.fragment", fragment)
    app = opened("now")
    assert paces == [2.0, again_s], "of the title and of the figures"
    assert again_s is None or again_s >= 5 * took_s
    says(html_of(app), no=("24 turns",))
    assert [box.label for box in app.selectbox] == LABELS


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
    monkeypatch.setattr("dashboard.components.frame.DashboardPage._draw_body", lambda _page, _answer, _context: None)
    opened("now")
    assert paces == [2.0, 16.0], "3 s of every 16 s, not of every 2 s"
    assert next(takes_s, None) is None, "one question to draw, one for each refresh, and nothing kept"


def test_a_page_says_when_it_asked_and_how_long_ago_that_is(full: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    began_unix_ns = 1_795_000_000 * S
    moments = iter([began_unix_ns])
    clocks = SimpleNamespace(time_ns=lambda: next(moments, began_unix_ns + 190 * S), monotonic=time.monotonic)
    monkeypatch.setattr("dashboard.components.frame.time", clocks)
    asked = time.strftime("%H:%M:%S", time.gmtime(1_795_000_000))
    says(html_of(opened("now")), f"as of {asked}, 3 min ago")


@pytest.mark.parametrize(
    ("page", "asks", "method"),
    [
        ("now", StoreReader, "page"),
        ("turn", StoreReader, "turn_view"),
        ("rollout", StoreReader, "rollout_page"),
        ("runs", RunCatalog, "listing"),
        ("runs", StoreReader, "run_details"),
    ],
)
def test_page_shows_spinner_while_it_reads_the_store(
    full: Path, monkeypatch: pytest.MonkeyPatch, page: str, asks: type, method: str
) -> None:
    seen, asked = list[str](), getattr(asks, method)

    @contextmanager
    def spinner(text: str) -> Generator[None]:
        seen.append(text)
        yield
        seen.append("read")

    def asking(*given: Any, **named: Any) -> Any:
        seen.append("asked")
        return asked(*given, **named)

    monkeypatch.setattr("streamlit.spinner", spinner)
    monkeypatch.setattr(asks, method, asking)
    opened(page, **({"trace": "a" * 32, "turn": "0"} if page == "turn" else {}))
    place = seen.index("asked")
    assert seen[place - 1 : place + 2] == [frame.READING, "asked", "read"]


def test_long_run_shows_newest_hour_unless_whole_is_chosen(store: Path) -> None:
    hour = 3_600 * S
    newest = time.time_ns() - 60 * S
    fill(store, Scene(turns=240, newest_unix_ns=newest - 2 * hour))
    fill(store, Scene(turns=60, newest_unix_ns=newest, seed=8))
    fill(store, Scene(turns=40, newest_unix_ns=newest - 9 * hour, run_id="run-short", ended=True))

    def times(app: AppTest) -> list[str]:
        box = next(box for box in app.selectbox if box.label == "Time")
        assert box.value == ""
        return box.options

    for page in ("now", "turns", "cache", "instrument"):
        app = opened(page, run="run-4c1d")
        says(html_of(app), "time last hour 60 turns")
        assert times(app) == ["last hour", "last minute", "last 5 min", "last 15 min", "whole run"]
        says(html_of(opened(page, run="run-4c1d", window="whole")), "300 turns", no=("last hour",))
    # What began at chosen times is not left out for being older.
    chosen = {"since_s": str((newest - 3 * hour) // S), "until_s": str((newest - hour) // S)}
    says(html_of(opened("turns", run="run-4c1d", **chosen)), "240 turns began", no=("last hour",))
    # A link to the hour is a link to what is shown.
    says(html_of(opened("now", run="run-4c1d", window="1h")), "time last hour 60 turns")
    short = opened("now", run="run-short")
    says(html_of(short), "run run-short target", "40 turns", no=("last hour",))
    assert times(short) == ["whole run", "last minute", "last 5 min", "last 15 min", "last hour"]


def test_run_states_whether_it_ended_and_that_old_turns_are_gone(store: Path) -> None:
    fill(store, Scene(turns=240, newest_unix_ns=time.time_ns() - 200 * S))
    fill(store, Scene(turns=4, newest_unix_ns=time.time_ns() - 4_000 * S, run_id="run-done", ended=True, seed=8))
    stale = "last turn 3 min ago; the run has not said that it ended"
    says(html_of(opened("now", run="run-4c1d")), "stale", stale, no=(frame.OLD_TURNS_GONE,))
    says(html_of(opened("now", run="run-done")), "ended", no=("has not said",))
    with StoreWriter(store) as writer:
        assert Retention(writer, Keep(age_ns=0), portion_rows=80).remove_some() == 80
    says(html_of(opened("now", run="run-4c1d")), frame.OLD_TURNS_GONE, "160 turns")
