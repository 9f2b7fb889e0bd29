"""Language models of the assistant's own: the built-in responder, and one that routes questions to others.

The responder has intents, templates and a configured timing model; it is not a language model. The question's words
select an intent, the seed selects one of the intent's templates, and the answer streams word by word: the first after a
draw from the time-to-first-token distribution, the others after draws from the gap distribution. The same question with
the same seed gives the same answer at the same intervals.
"""

import asyncio
import heapq
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from typing import Final

from loadtest.distributions import Delay
from loadtest.targets.assistant.interfaces import Llm, LlmFailed, Question, TextDelta
from loadtest.targets.assistant.questions import normalize
from telemetry.model import semconv

NOT_UNDERSTOOD: Final = "I am sorry, I did not understand that. Could you say it again?"
MODEL: Final = "rules-and-templates"


@dataclass(frozen=True, slots=True)
class Intent:
    """An intent. Any of `words` in the question selects it; the first intent that matches is used."""

    name: str
    words: frozenset[str]
    templates: tuple[str, ...]


def _intent(name: str, words: str, *templates: str) -> Intent:
    return Intent(name, frozenset(words.split()), templates)


INTENTS: Final = (
    _intent("stop", "stop cancel never nevermind quiet", "Alright, I have stopped that.", "Done. I cancelled it."),
    _intent(
        "weather",
        "weather rain raining sunny temperature forecast umbrella snow",
        "It stays dry and mild today. Tomorrow brings some light rain in the afternoon.",
        "Expect sunshine with a few clouds. An umbrella is not needed before the evening.",
    ),
    _intent(
        "timer",
        "timer alarm remind reminder wake",
        "Your reminder is set. I will let you know when it is time.",
        "Okay, that is noted. You will hear from me then.",
    ),
    _intent(
        "light",
        "light lights lamp dim brightness heating thermostat",
        "The change is made. Say stop if you want it back as it was.",
        "Okay, it is switched.",
    ),
    _intent(
        "music",
        "play music song playlist radio volume",
        "Here is something that fits. I will keep the volume low.",
        "Playing it now.",
    ),
    _intent(
        "booking",
        "book table reservation flight appointment order ticket hotel",
        "I found an open slot that fits. Shall I confirm it for you?",
        "There is one left for that time. I have put it on hold for ten minutes.",
    ),
    _intent(
        "account",
        "account card balance payment invoice bill password address phone number",
        "I can help with that. For your safety I will first send a code to the number we know.",
        "Your request is recorded. A colleague confirms it within one working day.",
    ),
    _intent(
        "move",
        "go forward backward left right turn meters",
        "Moving as you said. The way is clear.",
        "On my way.",
    ),
    _intent("time", "time date day clock late", "It is early enough for everything that you have planned today."),
    _intent("thanks", "thanks thank bye goodbye", "You are welcome. Have a good day.", "Gladly. Until next time."),
)
_DEFAULT: Final = (
    "Good question. Tell me a little more, please.",
    "I see. It depends on a few things. Shall I go on?",
)


def find_intent(text: str) -> Intent | None:
    """Return the intent of a question, or None if no intent has any of its words."""
    words = set(re.findall(r"[a-z']+", text.lower()))
    return next((intent for intent in INTENTS if intent.words & words), None)


def choose_answer(question: Question) -> str:
    """Return the whole answer; a question without words counts as not understood."""
    if not re.search(r"[a-z']", question.text.lower()):
        return NOT_UNDERSTOOD
    intent = find_intent(question.text)
    templates = _DEFAULT if intent is None else intent.templates
    return templates[question.source.randrange(len(templates))]


def split_tokens(answer: str) -> list[str]:
    """Split an answer into words, each with the space before it; joined, they give the answer again."""
    return re.findall(r"\s*\S+", answer)


class RuleLlm(Llm):
    """The built-in responder."""

    def __init__(
        self,
        ttft: Delay,
        gap: Delay,
        parallel: int | None = None,
        always: str | None = None,
        *,
        model: str = MODEL,
        route: semconv.Route = "local",
    ) -> None:
        """`parallel` is the number of answers generated at the same time, others wait; None means no limit. `always` is
        the answer to every question that has words; None selects one by the question."""
        self.model = model
        self.route: semconv.Route = route
        self._ttft = ttft
        self._gap = gap
        self._always = always
        self._free_perf_ns: list[int] | None = None if parallel is None else [0] * parallel

    async def answer(self, question: Question) -> AsyncGenerator[TextDelta]:
        """Yield all tokens at once, each with its due time."""
        ttft_ns = self._ttft.draw_ns(question.source)
        match = find_intent(question.text)
        intent = None if match is None else match.name
        tokens = split_tokens(self._always or choose_answer(question))
        gaps_ns = [self._gap.draw_ns(question.source) for _ in tokens]
        due_ns = self._begin_perf_ns(question.asked_perf_ns, ttft_ns + sum(gaps_ns)) + ttft_ns
        for token, gap_ns in zip(tokens, gaps_ns, strict=True):
            yield TextDelta(token, due_ns, intent=intent)
            due_ns += gap_ns

    def _begin_perf_ns(self, asked_perf_ns: int, lasts_ns: int) -> int:
        """Return when generating an answer begins: in the slot that is free first, which it occupies until complete."""
        if self._free_perf_ns is None:
            return asked_perf_ns
        begin = max(asked_perf_ns, self._free_perf_ns[0])
        heapq.heapreplace(self._free_perf_ns, begin + lasts_ns)
        return begin


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


class RoutedLlm(Llm):
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
        """Stream the answer; each delta says which model it is from."""
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
        """Start both models."""
        await self._local.start()
        await self._cloud.start()

    async def stop(self) -> None:
        """Stop both models."""
        await self._local.stop()
        await self._cloud.stop()
