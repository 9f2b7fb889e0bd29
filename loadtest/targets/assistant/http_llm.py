"""Answers from any OpenAI-compatible chat endpoint, streamed as server-sent events; also from a local server.

Reasoning text is separated from the answer: the fields `reasoning_content` or `reasoning`, and text between <think>
tags at the beginning of the content. The token is read from an environment variable, never from a flag or a file.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Final

import httpx

from loadtest.errors import UsageError
from loadtest.protocols.http_items import HttpData, HttpEnd, HttpHead, HttpItem
from loadtest.protocols.stages.llm_streams import OpenAiStream
from loadtest.protocols.stages.parts import Broken, Malformed, Part
from loadtest.targets.assistant.interfaces import Llm, LlmFailed, Question, TextDelta
from loadtest.targets.assistant.real.environment import command
from loadtest.targets.assistant.real.worker import LANGUAGE_MODEL
from loadtest.targets.assistant.workers import end_process
from telemetry.model import semconv

DEFAULT_INSTRUCTIONS: Final = (
    "You are a voice assistant. Answer in one to three short spoken sentences, without markup."
)
_TIMEOUT: Final = httpx.Timeout(60.0, connect=5.0)
_LLAMA_SERVER: Final = "loadtest.targets.assistant.real.llama_server"
_START_TIMEOUT_S: Final = 60.0
# Tokens of a conversation and its answer; an answer for a voice is short.
_CONTEXT_TOKENS: Final = 2_048
_ANSWER_TOKENS: Final = 60
_THREADS: Final = 2  # that read a prompt of the local model


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
        reader = OpenAiStream()
        try:
            async with self._client.stream("POST", url, json=body) as response:
                async for item in _items(response):
                    _check(reader.receive(item))
                    if (piece := reader.heard.take()) is not None:
                        for text, is_reasoning in ((piece.reasoning, True), (piece.text, False)):
                            if text:
                                yield TextDelta(text, reasoning=is_reasoning)
                    if reader.over:
                        break  # the body may stay open behind the end of the answer
        except httpx.HTTPError as error:
            raise LlmFailed(f"the model's endpoint failed: {type(error).__name__}") from error
        for name in ("input_tokens", "cached_tokens", "output_tokens"):
            if (count := reader.heard.usage.get(name)) is not None:
                question.add(name, count)

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


async def _items(response: httpx.Response) -> AsyncGenerator[HttpItem]:
    """Yield the parts of a response as they come, each line by itself."""
    kind = response.headers.get("content-type", "")
    yield HttpHead("", response.status_code, (("content-type", kind),))
    async for line in response.aiter_lines():
        yield HttpData("", f"{line}\n".encode())
    yield HttpEnd("")


def _check(parts: Sequence[Part]) -> None:
    """Raise LlmFailed where a part is not of an answer. The endpoint's own words may repeat the question: they are not
    in the sentence."""
    for part in parts:
        if isinstance(part, Broken):
            raise LlmFailed(f"the model's endpoint failed: {part.failure.kind} {part.failure.code or ''}".rstrip())
        if isinstance(part, Malformed):
            raise LlmFailed("the model's endpoint sent an event that cannot be decoded")
