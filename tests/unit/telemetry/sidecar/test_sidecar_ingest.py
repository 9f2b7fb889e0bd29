"""The way of a request to the store and back: in groups, in order, never for longer than an exporter waits."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from telemetry.model.errors import StoreError
from telemetry.sidecar import ingest as ingest_module
from telemetry.sidecar.ingest import Backlog, ExportRequest, Ingest, Outcome, Overloaded, Taken
from telemetry.sidecar.otlp.attributes import OtlpDecodeError

WAIT_S = 60.0  # only ends a hopeless wait


class _Store:
    """Storage that blocks until released, with results that the bodies state."""

    def __init__(self) -> None:
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.groups: list[list[bytes]] = []
        self.decoded = self.counted = 0

    def decode(self, request: ExportRequest) -> ExportRequest:
        self.decoded += 1
        return request

    def commit(self, requests: Sequence[ExportRequest]) -> list[Outcome]:
        assert self.goes_on.wait(WAIT_S)
        self.groups.append([request.body for request in requests])
        outcomes: dict[bytes, Outcome] = {b"bad": OtlpDecodeError("no export"), b"full": StoreError("no room")}
        if any(request.body == b"fatal" for request in requests):
            raise RuntimeError("a fault of ours")
        return [outcomes.get(request.body, Taken(len(request.body))) for request in requests]

    def count(self) -> None:
        self.counted = len(self.groups)


Test = Callable[[Ingest, _Store], Coroutine[Any, Any, None]]


def ingesting(**named: float) -> Callable[[Test], Callable[[], None]]:
    """Run a test in an event loop, with an ingest that has these settings and its store."""

    async def run(test: Test) -> None:
        store = _Store()
        ingest = Ingest(store, **named)
        ingest.start()
        try:
            await test(ingest, store)
        finally:
            store.goes_on.set()
            await ingest.stop()

    return lambda test: lambda: asyncio.run(run(test))


@ingesting()
async def test_each_request_gets_its_own_answer(ingest: Ingest, store: _Store) -> None:
    bodies = (b"a", b"bad", b"full", b"four")
    asked = (ingest.take("traces", "protobuf", body) for body in bodies)
    one, bad, full, four = await asyncio.gather(*asked, return_exceptions=True)
    assert (one, four) == (Taken(1), Taken(4))
    assert (type(bad), str(bad), type(full), str(full)) == (OtlpDecodeError, "no export", StoreError, "no room")
    assert (ingest.bad_requests, ingest.refused_requests, store.decoded) == (1, 1, 4)


@ingesting()
async def test_waiting_requests_are_stored_as_one_group_in_order(ingest: Ingest, store: _Store) -> None:
    store.goes_on.clear()
    first = asyncio.create_task(ingest.take("traces", "protobuf", b"first"))
    while not ingest.busy_s:  # noqa: ASYNC110 - another thread begins
        await asyncio.sleep(0.001)
    others = [asyncio.create_task(ingest.take("traces", "protobuf", b"%d" % number)) for number in range(5)]
    while store.decoded < 6:  # noqa: ASYNC110 - another thread decodes
        await asyncio.sleep(0.001)
    store.goes_on.set()
    await asyncio.gather(first, *others)
    await ingest.stop()
    assert store.groups == [[b"first"], [b"0", b"1", b"2", b"3", b"4"]]
    assert store.counted == 2


def test_group_includes_requests_that_are_still_being_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest_module, "_GROUP_S", WAIT_S)
    both_wait = threading.Event()

    @ingesting()
    async def test(ingest: Ingest, store: _Store) -> None:
        decode = store.decode

        def decode_both(request: ExportRequest) -> ExportRequest:
            assert both_wait.wait(WAIT_S)
            return decode(request)

        store.decode = decode_both  # type: ignore[method-assign]
        asked = [asyncio.create_task(ingest.take("traces", "protobuf", body)) for body in (b"first", b"second")]
        await asyncio.sleep(0)
        both_wait.set()
        await asyncio.gather(*asked)
        assert store.groups == [[b"first", b"second"]]

    test()


@ingesting()
async def test_counts_read_after_answer_include_acknowledged_rows(ingest: Ingest, store: _Store) -> None:
    counted = threading.Event()

    def count() -> None:
        assert counted.wait(WAIT_S)
        store.counted = 1

    store.count = count  # type: ignore[method-assign]
    await ingest.take("traces", "protobuf", b"one")  # is answered although nothing is counted
    assert store.counted == 0

    def read() -> int:
        with ingest.counting:
            return store.counted

    reading = asyncio.create_task(asyncio.to_thread(read))
    counted.set()
    assert await reading == 1


@ingesting()
async def test_requests_waiting_at_stop_are_stored_and_answered(ingest: Ingest, store: _Store) -> None:
    store.goes_on.clear()
    asked = [asyncio.create_task(ingest.take("traces", "protobuf", b"%d" % number)) for number in range(3)]
    await asyncio.sleep(0)
    store.goes_on.set()
    await ingest.stop()
    assert await asyncio.gather(*asked) == [Taken(1)] * 3


@ingesting(answer_within_s=0.05)
async def test_request_waiting_too_long_is_refused_and_next_stored(ingest: Ingest, store: _Store) -> None:
    store.goes_on.clear()
    with pytest.raises(Overloaded, match="send it again"):
        await ingest.take("traces", "protobuf", b"late")
    store.goes_on.set()
    assert await ingest.take("traces", "protobuf", b"next") == Taken(4)
    assert ingest.refused_requests == 1


@ingesting()
async def test_group_failing_by_internal_error_is_refused_alone(ingest: Ingest, store: _Store) -> None:
    with pytest.raises(StoreError, match="RuntimeError"):
        await ingest.take("traces", "protobuf", b"fatal")
    assert await ingest.take("traces", "protobuf", b"next") == Taken(4)
    assert store.groups[-1] == [b"next"]


def test_more_than_two_seconds_of_work_are_refused() -> None:
    backlog = Backlog()
    for _ in range(40):  # it is known by now that this takes 1 s for a megabyte
        backlog.add(1_000_000)
        backlog.stored(1_000_000, 1.0)
    for _ in range(3):
        backlog.add(1_000_000)
    with pytest.raises(Overloaded, match="wait"):
        backlog.add(1)
    backlog.stored(3_000_000, 3.0)
    backlog.add(1)


def test_bodies_that_wait_have_a_limit_and_one_alone_has_none() -> None:
    backlog = Backlog(bytes_max=100, seconds_max=1e9)
    backlog.add(1_000)
    with pytest.raises(Overloaded, match="1000 bytes wait"):
        backlog.add(1)
    backlog.stored(1_000, 0.1)
    backlog.add(1_000)
