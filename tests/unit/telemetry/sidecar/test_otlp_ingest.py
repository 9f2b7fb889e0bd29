"""The front's side of ingest: who waits is told the truth, whatever the store process does."""

import asyncio
import gc
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from telemetry.model.errors import StoreError
from telemetry.sidecar.messages import Answer, Answered, Begun, Take
from telemetry.sidecar.otlp.attributes import OtlpDecodeError
from telemetry.sidecar.otlp.backlog import Backlog, Overloaded
from telemetry.sidecar.otlp.ingest import ANSWER_WITHIN_S, Ingest, Taken
from telemetry.sidecar.otlp.suspects import ENDINGS_MAX, Suspects


class _Store:
    """A store process that answers when the test wants, and a clock."""

    def __init__(self, backlog: Backlog | None = None) -> None:
        self.sent: list[Take] = []
        self.now_s = 0.0
        self.is_gone = False
        self.ingest = Ingest(self._send, backlog=backlog, clock_s=lambda: self.now_s)

    def _send(self, request: Take) -> None:
        if self.is_gone:
            raise StoreError("the store process is starting again; send it again")
        self.sent.append(request)

    def answer(self, *answers: Answer) -> None:
        self.ingest.answered(Answered(answers, 0.001, 0.001))

    async def taking(self, body: bytes) -> "asyncio.Task[Taken]":
        task = asyncio.create_task(self.ingest.take("traces", "protobuf", body))
        await asyncio.sleep(0)
        return task


def _run(test: Callable[[_Store], Awaitable[None]], store: _Store | None = None) -> None:
    async def run() -> None:
        await test(store or _Store())
        gc.collect()  # an exception that nobody fetched would be reported now, which fails the test

    asyncio.run(run())


def test_every_sender_hears_of_its_own_request() -> None:
    async def test(store: _Store) -> None:
        tasks = [await store.taking(bytes([index])) for index in range(4)]
        numbers = [request.number for request in store.sent]
        store.answer(Answer(numbers[2], 1, ("no trace id",)), Answer(numbers[0]))
        assert (await tasks[2], await tasks[0]) == (Taken(1, ("no trace id",)), Taken())
        assert not tasks[1].done()
        store.answer(Answer(numbers[1], undecodable="no protobuf"), Answer(numbers[3], failure="the disk is full"))
        with pytest.raises(OtlpDecodeError, match="no protobuf"):
            await tasks[1]
        with pytest.raises(StoreError, match="the disk is full"):
            await tasks[3]
        assert (store.ingest.bad_requests, store.ingest.refused_requests) == (1, 1)

    _run(test)


def test_who_waits_when_the_store_process_ends_is_sent_back() -> None:
    async def test(store: _Store) -> None:
        tasks = [await store.taking(b"x"), await store.taking(b"y")]
        store.ingest.lost()
        for task in tasks:
            with pytest.raises(Overloaded, match="send it again"):
                await task
        store.is_gone = True
        with pytest.raises(StoreError, match="send it again"):
            await store.ingest.take("traces", "protobuf", b"z")
        store.is_gone = False
        again = await store.taking(b"x")
        store.answer(Answer(store.sent[-1].number))
        assert await again == Taken()
        assert store.ingest.unanswered_s == 0.0

    _run(test)


def test_what_a_lost_process_had_does_not_count_as_waiting() -> None:
    async def test(store: _Store) -> None:
        for _ in range(20):
            task = await store.taking(bytes(900))
            store.ingest.lost()
            with suppress(StoreError):
                await task
        store.is_gone = True
        for _ in range(20):
            with pytest.raises(StoreError, match="starting"):
                await store.ingest.take("traces", "protobuf", bytes(900))
        store.is_gone = False
        assert not (await store.taking(bytes(900))).done()

    _run(test, _Store(Backlog(bytes_max=10_000)))


def test_who_waits_too_long_is_sent_back_and_may_be_stored_all_the_same() -> None:
    async def test(store: _Store) -> None:
        task = await store.taking(b"x")
        store.now_s = ANSWER_WITHIN_S - 0.01
        late = await store.taking(b"y")
        store.ingest.expire()
        await asyncio.sleep(0)
        assert not task.done()
        store.now_s = ANSWER_WITHIN_S
        store.ingest.expire()
        with pytest.raises(Overloaded, match="send it again"):
            await task
        assert not late.done()
        assert store.ingest.unanswered_s == ANSWER_WITHIN_S, "it still waits for the store process"
        store.answer(Answer(store.sent[0].number), Answer(store.sent[1].number))
        assert await late == Taken()

    _run(test)


def test_a_sender_that_goes_away_harms_nobody() -> None:
    async def test(store: _Store) -> None:
        gone, stays = await store.taking(b"x"), await store.taking(b"y")
        gone.cancel()
        with suppress(asyncio.CancelledError):
            await gone
        store.answer(Answer(store.sent[0].number, failure="full"), Answer(store.sent[1].number))
        assert await stays == Taken()

    _run(test)


def test_more_than_may_wait_is_sent_back_at_once_and_counted() -> None:
    async def test(store: _Store) -> None:
        await store.taking(bytes(9000))
        with pytest.raises(Overloaded):
            await store.ingest.take("traces", "protobuf", bytes(9000))
        assert (store.ingest.refused_requests, len(store.sent)) == (1, 1)
        store.answer(Answer(store.sent[0].number))
        await store.taking(bytes(9000))
        assert len(store.sent) == 2

    _run(test, _Store(Backlog(bytes_max=10_000)))


def test_a_request_that_ends_the_process_is_tried_alone_and_then_refused() -> None:
    async def test(store: _Store) -> None:
        for ending in range(ENDINGS_MAX):
            deadly, neighbor = await store.taking(b"deadly"), await store.taking(b"neighbor")
            waits = await store.taking(b"waits")
            assert [request.alone for request in store.sent[-3:]] == [ending > 0, ending == 1, False]
            begun = store.sent[-3:-1] if ending == 0 else store.sent[-3:-2]
            if ending == 1:
                store.answer(Answer(store.sent[-2].number))  # alone, it is harmless
            store.ingest.begun(Begun(tuple(request.number for request in begun)))
            store.ingest.lost()
            for task in (deadly, neighbor, waits):
                with suppress(StoreError):
                    await task
        with pytest.raises(OtlpDecodeError, match="not tried again"):
            await store.ingest.take("traces", "protobuf", b"deadly")
        assert not (await store.taking(b"neighbor")).done()
        assert not store.sent[-1].alone

    _run(test)


def test_a_store_process_that_is_slow_is_not_one_that_hangs() -> None:
    async def test(store: _Store) -> None:
        tasks = [await store.taking(b"x") for _ in range(5)]
        for number in range(4):
            store.now_s += 7.0
            store.answer(Answer(number))
            assert store.ingest.unanswered_s == 0.0
        store.now_s += 3.0
        assert store.ingest.unanswered_s == 3.0
        store.answer(Answer(4))
        assert store.ingest.unanswered_s == 0.0
        await asyncio.gather(*tasks)

    _run(test)


def test_suspects_are_bounded() -> None:
    suspects = Suspects(remembered_max=10)
    for index in range(100):
        suspects.blame([b"%d" % index])
    assert [suspects.endings(b"%d" % index) for index in range(100)] == [0] * 90 + [1] * 10
    suspects.clear(b"99")
    assert suspects.endings(b"99") == 0
