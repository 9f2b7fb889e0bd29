"""The kinds of frames between a recognizer in a process of its own and the assistant."""

from typing import Final

READY: Final = 1
FAILED: Final = 2
OPEN: Final = 3  # payload: rate_hz u32
AUDIO: Final = 4  # payload: int16 samples
PARTIAL: Final = 5  # request without payload; the answer's payload is the text in UTF-8
FINISH: Final = 6  # payload: number of samples of silence at the end, u32
FINAL: Final = 7  # payload: the text in UTF-8
ABANDON: Final = 8
