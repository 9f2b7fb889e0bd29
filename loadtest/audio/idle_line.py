"""Tells what is heard on a line from the silence that a decoder makes of it. Pure."""

from typing import Final

import numpy as np

# 60 dB below full scale: what a decoder makes of silence is below it, speech is not.
QUIET_PEAK: Final = 32


def is_audible(pcm: bytes) -> bool:
    """Return whether any 16-bit sample is louder than what a decoder makes of silence."""
    samples = np.frombuffer(pcm, np.int16)
    return len(samples) > 0 and (int(samples.max()) > QUIET_PEAK or int(samples.min()) < -QUIET_PEAK)
