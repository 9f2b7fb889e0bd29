"""Slots for gRPC messages that are being received: limits, order and yielding."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from telemetry.sidecar.otlp.receive_slots import NoSlot, ReceiveSlots


async def _never() -> object:
    return await asyncio.get_running_loop().create_future()


async def _at_once() -> object:
    return b"message"


async def _settled() -> None:
    """Let every task run until it waits."""
    for _ in range(5):
        await asyncio.sleep(0)


def _run(test: Callable[[], Awaitable[Any]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 120))  # type: ignore[arg-type]


def test_a_message_is_received_and_its_slot_is_free_again() -> None:
    async def test() -> None:
        slots = ReceiveSlots(10, slots=1)
        assert [await slots.receive(_at_once, "one") for _ in range(3)] == [b"message"] * 3

    _run(test)


def test_a_message_that_does_not_come_ends_in_a_timeout() -> None:
    async def test() -> None:
        slots = ReceiveSlots(0.05, slots=1, patience_s=10)
        with pytest.raises(TimeoutError):
            await slots.receive(_never, "other")
        assert await slots.receive(_at_once, "one") == b"message"

    _run(test)


def test_a_slow_message_yields_only_to_others() -> None:
    async def test() -> None:
        slots = ReceiveSlots(1000, slots=1, patience_s=0.02)
        slow = asyncio.ensure_future(slots.receive(_never, "other"))
        done, _ = await asyncio.wait([slow], timeout=0.2)
        assert not done, "nobody waits"
        assert await slots.receive(_at_once, "one") == b"message"
        with pytest.raises(NoSlot):
            await slow

    _run(test)


def test_the_newest_is_next_and_the_oldest_is_sent_back_when_too_many_wait() -> None:
    async def test() -> None:
        slots = ReceiveSlots(1000, slots=1, waiting_max=2, patience_s=1000)
        order: list[str] = []

        def named(name: str) -> "asyncio.Task[object]":
            async def read() -> object:
                order.append(name)
                return name

            return asyncio.create_task(slots.receive(read, name))

        holder = asyncio.create_task(slots.receive(_never, "other"))
        await _settled()
        first, second, third = (named(name) for name in ("first", "second", "third"))
        await _settled()
        with pytest.raises(NoSlot):
            await first
        holder.cancel()
        await asyncio.gather(second, third)
        assert order == ["third", "second"]
        assert await slots.receive(_at_once, "one") == b"message", "no slot was lost"

    _run(test)


def test_who_gives_up_waiting_loses_no_slot() -> None:
    async def test() -> None:
        slots = ReceiveSlots(1000, slots=1, patience_s=1000)
        holder = asyncio.create_task(slots.receive(_never, "other"))
        await _settled()
        waiting = asyncio.create_task(slots.receive(_at_once, "one"))
        await _settled()
        # The slot is given to it in the same moment in which it gives up.
        holder.cancel()
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(holder, waiting, return_exceptions=True)
        assert await slots.receive(_at_once, "one") == b"message"

    _run(test)


def test_waiting_for_a_slot_ends() -> None:
    async def test() -> None:
        slots = ReceiveSlots(0.05, slots=0)
        with pytest.raises(NoSlot):
            await slots.receive(_at_once, "one")

    _run(test)


def test_a_sender_whose_message_has_arrived_before_goes_before_all_others() -> None:
    async def test() -> None:
        slots = ReceiveSlots(1000, slots=1, waiting_max=3, patience_s=1000)
        order: list[str] = []

        def task(sender: str) -> "asyncio.Task[object]":
            async def read() -> bytes:
                order.append(sender)
                return b"message"

            return asyncio.create_task(slots.receive(read, sender))

        await task("known")
        holder = asyncio.create_task(slots.receive(_never, "holder"))
        await _settled()
        known = task("known")
        await _settled()
        unknown = [task(f"unknown-{number}") for number in range(5)]
        await _settled()
        for sent_back in unknown[:3]:
            with pytest.raises(NoSlot):
                await sent_back
        holder.cancel()
        await asyncio.gather(known, *unknown[3:])
        assert order == ["known", "known", "unknown-4", "unknown-3"]

    _run(test)


def test_where_only_known_senders_wait_an_unknown_one_is_sent_back_at_once() -> None:
    async def test() -> None:
        slots = ReceiveSlots(1000, slots=1, waiting_max=2, patience_s=1000)
        for sender in ("a", "b", "c"):
            await slots.receive(_at_once, sender)
        holder = asyncio.create_task(slots.receive(_never, "holder"))
        await _settled()
        first, second = (asyncio.create_task(slots.receive(_at_once, sender)) for sender in ("a", "b"))
        await _settled()
        with pytest.raises(NoSlot):
            await slots.receive(_at_once, "unknown")
        third = asyncio.create_task(slots.receive(_at_once, "c"))
        await _settled()
        with pytest.raises(NoSlot):
            await first
        holder.cancel()
        assert await asyncio.gather(second, third) == [b"message", b"message"]

    _run(test)


def test_who_sent_no_message_is_not_known() -> None:
    async def test() -> None:
        async def end() -> object:
            return None

        slots = ReceiveSlots(1000, slots=1, waiting_max=1, patience_s=1000)
        await slots.receive(end, "empty")
        holder = asyncio.create_task(slots.receive(_never, "holder"))
        await _settled()
        empty = asyncio.create_task(slots.receive(_at_once, "empty"))
        await _settled()
        newest = asyncio.create_task(slots.receive(_at_once, "other"))
        with pytest.raises(NoSlot):
            await empty
        holder.cancel()
        assert await newest == b"message"

    _run(test)
