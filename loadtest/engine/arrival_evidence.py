"""What the arrival of data shows of how well a turn is measured."""

from collections.abc import Sequence

from loadtest.conversation.evidence import Evidence
from loadtest.engine.health import EngineHealth
from loadtest.engine.transports.base import Transport, TransportItem
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
    elif transport.lag_bound_ns is not None:
        evidence.note_receive_lag_bound(transport.lag_bound_ns)
    else:
        evidence.note_receive_lag_bound(health.longest_unseen_ns(seen_perf_ns))
    if transport.take_clock_fault():
        evidence.note_fault("clock step")
    for item in items:
        if isinstance(item, (PeerAudio, PeerReport)):
            evidence.note_rtp(item)
