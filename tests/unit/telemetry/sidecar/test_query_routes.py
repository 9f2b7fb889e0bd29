"""Questions in the sidecar's own process: a few at once, none for long, and none ends another."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from telemetry.sidecar import queries
from telemetry.sidecar.queries import THREADS, Asked, Busy, Questions, Replied
from telemetry.store.reader import StoreReader
from telemetry.store.writer import StoreWriter
from tests.fixtures_turns import synthetic_run

RUNS = Asked("runs", b"", False)
# Takes hours.
_ENDLESS = "SELECT count(*) FROM range(1000000000) a, range(1000000000) b WHERE a.range + b.range = 7"


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[StoreWriter]:
    with StoreWriter(tmp_path) as store_writer:
        store_writer.append(synthetic_run("run-1", turns=6).batch)
        yield store_writer


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> None:
    """An additional question, `endless`."""
    answer = queries.answer

    def answered(reader: StoreReader, name: str, parameters: bytes) -> object:
        if name != "endless":
            return answer(reader, name, parameters)
        return reader._ask(lambda connection: connection.execute(_ENDLESS).fetchall())

    monkeypatch.setattr(queries, "answer", answered)


def _run(writer: StoreWriter, test: Callable[[Questions], Awaitable[None]], **named: Any) -> None:
    async def run() -> None:
        questions = Questions(writer.database, **named)
        try:
            await test(questions)
        finally:
            await questions.stop()

    asyncio.run(run())


def run_ids(replied: Replied) -> list[str]:
    assert replied.status == 200, replied.body
    return [run["run_id"] for run in msgspec.json.decode(replied.body)]


@pytest.mark.usefixtures("endless")
def test_slow_question_is_interrupted_and_next_one_is_answered(writer: StoreWriter) -> None:
    async def test(questions: Questions) -> None:
        asked = [questions.ask(Asked("endless", b"", False)) for _ in range(THREADS)]
        for replied in await asyncio.gather(*asked):
            assert replied.status == 503
            assert "ask about fewer turns" in json.loads(replied.body)["error"]
        questions._answer_within_s = 60.0
        assert run_ids(await questions.ask(RUNS)) == ["run-1"]

    _run(writer, test, answer_within_s=0.2)


@pytest.mark.usefixtures("endless")
def test_questions_and_writes_proceed_during_a_long_question(writer: StoreWriter) -> None:
    async def test(questions: Questions) -> None:
        long = asyncio.create_task(questions.ask(Asked("endless", b"", False)))
        await asyncio.sleep(0.05)
        writer.append(synthetic_run("run-2", turns=6).batch)
        assert set(run_ids(await questions.ask(RUNS))) == {"run-1", "run-2"}
        assert not long.done()
        writer.database.interrupt()
        assert (await long).status == 503

    _run(writer, test)


@pytest.mark.usefixtures("endless")
def test_the_end_waits_for_no_question(writer: StoreWriter) -> None:
    async def test(questions: Questions) -> None:
        asked = asyncio.create_task(questions.ask(Asked("endless", b"", False)))
        await asyncio.sleep(0.05)
        await questions.stop()
        assert (await asked).status == 503

    _run(writer, test)


def test_too_many_waiting_questions_are_busy(writer: StoreWriter) -> None:
    async def test(questions: Questions) -> None:
        count = THREADS + 2
        asked = await asyncio.gather(*(questions.ask(RUNS) for _ in range(count + 3)), return_exceptions=True)
        assert [type(reply) for reply in asked] == [Replied] * count + [Busy] * 3
        assert run_ids(await questions.ask(RUNS)) == ["run-1"]

    _run(writer, test, waiting_max=2)


def test_invalid_question_gets_a_sentence(writer: StoreWriter) -> None:
    async def test(questions: Questions) -> None:
        for asked in (Asked("no such", b"", False), Asked("runs", b"[", False), Asked("summary", b'{"x": 1}', False)):
            replied = await questions.ask(asked)
            assert (replied.status, list(json.loads(replied.body))) == (400, ["error"])

    _run(writer, test)
