"""A client of scripted models in virtual time: what a bench finds is what was scripted, to the nanosecond."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Self

from loadtest.llm.answers import (
    SECOND_NS,
    CacheCounters,
    LlmAnswer,
    LlmChunk,
    LlmFault,
    LlmRequest,
    LlmUsage,
    NetworkPath,
    ToolCall,
)
from loadtest.llm.bodies import LlmTarget
from loadtest.llm.client import LlmClient


class _NoWait(selectors.SelectSelector):
    """Skips every wait, and says how long it would have been."""

    def __init__(self) -> None:
        super().__init__()
        self.skipped = 0.0

    def select(self, timeout: float | None = None) -> Any:
        self.skipped += timeout or 0.0
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes only by waiting."""

    def __init__(self) -> None:
        self.waits = _NoWait()
        super().__init__(self.waits)

    def time(self) -> float:
        return self.waits.skipped


def run_virtually(make: Callable[[VirtualLoop], Coroutine[Any, Any, Any]]) -> Any:
    """Run a coroutine that is given its loop."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(make(loop))
    finally:
        loop.close()


@dataclass
class Script:
    """One model: times in s. `cache_counts` is whether its usage counts cached tokens; `servers` how many answers it
    writes at the same time; `counters` are those of its page of metrics; `fault_of` gives the fault of a request by its
    number."""

    first_s: float = 0.1
    per_token_s: float = 0.01
    connect_s: float = 0.002
    cache_counts: bool = True
    counters: CacheCounters | None = None
    of_others: int = 0  # tokens that somebody else's requests look up during each request
    servers: int = 1000
    text: str = "It is so. And then "
    tool: str = '{"room": "kitchen", "minutes": 12}'
    tokens_of: Callable[[LlmRequest], int] = lambda request: request.max_tokens or 10
    fault_of: Callable[[int], LlmFault | None] = lambda _number: None
    asked: list[LlmRequest] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    pages: int = 0  # how often its page of metrics was read


@dataclass
class ScriptedClient(LlmClient):
    """Answers as the scripts say, by the names of the targets."""

    loop: VirtualLoop
    scripts: dict[str, Script]
    order: list[str] = field(default_factory=list)
    _gates: dict[str, asyncio.Semaphore] = field(default_factory=dict)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return

    def now_ns(self) -> int:
        return round(self.loop.time() * SECOND_NS)

    async def learn(self, target: LlmTarget) -> LlmFault | None:
        return self.scripts[target.name].fault_of(0)

    async def count_tokens(self, target: LlmTarget, answer: LlmAnswer) -> LlmAnswer:
        return answer

    async def cache_counters(self, target: LlmTarget) -> CacheCounters | None:
        script = self.scripts[target.name]
        script.pages += 1
        return script.counters

    async def probe_network(self, target: LlmTarget) -> NetworkPath:
        self.order.append(target.name)
        await asyncio.sleep(0.004)
        return NetworkPath(0.001, 0.002, None, 0.01, "OPTIONS /models")

    async def ask(self, target: LlmTarget, request: LlmRequest) -> LlmAnswer:
        script = self.scripts[target.name]
        script.asked.append(request)
        self.order.append(target.name)
        fault = script.fault_of(len(script.asked))
        started_ns = self.now_ns()
        gate = self._gates.setdefault(target.name, asyncio.Semaphore(script.servers))
        async with gate:
            is_cached = len(request.system or "") > 100 and request.system in script.seen
            script.seen.add(request.system or "")
            await asyncio.sleep(0.0 if fault else script.first_s / (10 if is_cached else 1))
            first_ns = self.now_ns()
            tokens = script.tokens_of(request)
            await asyncio.sleep(0.0 if fault else script.per_token_s * (tokens - 1))
        last_ns = self.now_ns()
        step = (last_ns - first_ns) // max(1, tokens - 1)
        pieces = (script.text + "w" * tokens)[:tokens]
        if request.json_schema is not None:
            pieces = '{"name": "Ada", "people": 4, "day": "Friday"}'
            tokens = 1
        chunks = [LlmChunk(at, at, piece) for place, piece in enumerate(pieces) if (at := first_ns + place * step)]
        if request.json_schema is not None:
            chunks = [LlmChunk(last_ns, last_ns, pieces)]
        prompt = sum(len(message.content.split()) for message in request.messages) + len((request.system or "").split())
        hits = prompt - 5 if is_cached else 0
        cached = hits if script.cache_counts else None
        if (known := script.counters) is not None:
            script.counters = CacheCounters(known.looked_up + prompt + script.of_others, known.hits + hits)
        return LlmAnswer(
            target=target.name,
            started_ns=started_ns,
            asked_ns=started_ns,
            first_byte_ns=started_ns + 1_000_000,
            finished_ns=last_ns,
            chunks=() if fault else tuple(chunks),
            tool_calls=(ToolCall("set_timer", script.tool),) if request.tools and not fault else (),
            usage=None if fault else LlmUsage(prompt=prompt, cached=cached, completion=tokens),
            served_model="scripted-1",
            fault=fault,
        )
