"""What the kinds of records in the ingest log mean: the log holds requests in protobuf only."""

from typing import Final

from telemetry.sidecar.signals import Signal
from telemetry.store.log_records import Record

# With the second kind, texts and personal data were taken out before the record was made.
_KINDS: Final[dict[Signal, tuple[int, int]]] = {"traces": (1, 3), "metrics": (2, 4)}
_SIGNALS: Final[dict[int, Signal]] = {kind: signal for signal, kinds in _KINDS.items() for kind in kinds}
_WITHOUT_TEXT: Final = frozenset(kinds[1] for kinds in _KINDS.values())


def record_of(signal: Signal, body: bytes, *, is_without_text: bool = False) -> Record:
    """The record of a request; `is_without_text` says that nobody has to take texts out of it any more."""
    return Record(_KINDS[signal][is_without_text], body)


def signal_of(record: Record) -> Signal | None:
    """What a record holds; None for a kind that this version does not know."""
    return _SIGNALS.get(record.kind)


def is_without_text(record: Record) -> bool:
    """Whether texts and personal data were taken out before the record was made."""
    return record.kind in _WITHOUT_TEXT
