"""G.711 against the tables of the recommendation on every sample and every octet there is."""

from collections.abc import Callable

import numpy as np
import pytest

from loadtest.audio import g711
from loadtest.audio.pcm import Pcm16
from tests import g711_reference

EVERY_SAMPLE = np.arange(65_536, dtype=np.uint16).view(np.int16)
LAWS = [
    pytest.param(g711_reference.ULAW, g711.ulaw_encode, g711.ulaw_decode, id="mu-law"),
    pytest.param(g711_reference.ALAW, g711.alaw_encode, g711.alaw_decode, id="a-law"),
]


@pytest.mark.parametrize(("law", "encode", "decode"), LAWS)
def test_encode_agrees_on_every_sample(
    law: g711_reference.Law, encode: Callable[[Pcm16], bytes], decode: Callable[[bytes], Pcm16]
) -> None:
    assert encode(EVERY_SAMPLE) == bytes(law.encode(sample) for sample in EVERY_SAMPLE.tolist())


@pytest.mark.parametrize(("law", "encode", "decode"), LAWS)
def test_decode_agrees_on_every_octet(
    law: g711_reference.Law, encode: Callable[[Pcm16], bytes], decode: Callable[[bytes], Pcm16]
) -> None:
    assert decode(bytes(range(256))).tolist() == [law.decode(octet) for octet in range(256)]


@pytest.mark.parametrize(("law", "encode", "decode"), LAWS)
def test_what_was_decoded_encodes_back(
    law: g711_reference.Law, encode: Callable[[Pcm16], bytes], decode: Callable[[bytes], Pcm16]
) -> None:
    again = decode(encode(decode(bytes(range(256)))))
    assert again.tolist() == decode(bytes(range(256))).tolist()


def test_values_of_the_recommendation() -> None:
    """Extremes and zero as G.711's tables 1 and 2 give them (on the 14- and 13-bit scales, times 4 and 8)."""
    assert g711.ulaw_decode(b"\x80\x00\xff\x7f").tolist() == [8031 * 4, -8031 * 4, 0, 0]
    assert g711.alaw_decode(b"\xaa\x2a\xd5\x55").tolist() == [4032 * 8, -4032 * 8, 8, -8]


def test_silence_octets() -> None:
    silence = np.zeros(3, np.int16)
    assert g711.ulaw_encode(silence) == b"\xff" * 3
    assert g711.alaw_encode(silence) == b"\xd5" * 3


def test_a_slice_with_a_stride_is_encoded_as_it_reads() -> None:
    assert g711.ulaw_encode(EVERY_SAMPLE[::7]) == g711.ulaw_encode(EVERY_SAMPLE[::7].copy())
