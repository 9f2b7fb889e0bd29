"""Packets of 20 ms that are lost or late, and what a receiver plays instead of them.

Integers of a seeded stream are compared with integer thresholds, so the same packets are lost on every machine.
"""

import itertools
from typing import Final

import numpy as np
from numpy.typing import NDArray

from corpora.rendering.noise import derive_seed
from corpora.rendering.profiles.grid import Pcm16
from corpora.rendering.profiles.impairments import Jitter, PacketLoss

PACKETS_PER_SECOND: Final = 50
_FADE_PACKETS: Final = 3  # concealment is silent after 60 ms
_JOIN_S: Final = 0.005

Flags = NDArray[np.bool_]


def lost_packets(loss: PacketLoss, packets: int, seed: int) -> Flags:
    """Draw which packets never arrive, by the two-state Gilbert-Elliott model; the first state is drawn too.

    With independent losses, the next state is bad with the same probability in either state.
    """
    draws = _draws(2 * packets + 1, derive_seed(seed, "loss"))
    enter, leave = _threshold(loss.enter), _threshold(1.0 / loss.mean_burst_packets)
    inside = _threshold(loss.bad_loss)
    bad = int(draws[0]) < _threshold(loss.ratio / loss.bad_loss)
    lost = np.zeros(packets, dtype=np.bool_)
    for packet in range(packets):
        lost[packet] = bad and int(draws[2 * packet + 1]) < inside
        draw = int(draws[2 * packet + 2])
        bad = draw >= leave if bad else draw < enter
    return lost


def late_packets(jitter: Jitter, packets: int, seed: int) -> Flags:
    """Draw which packets arrive too late to be played."""
    # The probability that an exponential delay exceeds the buffer is known, so one draw per packet is enough.
    return _draws(packets, derive_seed(seed, "jitter")) < _threshold(jitter.late_ratio)


def conceal(pcm: Pcm16, rate_hz: int, missing: Flags) -> Pcm16:
    """Replace missing packets: repeat the last one received, faded out over 60 ms and cross-faded into the next.

    This resembles G.711 Appendix I, without its pitch detection.
    """
    played = pcm.astype(np.float64)
    edges = [
        (2 * packet * rate_hz + PACKETS_PER_SECOND) // (2 * PACKETS_PER_SECOND) for packet in range(len(missing) + 1)
    ]
    last, missed = np.zeros(0), 0
    join = round(_JOIN_S * rate_hz)
    for packet, (start, stop) in enumerate(itertools.pairwise(edges)):
        piece = played[start:stop]
        if not len(piece):
            break
        if missing[packet]:
            piece[:] = _repeated(last, len(piece), missed)
            missed += 1
            continue
        received = piece.copy()
        if missed:
            rise = np.arange(1, join + 1)[: len(piece)] / (join + 1)
            piece[: len(rise)] *= rise
            piece[: len(rise)] += _repeated(last, len(rise), missed) * (1.0 - rise)
        last, missed = received, 0
    return np.rint(played).astype(np.int16)


def _repeated(last: NDArray[np.float64], length: int, missed: int) -> NDArray[np.float64]:
    """The last good packet after `missed` repetitions, faded out linearly over all of them."""
    if not len(last) or missed >= _FADE_PACKETS:
        return np.zeros(length)
    fade = 1.0 - (missed + np.arange(length) / len(last)) / _FADE_PACKETS
    return np.resize(last, length) * np.maximum(fade, 0.0)


def _draws(count: int, seed: int) -> NDArray[np.uint64]:
    raw = np.random.PCG64(seed).random_raw(count)
    return np.asarray(raw, dtype=np.uint64) >> np.uint64(32)


def _threshold(probability: float) -> int:
    return round(probability * 2**32)
