"""The kinds of frames between a voice in a process of its own and the assistant."""

from typing import Final

READY: Final = 1
FAILED: Final = 2
SPEAK: Final = 3  # payload: rate_hz u32, then the sentence in UTF-8
PIECE: Final = 4  # payload: int16 samples
END: Final = 5
