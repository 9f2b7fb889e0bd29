"""How far a clip's speech bounds may be off: the half-widths of 95 % intervals, stated for each clip.

They are systematic: a clip that is said a hundred times is off by the same amount a hundred times, so they do not
average out, and every figure that counts from a bound carries them.
"""

from typing import Final

# Marks in the review page are set by ear and eye on a view of 300 ms: to about a pixel's width at its narrowest, and
# two people who set them agree to this.
REVIEWED_MS: Final = 5.0
# A bound that is stated to this or less is sure; one beyond it is worth a look.
SURE_MS: Final = 15.0
# Beyond this a clip is not fit to time anything by before somebody has looked at it.
LARGE_MS: Final = 30.0

# Chosen against the 299 hand labels that are there to choose by (tests/benchmarks/boundary_labels): 98 % of the sure
# starts and all sure ends are within 10 ms of the label. Where the rule of the end is chosen without a tenth of the
# prompts, that holds for 97 to 99 % of the sure ends among them; one is off by 23 ms.
SURE_START_S: Final = 0.010
SURE_END_S: Final = 0.015
_SURE_SPREAD_S: Final = 0.016
_LEAST_RANGE_DB: Final = 36.0
_UNSURE_LEAST_S: Final = 0.020
_OF_THE_SPREAD: Final = 1.25


def boundary_uncertainty_s(spread_s: float, range_db: float, sure_s: float) -> float:
    """The half-width of the 95 % interval of one bound, in seconds.

    `spread_s` is how far the farthest tenth of many plausible readings of the clip lies from the bound, on the worse
    side, or how far a disputed sound reaches from it, if that is more; `range_db` is from the clip's floor to its
    loudest parts; `sure_s` is what is stated where the readings agree to 16 ms. Where they do not, hand labels were
    within one and a quarter of their spread in more than 95 % of clips. Speech that stands out by less than 36 dB is
    never sure: all readings may end in its noise.
    """
    if spread_s <= _SURE_SPREAD_S and range_db >= _LEAST_RANGE_DB:
        return sure_s
    return max(_UNSURE_LEAST_S, _OF_THE_SPREAD * spread_s)


def stated_ms(half_width_s: float) -> float:
    """A half-width as a manifest states it: milliseconds with one decimal."""
    return round(half_width_s * 1000.0, 1)
