"""The assistant's spans of a call: service-side turns, as children of the caller's trace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from loadtest.targets.assistant.clock import Clock
from loadtest.targets.assistant.cohorts import Assignment
from loadtest.targets.assistant.record import TurnRecord
from telemetry.model import semconv

if TYPE_CHECKING:  # without an OTLP endpoint, not loading the SDK makes the assistant start faster
    from telemetry.export.instrumentation import CallTrace
    from telemetry.export.sdk import Telemetry


@dataclass(frozen=True, slots=True)
class CallIdentity:
    """The identity of a call. `traceparent` is the caller's, from the upgrade request."""

    call_id: str
    run_id: str
    traceparent: str | None


class CallReport:
    """Emits the turns of one call; without telemetry it does nothing."""

    def __init__(
        self, telemetry: Telemetry | None, clock: Clock, identity: CallIdentity, assignment: Assignment
    ) -> None:
        self._clock = clock
        self._identity = identity
        self._trace: CallTrace | None = None
        if telemetry is not None:
            from telemetry.export.instrumentation import CallTrace

            self._trace = CallTrace(
                telemetry,
                run_id=identity.run_id,
                call_id=identity.call_id,
                source="service",
                started_unix_ns=clock.unix_ns(),
                started_perf_ns=clock.perf_ns(),
                attributes={} if assignment.cohort is None else {"cohort": assignment.cohort},
                parent_traceparent=identity.traceparent,
            )
            if assignment.flag:
                self._trace.add_event(semconv.EVENT_FEATURE_FLAG, assignment.flag, clock.unix_ns())

    def turn(self, record: TurnRecord, outcome: semconv.Outcome) -> None:
        """Emit a turn that is over."""
        if self._trace is not None:
            identity = self._identity
            self._trace.emit(record.as_turn(run_id=identity.run_id, call_id=identity.call_id, outcome=outcome))

    def end(self) -> None:
        """End the call's trace."""
        if self._trace is not None:
            self._trace.end(self._clock.perf_ns(), {})
