"""Accuracy of the figures of `voiceprobe llm`, against a server that declares its own times.

.venv/bin/python -m tests.benchmarks.llm.accuracy figures    64 streams at a time: each figure against the declared one
.venv/bin/python -m tests.benchmarks.llm.accuracy speed      200 streams of 100 tokens/s, client on one core
"""

import asyncio
import contextlib
import json
import os
import random
import subprocess
import sys
import time
import urllib.request
from collections.abc import Generator
from itertools import pairwise
from pathlib import Path

from loadtest.llm.answers import LlmAnswer, LlmRequest, Message
from loadtest.llm.bodies import LlmTarget
from loadtest.llm.client import LlmClient, run
from tests.integration.llm.declared_server import Plan

SERVER = Path(__file__).parents[2] / "integration" / "llm" / "declared_server.py"
ABSOLUTE_S, RELATIVE = 0.002, 0.01


@contextlib.contextmanager
def declared_server() -> Generator[LlmTarget]:
    """Run the server until the block ends, on the last core where there are several."""
    command = [sys.executable, str(SERVER)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        if (cores := os.cpu_count() or 1) > 1:
            os.sched_setaffinity(process.pid, {cores - 1})
        go_first(process.pid)
        assert process.stdout is not None
        try:
            yield LlmTarget(f"http://127.0.0.1:{int(process.stdout.readline())}", "small", key=None)
        finally:
            process.terminate()


def go_first(pid: int) -> None:
    """Give a process a core, although others want it too, where that is allowed."""
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(pid, os.SCHED_FIFO, os.sched_param(1))


def request_of(plan: Plan) -> LlmRequest:
    return LlmRequest(
        messages=(Message("user", "Go."),),
        max_tokens=plan.tokens,
        extra_body={"declared": plan.as_json()},
    )


def random_plan(chance: random.Random, name: str) -> Plan:
    per_chunk, tokens = chance.randint(1, 5), chance.randint(20, 200)
    chunks = -(-tokens // per_chunk)
    return Plan(
        first_ms=chance.uniform(20, 800),
        tokens=tokens,
        per_chunk=per_chunk,
        gap_ms=chance.uniform(8, 40),
        stalls={chance.randrange(1, chunks): chance.uniform(100, 600)} if chance.random() < 0.3 else {},
        sentence_at=chance.randrange(1, chunks),
        cached=chance.randint(0, 100),
        running=chance.random() < 0.5,
        name=name,
    )


def declared(plan: Plan, due: list[float]) -> dict[str, float]:
    """Each figure as the plan declares it, or as it was with the moments (s) when the server really sent."""
    gaps = [later - earlier for earlier, later in pairwise(due)]
    return {
        "first_token_s": due[0],
        "first_sentence_s": due[plan.sentence_at or 0],
        "wall_s": due[-1],
        "tokens_per_s": (plan.tokens - 1) / (due[-1] - due[0]),
        "tokens_per_s_wall": plan.tokens / due[-1],
        "tokens_per_chunk": plan.tokens / len(due),
        "longest gap_s": max(gaps),
        "median gap_s": sorted(gaps)[len(gaps) // 2],
        "completion": plan.tokens,
        "cached": plan.cached,
    }


def measured(answer: LlmAnswer) -> dict[str, float | None]:
    gaps = sorted(answer.gaps_s)
    usage = answer.usage
    return {
        **{name: getattr(answer, name) for name in ("first_token_s", "first_sentence_s", "wall_s", "tokens_per_s")},
        "tokens_per_s_wall": answer.tokens_per_s_wall,
        "tokens_per_chunk": answer.tokens_per_chunk,
        "longest gap_s": gaps[-1] if gaps else None,
        "median gap_s": gaps[len(gaps) // 2] if gaps else None,
        "completion": None if usage is None else usage.completion,
        "cached": None if usage is None else usage.cached,
    }


async def figures(target: LlmTarget, at_a_time: int = 64, rounds: int = 4) -> None:
    chance = random.Random(7)
    go_first(0)
    plans = [random_plan(chance, str(place)) for place in range(at_a_time * rounds)]
    answers: list[tuple[Plan, LlmAnswer]] = []
    async with LlmClient() as client:
        todo = iter(plans)

        async def one() -> None:
            answers.extend([(plan, await client.ask(target, request_of(plan))) for plan in todo])

        await asyncio.gather(*(one() for _ in range(at_a_time)))
    with urllib.request.urlopen(f"{target.url}/log") as response:  # noqa: ASYNC210, S310 - nothing else runs any more
        log: dict[str, list[int]] = json.load(response)
    sent = {name: [(moment - asked) / 1e9 for moment in moments] for name, (asked, *moments) in log.items()}
    due = {plan.name: [moment / 1_000 for moment in plan.due_ms()] for plan in plans}
    late = sorted(at - wanted for name, moments in sent.items() for at, wanted in zip(moments, due[name], strict=True))
    print(f"{len(answers)} answers, {at_a_time} at a time; faults: {[a.fault for _, a in answers if a.fault]}")
    print(f"the server itself was late by {late[len(late) // 2] * 1e3:.3f} ms (p50), {late[-1] * 1e3:.3f} ms (max)")
    for title, reference in (("as declared", due), ("as sent", sent)):
        print(f"\n{title + ':':20} within 2 ms or 1 %   worst difference")
        wanted = [declared(plan, reference[plan.name]) for plan, _ in answers]
        values = [measured(answer) for _, answer in answers]
        for name in wanted[0]:
            pairs = [(one[name], value[name]) for one, value in zip(wanted, values, strict=True)]
            off = [abs(value - want) if value is not None else float("inf") for want, value in pairs]
            allowed = ABSOLUTE_S if name.endswith("_s") and "tokens" not in name else 0.0
            good = sum(gap <= max(allowed, RELATIVE * want) for gap, (want, _) in zip(off, pairs, strict=True))
            worst = max(range(len(off)), key=lambda at: off[at])
            print(f"{name:20} {good:>8} of {len(off):<8} {off[worst]:>12.5f} of {pairs[worst][0]:.4f}")


async def speed(target: LlmTarget, streams: int = 200, tokens_per_s: float = 100.0, seconds: float = 10.0) -> None:
    plan = Plan(first_ms=500, tokens=round(tokens_per_s * seconds), gap_ms=1_000 / tokens_per_s, stamped=True)
    os.sched_setaffinity(0, {0})
    go_first(0)
    async with LlmClient() as client:

        async def one(place: int) -> LlmAnswer:
            await asyncio.sleep(place * 0.01)
            return await client.ask(target, request_of(plan))

        began, began_cpu = time.perf_counter(), time.process_time()
        answers = await asyncio.gather(*(one(place) for place in range(streams)))
        wall, cpu = time.perf_counter() - began, time.process_time() - began_cpu
    late_ms: list[float] = []
    merged = 0
    for answer in answers:
        assert answer.fault is None, answer.fault
        for chunk in answer.chunks:
            stamps = [int(text) for text in chunk.text.split()]
            merged += len(stamps) > 1
            late_ms += [(chunk.upper_ns - sent) / 1e6 for sent in stamps]
    late_ms.sort()
    share = sum(late <= 1.0 for late in late_ms) / len(late_ms)
    at = [late_ms[min(len(late_ms) - 1, int(q * len(late_ms)))] for q in (0.5, 0.99, 0.999)]
    print(f"{streams} streams of {tokens_per_s:g} tokens/s: {len(late_ms)} tokens in {wall:.1f} s")
    print(f"client's processor time {cpu:.1f} s = {cpu / wall:.0%} of one core")
    print(
        f"arrival stamp - sent: p50 {at[0]:.3f} ms, p99 {at[1]:.3f} ms, p99.9 {at[2]:.3f} ms, max {late_ms[-1]:.3f} ms"
    )
    print(f"right to 1 ms: {share:.4%}; reads with several events: {merged}")


if __name__ == "__main__":
    with declared_server() as where:
        run({"figures": figures, "speed": speed}[sys.argv[1]](where))
