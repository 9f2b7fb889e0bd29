"""Carries out a plan: asks the targets in the order of its blocks, then under load. Clock and client are given."""

import asyncio
import random
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from loadtest.llm.answers import (
    SECOND_NS,
    CacheCounters,
    FaultKind,
    LlmAnswer,
    LlmFault,
    LlmRequest,
    Message,
    NetworkPath,
)
from loadtest.llm.bodies import LlmTarget
from loadtest.llm.client import LlmClient
from loadtest.llm.plan import (
    CACHE_TURNS,
    SHORT_ANSWER,
    Experiment,
    Plan,
    Unit,
    check_request,
    length_request,
    load_cells,
    load_request,
    loop_of,
    schedule,
    structured_request,
    system_prompt,
)

# After so many in a row of faults that the next request will not mend, a target is asked no more.
_GIVEN_UP_AFTER: Final = 5
_HOPELESS: Final[frozenset[FaultKind]] = frozenset(
    {"address", "connection", "tls", "unauthorized", "unknown_model", "no_answer", "never_ended"}
)
_LONGEST_WAIT_S: Final = 60.0
MOST_IN_FLIGHT: Final = 1000


@dataclass(frozen=True, slots=True)
class AskedSample:
    """An answer and what it was asked for. `state` is `cold`, `warm` or `second turn` of a cache's; `late_s` is how
    much later than its intended moment it was asked."""

    experiment: Experiment
    cell: str
    target: int
    block: int
    answer: LlmAnswer
    prompt: str = ""
    state: str = ""
    late_s: float = 0.0


@dataclass(frozen=True, slots=True)
class AgentLoop:
    """A loop of calls, each with the answers before it; `total_s` is None where one of them failed."""

    cell: str
    target: int
    total_s: float | None
    calls: int


@dataclass(slots=True)
class LevelResult:
    """A time of constant load: callers at the same time (`closed`), or arrivals a second (`open`). `sent` requests are
    answered by the `samples`; of one that was interrupted, some are not. `dropped` arrivals were not sent, because too
    many were unanswered."""

    kind: str
    level: float
    target: int
    begin_ns: int
    end_ns: int
    samples: list[AskedSample] = field(default_factory=list[AskedSample])
    sent: int = 0
    dropped: int = 0


def _nonce() -> str:
    return secrets.token_hex(4)


@dataclass(slots=True)
class Results:
    """Everything that was taken so far."""

    samples: list[AskedSample] = field(default_factory=list[AskedSample])
    loops: list[AgentLoop] = field(default_factory=list[AgentLoop])
    paths: list[tuple[int, NetworkPath]] = field(default_factory=list[tuple[int, NetworkPath]])
    loads: list[LevelResult] = field(default_factory=list[LevelResult])
    given_up: dict[int, LlmFault] = field(default_factory=dict[int, LlmFault])
    is_interrupted: bool = False


@dataclass(slots=True)
class LlmBench:
    """A plan, its targets and what asks them; `on_calls` hears of each number of requests that were answered."""

    plan: Plan
    targets: list[LlmTarget]
    client: LlmClient
    now_ns: Callable[[], int]
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    on_calls: Callable[[int], None] = lambda _calls: None
    results: Results = field(default_factory=Results)
    _failures: dict[int, int] = field(default_factory=dict[int, int])
    _without_counters: set[int] = field(default_factory=set[int])  # or whose answers count cached tokens themselves

    async def run(self) -> Results:
        """Carry it out; `results` has what was taken at any moment."""
        # The first requests of each target are left out: they open the connection and show what it accepts.
        asks = any(experiment != "network" for experiment in self.plan.experiments)
        for place, target in enumerate(self.targets if asks else ()):
            fault = await self.client.learn(target)
            if fault is not None and fault.kind in _HOPELESS:
                self.results.given_up[place] = fault
        for unit in schedule(self.plan, len(self.targets)):
            if unit.target not in self.results.given_up:
                await self._do(unit)
            self.on_calls(unit.calls)
        if "concurrency" in self.plan.experiments:
            await self._load()
        return self.results

    async def _do(self, unit: Unit) -> None:
        match unit.experiment:
            case "lengths":
                name, request = length_request(self.plan, int(unit.cell), unit.block, _nonce())
                await self._take(unit, request, name)
            case "quality":
                prompt = next(prompt for prompt in self.plan.prompts if prompt.name == unit.cell)
                await self._take(unit, check_request(prompt), prompt.name)
            case "structured":
                await self._take(unit, structured_request(unit.cell))
            case "cache":
                await self._cache(unit)
            case "agent":
                self.results.loops.append(await self._loop(unit))
            case _:
                path = await self.client.probe_network(self.targets[unit.target])
                self.results.paths.append((unit.target, path))

    async def _take(self, unit: Unit, request: LlmRequest, prompt: str = "", state: str = "") -> LlmAnswer:
        before = await self._counters(unit)
        answer = await self._ask(unit.target, request)
        answer = await self.client.count_tokens(self.targets[unit.target], answer)
        if before is not None and answer.fault is None:
            answer = await self._with_cached(unit, answer, before)
        self.results.samples.append(
            AskedSample(unit.experiment, unit.cell, unit.target, unit.block, answer, prompt, state)
        )
        return answer

    async def _counters(self, unit: Unit) -> CacheCounters | None:
        if unit.experiment != "cache" or unit.target in self._without_counters:
            return None
        counters = await self.client.cache_counters(self.targets[unit.target])
        if counters is None:
            self._without_counters.add(unit.target)
        return counters

    async def _with_cached(self, unit: Unit, answer: LlmAnswer, before: CacheCounters) -> LlmAnswer:
        """The answer with its prompt's cached tokens by the server's counters, where it does not say them itself.

        Only where these grew by this prompt alone: else somebody else's requests are counted with it.
        """
        usage, timings = answer.usage, answer.timings
        if usage is None or usage.cached is not None or (timings is not None and timings.cache_n is not None):
            self._without_counters.add(unit.target)
            return answer
        after = await self.client.cache_counters(self.targets[unit.target])
        if after is None or after.looked_up - before.looked_up != usage.prompt or after.hits < before.hits:
            return answer
        usage = msgspec.structs.replace(usage, cached=after.hits - before.hits, cached_by="metrics")
        return msgspec.structs.replace(answer, usage=usage)

    async def _ask(self, target: int, request: LlmRequest) -> LlmAnswer:
        answer = await self.client.ask(self.targets[target], request)
        is_hopeless = answer.fault is not None and answer.fault.kind in _HOPELESS
        self._failures[target] = self._failures.get(target, 0) + 1 if is_hopeless else 0
        if answer.fault is not None and self._failures[target] >= _GIVEN_UP_AFTER:
            self.results.given_up[target] = answer.fault
        if answer.fault is not None and answer.fault.retry_after_ns:
            await self.sleep(min(answer.fault.retry_after_ns / SECOND_NS, _LONGEST_WAIT_S))
        return answer

    async def _cache(self, unit: Unit) -> None:
        """A system prompt that is new, the same again with another question, and the second turn of that."""
        system = system_prompt(int(unit.cell), f"{self.plan.seed} {unit.target} {unit.block} {unit.cell} {_nonce()}")
        history: tuple[Message, ...] = ()
        for state, ask in CACHE_TURNS.items():
            messages = (*history, Message("user", ask))
            request = LlmRequest(messages=messages, system=system, max_tokens=SHORT_ANSWER)
            answer = await self._take(unit, request, state=state)
            if state != "cold":  # after which the conversation begins again
                history = (*messages, Message("assistant", answer.text or "Yes."))

    async def _loop(self, unit: Unit) -> AgentLoop:
        order, calls = loop_of(unit.cell)
        history: list[Message] = []
        begin_ns = self.now_ns()

        async def step(number: int, *, is_kept: bool) -> bool:
            ask = f"Step {number}: say in a few words what you do next, given what you said before."
            request = LlmRequest(messages=(*history, Message("user", ask)), max_tokens=SHORT_ANSWER)
            answer = await self._take(unit, request, state="step")
            if is_kept:
                history.extend((request.messages[-1], Message("assistant", answer.text or "…")))
            return answer.fault is None

        if order == "sequential":
            is_whole = True
            for number in range(1, calls + 1):
                is_whole = is_whole and await step(number, is_kept=True)
        else:
            is_whole = await step(1, is_kept=True)
            if is_whole:
                is_whole = all(await asyncio.gather(*(step(n, is_kept=False) for n in range(2, calls + 2))))
        total_s = (self.now_ns() - begin_ns) / SECOND_NS
        return AgentLoop(unit.cell, unit.target, total_s if is_whole else None, calls)

    async def _load(self) -> None:
        rng = random.Random(self.plan.seed)  # noqa: S311 - an order, not a secret
        for kind, level in load_cells(self.plan):
            for target in rng.sample(range(len(self.targets)), len(self.targets)):
                if target in self.results.given_up:
                    continue
                begin_ns = self.now_ns()
                taken = LevelResult(kind, level, target, begin_ns, begin_ns + round(self.plan.level_s * SECOND_NS))
                self.results.loads.append(taken)
                try:
                    await (self._closed(taken) if kind == "closed" else self._open(taken))
                except asyncio.CancelledError:
                    taken.end_ns = min(taken.end_ns, self.now_ns())
                    if not taken.samples:
                        self.results.loads.pop()
                    raise

    async def _closed(self, taken: LevelResult) -> None:
        """So many callers, each asking again when its answer is complete."""

        async def caller(number: int) -> None:
            while self.now_ns() < taken.end_ns and taken.target not in self.results.given_up:
                taken.sent += 1
                answer = await self._ask(taken.target, load_request(self.plan, number, _nonce()))
                taken.samples.append(AskedSample("concurrency", cell, taken.target, number, answer))
                self.on_calls(0)

        cell = f"closed {taken.level:g}"
        await asyncio.gather(*(caller(number) for number in range(int(taken.level))))

    async def _open(self, taken: LevelResult) -> None:
        """Arrivals of a Poisson process, whatever the earlier ones do; each is timed from its intended moment."""
        rng = random.Random(f"{self.plan.seed} {taken.level}")  # noqa: S311 - moments, not a secret
        tasks: set[asyncio.Task[None]] = set()
        cell = f"open {taken.level:g}"

        async def call(number: int, due_ns: int) -> None:
            late_s = (self.now_ns() - due_ns) / SECOND_NS
            answer = await self.client.ask(self.targets[taken.target], load_request(self.plan, number, _nonce()))
            taken.samples.append(AskedSample("concurrency", cell, taken.target, number, answer, late_s=late_s))

        due_ns = taken.begin_ns + round(rng.expovariate(taken.level) * SECOND_NS)
        while due_ns < taken.end_ns:
            await self.sleep(max(0.0, (due_ns - self.now_ns()) / SECOND_NS))
            if sum(not task.done() for task in tasks) >= MOST_IN_FLIGHT:
                taken.dropped += 1
            else:
                taken.sent += 1
                tasks.add(asyncio.create_task(call(taken.sent + taken.dropped, due_ns)))
            due_ns += round(rng.expovariate(taken.level) * SECOND_NS)
        await asyncio.gather(*tasks)
