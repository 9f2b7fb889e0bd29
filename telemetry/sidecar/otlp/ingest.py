"""The ingest path of all transports: a decoded request is stored durably and then counted."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Final

from telemetry.model.errors import StoreError
from telemetry.model.turns import Turn
from telemetry.sidecar.otlp.decode import Decoded
from telemetry.store.group_commit import GroupCommit
from telemetry.store.schema import turn_from_row
from telemetry.store.writer import AppendedTables, StoreWriter

# Names in the counts below come from senders: at most this many are distinguished, the others are "(other)".
_NAMES_MAX: Final = 500
_OTHER: Final = "(other)"


@dataclass(slots=True)
class IngestState:
    """Counts since the start. Items are spans and metric points."""

    requests: int = 0
    received: int = 0
    rejected: int = 0
    bad_requests: int = 0
    refused_requests: int = 0  # rejected with a retry hint: overload, full disk
    stored_turns: int = 0
    stored_spans: int = 0
    stored_points: int = 0
    duplicates: int = 0
    unmapped_spans: Counter[str] = field(default_factory=Counter[str])
    unknown_turn_fields: Counter[str] = field(default_factory=Counter[str])
    last_receive_unix_ns: int | None = None

    def as_dict(self) -> dict[str, object]:
        """Return the counts as a JSON object."""
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: dict(value) if isinstance(value, Counter) else value for name, value in found.items()}


class Ingest:
    """Stores decoded requests. `on_turns` is called with turns once they are durable."""

    def __init__(
        self,
        writer: StoreWriter,
        *,
        on_turns: Callable[[Sequence[Turn]], None] = lambda _turns: None,
        wall_clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.state = IngestState()
        self._on_turns = on_turns
        self._commit = GroupCommit(writer, on_stored=self._stored)
        self._wall_clock_ns = wall_clock_ns
        # Receivers share one event loop; the lock protects against the writing thread.
        self._lock = threading.Lock()

    async def take(self, decoded: Decoded) -> None:
        """Store a request durably. Raises StoreError (including Overloaded) if it must be sent again."""
        try:
            if decoded.batch.rows:
                await asyncio.wrap_future(self._commit.submit(decoded.batch))
        except StoreError:
            self.state.refused_requests += 1
            raise
        state = self.state
        with self._lock:
            state.requests += 1
            state.received += decoded.received
            state.rejected += decoded.rejected
            state.last_receive_unix_ns = self._wall_clock_ns()
            _count(state.unmapped_spans, decoded.unmapped)
            _count(state.unknown_turn_fields, decoded.unknown_turn_fields)

    def _stored(self, appended: AppendedTables) -> None:
        """Count what an append made durable; called in the thread that writes."""
        state = self.state
        with self._lock:
            state.stored_turns += appended.turns.num_rows
            state.stored_spans += appended.spans.num_rows
            state.stored_points += appended.points.num_rows
            state.duplicates += appended.duplicates
        self._on_turns([turn_from_row(row) for row in appended.turns.to_pylist()])

    def close(self) -> None:
        """Make everything durable; nothing more is accepted."""
        self._commit.close()

    def snapshot(self) -> IngestState:
        """The counts so far, as a copy that no other thread changes."""
        with self._lock:
            unmapped, unknown = self.state.unmapped_spans.copy(), self.state.unknown_turn_fields.copy()
            return replace(self.state, unmapped_spans=unmapped, unknown_turn_fields=unknown)

    def bad_request(self) -> None:
        """Count a request that could not be decoded."""
        self.state.bad_requests += 1


def _count(known: Counter[str], added: Counter[str]) -> None:
    for name, times in added.items():
        known[name if name in known or len(known) < _NAMES_MAX else _OTHER] += times
