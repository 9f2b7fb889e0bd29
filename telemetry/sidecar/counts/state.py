"""The counts of a sidecar since its start; names that come from senders are bounded in number and in length."""

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

# At most this many names are distinguished in a count, the others are "(other)"; longer names are cut.
_NAMES_MAX: Final = 500
_NAME_LENGTH_MAX: Final = 120
_OTHER: Final = "(other)"


@dataclass(slots=True)
class IngestState:
    """Counts since the start. Items are spans and metric points."""

    requests: int = 0
    received: int = 0
    rejected: int = 0
    changed: int = 0  # stored without an attribute that was nested too deeply, or with bytes of a text replaced
    bad_requests: int = 0
    refused_requests: int = 0  # rejected with a retry hint: overload, full disk
    stored_turns: int = 0
    stored_spans: int = 0
    stored_points: int = 0
    duplicates: int = 0
    # Spans of frameworks that became part of no turn: too many were open, or their turn never came.
    framework_spans_given_up: int = 0
    framework_spans_left_over: int = 0
    framework_spans_late: int = 0  # that came after their turn was first given
    framework_spans_open: int = 0  # that wait for the rest of their turn
    revised_turns: int = 0  # that changed because of late spans
    unstorable_turns: int = 0  # of services, with times beyond what can be stored
    unmapped_spans: Counter[str] = field(default_factory=Counter[str])
    unknown_turn_fields: Counter[str] = field(default_factory=Counter[str])
    last_receive_unix_ns: int | None = None
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def as_dict(self) -> dict[str, Any]:
        """The counts at this moment, as a JSON object."""
        with self.lock:
            counts = {counter.name: getattr(self, counter.name) for counter in fields(self) if counter.name != "lock"}
            return {name: dict(value) if isinstance(value, Counter) else value for name, value in counts.items()}


def count_names(known: Counter[str], added: Mapping[str, int]) -> None:
    """Add counts of names chosen by senders."""
    for name, times in added.items():
        short = name if len(name) <= _NAME_LENGTH_MAX else name[: _NAME_LENGTH_MAX - 1] + "…"
        known[short if short in known or len(known) < _NAMES_MAX else _OTHER] += times
