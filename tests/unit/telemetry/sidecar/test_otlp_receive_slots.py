"""Slots for gRPC messages that are being received: limits, order and yielding."""

import asyncio
from collections.abc import Callable, Coroutine
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


def in_a_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run a test in an event loop; the bound only ends a hopeless wait."""
    return lambda: asyncio.run(asyncio.wait_for(test(), 120))


@in_a_loop
async def test_messages_come_in_turn_and_one_too_many_is_sent_back() -> None:
    slots = ReceiveSlots(1000, slots=1, waiting_max=2, patience_s=1000)
    order: list[str] = []

    def named(name: str) -> "asyncio.Task[object]":
        async def read() -> object:
            order.append(name)
            return name

        return asyncio.create_task(slots.receive(read))

    holder = asyncio.create_task(slots.receive(_never))
    await _settled()
    first, second, third = (named(name) for name in ("first", "second", "third"))
    await _settled()
    with pytest.raises(NoSlot):
        await third
    holder.cancel()
    assert await asyncio.gather(first, second) == order == ["first", "second"]
    assert [await slots.receive(_at_once) for _ in range(3)] == [b"message"] * 3, "no slot was lost"


@in_a_loop
async def test_a_message_that_does_not_come_ends_in_a_timeout() -> None:
    slots = ReceiveSlots(0.05, slots=1, patience_s=10)
    with pytest.raises(TimeoutError):
        await slots.receive(_never)
    assert await slots.receive(_at_once) == b"message"


@in_a_loop
async def test_a_slow_message_yields_only_to_others() -> None:
    slots = ReceiveSlots(1000, slots=1, patience_s=0.02)
    slow = asyncio.ensure_future(slots.receive(_never))
    done, _ = await asyncio.wait([slow], timeout=0.2)
    assert not done, "nobody waits"
    assert await slots.receive(_at_once) == b"message"
    with pytest.raises(NoSlot):
        await slow


@in_a_loop
async def test_a_sender_that_gives_up_waiting_loses_no_slot() -> None:
    slots = ReceiveSlots(1000, slots=1, patience_s=1000)
    holder = asyncio.create_task(slots.receive(_never))
    await _settled()
    waiting = asyncio.create_task(slots.receive(_at_once))
    await _settled()
    # The slot is given to it in the same moment in which it gives up.
    holder.cancel()
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(holder, waiting, return_exceptions=True)
    assert await slots.receive(_at_once) == b"message"


@in_a_loop
async def test_waiting_for_a_slot_ends() -> None:
    with pytest.raises(NoSlot):
        await ReceiveSlots(0.05, slots=0).receive(_at_once)
