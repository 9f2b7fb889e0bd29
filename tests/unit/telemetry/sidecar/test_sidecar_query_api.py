"""The query process of a front: started by the first question, started again when it ended, never waited for long."""

import asyncio
import json
import os
import signal
from pathlib import Path

import msgspec
import pytest

from telemetry.sidecar.query_api import Busy, QueryLink
from telemetry.sidecar.query_messages import Asked, Replied
from tests.fixtures_turns import fill_store, synthetic_run

RUNS = Asked("runs", b"", False)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill_store(tmp_path_factory.mktemp("store"), synthetic_run("run-1", turns=6))


def run_ids(replied: Replied) -> list[str]:
    assert replied.status == 200, replied.body
    return [run["run_id"] for run in msgspec.json.decode(replied.body)]


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.slow
def test_a_process_that_was_killed_is_started_again(store: Path) -> None:
    async def ask() -> None:
        link = QueryLink(store)
        assert link.pid is None
        assert run_ids(await link.ask(RUNS)) == ["run-1"]
        first = link.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        answers = [await link.ask(RUNS) for _ in range(2)]
        assert run_ids(answers[1]) == ["run-1"]
        assert link.pid not in (None, first)
        last = link.pid
        await link.stop()
        assert last is not None
        assert is_gone(last)

    asyncio.run(ask())


def test_a_question_that_takes_too_long_is_answered_with_a_sentence(store: Path) -> None:
    async def ask() -> None:
        link = QueryLink(store, answer_within_s=0.001)
        replied = await link.ask(RUNS)
        assert replied.status == 503
        assert "ask about fewer turns" in json.loads(replied.body)["error"]
        assert link.pid is None

    asyncio.run(ask())


@pytest.mark.slow
def test_an_asker_who_goes_away_leaves_no_answer_for_the_next(store: Path) -> None:
    async def ask() -> None:
        link = QueryLink(store)
        assert run_ids(await link.ask(RUNS)) == ["run-1"]
        first = asyncio.create_task(link.ask(Asked("summary", b"", False)))
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert run_ids(await link.ask(RUNS)) == ["run-1"]
        await link.stop()

    asyncio.run(ask())


@pytest.mark.slow
def test_a_process_ends_when_nobody_asks_and_the_next_question_starts_another(store: Path) -> None:
    async def ask() -> None:
        link = QueryLink(store, idle_s=0.0)
        assert run_ids(await link.ask(RUNS)) == ["run-1"]
        first = link.pid
        assert first is not None
        async with asyncio.timeout(60):
            while not is_gone(first):  # noqa: ASYNC110 - nothing tells of the end of a process
                await asyncio.sleep(0.01)
        assert link.pid is None
        assert run_ids(await link.ask(RUNS)) == ["run-1"]
        await link.stop()

    asyncio.run(ask())


def test_a_process_that_others_wait_for_does_not_end(store: Path) -> None:
    async def ask() -> None:
        link = QueryLink(store, idle_s=0.0)

        async def answered_by() -> int | None:
            assert run_ids(await link.ask(RUNS)) == ["run-1"]
            return link.pid

        pids = await asyncio.gather(*(answered_by() for _ in range(4)))
        assert None not in pids
        assert len(set(pids)) == 1
        await link.stop()

    asyncio.run(ask())


def test_too_many_waiting_questions_are_busy(store: Path) -> None:
    async def ask() -> None:
        link = QueryLink(store, waiting_max=2)
        asked = await asyncio.gather(*(link.ask(RUNS) for _ in range(5)), return_exceptions=True)
        assert [type(each) for each in asked] == [Replied, Replied, Busy, Busy, Busy]
        await link.stop()

    asyncio.run(ask())
