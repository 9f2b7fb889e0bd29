"""What the kinds of records in the ingest log mean: the log holds requests in protobuf only."""

from typing import Final

from telemetry.sidecar.signals import Signal
from telemetry.store.log_records import Record

KINDS: Final[dict[Signal, int]] = {"traces": 1, "metrics": 2}
_SIGNALS: Final[dict[int, Signal]] = {kind: signal for signal, kind in KINDS.items()}


def signal_of(record: Record) -> Signal | None:
    """What a record holds; None for a kind that this version does not know."""
    return _SIGNALS.get(record.kind)
