"""Uncertainty of a clip's speech bounds: the half-widths of 95 % intervals, stated for each clip.

These errors are systematic: a clip that is played a hundred times is off by the same amount a hundred times. So they
do not average out, and every figure that is measured from a bound includes them. With exact edges, that of the end does
not matter: nothing is measured from where speech ends in the recording.
"""

from typing import Final

# On the review page, bounds are set by listening and looking at a view of 300 ms. Two people who do so agree to this,
# about the width of a pixel on the narrowest screen.
REVIEWED_MS: Final = 5.0
# A bound with this uncertainty or less is sure; others should be reviewed.
SURE_MS: Final = 15.0
# A clip whose bounds are less certain than this must be reviewed before anything is timed by it.
LARGE_MS: Final = 30.0

# Chosen against 299 hand labels of human and synthesized speech (test_annotation_labels has those of the bundled
# clips): 98 % of the sure starts and all sure ends are within 10 ms of the label. In a tenfold cross-validation over
# the prompts, that holds for 97 to 99 % of the sure ends that were held out; one is off by 23 ms.
SURE_START_S: Final = 0.010
SURE_END_S: Final = 0.015
_MAX_SURE_SPREAD_S: Final = 0.016
_MIN_SURE_RANGE_DB: Final = 36.0
_MIN_UNSURE_S: Final = 0.020
_SPREAD_FACTOR: Final = 1.25


def boundary_uncertainty_s(spread_s: float, range_db: float, sure_s: float) -> float:
    """The half-width of the 95 % interval of one bound, in seconds.

    `spread_s` is the distance from the bound to the farthest tenth of many plausible readings of the clip, on the worse
    side, or to the edge of a disputed sound, whichever is larger. `range_db` is from the clip's noise floor to its
    loudest parts. `sure_s` is returned if the readings agree to 16 ms. If they do not, hand labels were within 1.25
    times the spread in more than 95 % of clips. Speech less than 36 dB above the floor is never sure: all readings may
    end in the noise.
    """
    if spread_s <= _MAX_SURE_SPREAD_S and range_db >= _MIN_SURE_RANGE_DB:
        return sure_s
    return max(_MIN_UNSURE_S, _SPREAD_FACTOR * spread_s)


def stated_ms(half_width_s: float) -> float:
    """Convert a half-width to the form in a manifest: milliseconds with one decimal."""
    return round(half_width_s * 1000.0, 1)
