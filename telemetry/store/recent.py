"""Which items were stored lately, so that a batch an exporter sends twice is stored once."""

import hashlib
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from telemetry.model.spans import SpanRow
from telemetry.model.turns import Turn
from telemetry.store.schema import PointRow

# A retry follows within seconds, a spool within the hour: some 200,000 items cover either at any rate we can take in.
RECENT_LIMIT: Final = 200_000


class RecentKeys:
    """A bounded set which forgets its oldest members."""

    def __init__(self, limit: int = RECENT_LIMIT) -> None:
        self._limit = limit
        self._keys: OrderedDict[bytes, None] = OrderedDict()

    def __contains__(self, key: bytes) -> bool:
        return key in self._keys

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def limit(self) -> int:
        """How many keys it remembers."""
        return self._limit

    def add(self, keys: Iterable[bytes]) -> None:
        """Remember keys, the latest last."""
        for key in keys:
            self._keys[key] = None
            self._keys.move_to_end(key)
        while len(self._keys) > self._limit:
            self._keys.popitem(last=False)


def _digest(*parts: str) -> bytes:
    return hashlib.blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def span_key(trace_id: str, span_id: str) -> bytes:
    """The identity of a span."""
    return _digest(trace_id, span_id)


def turn_key(turn: Turn) -> bytes:
    """The identity of a turn: that of its span, or its place in the call where it has none."""
    if turn.trace_id or turn.span_id:
        return span_key(turn.trace_id, turn.span_id)
    return _digest(turn.run_id, turn.call_id, str(turn.turn_index), turn.source)


def span_row_key(span: SpanRow) -> bytes:
    """The identity of a stored span."""
    return span_key(span.trace_id, span.span_id)


def point_key(point: PointRow) -> bytes:
    """The identity of a metric point: what, whose and when."""
    attributes = "\1".join(f"{name}={value}" for name, value in sorted(point.attributes.items()))
    return _digest(point.name, str(point.unix_ns), point.service, attributes)
