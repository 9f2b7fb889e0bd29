"""Answers from any OpenAI-compatible chat endpoint, streamed as server-sent events.

Reasoning text is separated from the answer: the fields `reasoning_content` or `reasoning`, and text between <think>
tags at the beginning of the content. The token is read from an environment variable, never from a flag or a file.
"""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

import httpx
import orjson

from loadtest.targets.assistant.llm.base import LlmFailed, Question, TextDelta
from telemetry.model import semconv

_OPEN: Final = "<think>"
_CLOSE: Final = "</think>"
DEFAULT_INSTRUCTIONS: Final = (
    "You are a voice assistant. Answer in one to three short spoken sentences, without markup."
)


@dataclass(frozen=True, slots=True)
class HttpLlmOptions:
    """The endpoint and model. `url` is the base of the API, such as http://127.0.0.1:8000/v1.

    `token` is sent as a bearer token.
    """

    url: str
    model: str
    token: str | None = None
    max_tokens: int | None = None
    instructions: str | None = None
    batch: int = 1  # pieces of an answer that are passed on together
    body: Mapping[str, object] = field(default_factory=dict[str, object])  # what else a request holds
    connect_timeout_s: float = 5.0
    read_timeout_s: float = 60.0


class ThinkFilter:
    """Separates reasoning from the answer if a model sends both in one stream."""

    def __init__(self) -> None:
        self._held = ""
        self._state = "start"

    def feed(self, text: str) -> list[TextDelta]:
        """Add text and return the deltas that can be classified so far."""
        if self._state == "answer":
            return [TextDelta(text)] if text else []
        self._held += text
        if self._state == "start":
            head = self._held.lstrip()
            if _OPEN.startswith(head) and head != _OPEN:
                return []
            if not head.startswith(_OPEN):
                return self._answer(self._held)
            self._state, self._held = "thinking", head[len(_OPEN) :]
        thought, mark, rest = self._held.partition(_CLOSE)
        if mark:
            return ([TextDelta(thought, reasoning=True)] if thought else []) + self._answer(rest.lstrip())
        keep = next((n for n in range(len(_CLOSE) - 1, 0, -1) if self._held.endswith(_CLOSE[:n])), 0)
        thought, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        return [TextDelta(thought, reasoning=True)] if thought else []

    def end(self) -> list[TextDelta]:
        """Return the rest of the text."""
        held, thinking = self._held, self._state == "thinking"
        self._held = ""
        return [TextDelta(held, reasoning=thinking)] if held.strip() else []

    def _answer(self, text: str) -> list[TextDelta]:
        self._state, self._held = "answer", ""
        return [TextDelta(text)] if text else []


class HttpLlm:
    """The HTTP model. Tests can pass a transport."""

    route: semconv.Route = "cloud"

    def __init__(self, options: HttpLlmOptions, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self.model = options.model
        limit = {} if options.max_tokens is None else {"max_tokens": options.max_tokens}
        self._body = {**options.body, **limit}
        self._instructions = options.instructions or DEFAULT_INSTRUCTIONS
        self._batch = options.batch
        self._url = options.url.rstrip("/") + "/chat/completions"
        headers = {"Authorization": f"Bearer {options.token}"} if options.token else {}
        timeout = httpx.Timeout(options.read_timeout_s, connect=options.connect_timeout_s)
        self._client = httpx.AsyncClient(headers=headers, timeout=timeout, transport=transport)

    async def start(self) -> None:
        """See `Llm`. The first question opens the connection."""

    async def answer(self, question: Question) -> AsyncGenerator[TextDelta]:
        """See `Llm`."""
        held: list[TextDelta] = []
        async for delta in self._deltas(question):
            held.append(delta)
            if len(held) >= self._batch:
                for each in held:
                    yield each
                held = []
        for each in held:
            yield each

    async def _deltas(self, question: Question) -> AsyncGenerator[TextDelta]:
        messages = [{"role": "system", "content": question.instructions or self._instructions}]
        messages += [{"role": role, "content": text} for role, text in question.history]
        messages.append({"role": "user", "content": question.text})
        body = {"model": self.model, "messages": messages, "stream": True, **self._body}
        think = ThinkFilter()
        try:
            async with self._client.stream("POST", self._url, json=body) as response:
                if response.status_code != HTTPStatus.OK:
                    raise LlmFailed(f"the model's endpoint answered HTTP {response.status_code}")
                async for line in response.aiter_lines():
                    if line.startswith("data:"):
                        data = line[5:].strip()
                        if data == "[DONE]":
                            break
                        for delta in _pieces(data, think, question):
                            yield delta
        except httpx.HTTPError as error:
            raise LlmFailed(f"the model's endpoint failed: {type(error).__name__}") from error
        for delta in think.end():
            yield delta

    async def stop(self) -> None:
        """See `Llm`."""
        await self._client.aclose()


def _pieces(data: str, think: ThinkFilter, question: Question) -> list[TextDelta]:
    try:
        event: Any = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise LlmFailed("the model's endpoint sent an event that is not JSON") from error
    if not isinstance(event, dict):
        raise LlmFailed("the model's endpoint sent an event that is not an object")
    if "error" in event:
        raise LlmFailed("the model's endpoint reported an error while streaming")
    _note_usage(event.get("usage"), question)
    choices = event.get("choices")
    delta = choices[0].get("delta") if isinstance(choices, list) and choices and isinstance(choices[0], dict) else None
    if not isinstance(delta, dict):
        return []
    reasoning = delta.get("reasoning_content") or delta.get("reasoning")
    deltas = [TextDelta(reasoning, reasoning=True)] if isinstance(reasoning, str) and reasoning else []
    content = delta.get("content")
    return deltas + (think.feed(content) if isinstance(content, str) else [])


def _note_usage(usage: Any, question: Question) -> None:
    """Note the tokens that the endpoint counts, where it does."""
    if not isinstance(usage, dict):
        return
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    counts = {
        "input_tokens": usage.get("prompt_tokens"),
        "cached_tokens": cached,
        "output_tokens": usage.get("completion_tokens"),
    }
    for name, count in counts.items():
        if isinstance(count, int):
            question.add(name, count)
