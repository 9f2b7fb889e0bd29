"""Evidence from the arrival of data on how well a turn is measured."""

from collections.abc import Sequence

from loadtest.conversation.evidence import Evidence
from loadtest.engine.health import EngineHealth
from loadtest.engine.transports.base import Transport, TransportItem
from loadtest.protocols.http_items import HttpData
from loadtest.protocols.webrtc_items import PeerAudio, PeerReport


def note_arrival(
    evidence: Evidence,
    transport: Transport,
    health: EngineHealth,
    moments_perf_ns: tuple[int, int],
    items: Sequence[TransportItem],
) -> None:
    """Note how long data waited until the program saw it, by its stamp and that moment, and what RTP says of it."""
    stamp_perf_ns, seen_perf_ns = moments_perf_ns
    if transport.stamped:
        evidence.note_receive_lag(seen_perf_ns - stamp_perf_ns)
        if items and (transport.has_rest or _has_several_messages(items)):  # which have one stamp, that of the last
            evidence.note_doubt(stamp_perf_ns, health.unread_before_ns(stamp_perf_ns))
    else:
        evidence.note_receive_lag_bound(stamp_perf_ns, _lag_bound_ns(transport, health, seen_perf_ns))
        for item in items:  # RTP comes through a process of its own, never stamped by the kernel
            if isinstance(item, (PeerAudio, PeerReport)):
                evidence.note_rtp(item)


def note_late_arrival(
    evidence: Evidence,
    transport: Transport,
    health: EngineHealth,
    moments_perf_ns: tuple[int, int],
    items: Sequence[TransportItem],
) -> None:
    """Note how long before its stamp something can have come about a turn that was over."""
    stamp_perf_ns, seen_perf_ns = moments_perf_ns
    if not transport.stamped:
        evidence.note_doubt(stamp_perf_ns, _lag_bound_ns(transport, health, seen_perf_ns))
    elif transport.has_rest or _has_several_messages(items):
        evidence.note_doubt(stamp_perf_ns, health.unread_before_ns(stamp_perf_ns))


def delay_ns(transport: Transport, health: EngineHealth, moments_perf_ns: tuple[int, int]) -> int:
    """Return how long data, by its stamp and the moment when it was seen, waited at most until the program saw it."""
    stamp_perf_ns, seen_perf_ns = moments_perf_ns
    return seen_perf_ns - stamp_perf_ns if transport.stamped else _lag_bound_ns(transport, health, seen_perf_ns)


def _lag_bound_ns(transport: Transport, health: EngineHealth, seen_perf_ns: int) -> int:
    """Return how long data without a stamp of the kernel can have waited until the program saw it."""
    bound_ns = transport.lag_bound_ns
    return health.longest_unseen_ns(seen_perf_ns) if bound_ns is None else bound_ns


def _has_several_messages(items: Sequence[TransportItem]) -> bool:
    # What a part of a response over HTTP holds, only its protocol knows.
    return len(items) > 1 or (len(items) == 1 and isinstance(items[0], HttpData))
