"""A decoder of ITU-T G.722 at 64 kbit/s to 16 kHz PCM that decodes many clips in parallel.

An adaptive decoder proceeds sample by sample, which is slow in Python. So all clips are decoded together, with one
NumPy lane for each sub-band of each clip. The integer arithmetic and the tables are those of the Recommendation, so the
result is bit-exact.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

RATE_HZ = 16_000
_SHORT_MIN, _SHORT_MAX = -32_768, 32_767
_BAND_MIN, _BAND_MAX = -16_384, 16_383

# Lower band: six bits to reconstruct, their upper four to adapt.
_QM6 = (
    *(-136, -136, -136, -136, -24808, -21904, -19008, -16704, -14984, -13512, -12280, -11192, -10232, -9360, -8576),
    *(-7856, -7192, -6576, -6000, -5456, -4944, -4464, -4008, -3576, -3168, -2776, -2400, -2032, -1688, -1360, -1040),
    *(-728, 24808, 21904, 19008, 16704, 14984, 13512, 12280, 11192, 10232, 9360, 8576, 7856, 7192, 6576, 6000, 5456),
    *(4944, 4464, 4008, 3576, 3168, 2776, 2400, 2032, 1688, 1360, 1040, 728, 432, 136, -432, -136),
)
_QM4 = (0, -20456, -12896, -8968, -6288, -4240, -2584, -1200, 20456, 12896, 8968, 6288, 4240, 2584, 1200, 0)
_RL42 = (0, 7, 6, 5, 4, 3, 2, 1, 7, 6, 5, 4, 3, 2, 1, 0)
_WL = (-60, -30, 58, 172, 334, 538, 1198, 3042)
# Upper band: two bits for both.
_QM2 = (-7408, -1616, 7408, 1616)
_RH2 = (2, 1, 2, 1)
_WH = (0, -214, 798)
_ILB = np.array(
    (
        *(2048, 2093, 2139, 2186, 2233, 2282, 2332, 2383, 2435, 2489, 2543, 2599, 2656, 2714, 2774, 2834),
        *(2896, 2960, 3025, 3091, 3158, 3228, 3298, 3371, 3444, 3520, 3597, 3676, 3756, 3838, 3922, 4008),
    ),
    dtype=np.int64,
)
_QMF = np.array((3, -11, 12, 32, -210, 951, 3876, -805, 362, -156, 53, -11), dtype=np.int64)
_STEP_LIMITS = np.array(((18_432,), (22_528,)), dtype=np.int64)
_STEP_SHIFTS = np.array(((8,), (10,)), dtype=np.int64)

# The quantized difference and the step size of each band (rows: lower, upper) by code octet.
_OCTETS = np.arange(256)
_OUTPUT = np.array([np.array(_QM6)[_OCTETS & 63], np.array(_QM2)[_OCTETS >> 6]], dtype=np.int64)
_ADAPT = np.array([np.array(_QM4)[(_OCTETS & 63) >> 2], np.array(_QM2)[_OCTETS >> 6]], dtype=np.int64)
_STEP = np.array(
    [np.array(_WL)[np.array(_RL42)[(_OCTETS & 63) >> 2]], np.array(_WH)[np.array(_RH2)[_OCTETS >> 6]]], dtype=np.int64
)

Lanes = NDArray[np.int64]


def decode_lanes(clips: Sequence[bytes]) -> list[NDArray[np.int16]]:
    """Decode G.722 streams, each with a new decoder; returns int16 arrays with two samples per octet, at 16 kHz."""
    order = sorted(range(len(clips)), key=lambda index: len(clips[index]), reverse=True)
    lengths = np.array([len(clips[index]) for index in order])
    longest = int(lengths[0]) if order else 0
    codes = np.zeros((longest, len(order)), dtype=np.uint8)
    for lane, index in enumerate(order):
        codes[: lengths[lane], lane] = np.frombuffer(clips[index], dtype=np.uint8)
    bands = np.zeros((longest, 2, len(order)), dtype=np.int16)
    decoder = _Decoder(len(order))
    for position in range(longest):
        # The lanes are sorted by length, so the finished ones are at the end and are dropped.
        decoder.keep(int(np.count_nonzero(lengths > position)))
        code = codes[position, : decoder.lanes]
        bands[position, :, : decoder.lanes] = decoder.step(code)
    decoded: list[NDArray[np.int16]] = [np.zeros(0, dtype=np.int16)] * len(clips)
    for lane, index in enumerate(order):
        decoded[index] = _synthesize(bands[: lengths[lane], :, lane].astype(np.int64))
    return decoded


class _Decoder:
    """The adaptive state of both bands of every lane; arrays have the shape (..., 2 bands, lanes)."""

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        self.step_log = np.zeros((2, lanes), dtype=np.int64)
        self.step_size = np.repeat(np.array([[32], [8]], dtype=np.int64), lanes, axis=1)
        self.predicted = np.zeros((2, lanes), dtype=np.int64)
        self.zero_prediction = np.zeros((2, lanes), dtype=np.int64)
        self.rebuilt = np.zeros((2, 2, lanes), dtype=np.int64)  # the last two, newest first
        self.partial_signs = np.zeros((2, 2, lanes), dtype=np.int64)
        self.differences = np.zeros((6, 2, lanes), dtype=np.int64)
        self.poles = np.zeros((2, 2, lanes), dtype=np.int64)
        self.zeros = np.zeros((6, 2, lanes), dtype=np.int64)

    def keep(self, lanes: int) -> None:
        """Keep only the first lanes."""
        if lanes == self.lanes:
            return
        self.lanes = lanes
        for name, value in vars(self).items():
            if name != "lanes":
                setattr(self, name, np.ascontiguousarray(value[..., :lanes]))

    def step(self, code: NDArray[np.uint8]) -> Lanes:
        """Decode one octet per lane; returns the reconstructed signals of both bands."""
        output = self.predicted + ((self.step_size * _OUTPUT[:, code]) >> 15)
        difference = (self.step_size * _ADAPT[:, code]) >> 15
        self._adapt_step(code)
        self._adapt_predictor(difference)
        return np.clip(output, _BAND_MIN, _BAND_MAX)

    def _adapt_step(self, code: NDArray[np.uint8]) -> None:
        log = ((self.step_log * 127) >> 7) + _STEP[:, code]
        log = np.minimum(np.maximum(log, 0), _STEP_LIMITS)
        shift = _STEP_SHIFTS - (log >> 11)
        mantissa = _ILB[(log >> 6) & 31]
        self.step_size = np.where(shift < 0, mantissa << np.maximum(-shift, 0), mantissa >> np.maximum(shift, 0)) << 2
        self.step_log = log

    def _adapt_predictor(self, difference: Lanes) -> None:
        rebuilt = _short(self.predicted + difference)
        sign = _short(self.zero_prediction + difference) >> 15
        same = sign == self.partial_signs
        first, second = self.poles
        wide = _short(first << 2)
        pole_2 = np.where(same[1], 128, -128) + (np.minimum(np.where(same[0], -wide, wide), _SHORT_MAX) >> 7)
        pole_2 = np.minimum(np.maximum(pole_2 + ((second * 32_512) >> 15), -12_288), 12_288)
        limit = 15_360 - pole_2
        pole_1 = np.where(same[0], 192, -192) + ((first * 32_640) >> 15)
        pole_1 = np.minimum(np.maximum(pole_1, -limit), limit)
        push = np.where(difference == 0, 0, 128)
        agree = (self.differences >> 15) == (difference >> 15)
        self.zeros = _short(np.where(agree, push, -push) + ((self.zeros * 32_640) >> 15))
        self.differences = np.concatenate((difference[None], self.differences[:5]))
        self.rebuilt = np.stack((rebuilt, self.rebuilt[0]))
        self.partial_signs = np.stack((sign, self.partial_signs[0]))
        self.poles = np.stack((pole_1, pole_2))
        pole_prediction = np.sum((self.poles * _short(self.rebuilt * 2)) >> 15, axis=0)
        self.zero_prediction = _short(np.sum((self.zeros * _short(self.differences * 2)) >> 15, axis=0))
        self.predicted = _short(_short(pole_prediction) + self.zero_prediction)


def _short(values: Lanes) -> Lanes:
    return np.minimum(np.maximum(values, _SHORT_MIN), _SHORT_MAX)


def _synthesize(bands: Lanes) -> NDArray[np.int16]:
    """The receive quadrature mirror filter: two bands, shape (octets, 2), become one signal of twice the rate."""
    lower, upper = bands[:, 0], bands[:, 1]
    octets = len(bands)
    if not octets:
        return np.zeros(0, dtype=np.int16)
    first = np.convolve(lower - upper, _QMF)[:octets] >> 11
    second = np.convolve(lower + upper, _QMF[::-1])[:octets] >> 11
    interleaved = np.stack((first, second), axis=1).reshape(-1)
    return _short(interleaved).astype(np.int16)
