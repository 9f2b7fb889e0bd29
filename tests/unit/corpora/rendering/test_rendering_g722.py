"""Tests of the G.722 decoder against the output of an independent one (FFmpeg's) for the same octets."""

import hashlib

import numpy as np

from corpora.rendering.g722 import decode_lanes


def octets(count: int, tag: str) -> bytes:
    """Pseudo-random octets, so that every table entry and every saturation occurs."""
    return b"".join(hashlib.sha256(f"{tag}-{number}".encode()).digest() for number in range(count // 32))


def test_the_samples_are_those_of_an_independent_decoder() -> None:
    streams = [
        octets(1_600, "b"),
        octets(3_200, "a"),
        b"\xff" * 320 + b"\x00" * 320 + b"\x3f" * 320 + b"\xc0" * 320,
    ]
    decoded = decode_lanes(streams)
    assert [len(pcm) for pcm in decoded] == [3_200, 6_400, 2_560]
    assert [hashlib.sha256(pcm.astype("<i2").tobytes()).hexdigest() for pcm in decoded] == [
        "e772e1c96dc16b81f029685e42f641ff7623adacbe3cdf66125603d677cde808",
        "072b592f030a17bb527c78d054d9ab7d5505dfe4325883c7bfbaf9cb375d3156",
        "ac00935a2e3ad733f1ecfe878993421f8a4eef049e21d65902e1683931b21ffe",
    ]


def test_lanes_are_independent() -> None:
    alone = decode_lanes([octets(640, "x")])[0]
    together = decode_lanes([octets(320, "y"), octets(640, "x"), b"", octets(960, "z")])
    assert np.array_equal(together[1], alone)
    assert len(together[2]) == 0
    assert decode_lanes([]) == []
