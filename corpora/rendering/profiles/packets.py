"""Packets of 20 ms that are lost or come too late, and what a receiver plays in their place.

The draws compare whole numbers of a seeded stream with whole thresholds, so that the same packets are lost everywhere.
"""

import itertools
from typing import Final

import numpy as np
from numpy.typing import NDArray

from corpora.rendering.noise import derive_seed
from corpora.rendering.profiles.grid import Pcm16
from corpora.rendering.profiles.impairments import Jitter, PacketLoss

PACKETS_A_SECOND: Final = 50
_FADE_PACKETS: Final = 3  # concealment is silent after 60 ms
_JOIN_S: Final = 0.005

Flags = NDArray[np.bool_]


def lost_packets(loss: PacketLoss, packets: int, seed: int) -> Flags:
    """Which packets never arrive, by the two states of Gilbert and Elliott; the first state is drawn too.

    Independent losses are the case in which a state turns bad with the same probability whatever it was.
    """
    draws = _draws(2 * packets + 1, derive_seed(seed, "loss"))
    enter, leave = _threshold(loss.enter), _threshold(1.0 / loss.mean_burst_packets)
    inside = _threshold(loss.bad_loss)
    bad = int(draws[0]) < _threshold(loss.ratio / loss.bad_loss)
    lost = np.zeros(packets, dtype=np.bool_)
    for packet in range(packets):
        lost[packet] = bad and int(draws[2 * packet + 1]) < inside
        turn = int(draws[2 * packet + 2])
        bad = turn >= leave if bad else turn < enter
    return lost


def late_packets(jitter: Jitter, packets: int, seed: int) -> Flags:
    """Which packets come too late to be played."""
    # An exponential delay exceeds the buffer with a probability that is known: one comparison a packet.
    return _draws(packets, derive_seed(seed, "jitter")) < _threshold(jitter.late_ratio)


def conceal(pcm: Pcm16, rate_hz: int, missing: Flags) -> Pcm16:
    """What is played: the last packet that came, again and again, silent after 60 ms, joined to what comes next.

    This is what telephones do in the spirit of G.711 Appendix I, without its search for a pitch.
    """
    heard = pcm.astype(np.float64)
    edges = [(2 * packet * rate_hz + PACKETS_A_SECOND) // (2 * PACKETS_A_SECOND) for packet in range(len(missing) + 1)]
    last, gone = np.zeros(0), 0
    join = round(_JOIN_S * rate_hz)
    for packet, (start, stop) in enumerate(itertools.pairwise(edges)):
        piece = heard[start:stop]
        if not len(piece):
            break
        if missing[packet]:
            piece[:] = _repeated(last, len(piece), gone)
            gone += 1
            continue
        came = piece.copy()
        if gone:
            rise = np.arange(1, join + 1)[: len(piece)] / (join + 1)
            piece[: len(rise)] *= rise
            piece[: len(rise)] += _repeated(last, len(rise), gone) * (1.0 - rise)
        last, gone = came, 0
    return np.rint(heard).astype(np.int16)


def _repeated(last: NDArray[np.float64], length: int, gone: int) -> NDArray[np.float64]:
    """The last good packet for the (gone + 1)th time in a row, fading in a straight line over all repetitions."""
    if not len(last) or gone >= _FADE_PACKETS:
        return np.zeros(length)
    fade = 1.0 - (gone + np.arange(length) / len(last)) / _FADE_PACKETS
    return np.resize(last, length) * np.maximum(fade, 0.0)


def _draws(count: int, seed: int) -> NDArray[np.uint64]:
    raw = np.random.PCG64(seed).random_raw(count)
    return np.asarray(raw, dtype=np.uint64) >> np.uint64(32)


def _threshold(probability: float) -> int:
    return round(probability * 2**32)
