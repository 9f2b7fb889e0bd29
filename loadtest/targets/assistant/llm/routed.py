"""A model here for some questions and one in the cloud for the others, chosen question by question."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import replace

from loadtest.targets.assistant.llm.base import Llm, Question, TextDelta
from loadtest.targets.assistant.llm.begun import BegunAnswer
from telemetry.model import semconv


class RoutedLlm:
    """Answers by `local` where `stays` says so, else by `cloud`. With `in_parallel` the local model begins while that
    is decided, and has worked for nothing where the question goes to the cloud."""

    def __init__(
        self,
        local: Llm,
        cloud: Llm,
        stays: Callable[[str], Awaitable[bool]],
        now_perf_ns: Callable[[], int],
        *,
        in_parallel: bool = False,
    ) -> None:
        self._local, self._cloud, self._stays = local, cloud, stays
        self._now, self._in_parallel = now_perf_ns, in_parallel
        self.model = f"{local.model} or {cloud.model}"
        self.route: semconv.Route = "local"

    async def answer(self, question: Question) -> AsyncGenerator[TextDelta]:
        """See `Llm`. Each delta says which model it is from."""
        begun = BegunAnswer(self._local, question) if self._in_parallel else None
        try:
            if await self._stays(question.text):
                chosen, stream = self._local, begun.deltas() if begun else self._local.answer(question)
            else:
                if begun is not None:
                    question.add("wasted_tokens", await begun.cancel())
                asked_ns = max(question.asked_perf_ns, self._now())
                chosen, stream = self._cloud, self._cloud.answer(replace(question, asked_perf_ns=asked_ns))
                question.add("cloud_questions", 1)
            async for delta in stream:
                yield replace(delta, route=chosen.route, model=chosen.model)
        finally:
            if begun is not None:
                await begun.cancel()

    async def start(self) -> None:
        """See `Llm`."""
        await self._local.start()
        await self._cloud.start()

    async def stop(self) -> None:
        """See `Llm`."""
        await self._local.stop()
        await self._cloud.stop()
