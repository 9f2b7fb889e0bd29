"""A small language model on this machine: a server of llama.cpp in a process of its own, asked over HTTP."""

import asyncio
import json
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Final

from loadtest.errors import UsageError
from loadtest.targets.assistant.llm.base import LlmFailed, Question, TextDelta
from loadtest.targets.assistant.llm.http_engine import HttpLlm, HttpLlmOptions
from loadtest.targets.assistant.real.environment import command
from loadtest.targets.assistant.real.packages import LANGUAGE_MODEL
from loadtest.targets.assistant.worker_pipe import end_process
from telemetry.model import semconv

_MODULE: Final = "loadtest.targets.assistant.real.llama_server"
_START_TIMEOUT_S: Final = 60.0
# Tokens of a conversation and its answer; an answer for a voice is short.
CONTEXT_TOKENS: Final = 2_048
ANSWER_TOKENS: Final = 60


class LlamaLlm:
    """The server and its only client. `slots` answers are written at the same time, others wait."""

    route: semconv.Route = "local"
    model = LANGUAGE_MODEL

    def __init__(self, slots: int, threads: int, options: HttpLlmOptions, *, drafts: bool = False) -> None:
        """`options` say how it is asked; their address is replaced by that of the server."""
        self._options = options
        self._command = command(_MODULE, str(slots), str(threads), str(CONTEXT_TOKENS), str(int(drafts)))
        self._process: asyncio.subprocess.Process | None = None
        self._client: HttpLlm | None = None

    async def start(self) -> None:
        """Start the server. Raises UsageError if it cannot work on this machine."""
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        assert self._process.stdout is not None  # noqa: S101 - it is a pipe
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                ready = json.loads(await self._process.stdout.readline())
        except (TimeoutError, ValueError) as error:
            await self.stop()
            raise UsageError("The server of the language model did not start; use --llm rules or --llm-url.") from error
        limit = self._options.max_tokens or ANSWER_TOKENS
        self._client = HttpLlm(replace(self._options, url=ready["url"], model=self.model, max_tokens=limit))

    async def answer(self, question: Question) -> AsyncGenerator[TextDelta]:
        """See `Llm`."""
        if self._client is None:
            raise LlmFailed("the server of the language model has not started")
        async for delta in self._client.answer(question):
            yield delta

    async def stop(self) -> None:
        """See `Llm`."""
        if self._client is not None:
            await self._client.stop()
        process, self._process = self._process, None
        if process is not None:
            await end_process(process, 2.0)
