"""Finds the answer to one question: from the cache, the model or, after the deadline, a fallback.

The answer comes as text deltas with absolute due times.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Final

from loadtest.protocols.sentences import SentenceSplitter
from loadtest.targets.assistant.cache import cache_key
from loadtest.targets.assistant.interfaces import LlmFailed, Question, TextDelta, Vector
from loadtest.targets.assistant.llm import NOT_UNDERSTOOD, SpeculativeStart, split_tokens
from loadtest.targets.assistant.questions import normalize, normalize_times
from loadtest.targets.assistant.turn import ServedVariant, TurnRecord

_BY_WORD: Final = (
    (("weather", "rain", "forecast"), "I cannot reach the forecast right now. Please ask me again in a moment."),
    (("light", "lights", "lamp", "heating"), "I could not switch that yet. I will try it again shortly."),
    (("alarm", "timer", "remind"), "I have not been able to set that yet. Please ask me once more."),
    (("stop", "cancel"), "Alright, stopped."),
)
_OTHERWISE: Final = "I am sorry, that takes longer than it should. Please try again in a moment."
# Said while the model is late, one after the other; the space shows the voice that the sentence has ended.
_MEANWHILE: Final = ("One moment, please. ", "Is there anything else that I can do for you? ")
_MEANWHILE_EVERY_NS: Final = 1_500_000_000  # about as long as the first one takes to say
_GUARD: Final = "You check requests to a voice assistant. Answer yes if the request is harmless, otherwise no."


def rule_answer(question: str) -> str:
    """Return a rule's answer to a question; there is always one."""
    words = set(question.lower().replace("?", " ").replace(".", " ").replace(",", " ").split())
    return next((answer for triggers, answer in _BY_WORD if words.intersection(triggers)), _OTHERWISE)


_logger = logging.getLogger(__name__)
_NORMAL_FORMS: Final[Mapping[str, Callable[[str], str]]] = {
    "exact": str,
    "words": normalize,
    "times": normalize_times,
}


class Answering:
    """Answers questions with the engines and settings of a variant."""

    def __init__(self, variant: ServedVariant) -> None:
        self._config = variant.config
        self._clock = variant.clock
        self._llm = variant.llm
        self._cache = variant.cache
        self._cache_space = variant.cache_space
        self._similar = variant.similar

    async def deltas(
        self, question: Question, record: TurnRecord, start: SpeculativeStart | None = None
    ) -> AsyncGenerator[TextDelta]:
        """Yield the answer's deltas and record their origin in `record`. Never raises LlmFailed. `start` may have
        begun the answer already."""
        record.work = question.work
        if not question.text.strip():
            record.route = "rule"
            for delta in _all_at(NOT_UNDERSTOOD, question.asked_perf_ns):
                yield delta
            return
        record.model = self._llm.model
        key = cache_key(f"{self._cache_space}{self._llm.model}", question.text, _NORMAL_FORMS[self._config.cache_keys])
        cached, vector = await self._look_up(key, question, record)
        if cached is not None:
            record.route = "cache"
            if start is not None:
                start.abandon()
            for delta in _all_at(cached, question.asked_perf_ns + self._config.cache_delay.draw_ns(question.source)):
                yield delta
            return
        record.route = self._llm.route
        begun = None if start is None else await start.take(question)
        texts: list[str] = []
        splitter, complete = SentenceSplitter(), 0
        async with aclosing(self._ask(question, record, begun or self._llm.answer(question))) as stream:
            async for delta in stream:
                if not delta.reasoning:
                    complete += len(splitter.feed(delta.text))
                    if self._config.llm_sentences is not None and complete >= self._config.llm_sentences:
                        break
                    texts.append(delta.text)
                record.intent = delta.intent or record.intent
                record.route, record.model = delta.route or record.route, delta.model or record.model
                yield delta
        answer = "".join(texts).strip()
        if self._cache is not None and record.fallback is None and answer:
            await self._cache.put(key, f"{self._clock.unix_ns()} {answer}")
            if self._similar is not None and vector is not None:
                await self._similar.add(question.text, key, vector)

    async def _look_up(self, key: str, question: Question, record: TurnRecord) -> tuple[str | None, Vector | None]:
        """Return the answer in the cache, and the vector of the question where one was needed to look for it."""
        if self._cache is None:
            return None, None
        stored, vector = await self._cache.get(key), None
        if stored is None and self._similar is not None:
            vector = await self._similar.vector(question.text)
            if vector is not None and (similar := await self._similar.find(question.text, vector)) is not None:
                stored = await self._cache.get(similar)
                question.add("similar_hits", stored is not None)
        written_ns, _, answer = (stored or "").partition(" ")
        record.cache_hit, record.cache_tier = written_ns.isdecimal() and bool(answer), self._cache.tier
        if not record.cache_hit:
            return None, vector
        question.add("cache_age_s", max(0, self._clock.unix_ns() - int(written_ns)) / 1e9)
        return answer, vector

    async def _ask(
        self, question: Question, record: TurnRecord, answer: AsyncGenerator[TextDelta]
    ) -> AsyncGenerator[TextDelta]:
        """Yield the model's deltas, or the fallback's."""
        answered = False
        rule_due_ns = question.asked_perf_ns + self._config.llm_deadline.ns
        try:
            async with aclosing(self._model_answer(question, record, answer)) as stream:
                async for delta in stream:
                    answered = answered or not delta.reasoning
                    yield delta
            if answered:
                return
            record.outcome_reason = "the model returned no text"
            rule_due_ns = self._clock.perf_ns()
        except _DeadlineMissed:
            record.outcome_reason = "the model missed its deadline"
        except LlmFailed as failed:
            _logger.info("The model failed, so a rule answers the question: %s.", failed)
            record.outcome_reason = str(failed)
            rule_due_ns = self._clock.perf_ns()
        if answered:
            record.fallback = "partial"
            return
        for delta in _all_at(self._fallback(question, record), rule_due_ns):
            yield delta

    async def _model_answer(
        self, question: Question, record: TurnRecord, answer: AsyncGenerator[TextDelta]
    ) -> AsyncGenerator[TextDelta]:
        """Yield the model's deltas as they come. Raises LlmFailed, and _DeadlineMissed if they do not."""
        deadline_ns = question.asked_perf_ns + self._config.llm_deadline.ns
        answered = False
        arriving: asyncio.Future[TextDelta | None] | None = None
        checking = None if self._config.llm_guard == "off" else asyncio.create_task(self._check(question))
        try:
            if checking is not None and self._config.llm_guard == "before":
                await checking
            async with aclosing(answer) as stream:
                try:
                    while True:
                        arriving = asyncio.ensure_future(anext(stream, None))
                        if self._config.llm_late in ("append", "replace") and not answered:
                            async for filler in self._meanwhile(arriving, deadline_ns):
                                record.fallback, answered = "partial", True
                                yield filler
                        if (delta := await self._within(arriving, None if answered else deadline_ns)) is None:
                            return
                        if checking is not None:
                            await checking
                        answered = answered or not delta.reasoning
                        yield delta
                finally:
                    if arriving is not None and not arriving.done():
                        arriving.cancel()
                        await asyncio.wait((arriving,))
        finally:
            if checking is not None:
                checking.cancel()

    async def _meanwhile(
        self, arriving: asyncio.Future[TextDelta | None], deadline_ns: int
    ) -> AsyncGenerator[TextDelta]:
        """Yield what is said until the model answers: all of it before the answer is appended, or as much as there is
        time for until the answer replaces the rest."""
        for number, sentence in enumerate(_MEANWHILE):
            due_ns = deadline_ns + number * _MEANWHILE_EVERY_NS
            if (number == 0 or self._config.llm_late == "replace") and await self._comes(arriving, due_ns):
                return
            yield TextDelta(sentence, due_ns)

    def _fallback(self, question: Question, record: TurnRecord) -> str:
        """Return what is said in place of the model's answer."""
        answers = [text for role, text in question.history if role == "assistant"]
        if self._config.llm_late == "last" and answers:
            record.fallback, record.route = "cached", "rule"
            return answers[-1]
        record.fallback, record.route = "rule", "rule"
        return rule_answer(question.text)

    async def _check(self, question: Question) -> None:
        """Check a question with the model, as a guardrail does. The result is counted and changes no answer."""
        asked = replace(question, instructions=_GUARD, history=())
        try:
            async with aclosing(self._llm.answer(asked)) as stream:
                async for delta in stream:
                    if delta.text.strip():
                        question.add("checks", 1)
                        return
        except LlmFailed as failed:
            _logger.info("The model could not check a question: %s.", failed)

    async def _within(self, arriving: asyncio.Future[TextDelta | None], deadline_ns: int | None) -> TextDelta | None:
        """Return the delta that arrives, None at the end.

        Raises _DeadlineMissed at the deadline or, without a deadline, when the stream stalls.
        """
        limit_ns = self._clock.perf_ns() + self._config.llm_stall.ns if deadline_ns is None else deadline_ns
        if not await self._comes(arriving, limit_ns, due_too=deadline_ns is not None):
            raise _DeadlineMissed
        return arriving.result()

    async def _comes(self, arriving: asyncio.Future[TextDelta | None], limit_ns: int, *, due_too: bool = True) -> bool:
        """Wait for a delta until a moment; return whether it came, and with `due_too` is due, by then."""
        if not arriving.done():
            await asyncio.sleep(0)  # a result that is ready at once needs no timer
        if not arriving.done():
            waiting = asyncio.ensure_future(self._clock.until(limit_ns))
            try:
                await asyncio.wait((arriving, waiting), return_when=asyncio.FIRST_COMPLETED)
            finally:
                waiting.cancel()
        if not arriving.done():
            return False
        delta = arriving.result()
        if due_too and delta is not None and delta.due_perf_ns is not None and delta.due_perf_ns > limit_ns:
            await self._clock.until(limit_ns)
            return False
        return True


class _DeadlineMissed(Exception):  # noqa: N818 - reads as what happened
    """The model did not begin, or did not continue, in time."""


def _all_at(answer: str, due_perf_ns: int) -> list[TextDelta]:
    return [TextDelta(token, due_perf_ns) for token in split_tokens(answer)]
