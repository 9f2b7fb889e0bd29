"""The bands of latency of a heat map, and turns counted in them; numbers in, numbers out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from telemetry.store.timelines import bucket_width_ns

# What is below an edge is in its band, what is beyond the last one in one more. Finer where people hear a difference;
# the last one is open, so that no outlier is left out.
EDGES_MS: Final = (
    *(0, 50, 100, 150, 200, 300, 400, 500, 600, 700, 800, 900, 1_000, 1_200, 1_400, 1_600, 1_800, 2_000),
    *(2_500, 3_000, 4_000, 5_000, 7_000, 10_000, 15_000, 20_000, 30_000, 60_000),
)


@dataclass(frozen=True, slots=True)
class HeatCell:
    """How many turns that began in a stretch of time have a value in a band; bands count from 0."""

    start_unix_ns: int
    band: int
    n: int


def band_limits_ms(band: int) -> tuple[int | None, int | None]:
    """From where a band goes, and below which value it ends; None where it is open."""
    low = EDGES_MS[band - 1] if band else None
    return low, EDGES_MS[band] if band < len(EDGES_MS) else None


def width_of(first_unix_ns: int | None, last_unix_ns: int | None, columns: int) -> int:
    """A round width by which a stretch of time has at most so many columns."""
    if first_unix_ns is None or last_unix_ns is None:
        return bucket_width_ns(0, columns)
    return bucket_width_ns(last_unix_ns - first_unix_ns, columns)


def bands_of(cells: Sequence[HeatCell]) -> list[int]:
    """The turns of each band over all of the time."""
    counts = [0] * (len(EDGES_MS) + 1)
    for cell in cells:
        counts[cell.band] += cell.n
    return counts
