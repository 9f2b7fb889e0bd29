"""What is heard on a line, and what is a decoder's silence."""

import struct

import pytest

from loadtest.audio.idle_line import is_audible


@pytest.mark.parametrize(
    ("samples", "audible"),
    [
        ((), False),
        ((0, 0, 0), False),
        ((32, -32, 1), False),  # 60 dB below full scale
        ((0, 0, 33), True),
        ((-33, 0, 0), True),
        ((-32768,), True),
    ],
)
def test_a_line_is_audible_beyond_what_decoders_make_of_silence(samples: tuple[int, ...], audible: bool) -> None:
    assert is_audible(struct.pack(f"<{len(samples)}h", *samples)) == audible
