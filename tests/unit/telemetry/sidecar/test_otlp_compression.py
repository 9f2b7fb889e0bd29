"""Decompression of bodies: every kind, damage of every kind, bombs, and time that grows with the size only."""

import contextlib
import gzip
import random
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from telemetry.sidecar.otlp.body import COMPRESSIONS, BodyDamaged, BodyTooLarge, decompress

TEXT = b"".join(b"%d bottles of beer on the wall\n" % number for number in range(20_000))


def _with_arrow(codec: str) -> Callable[[bytes], bytes]:
    def compress(content: bytes) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, codec) as stream:
            stream.write(content)
        return sink.getvalue().to_pybytes()

    return compress


def snappy_block(content: bytes) -> bytes:
    return pa.Codec("snappy").compress(content, asbytes=True)


def snappy_chunk(kind: int, content: bytes) -> bytes:
    return bytes([kind]) + (len(content) + 4).to_bytes(3, "little") + b"\0\0\0\0" + content


def snappy_framed(content: bytes) -> bytes:
    """The framing format, as the Collector's exporters send it; every second chunk is not compressed."""
    framed = bytearray(b"\xff\x06\x00\x00sNaPpY")
    for number, start in enumerate(range(0, len(content), 65_536)):
        piece = content[start : start + 65_536]
        framed += snappy_chunk(1, piece) if number % 2 else snappy_chunk(0, snappy_block(piece))
    return bytes(framed) + b"\xfe\x02\x00\x00??"  # padding


# The encodings, by compressors other than the code under test.
COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "zlib": zlib.compress,
    "deflate": zlib.compress,
    "zstd": _with_arrow("zstd"),
    "lz4": _with_arrow("lz4"),
    "snappy": snappy_framed,
    "x-snappy-framed": snappy_framed,
}


def test_every_compression_is_tested() -> None:
    assert set(COMPRESSORS) == COMPRESSIONS


@pytest.mark.parametrize("name", COMPRESSORS)
def test_compressed_content_is_decompressed_unchanged(name: str) -> None:
    compress = COMPRESSORS[name]
    for content in (b"", b"x", TEXT):
        assert decompress(compress(content), name) == content
    assert decompress(compress(b"one") + compress(b"") + compress(b"two"), name) == b"onetwo"
    assert decompress(b"", name) == b""


def test_a_bare_snappy_block_is_understood() -> None:
    assert decompress(snappy_block(TEXT), "snappy") == TEXT


@pytest.mark.parametrize("name", COMPRESSORS)
def test_damage_of_any_kind_is_damage(name: str) -> None:
    whole = COMPRESSORS[name](TEXT[:10_000])
    for cut in (1, 5, len(whole) // 2, len(whole) - 1):
        with pytest.raises(BodyDamaged):
            decompress(whole[:cut], name)
    for body in (b"not compressed", whole + b"garbage", b"\0" + whole):
        with pytest.raises(BodyDamaged):
            decompress(body, name)
    chance = random.Random(7)
    for _ in range(300):
        body = bytearray(whole)
        for _ in range(chance.randint(1, 8)):
            body[chance.randrange(len(body))] = chance.randrange(256)
        with contextlib.suppress(BodyDamaged, BodyTooLarge):
            assert len(decompress(bytes(body), name, 50_000)) <= 50_000


@pytest.mark.parametrize("name", COMPRESSORS)
def test_the_limit_is_exact(name: str) -> None:
    compressed = COMPRESSORS[name](bytes(100_000))
    assert decompress(compressed, name, 100_000) == bytes(100_000)
    with pytest.raises(BodyTooLarge):
        decompress(compressed, name, 99_999)


@pytest.mark.parametrize("name", COMPRESSORS)
def test_memory_is_reserved_before_content_is_kept(name: str) -> None:
    held: list[int] = []
    content = TEXT * 5
    assert decompress(COMPRESSORS[name](content), name, 20 << 20, held.append) == content
    assert sum(held) == len(content)
    assert max(held) <= 1 << 20


UNPACKED = """
import resource, sys
from pathlib import Path
from telemetry.sidecar.otlp.body import BodyTooLarge, decompress
bombs = [(path.stem, path.read_bytes()) for path in Path(sys.argv[1]).iterdir()]
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for name, bomb in bombs:
    try:
        decompress(bomb, name)
    except BodyTooLarge:
        print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10, name, len(bomb))
"""


def _zstd_with_window(exponent: int) -> bytes:
    """A frame whose header asks for a window of 2^(10 + exponent) bytes, and then repeats one byte 128 MiB long."""
    block = (131_072 << 3 | 1 << 1).to_bytes(3, "little") + b"\0"
    return b"\x28\xb5\x2f\xfd\0" + bytes([exponent << 3]) + block * 1000 + b"\x01\0\0"


@pytest.mark.slow
def test_bombs_do_not_exceed_the_limit_in_memory(tmp_path: Path) -> None:
    content = bytes(100 << 20)
    bombs = {f"{name}.framed": compress(content) for name, compress in COMPRESSORS.items()}
    bombs |= {"snappy.block": snappy_block(content), "zstd.window": _zstd_with_window(17)}
    for name, bomb in bombs.items():
        (tmp_path / name).write_bytes(bomb)
    command = [sys.executable, "-c", UNPACKED, str(tmp_path)]
    refused = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(refused) == len(bombs), refused
    # The pieces of 20 MiB, and the compressor's own window, which is at most as much as was decompressed.
    assert [line for line in refused if int(line.split()[0]) >= 48 << 20] == []


@pytest.mark.parametrize(
    ("name", "body", "size"),
    [
        ("gzip", gzip.compress(b"") * 200_000, 0),  # 4 MB, which took 42 s
        ("gzip", gzip.compress(b"x") * 190_000, 190_000),
        ("zlib", zlib.compress(b"x") * 400_000, 400_000),
        ("zstd", _with_arrow("zstd")(b"x") * 400_000, 400_000),
        ("zstd", b"\x50\x2a\x4d\x18\0\0\0\0" * 500_000, 0),
        ("zstd", b"\x28\xb5\x2f\xfd\0\0" + b"\0\0\0" * 1_300_000 + b"\1\0\0", 0),  # empty blocks
        ("lz4", _with_arrow("lz4")(b"x") * 250_000, 250_000),
        ("snappy", b"\xff\x06\x00\x00sNaPpY" + snappy_chunk(0, snappy_block(b"x")) * 300_000, 300_000),
        ("snappy", b"\xff\x06\x00\x00sNaPpY" * 400_000, 0),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_many_small_members_take_time_by_their_size_alone(name: str, body: bytes, size: int) -> None:
    started = time.process_time()
    assert len(decompress(body, name)) == size
    print(f"{name}: {len(body) / 1e6:.1f} MB in {time.process_time() - started:.3f} s")
