"""Messages between the store process and the process that forwards; framed as those of `telemetry.sidecar.messages`."""

from typing import Final

import msgspec

from telemetry.sidecar.forwarding.destinations import Destination
from telemetry.sidecar.forwarding.tally import Tally, Waiting
from telemetry.sidecar.signals import Signal
from telemetry.store.log_positions import Position


class LogEnds(msgspec.Struct, frozen=True, array_like=True, tag="ends"):
    """To the forwarder: up to where the ingest log is durable, and the queue of each destination that has its own."""

    ingest: Position
    queues: dict[str, Position]


class Begin(msgspec.Struct, frozen=True, array_like=True, tag="begin"):
    """To the forwarder, once: the folder of the store, where to forward to, where the logs end, and the file of names
    that no text keeps."""

    store: str
    destinations: tuple[Destination, ...]
    ends: LogEnds
    redact_names: str | None = None


class Add(msgspec.Struct, frozen=True, array_like=True, tag="add"):
    """To the forwarder: a request as it came, in protobuf, for the queues in memory."""

    signal: Signal
    body: bytes


class Drain(msgspec.Struct, frozen=True, array_like=True, tag="drain"):
    """To the forwarder: send what can be sent within this time, then end."""

    within_s: float


class DestinationReport(msgspec.Struct, frozen=True, array_like=True):
    """How one destination fares; what stands before `cursor` in its log is not needed any more."""

    name: str
    cursor: Position
    tally: Tally
    backlog: Waiting
    failure: str | None = None
    unreadable: str | None = None


class Report(msgspec.Struct, frozen=True, array_like=True, tag="report"):
    """From the forwarder about every second: all destinations."""

    destinations: tuple[DestinationReport, ...]


ToForwarder = Begin | LogEnds | Add | Drain

_to_forwarder: Final[msgspec.msgpack.Decoder[ToForwarder]] = msgspec.msgpack.Decoder(ToForwarder)
_report: Final[msgspec.msgpack.Decoder[Report]] = msgspec.msgpack.Decoder(Report)


def to_forwarder(content: bytes) -> ToForwarder:
    """Decode the content of a frame that the forwarder received. Raises msgspec.DecodeError."""
    return _to_forwarder.decode(content)


def from_forwarder(content: bytes) -> Report:
    """Decode the content of a frame that the store process received. Raises msgspec.DecodeError."""
    return _report.decode(content)
