"""The hash of Parquet's Bloom filters, against values that are known from its reference implementation."""

import pytest

from telemetry.store.xxhash64 import xxhash64


@pytest.mark.parametrize(
    ("text", "hashed"),
    [
        (b"", 0xEF46DB3751D8E999),
        (b"a", 0xD24EC4F1A98C6E5B),
        (b"abc", 0x44BC2CF5AD770999),
        (b"Nobody inspects the spammish repetition", 0xFBCEA83C8A378BF1),
    ],
)
def test_known_hashes(text: bytes, hashed: int) -> None:
    assert xxhash64(text) == hashed
