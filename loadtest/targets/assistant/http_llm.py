"""Answers from any OpenAI-compatible chat endpoint, streamed as server-sent events; also from a local server.

Reasoning text is separated from the answer: the fields `reasoning_content` or `reasoning`, and text between <think>
tags at the beginning of the content. The token is read from an environment variable, never from a flag or a file.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from http import HTTPStatus
from typing import Any, Final

import httpx
import orjson

from loadtest.errors import UsageError
from loadtest.targets.assistant.interfaces import Llm, LlmFailed, Question, TextDelta
from loadtest.targets.assistant.real.environment import command
from loadtest.targets.assistant.real.worker import LANGUAGE_MODEL
from loadtest.targets.assistant.workers import end_process
from telemetry.model import semconv

_OPEN: Final = "<think>"
_CLOSE: Final = "</think>"
DEFAULT_INSTRUCTIONS: Final = (
    "You are a voice assistant. Answer in one to three short spoken sentences, without markup."
)
_TIMEOUT: Final = httpx.Timeout(60.0, connect=5.0)
_LLAMA_SERVER: Final = "loadtest.targets.assistant.real.llama_server"
_START_TIMEOUT_S: Final = 60.0
# Tokens of a conversation and its answer; an answer for a voice is short.
_CONTEXT_TOKENS: Final = 2_048
_ANSWER_TOKENS: Final = 60
_THREADS: Final = 2  # of the local model, which shares the machine with the other engines


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


class HttpLlm(Llm):
    """The model of an endpoint. `url` is the base of the API, such as http://127.0.0.1:8000/v1.

    `token` is sent as a bearer token, `body` with each request; `batch` pieces of an answer are passed on together.
    Tests can pass a transport.
    """

    route: semconv.Route = "cloud"

    def __init__(
        self,
        url: str,
        model: str,
        *,
        token: str | None = None,
        body: Mapping[str, object] | None = None,
        instructions: str | None = None,
        batch: int = 1,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.model = model
        self.url = url
        self._body = body or {}
        self._instructions = instructions or DEFAULT_INSTRUCTIONS
        self._batch = batch
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._client = httpx.AsyncClient(headers=headers, timeout=_TIMEOUT, transport=transport)

    async def answer(self, question: Question) -> AsyncGenerator[TextDelta]:
        """Stream the answer."""
        held: list[TextDelta] = []
        async for delta in self._deltas(question):
            held.append(delta)
            if len(held) >= self._batch:
                for ready in held:
                    yield ready
                held = []
        for ready in held:
            yield ready

    async def _deltas(self, question: Question) -> AsyncGenerator[TextDelta]:
        messages = [{"role": "system", "content": question.instructions or self._instructions}]
        messages += [{"role": role, "content": text} for role, text in question.history]
        messages.append({"role": "user", "content": question.text})
        body = {"model": self.model, "messages": messages, "stream": True, **self._body}
        url = self.url.rstrip("/") + "/chat/completions"
        think = ThinkFilter()
        try:
            async with self._client.stream("POST", url, json=body) as response:
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
        """Close the connections."""
        await self._client.aclose()


class LlamaLlm(HttpLlm):
    """A small language model on this machine: a server of llama.cpp in a process of its own.

    `slots` answers are written at the same time, others wait.
    """

    route: semconv.Route = "local"

    def __init__(
        self,
        slots: int,
        *,
        drafts: bool = False,
        body: Mapping[str, object] | None = None,
        instructions: str | None = None,
        batch: int = 1,
    ) -> None:
        limited = {"max_tokens": _ANSWER_TOKENS, **(body or {})}
        super().__init__("", LANGUAGE_MODEL, body=limited, instructions=instructions, batch=batch)
        numbers = (slots, _THREADS, _CONTEXT_TOKENS, int(drafts))
        self._command = command(_LLAMA_SERVER, *(str(number) for number in numbers))
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start the server. Raises UsageError if it cannot work on this machine."""
        pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        self._process = await asyncio.create_subprocess_exec(*self._command, stdin=pipe, stdout=pipe, stderr=nothing)
        assert self._process.stdout is not None  # noqa: S101 - it is a pipe
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                self.url = json.loads(await self._process.stdout.readline())["url"]
        except (TimeoutError, ValueError) as error:
            await self.stop()
            raise UsageError("The server of the language model did not start; use --llm rules or --llm-url.") from error

    async def stop(self) -> None:
        """End the server."""
        await super().stop()
        process, self._process = self._process, None
        if process is not None:
            await end_process(process, 2.0)


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
