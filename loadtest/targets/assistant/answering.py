"""Finds the answer to one question: from the cache, the model or, after the deadline, a rule.

The answer comes as text deltas with absolute due times.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from loadtest.distributions import Delay
from loadtest.targets.assistant.cache.base import PromptCache, cache_key
from loadtest.targets.assistant.clock import Clock
from loadtest.targets.assistant.llm.base import Llm, LlmFailed, Question, TextDelta
from loadtest.targets.assistant.llm.rules import NOT_UNDERSTOOD, split_tokens
from loadtest.targets.assistant.record import TurnRecord

_BY_WORD: Final = (
    (("weather", "rain", "forecast"), "I cannot reach the forecast right now. Please ask me again in a moment."),
    (("light", "lights", "lamp", "heating"), "I could not switch that yet. I will try it again shortly."),
    (("alarm", "timer", "remind"), "I have not been able to set that yet. Please ask me once more."),
    (("stop", "cancel"), "Alright, stopped."),
)
_OTHERWISE: Final = "I am sorry, that takes longer than it should. Please try again in a moment."


def rule_answer(question: str) -> str:
    """Return a rule's answer to a question; there is always one."""
    words = set(question.lower().replace("?", " ").replace(".", " ").replace(",", " ").split())
    return next((answer for triggers, answer in _BY_WORD if words.intersection(triggers)), _OTHERWISE)


_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Answering:
    """The settings and engines for answering, shared by all sessions."""

    llm: Llm
    cache: PromptCache | None
    cache_delay: Delay
    deadline_ns: int
    stall_ns: int
    clock: Clock
    cache_space: str = ""  # answers are found again by those of the same space alone

    async def deltas(self, question: Question, record: TurnRecord) -> AsyncGenerator[TextDelta]:
        """Yield the answer's deltas and record their origin in `record`. Never raises LlmFailed."""
        if not question.text.strip():
            record.route = "rule"
            for delta in _all_at(NOT_UNDERSTOOD, question.asked_perf_ns):
                yield delta
            return
        record.model = self.llm.model
        key = cache_key(f"{self.cache_space}{self.llm.model}", question.text)
        cached = await self._look_up(key, record)
        if cached is not None:
            record.route = "cache"
            for delta in _all_at(cached, question.asked_perf_ns + self.cache_delay.draw_ns(question.source)):
                yield delta
            return
        record.route = self.llm.route
        texts: list[str] = []
        async with aclosing(self._ask(question, record)) as stream:
            async for delta in stream:
                if not delta.reasoning:
                    texts.append(delta.text)
                record.intent = delta.intent or record.intent
                yield delta
        answer = "".join(texts).strip()
        if self.cache is not None and record.fallback is None and answer:
            await self.cache.put(key, answer)

    async def _look_up(self, key: str, record: TurnRecord) -> str | None:
        if self.cache is None:
            return None
        found = await self.cache.get(key)
        record.cache_hit, record.cache_tier = found is not None, self.cache.tier
        return found

    async def _ask(self, question: Question, record: TurnRecord) -> AsyncGenerator[TextDelta]:
        """Yield the model's deltas, or the fallback's."""
        deadline_ns = question.asked_perf_ns + self.deadline_ns
        answered = False
        rule_due_ns = deadline_ns
        try:
            async with aclosing(self.llm.answer(question)) as stream:
                while (delta := await self._next(stream, deadline_ns if not answered else None)) is not None:
                    answered = answered or not delta.reasoning
                    yield delta
            if answered:
                return
            record.outcome_reason = "the model returned no text"
            rule_due_ns = self.clock.perf_ns()
        except _DeadlineMissed:
            record.outcome_reason = "the model missed its deadline"
        except LlmFailed as failed:
            _logger.info("The model failed, so a rule answers the question: %s.", failed)
            record.outcome_reason = str(failed)
            rule_due_ns = self.clock.perf_ns()
        if answered:
            record.fallback = "partial"
            return
        record.fallback, record.route = "rule", "rule"
        for delta in _all_at(rule_answer(question.text), rule_due_ns):
            yield delta

    async def _next(self, stream: AsyncGenerator[TextDelta], deadline_ns: int | None) -> TextDelta | None:
        """Return the next delta, None at the end.

        Raises _DeadlineMissed at the deadline or, without a deadline, when the stream stalls.
        """
        limit_ns = self.clock.perf_ns() + self.stall_ns if deadline_ns is None else deadline_ns
        arriving = asyncio.ensure_future(anext(stream, None))
        try:
            if not arriving.done():
                await asyncio.sleep(0)  # a result that is ready at once needs no timer
            if not arriving.done():
                waiting = asyncio.ensure_future(self.clock.until(limit_ns))
                try:
                    await asyncio.wait((arriving, waiting), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    waiting.cancel()
            if not arriving.done():
                raise _DeadlineMissed
            delta = arriving.result()
        finally:
            if not arriving.done():
                arriving.cancel()
                await asyncio.wait((arriving,))
        if delta is not None and delta.due_perf_ns is not None and delta.due_perf_ns > limit_ns and deadline_ns:
            await self.clock.until(limit_ns)
            raise _DeadlineMissed
        return delta


class _DeadlineMissed(Exception):  # noqa: N818 - reads as what happened
    """The model did not begin, or did not continue, in time."""


def _all_at(answer: str, due_perf_ns: int) -> list[TextDelta]:
    return [TextDelta(token, due_perf_ns) for token in split_tokens(answer)]
