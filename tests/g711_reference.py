"""G.711 as the recommendation's tables 1 and 2 give it: an interval for each code, and the value in its middle."""

from bisect import bisect_right
from itertools import accumulate
from typing import NamedTuple


class Law(NamedTuple):
    """One law on the recommendation's own scale; `bits_below` more of a 16-bit sample lie below that scale."""

    bits_below: int
    edges: list[int]  # decision values: where the interval of each code begins, and where the last one ends
    positive_sign: int  # the first bit of a code of a positive sample
    inverted: int  # which bits are inverted on the line

    def encode(self, sample: int) -> int:
        """The octet of a 16-bit sample."""
        magnitude = min(abs(sample) >> self.bits_below, self.edges[-1] - 1)
        code = bisect_right(self.edges, magnitude) - 1
        return (code | (self.positive_sign if sample >= 0 else self.positive_sign ^ 0x80)) ^ self.inverted

    def decode(self, octet: int) -> int:
        """The 16-bit sample of an octet."""
        code = octet ^ self.inverted
        low, high = self.edges[code & 0x7F], self.edges[(code & 0x7F) + 1]
        # The first interval of µ-law reaches as far below zero as above it.
        magnitude = 0 if low == 0 and high == 1 else (low + high) // 2
        return (magnitude if code & 0x80 == self.positive_sign else -magnitude) << self.bits_below


def _edges(widths: list[int]) -> list[int]:
    return list(accumulate(widths, initial=0))


ULAW = Law(
    bits_below=2,
    edges=_edges([1, *[2] * 15, *[4] * 16, *[8] * 16, *[16] * 16, *[32] * 16, *[64] * 16, *[128] * 16, *[256] * 16]),
    positive_sign=0x00,
    inverted=0xFF,
)
ALAW = Law(
    bits_below=3,
    edges=_edges([*[2] * 32, *[4] * 16, *[8] * 16, *[16] * 16, *[32] * 16, *[64] * 16, *[128] * 16]),
    positive_sign=0x80,
    inverted=0x55,
)
