"""Questions asked when a browser requests a page: whose answers they are, and that the page asks none of them again."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest

from dashboard import early_answers
from dashboard.early_answers import YOUNG_S, EarlyAnswers, NoRoomError
from dashboard.page_requests import page_at
from dashboard.source import source_of
from telemetry.store.answers import Filter
from telemetry.store.reader import StoreReader
from tests.unit.dashboard.counted import counted
from tests.unit.dashboard.opened_pages import opened
from tests.unit.dashboard.scenes import Scene, fill

BOUND_S = 60
ASKED_OF_A_READER = (
    *("page", "turns_page", "objectives_page", "cohorts_page", "rollout_page", "cache_page", "instrument_page"),
    "turn_view",
)


def test_an_answer_is_given_once_and_while_it_is_young() -> None:
    now_s = [0.0]
    early = EarlyAnswers(lambda: now_s[-1])
    assert early.take("a page") is None
    assert early.ask("a page", lambda: "its answer") == "its answer"
    assert early.take("another page") is None
    assert early.take("a page") == "its answer"
    assert early.take("a page") is None
    early.ask("a page", lambda: "its answer")
    now_s.append(YOUNG_S + 0.1)
    assert early.take("a page") is None


def test_the_time_that_an_answer_takes_does_not_make_it_old() -> None:
    now_s = [0.0]
    early = EarlyAnswers(lambda: now_s[-1])

    def slow() -> str:
        now_s.append(now_s[-1] + 10 * YOUNG_S)
        return "its answer"

    assert early.ask("a page", slow) == "its answer"
    now_s.append(now_s[-1] + YOUNG_S - 0.1)
    assert early.take("a page") == "its answer"
    early.ask("a page", slow)
    now_s.append(now_s[-1] + YOUNG_S + 0.1)
    assert early.take("a page") is None


def test_an_answer_under_way_is_waited_for_however_long_it_takes() -> None:
    now_s, begun, may_end = [0.0], threading.Event(), threading.Event()
    early = EarlyAnswers(lambda: now_s[-1])

    def slow() -> str:
        begun.set()
        assert may_end.wait(BOUND_S)
        return "its answer"

    with ThreadPoolExecutor(3) as threads:
        first = threads.submit(early.ask, "a page", slow)
        assert begun.wait(BOUND_S)
        now_s.append(10 * YOUNG_S)
        second = threads.submit(early.ask, "a page", lambda: "asked twice")
        while not second.running():
            time.sleep(0.01)
        time.sleep(0.1)
        page = threads.submit(early.take, "a page")
        while not page.running():
            time.sleep(0.01)
        assert not page.done()
        may_end.set()
        assert {each.result(BOUND_S) for each in (first, second, page)} == {"its answer"}


def test_what_would_not_be_kept_is_not_asked() -> None:
    now_s, asked = [0.0], list[str]()
    early = EarlyAnswers(lambda: now_s[-1])

    def ask(page: str) -> str:
        return early.ask(page, lambda: asked.append(page) or page)

    kept = [ask(f"page {number}") for number in range(4)]
    with pytest.raises(NoRoomError):
        ask("one more page")
    assert asked == kept
    assert ask("page 0") == "page 0"
    assert early.take("page 1") == "page 1"
    assert ask("one more page") == "one more page"
    # Answers that nobody came for make room.
    now_s.append(YOUNG_S + 0.1)
    assert [ask(f"later page {number}") for number in range(4)] == asked[-4:]


def test_a_question_that_failed_is_asked_again_by_the_page() -> None:
    early = EarlyAnswers()
    with pytest.raises(ValueError, match="no store"):
        early.ask("a page", lambda: _raise("no store"))
    assert early.take("a page") is None


def test_a_question_that_failed_is_asked_again_by_whoever_opens_the_page_next() -> None:
    early = EarlyAnswers()
    with pytest.raises(ValueError, match="no store"):
        early.ask("a page", lambda: _raise("no store"))
    assert early.ask("a page", lambda: "its answer") == "its answer"
    assert early.take("a page") == "its answer"


def _raise(sentence: str) -> None:
    raise ValueError(sentence)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "link"),
    [
        ("/", {}),
        ("/now", {"stage": "llm_first_token_latency", "cohort": "A"}),
        ("/turns", {"order": "newest", "window": "5m"}),
        ("/cohorts", {"control": "A"}),
        ("/rollout", {"rollout": "canary"}),
        ("/objectives", {}),
        ("/cache", {"cohort": "B"}),
        ("/instrument", {}),
        ("/", {"trace": "", "turn": "0", "view": "call"}),
    ],
    ids=str,
)
def test_a_page_asks_nothing_that_was_asked_when_it_was_requested(
    store: Path, monkeypatch: pytest.MonkeyPatch, path: str, link: dict[str, str]
) -> None:
    """Also where the store has changed in between."""
    fill(store, Scene(turns=240, newest_unix_ns=time.time_ns(), ended=False))
    name = path.strip("/") or "now"
    if "trace" in link:
        with StoreReader(store) as reader:
            (turn,) = reader.turns(Filter(), 1, source="client")
        name, link = "turn", link | {"trace": turn.trace_id, "turn": str(turn.turn_index)}
    states, asked = count(), list[str]()
    monkeypatch.setattr(StoreReader, "state", lambda _reader: next(states))
    monkeypatch.setattr(early_answers, "YOUNG_S", BOUND_S)  # however long the page takes to draw on this machine
    for method in ASKED_OF_A_READER:
        monkeypatch.setattr(StoreReader, method, counted(method, getattr(StoreReader, method), asked))
    asking = page_at(path, link)
    assert asking is not None
    asking.ask(source_of(link).ahead(), link)
    assert len(asked) == 1
    opened(name, **link)
    assert len(asked) == 1, "the page was given the answer"
    opened(name, **link)
    assert len(asked) == 2, "an answer is for one page"


@pytest.mark.slow
def test_the_list_of_runs_is_read_once_for_a_page(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(store, Scene(turns=240, newest_unix_ns=time.time_ns(), ended=False))
    asked, asking = list[str](), page_at("/runs", {})
    monkeypatch.setattr(StoreReader, "run_figures", counted("run_figures", StoreReader.run_figures, asked))
    assert asking is not None
    asking.ask(source_of({}).ahead(), {})
    assert len(asked) == 1
    opened("runs")
    assert len(asked) == 1
    opened("runs")
    assert len(asked) == 2
