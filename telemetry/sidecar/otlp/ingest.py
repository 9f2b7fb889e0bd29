"""The front's side of ingest: passes the bodies of requests to the store process and waits for its answers."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from telemetry.model.errors import StoreError
from telemetry.sidecar.messages import Answer, Answered, Begun, Encoding, Signal, Take
from telemetry.sidecar.otlp.attributes import OtlpDecodeError
from telemetry.sidecar.otlp.backlog import Backlog, Overloaded
from telemetry.sidecar.otlp.suspects import ENDINGS_MAX, Suspects

# Exporters give up after ten seconds. Who waits until shortly before is sent back; it may be stored all the same, and
# is recognized when it is sent again.
ANSWER_WITHIN_S: Final = 8.0


@dataclass(frozen=True, slots=True)
class Taken:
    """What became of an accepted request: how many of its items were rejected, and the first few reasons."""

    rejected: int = 0
    reasons: tuple[str, ...] = ()


@dataclass(slots=True)
class _Waiting:
    body: bytes
    alone: bool
    since_s: float
    answer: "asyncio.Future[Taken]"


class Ingest:
    """Takes requests of all transports, in the event loop. `send` passes a message to the store process.

    `send` raises StoreError while there is no store process to take it.
    """

    def __init__(
        self,
        send: Callable[[Take], None],
        *,
        backlog: Backlog | None = None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._send = send
        self._backlog = backlog or Backlog()
        self._clock_s = clock_s
        self._waiting: dict[int, _Waiting] = {}
        self._begun: tuple[int, ...] = ()
        self._suspects = Suspects()
        self._next_number = 0
        self._answered_s = clock_s()
        self._bad_requests = 0
        self._refused_requests = 0

    @property
    def bad_requests(self) -> int:
        """How many requests could not be read, whoever noticed."""
        return self._bad_requests

    @property
    def refused_requests(self) -> int:
        """How many requests were told to come back: overload, a full disk, a store process that starts."""
        return self._refused_requests

    def bad_request(self) -> None:
        """Count a request that was refused before it reached `take`."""
        self._bad_requests += 1

    def refused_request(self) -> None:
        """Count a request that was told to come back before it reached `take`."""
        self._refused_requests += 1

    async def take(self, signal: Signal, encoding: Encoding, body: bytes) -> Taken:
        """Store the request durably. `body` is decompressed.

        Raises OtlpDecodeError for a body that cannot be read, Overloaded and StoreError if it is to be sent again.
        """
        try:
            return await self._submit(signal, encoding, body)
        except OtlpDecodeError:
            self._bad_requests += 1
            raise
        except StoreError:
            self._refused_requests += 1
            raise

    def _submit(self, signal: Signal, encoding: Encoding, body: bytes) -> "asyncio.Future[Taken]":
        endings = self._suspects.endings(body)
        if endings >= ENDINGS_MAX:
            raise OtlpDecodeError(
                f"this request was being decoded each of {endings} times when the store process ended; "
                "it is not tried again"
            )
        self._backlog.add(len(body))
        number = self._next_number
        try:
            self._send(Take(number, signal, encoding, endings > 0, body))
        except StoreError:
            self._backlog.remove(len(body))
            raise
        self._next_number += 1
        future: asyncio.Future[Taken] = asyncio.get_running_loop().create_future()
        self._waiting[number] = _Waiting(body, endings > 0, self._clock_s(), future)
        return future

    @property
    def unanswered_s(self) -> float:
        """How long the store process has answered nothing while somebody waits; 0 when nobody does."""
        for waiting in self._waiting.values():
            return self._clock_s() - max(waiting.since_s, self._answered_s)
        return 0.0

    def expire(self) -> None:
        """Send those back who have waited too long; to be called about every second."""
        now_s = self._clock_s()
        for waiting in self._waiting.values():
            if now_s - waiting.since_s < ANSWER_WITHIN_S:
                break
            if not waiting.answer.done():
                waiting.answer.set_exception(
                    Overloaded(f"the store did not answer within {ANSWER_WITHIN_S:.0f} s; send it again")
                )

    def begun(self, message: Begun) -> None:
        """Note which requests are being decoded."""
        self._begun = message.numbers

    def answered(self, message: Answered) -> None:
        """Give the senders of a group their answers."""
        self._begun = ()
        self._answered_s = self._clock_s()
        size_bytes = 0
        for answer in message.answers:
            waiting = self._waiting.pop(answer.number)
            size_bytes += len(waiting.body)
            self._backlog.remove(len(waiting.body))
            if waiting.alone:
                self._suspects.clear(waiting.body)
            if not waiting.answer.done():
                _answer(waiting.answer, answer)
        self._backlog.measured(len(message.answers), size_bytes, message.decode_s, message.durable_s)

    def lost(self) -> None:
        """Send everybody back: the store process has ended."""
        self._suspects.blame(self._waiting[number].body for number in self._begun)
        self._begun = ()
        waiting, self._waiting = self._waiting, {}
        for each in waiting.values():
            self._backlog.remove(len(each.body))
            if not each.answer.done():
                each.answer.set_exception(Overloaded("the store process has ended and starts again; send it again"))


def _answer(future: "asyncio.Future[Taken]", answer: Answer) -> None:
    if answer.undecodable is not None:
        future.set_exception(OtlpDecodeError(answer.undecodable))
    elif answer.failure is not None:
        future.set_exception(StoreError(answer.failure))
    else:
        future.set_result(Taken(answer.rejected, answer.reasons))
