"""A clock for tests: waiting takes no real time; the time jumps from one awaited moment to the next."""

import asyncio
import heapq
from collections.abc import Coroutine
from typing import Any, TypeVar

_Result = TypeVar("_Result")


class VirtualClock:
    """A fake `loadtest.targets.assistant.clock.Clock`; `run` runs a coroutine in virtual time."""

    def __init__(self, start_ns: int = 1_000_000_000) -> None:
        self.now_ns = start_ns
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._count = 0

    def perf_ns(self) -> int:
        return self.now_ns

    def unix_ns(self) -> int:
        return self.now_ns + 10**18

    async def until(self, moment_ns: int) -> None:
        if moment_ns <= self.now_ns:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._count += 1
        heapq.heappush(self._waiting, (moment_ns, self._count, future))
        await future

    async def until_exactly(self, moment_ns: int) -> None:
        await self.until(moment_ns)

    def run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        return asyncio.run(self._drive(work))

    async def _drive(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        task = asyncio.create_task(work)
        while not task.done():
            for _ in range(30):
                await asyncio.sleep(0)
            if task.done():
                break
            while self._waiting and self._waiting[0][2].done():
                heapq.heappop(self._waiting)
            assert self._waiting, "the task is blocked, and nothing waits for the clock"
            moment_ns, _, future = heapq.heappop(self._waiting)
            self.now_ns = max(self.now_ns, moment_ns)
            future.set_result(None)
        return task.result()
