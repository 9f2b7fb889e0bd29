"""Questions to the store over HTTP, answered by a few threads.

`POST /v1/query/NAME` asks one, with its parameters in JSON; `POST /v1/query` asks several: a list of objects, each with
`name` and `parameters`, answered in that order from one snapshot.
"""

import asyncio
import logging
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import duckdb
import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from telemetry.model.errors import StoreError
from telemetry.sidecar.otlp.access import Access
from telemetry.sidecar_client import ANSWER_BYTES_MAX
from telemetry.store.connection import EXACT_TURNS
from telemetry.store.database import Database
from telemetry.store.reader import StoreReader
from telemetry.store.rollout_rows import RolloutRow, insert_row
from telemetry.store.wire import KEEP_PATH, QUERY_PATH, BadQuestionError, answer, asked_together

MSGPACK: Final = "application/vnd.msgpack"
PARAMETERS_BYTES_MAX: Final = 1 << 20
BODY_WITHIN_S: Final = 10.0
ANSWER_WITHIN_S: Final = 30.0
# So many are answered at once, the others wait their turn; further ones are refused with an advice to retry.
THREADS: Final = 2
WAITING_MAX: Final = 8
_RETRY_AFTER_S: Final = 2
_INTERRUPT_EVERY_S: Final = 0.1

_log = logging.getLogger(__name__)


class Busy(Exception):  # noqa: N818 - an answer, not an internal error
    """Raised when too many questions wait."""


@dataclass(frozen=True, slots=True)
class Replied:
    """The answer: the status of the HTTP response, its body and its encoding."""

    status: int
    body: bytes
    is_msgpack: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """A question: its name, its parameters in JSON, and whether the answer is wanted in MessagePack. Several at once
    have no name, and are a list in JSON."""

    name: str | None
    parameters: bytes
    is_msgpack: bool


@dataclass(slots=True)
class _Answering:
    """The thread that answers a question, while it does."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    thread: int | None = None


class Questions:
    """Answers questions to the store that this process owns; used in one event loop.

    A question that takes too long is interrupted and answered with an error.
    """

    def __init__(
        self,
        database: Database,
        *,
        answer_within_s: float = ANSWER_WITHIN_S,
        waiting_max: int = WAITING_MAX,
        exact_turns: int = EXACT_TURNS,
    ) -> None:
        self._database = database
        self._reader = StoreReader(Path(database.directory), exact_turns=exact_turns)
        self._answer_within_s = answer_within_s
        self._waiting_max = waiting_max
        self._waiting = 0
        self._threads = ThreadPoolExecutor(THREADS, "questions")
        self._interrupting: set[asyncio.Task[None]] = set()

    async def stop(self) -> None:
        """End the threads; questions in progress are interrupted."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._database.interrupt()
        await asyncio.to_thread(self._threads.shutdown)

    async def ask(self, asked: Asked) -> Replied:
        """Answer a question, with a sentence if there is no answer. Raises Busy."""
        if self._waiting >= self._waiting_max + THREADS:
            raise Busy
        self._waiting += 1
        answering = _Answering()
        job = self._threads.submit(self._reply, asked, answering)
        loop = asyncio.get_running_loop()
        job.add_done_callback(lambda _job: loop.call_soon_threadsafe(self._answered))
        future = asyncio.wrap_future(job)
        await asyncio.wait([future], timeout=self._answer_within_s)
        if future.done():
            return future.result()
        if not job.cancel():
            task = asyncio.create_task(self._interrupt(job, answering))
            self._interrupting.add(task)
            task.add_done_callback(self._interrupting.discard)
        return refusal(503, f"no answer within {self._answer_within_s:.0f} s; ask about fewer turns")

    def _answered(self) -> None:
        self._waiting -= 1

    async def _interrupt(self, job: "Future[Replied]", answering: _Answering) -> None:
        """Interrupt one statement after another until the question ends."""
        while not job.done():
            with answering.lock:
                if answering.thread is not None:
                    self._database.interrupt(answering.thread)
            await asyncio.sleep(_INTERRUPT_EVERY_S)

    def _reply(self, asked: Asked, answering: _Answering) -> Replied:
        answering.thread = threading.get_ident()
        try:
            return reply_to(self._reader, asked)
        finally:
            with answering.lock:
                answering.thread = None


def reply_to(reader: StoreReader, asked: Asked) -> Replied:
    """Answer one question; every error becomes a sentence."""
    name = asked.name or "questions"
    try:
        if asked.name is None:
            result: object = reader.together(*asked_together(asked.parameters))
        else:
            result = answer(reader, asked.name, asked.parameters)
        body = (msgspec.msgpack.encode if asked.is_msgpack else msgspec.json.encode)(result)
        if len(body) > ANSWER_BYTES_MAX:
            return refusal(400, f"{name}: the answer is longer than {ANSWER_BYTES_MAX >> 20} MiB; ask for less at once")
        return Replied(200, body, asked.is_msgpack)
    except BadQuestionError as error:
        return refusal(400, str(error))
    except StoreError as error:
        return refusal(503, str(error))
    except duckdb.InterruptException:
        return refusal(503, "the question was interrupted; ask about fewer turns")
    except (ArithmeticError, LookupError, MemoryError, TypeError, ValueError, RecursionError, duckdb.Error) as error:
        # The cause may be a single unusual turn.
        _log.warning("%s cannot be answered", name, exc_info=error)
        return refusal(500, f"{name} cannot be answered ({type(error).__name__}); see the sidecar's messages")


def refusal(status: int, sentence: str) -> Replied:
    """A reply that says why there is no answer."""
    return Replied(status, msgspec.json.encode({"error": sentence}))


def routes(questions: Questions, access: Access) -> list[Route]:
    """Create the route of the questions, which requires the same credentials as the receivers."""

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
            replied = await questions.ask(Asked(request.path_params.get("name"), parameters, is_msgpack))
        except Busy:
            replied = refusal(503, "too many questions wait for an answer; ask again")
        return _response(replied, {"retry-after": str(_RETRY_AFTER_S)} if replied.status == 503 else {})

    return [Route(path, query, methods=["POST"]) for path in (QUERY_PATH, QUERY_PATH + "/{name}")]


def keep_route(database: Database, access: Access) -> Route:
    """Create the route through which a process of this machine stores a row of a rollout."""

    async def keep(request: Request) -> Response:
        if (denial := access.denial(request)) is not None:
            return _response(refusal(denial.status, denial.sentence), denial.headers)
        try:
            row = msgspec.json.decode(await _body(request) or b"", type=RolloutRow)
            await asyncio.to_thread(insert_row, database, row)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return _response(refusal(400, f"this is not a row of a rollout ({error})"))
        except StoreError as error:
            return _response(refusal(503, str(error)))
        except (TimeoutError, ClientDisconnect):
            return Response(status_code=408)
        return _response(Replied(200, b"{}"))

    return Route(KEEP_PATH, keep, methods=["POST"])


async def _body(request: Request) -> bytes | None:
    """The body of a request; None if it is too long. Raises TimeoutError, ClientDisconnect."""
    body = bytearray()
    async with asyncio.timeout(BODY_WITHIN_S):
        async for chunk in request.stream():
            body += chunk
            if len(body) > PARAMETERS_BYTES_MAX:
                return None
    return bytes(body)


def _response(replied: Replied, headers: dict[str, str] | None = None) -> Response:
    return Response(replied.body, replied.status, headers, MSGPACK if replied.is_msgpack else "application/json")
