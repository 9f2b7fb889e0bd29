"""From what the parts recorded to figures. Pure; one definition for every sender."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tests.benchmarks.bench.messages import FRAME_NS

# Of a sender that sent next to nothing, neither a cost nor a lateness of each frame says anything.
LEAST_SENT_SHARE: Final = 0.01
# A peer beyond these was not ready for its sender, and the comparison says so.
PEER_LATENESS_P99_MS: Final = 5.0
PEER_CORE_SHARE: Final = 0.9

Lateness = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Figures:
    """What one sender did in one window. None is what could not be measured, such as the cost of no frame.

    In duplex a frame is a pair: one sent and one received.
    """

    callers: int
    window_s: float
    sent: int
    sent_ever: int
    received: int
    due: int
    cpu_us_per_frame: float | None
    core_share: float
    lateness_p50_ms: float | None
    lateness_p99_ms: float | None
    lateness_max_ms: float | None
    drift_ms_per_s: float | None
    never_sent_share: float
    peer_received: int
    peer_sent: int
    peer_dropped: int
    peer_lateness_p99_ms: float | None
    peer_core_share: float
    peer_was_limit: bool


def percentiles_ms(lateness_ns: Lateness) -> tuple[float | None, float | None, float | None]:
    """p50, p99 and worst, in ms, by the project's definition of a percentile."""
    if not len(lateness_ns):
        return None, None, None
    p50, p99 = np.quantile(lateness_ns, (0.5, 0.99))
    return float(p50) / 1e6, float(p99) / 1e6, float(lateness_ns.max()) / 1e6


def drift_ms_per_s(lateness_ns: Lateness, window_s: float) -> float | None:
    """How much later frames become, second by second: from the first quarter of the window to the last, by medians.

    A sender that keeps its schedule has none, however late single frames are.
    """
    quarter = len(lateness_ns) // 4
    if not quarter:
        return None
    moved_ns = float(np.median(lateness_ns[-quarter:]) - np.median(lateness_ns[:quarter]))
    return moved_ns / 1e6 / (0.75 * window_s)


def figures(
    callers: int, answer: dict[str, Any], lateness_ns: Lateness, peer: dict[str, Any], peer_s: float
) -> Figures:
    """`answer` and `peer` are what sender and peer printed, `peer["lateness_ns"]` those of its frames in the window."""
    window_ns = answer["ended_perf_ns"] - answer["began_perf_ns"]
    due = callers * window_ns // FRAME_NS
    sent, received = answer["sent"], answer["received"]
    has_figures = sent > 0 and sent >= LEAST_SENT_SHARE * due
    if not has_figures:
        lateness_ns = lateness_ns[:0]
    frames = (sent + received) / 2 if received else sent
    p50, p99, worst = percentiles_ms(lateness_ns)
    _, peer_p99, _ = percentiles_ms(peer["lateness_ns"])
    peer_share = peer["cpu_ns"] / 1e9 / peer_s
    return Figures(
        callers=callers,
        window_s=window_ns / 1e9,
        sent=sent,
        sent_ever=answer["sent_ever"],
        received=received,
        due=due,
        cpu_us_per_frame=answer["cpu_ns"] / 1e3 / frames if has_figures else None,
        core_share=answer["cpu_ns"] / window_ns,
        lateness_p50_ms=p50,
        lateness_p99_ms=p99,
        lateness_max_ms=worst,
        drift_ms_per_s=drift_ms_per_s(lateness_ns, window_ns / 1e9),
        never_sent_share=max(0.0, 1 - sent / due) if due else 0.0,
        peer_received=peer["received"],
        peer_sent=peer["sent"],
        peer_dropped=peer["dropped"],
        peer_lateness_p99_ms=peer_p99,
        peer_core_share=peer_share,
        peer_was_limit=(peer_p99 or 0.0) > PEER_LATENESS_P99_MS or peer_share > PEER_CORE_SHARE,
    )


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of some rounds, with the least and the most of them."""

    middle: float
    least: float
    most: float
    rounds: int


def spread(values: Sequence[float | None]) -> Spread | None:
    """Over the rounds that have a value; None when none has."""
    known = [value for value in values if value is not None]
    return Spread(float(np.median(known)), min(known), max(known), len(known)) if known else None


def paired_ratio(over: Sequence[float | None], under: Sequence[float | None]) -> Spread | None:
    """The ratio of two figures taken in the same rounds, one after the other: what the machine does to one it does to
    the other."""
    return spread(
        [a / b if a is not None and b is not None and b > 0 else None for a, b in zip(over, under, strict=True)]
    )
