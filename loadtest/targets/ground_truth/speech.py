"""The calibration speech: bursts surrounded by digital silence, with bounds that are exact to the sample.

Every utterance has the same number of speech frames, wherever speech begins in its first frame and ends in its last
one, so the endpoint identifies the last frame by counting.
"""

from pathlib import Path
from typing import Final

import numpy as np

from corpora.sources.authoring import Draft, write_corpus
from loadtest.audio.pcm import Pcm16

NAME: Final = "calibration"
RATE_HZ: Final = 24_000
FRAME_SAMPLES: Final = 480
LEAD_FRAMES: Final = 5
SPEECH_FRAMES: Final = 30
TAIL_FRAMES: Final = 3
# Where speech begins in its first frame and ends in its last one, including the edges of a frame.
BOUNDS: Final = ((0, 479), (479, 0), (0, 0), (479, 479), (120, 359), (241, 77), (33, 400), (360, 190))
_MAGNITUDE: Final = 3000
# Every other utterance begins and ends with 60 ms at 20 dB less, like a nasal, which an annotation must not cut off.
_SOFTER: Final = 10
_SOFT_SAMPLES: Final = 60 * RATE_HZ // 1000


def burst(samples: int, seed: int) -> Pcm16:
    """Create noise of constant magnitude and random sign: loud from its first sample to its last."""
    signs = np.random.default_rng(seed).integers(0, 2, samples, np.int16) * 2 - 1
    return (signs * _MAGNITUDE).astype(np.int16)


def utterance_pcm(number: int) -> tuple[Pcm16, int, int]:
    """Return the samples of an utterance, and the indices of its first and last speech sample."""
    first_offset, last_offset = BOUNDS[number]
    first = LEAD_FRAMES * FRAME_SAMPLES + first_offset
    last = (LEAD_FRAMES + SPEECH_FRAMES - 1) * FRAME_SAMPLES + last_offset
    pcm = np.zeros((LEAD_FRAMES + SPEECH_FRAMES + TAIL_FRAMES) * FRAME_SAMPLES, np.int16)
    pcm[first : last + 1] = burst(last + 1 - first, number)
    if number % 2:
        pcm[first : first + _SOFT_SAMPLES] //= _SOFTER
        pcm[last + 1 - _SOFT_SAMPLES : last + 1] //= _SOFTER
    return pcm, first, last


def write_calibration_corpus(folder: Path) -> None:
    """Write the utterances as a corpus, annotated like any other corpus.

    The true bounds of speech are not written: callers rely on the annotation and the endpoint on the samples that it
    receives, so an error in the annotation becomes visible.
    """
    write_corpus(folder, NAME, "generated", (_draft(number) for number in range(len(BOUNDS))))


def _draft(number: int) -> Draft:
    pcm, _, _ = utterance_pcm(number)
    return Draft(
        id=f"{NAME}-{number}",
        text=f"calibration burst {number}",
        speaker="generator",
        language="en-US",
        domain="calibration",
        license="CC0-1.0",
        source="generated from random signs by the calibration",
        pcm=pcm,
        rate_hz=RATE_HZ,
    )
