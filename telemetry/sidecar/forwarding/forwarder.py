"""The interface between forwarding and the process that ingests: requests are added, and nothing here blocks.

Texts are removed before a request is queued for a destination that gets none.
"""

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from telemetry.model.formatting import count
from telemetry.sidecar.faults import FaultBoard
from telemetry.sidecar.forwarding.bounded_queue import BoundedQueue, DestinationState, Received
from telemetry.sidecar.forwarding.destinations import Destination
from telemetry.sidecar.privacy import redactor_of_store

# For this long after the last loss, a fault says that requests are lost.
LOSING_S: Final = 60.0

_log = logging.getLogger(__name__)


class Forwarding:
    """Forwards for one store from `start` to `stop`. Without destinations it does nothing.

    Raises ConfigError for unusable certificates or an unusable list of names.
    """

    def __init__(
        self,
        store: Path,
        destinations: Sequence[Destination],
        faults: FaultBoard,
        *,
        names: Path | None = None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._faults = faults
        self._clock_s = clock_s
        self._queues = {destination: BoundedQueue(destination, clock_s=clock_s) for destination in destinations}
        self._threads = None
        # The items that were lost up to the last refresh, and until when that is a fault.
        self._lost: dict[str, tuple[int, float | None]] = {destination.name: (0, None) for destination in destinations}
        if destinations:
            # Not imported at the start: most sidecars forward nothing.
            from telemetry.sidecar.forwarding.sending import SendingThreads

            self._redactor = redactor_of_store(store, names=names)
            self._threads = SendingThreads(self._queues)

    def start(self) -> None:
        """Begin to send."""
        if self._threads is not None:
            self._threads.start()

    def add(self, requests: Sequence[Received]) -> None:
        """Queue requests for every destination of their signal. Never raises, and never blocks."""
        for request in requests:
            takers = [
                (destination, queue)
                for destination, queue in self._queues.items()
                if request.signal in destination.signals
            ]
            is_redacted = any(destination.text == "redact" for destination, _ in takers)
            without_text = self._without_text(request) if is_redacted else None
            for destination, queue in takers:
                body = request.body if destination.text == "keep" else without_text
                if body is None:
                    queue.not_queued(request.items)
                else:
                    queue.add(request.signal, body, request.items)

    def reports(self) -> tuple[DestinationState, ...]:
        """Return the state of each destination, with all counts since the start."""
        return tuple(queue.state() for queue in self._queues.values())

    def refresh(self) -> None:
        """Drop requests that are too old, and set or clear the faults; to be called about every second."""
        for queue in self._queues.values():
            queue.expire()
            state = queue.state()
            sentences = [
                f"forwarding {signal} to {state.name} fails ({failure}); {state.backlog_bytes >> 20} MiB wait for "
                f"{state.backlog_s:.0f} s"
                for signal, failure in state.failures.items()
            ]
            if self._is_losing(state):
                sentences.append(f"forwarding to {state.name} loses telemetry: {lost_text(state)}")
            self._faults.set(f"forward:{state.name}", "; ".join(sentences) or None)

    def stop(self) -> None:
        """Send waiting requests for a few seconds; those left then are lost, counted and logged."""
        if self._threads is not None:
            self._threads.stop()
        for queue in self._queues.values():
            left = queue.state()
            queue.close()
            if left.backlog_requests:
                what = f"{count(left.backlog_requests, 'request')} with {_items(left.backlog_items)}"
                why = "; ".join(left.failures.values()) or "they were not acknowledged in time"
                _log.warning("forwarding to %s: lost at the end of the sidecar: %s (%s)", left.name, what, why)

    def _without_text(self, request: Received) -> bytes | None:
        try:
            return self._redactor.redact_request(request.body, request.signal)
        except Exception as error:  # noqa: BLE001 - whatever a body provokes, it is stored and acknowledged
            _log.warning("a request is not forwarded: its texts cannot be taken out (%s)", type(error).__name__)
            return None

    def _is_losing(self, state: DestinationState) -> bool:
        """Return whether something was lost in the last minute; the first and the last loss are logged."""
        lost, until_s = self._lost[state.name]
        now_s = self._clock_s()
        if state.lost_items > lost:
            if until_s is None:
                _log.warning("forwarding to %s loses telemetry: %s", state.name, lost_text(state))
            self._lost[state.name] = state.lost_items, now_s + LOSING_S
        elif until_s is not None and now_s >= until_s:
            _log.warning("forwarding to %s loses no more: %s", state.name, lost_text(state))
            self._lost[state.name] = lost, None
        return self._lost[state.name][1] is not None


def lost_text(state: DestinationState) -> str:
    """Return what was lost since the start, and why."""
    reasons = [f"{count(number, 'request')} dropped ({reason})" for reason, number in state.dropped_requests.items()]
    reasons += [f"{count(number, 'request')} refused ({reason})" for reason, number in state.refused_requests.items()]
    reasons += [f"{_items(state.rejected_items)} rejected"] if state.rejected_items else []
    last = f"; the last answer: {state.refusal}" if state.refusal is not None else ""
    return f"{_items(state.lost_items)} since the start, {', '.join(reasons)}{last}"


def _items(how_many: int) -> str:
    return count(how_many, "span or metric point", "spans and metric points")
