"""The front's end of the process that evaluates rollouts: starts it, passes messages, and starts it again."""

import asyncio
import contextlib
import logging
import sys
import time
from collections.abc import Callable
from typing import Final

import msgspec

from telemetry.sidecar.messages import LENGTH, frame
from telemetry.sidecar.rollouts.messages import (
    FRESH_GRACE_S,
    FRESH_INTERVALS,
    UNAVAILABLE,
    FromRollouts,
    RolloutOptions,
    RolloutState,
    StageAnswered,
    StageAsked,
)

# Before the answer, an evaluation that has begun comes to its end.
ANSWER_WITHIN_S: Final = 30.0
WAITING_MAX: Final = 8
# It may have begun all the same: who asks again is answered by where the rollout is.
_NO_ANSWER: Final = "no answer came; ask where the rollout is, and ask again"
_BACKOFF_S: Final = (0.1, 1.0, 5.0)

_log = logging.getLogger(__name__)


class RolloutLink:
    """The states of all rollouts, and the process that makes them; used in one event loop. Without rollouts there
    is no process."""

    def __init__(self, options: RolloutOptions, *, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self.options = options
        self.names = tuple(each.name for each in options.rollouts)
        self.fresh_s = FRESH_INTERVALS * options.every_s + FRESH_GRACE_S
        self._monotonic_s = monotonic_s
        self._states: dict[str, tuple[RolloutState, float]] = {}
        self._waiting: dict[int, asyncio.Future[StageAnswered]] = {}
        self._number = 0
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._stops = False

    def start(self) -> None:
        """Start the process, and start it again whenever it has ended."""
        if self.names:
            self._task = asyncio.create_task(self._supervise())

    async def stop(self) -> None:
        """End the process. What it has kept is durable."""
        self._stops = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    @property
    def pid(self) -> int | None:
        """The process id, None while there is none."""
        return None if self._process is None else self._process.pid

    def newest(self, name: str) -> RolloutState | None:
        """The last state of a rollout, however old it is."""
        found = self._states.get(name)
        return None if found is None else found[0]

    def state(self, name: str) -> RolloutState | str:
        """The state of a rollout, or a sentence why there is none that counts."""
        found = self._states.get(name)
        if found is None:
            return f"the rollout {name} has not been evaluated since the sidecar started; ask again"
        age_s = self._monotonic_s() - found[1]
        if age_s > self.fresh_s:
            return f"the last evaluation of {name} is {age_s:.0f} s old, so nothing is known of it now"
        return found[0]

    def received(self, message: FromRollouts) -> None:
        """Take a message of the process."""
        if isinstance(message, RolloutState):
            self._states[message.rollout] = message, self._monotonic_s()
        elif (future := self._waiting.get(message.number)) is not None and not future.done():
            future.set_result(message)

    async def begin(self, name: str, stage: str | None, *, is_settled: bool = False) -> StageAnswered:
        """Ask whether a stage may begin; if it may, it has. See `StageAsked`."""
        number = self._number = self._number + 1
        process = self._process
        if process is None or process.stdin is None or len(self._waiting) >= WAITING_MAX:
            why = "the process that evaluates rollouts starts again" if process is None else "too many wait"
            return StageAnswered(number, UNAVAILABLE, f"{why}; ask again", "")
        self._waiting[number] = future = asyncio.get_running_loop().create_future()
        try:
            process.stdin.write(frame(StageAsked(number, name, stage, is_settled)))
            await process.stdin.drain()
            return await asyncio.wait_for(future, ANSWER_WITHIN_S)
        except (TimeoutError, OSError):
            return StageAnswered(number, UNAVAILABLE, _NO_ANSWER, "")
        finally:
            del self._waiting[number]

    async def _supervise(self) -> None:
        attempts = 0
        while not self._stops:
            began_s = self._monotonic_s()
            try:
                await self._one_life()
            except OSError as error:
                _log.warning("the process that evaluates rollouts cannot be started (%s)", error.strerror)
            for number, future in self._waiting.items():
                if not future.done():
                    future.set_result(StageAnswered(number, UNAVAILABLE, _NO_ANSWER, ""))
            attempts = 0 if self._monotonic_s() - began_s > self.fresh_s else attempts + 1
            backoff_s = _BACKOFF_S[min(attempts, len(_BACKOFF_S) - 1)]
            _log.warning("the process that evaluates rollouts has ended; it starts again in %.1f s", backoff_s)
            await asyncio.sleep(backoff_s)

    async def _one_life(self) -> None:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "telemetry.sidecar.rollouts.process"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # it ends with its input, not by a Ctrl-C that is meant for the front
        )
        self._process = process
        assert process.stdin is not None  # noqa: S101 - it was started with pipes
        assert process.stdout is not None  # noqa: S101
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, msgspec.DecodeError):
            process.stdin.write(frame(self.options))
            await process.stdin.drain()
            while True:
                (size,) = LENGTH.unpack(await process.stdout.readexactly(LENGTH.size))
                content = await process.stdout.readexactly(size)
                self.received(msgspec.msgpack.decode(content, type=FromRollouts))
        self._process = None
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
