"""Answers that are begun before it is certain that they are wanted."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress

from loadtest.targets.assistant.llm.base import Llm, LlmFailed, Question, TextDelta
from loadtest.targets.assistant.questions import normalize


class BegunAnswer:
    """An answer in progress, whose deltas are kept until somebody wants them."""

    def __init__(self, llm: Llm, question: Question) -> None:
        self._kept: asyncio.Queue[TextDelta | LlmFailed | None] = asyncio.Queue()
        self._tokens = 0
        self._task = asyncio.create_task(self._run(llm, question))

    async def _run(self, llm: Llm, question: Question) -> None:
        try:
            async with aclosing(llm.answer(question)) as stream:
                async for delta in stream:
                    self._tokens += 1
                    self._kept.put_nowait(delta)
        except LlmFailed as failed:
            self._kept.put_nowait(failed)
            return
        self._kept.put_nowait(None)

    async def deltas(self) -> AsyncGenerator[TextDelta]:
        """Yield the answer from its beginning. Raises LlmFailed."""
        while (delta := await self._kept.get()) is not None:
            if isinstance(delta, LlmFailed):
                raise delta
            yield delta

    def abandon(self) -> None:
        """End the answer, without waiting for its end."""
        self._task.cancel()

    async def cancel(self) -> int:
        """End the answer; return how many tokens it had by then."""
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        return self._tokens


class SpeculativeStart:
    """Begins an answer on each new partial transcript, before the final one; one utterance.

    Nothing of it is used before the final transcript has the same words: what was begun on other words is thrown away.
    """

    def __init__(self, llm: Llm, ask: Callable[[str], Question]) -> None:
        """`ask` makes a question of a partial transcript."""
        self._llm = llm
        self._ask = ask
        self._words = ""
        self._begun: BegunAnswer | None = None
        self._starts = 0
        self._wasted_tokens = 0

    async def partial(self, words: str) -> None:
        """Begin the answer to the words so far, unless it is in progress."""
        if normalize(words) != self._words:
            await self.cancel()
            self._words, self._starts = normalize(words), self._starts + 1
            self._begun = BegunAnswer(self._llm, self._ask(words))

    async def take(self, question: Question) -> AsyncGenerator[TextDelta] | None:
        """Return the deltas of the answer to the final transcript if it was begun on the same words, else None."""
        is_right = self._begun is not None and normalize(question.text) == self._words
        begun = self._begun if is_right else None
        if not is_right:
            await self.cancel()
        question.add("speculative_starts", self._starts)
        question.add("wrong_starts", self._starts - is_right)
        question.add("wasted_tokens", self._wasted_tokens)
        return None if begun is None else begun.deltas()

    def abandon(self) -> None:
        """End what is in progress, without waiting for it."""
        if self._begun is not None:
            self._begun.abandon()

    async def cancel(self) -> None:
        """End what is in progress."""
        begun, self._begun, self._words = self._begun, None, ""
        if begun is not None:
            self._wasted_tokens += await begun.cancel()
