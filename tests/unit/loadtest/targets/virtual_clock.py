"""A clock for tests, which jumps from one awaited moment to the next, and what serves a call by it."""

import asyncio
import heapq
from collections.abc import Coroutine
from typing import Any, TypeVar

from loadtest.distributions import Delay
from loadtest.targets.assistant.clock import Clock
from loadtest.targets.assistant.config import build_config
from loadtest.targets.assistant.interfaces import AsrEngine
from loadtest.targets.assistant.llm import RuleLlm
from loadtest.targets.assistant.scripted import ScriptedTts
from loadtest.targets.assistant.turn import ServedVariant

_Result = TypeVar("_Result")


class VirtualClock(Clock):
    """A clock in virtual time, in which `run` runs a coroutine."""

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


def served(
    clock: VirtualClock, llm: Any = None, *, tts: Any = None, cache: Any = None, **settings: Any
) -> ServedVariant:
    """Return what serves a call: the given engines, scripted ones for the others, and only the delays of the
    settings."""
    delays = dict.fromkeys(("asr_delay", "llm_ttft", "llm_gap", "tts_delay", "tts_leading_silence"), "none")
    own = {name: None for name in delays if tts is not None and name.startswith("tts_")}
    engine = {"tts": "espeak"} if tts is not None else {}
    config = build_config({**delays, "cache_delay": "none", **own, **engine, **settings})
    rules = RuleLlm(config.llm_ttft or Delay(), config.llm_gap or Delay())
    return ServedVariant(config, clock, AsrEngine(), llm or rules, tts or ScriptedTts(), cache)
