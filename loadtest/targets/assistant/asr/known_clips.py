"""The clips that the scripted recognizer can identify, with their texts and the bounds of speech."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class KnownClip:
    """One clip. `pcm` is int16 mono at `rate_hz`; speech is [speech_start_sample, speech_end_sample]."""

    text: str
    pcm: NDArray[np.int16]
    rate_hz: int
    speech_start_sample: int
    speech_end_sample: int

    @property
    def speech(self) -> NDArray[np.int16]:
        """The samples of speech."""
        return self.pcm[self.speech_start_sample : self.speech_end_sample + 1]
