"""Questions to the store over HTTP: `POST /v1/query/NAME` with parameters in JSON, answered by a process of its own."""

import asyncio
import contextlib
import sys
from pathlib import Path
from typing import Final

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from telemetry.sidecar.messages import LENGTH, frame
from telemetry.sidecar.otlp.access import Access
from telemetry.sidecar.query_messages import Asked, Replied, refusal

MSGPACK: Final = "application/vnd.msgpack"
PARAMETERS_BYTES_MAX: Final = 1 << 20
BODY_WITHIN_S: Final = 10.0
ANSWER_WITHIN_S: Final = 30.0
# One question is answered, the others wait their turn; beyond these the asker is told to come back.
WAITING_MAX: Final = 8
_RETRY_AFTER_S: Final = 2
# What a process keeps of a large store takes a few hundred MiB, and making it anew a second of the first answer.
IDLE_S: Final = 120.0


class Busy(Exception):  # noqa: N818 - an answer, not an internal error
    """Raised when too many questions wait."""


class QueryLink:
    """The query process of a front, started by the first question; used in one event loop.

    A question that takes too long ends the process, and so does a time without any; the next one starts another.
    """

    def __init__(
        self,
        store: Path,
        *,
        answer_within_s: float = ANSWER_WITHIN_S,
        waiting_max: int = WAITING_MAX,
        idle_s: float = IDLE_S,
    ) -> None:
        self._store = store
        self._answer_within_s = answer_within_s
        self._waiting_max = waiting_max
        self._idle_s = idle_s
        self._idle: asyncio.TimerHandle | None = None
        self._ending: asyncio.Task[None] | None = None
        self._waiting = 0
        self._turn = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        """The process id of the query process, None while there is none."""
        return None if self._process is None else self._process.pid

    async def ask(self, asked: Asked) -> Replied:
        """The reply to a question, a sentence when there is none. Raises Busy."""
        if self._waiting >= self._waiting_max:
            raise Busy
        self._waiting += 1
        self._cancel_idle()
        try:
            async with self._turn:
                return await self._ask(asked)
        finally:
            self._waiting -= 1
            if not self._waiting and self._process is not None:
                self._idle = asyncio.get_running_loop().call_later(self._idle_s, self._end_idle)

    async def stop(self) -> None:
        """End the process."""
        self._cancel_idle()
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    def _cancel_idle(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def _end_idle(self) -> None:
        async def end() -> None:
            if not self._waiting:
                await self.stop()

        self._ending = asyncio.create_task(end())

    async def _ask(self, asked: Asked) -> Replied:
        try:
            async with asyncio.timeout(self._answer_within_s):
                process = await self._started()
                assert process.stdin is not None  # noqa: S101 - it was started with pipes
                assert process.stdout is not None  # noqa: S101
                process.stdin.write(frame(asked))
                await process.stdin.drain()
                (size,) = LENGTH.unpack(await process.stdout.readexactly(LENGTH.size))
                return msgspec.msgpack.decode(await process.stdout.readexactly(size), type=Replied)
        except TimeoutError:
            await self.stop()
            return refusal(503, f"no answer within {self._answer_within_s:.0f} s; ask about fewer turns")
        except (OSError, asyncio.IncompleteReadError):
            await self.stop()
            return refusal(503, "the query process has ended and starts again; ask again")
        except BaseException:
            # Whoever asked is gone: an answer that comes later must not be taken for the next one's.
            await asyncio.shield(self.stop())
            raise

    async def _started(self) -> asyncio.subprocess.Process:
        if self._process is None or self._process.returncode is not None:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "telemetry.sidecar.query_process", str(self._store)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                start_new_session=True,  # it ends with its input, not by a Ctrl-C that is meant for the front
            )
        return self._process


def routes(link: QueryLink, access: Access) -> list[Route]:
    """Create the route of the questions. Each asks for what the receivers ask for."""

    async def query(request: Request) -> Response:
        if (denial := access.denial(request)) is not None:
            return _response(refusal(denial.status, denial.sentence), denial.headers)
        media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media_type != "application/json":
            return _response(refusal(415, f"content type {media_type!r:.60}: send application/json"))
        try:
            parameters = await _body(request)
        except TimeoutError:
            return _response(refusal(408, "the parameters did not arrive in time"), {"connection": "close"})
        except ClientDisconnect:
            return Response(status_code=400)
        if parameters is None:
            too_long = f"parameters are at most {PARAMETERS_BYTES_MAX >> 20} MiB"
            return _response(refusal(413, too_long), {"connection": "close"})
        is_msgpack = MSGPACK in request.headers.get("accept", "")
        try:
            replied = await link.ask(Asked(request.path_params["name"], parameters, is_msgpack))
        except Busy:
            replied = refusal(503, "too many questions wait for an answer; ask again")
        headers = {"retry-after": str(_RETRY_AFTER_S)} if replied.status == 503 else {}
        return _response(replied, headers, is_msgpack=is_msgpack and replied.status == 200)

    return [Route("/v1/query/{name}", query, methods=["POST"])]


async def _body(request: Request) -> bytes | None:
    """The body of a request; None when it is too long. Raises TimeoutError, ClientDisconnect."""
    body = bytearray()
    async with asyncio.timeout(BODY_WITHIN_S):
        async for chunk in request.stream():
            body += chunk
            if len(body) > PARAMETERS_BYTES_MAX:
                return None
    return bytes(body)


def _response(replied: Replied, headers: dict[str, str] | None = None, *, is_msgpack: bool = False) -> Response:
    media_type = MSGPACK if is_msgpack else "application/json"
    return Response(replied.body, replied.status, headers, media_type)
