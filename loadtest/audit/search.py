"""The texts that must not be found (all of an utterance, and every five words of it), and a search for them in bytes.

They are found in whatever form: compressed, encoded, escaped, with separators.
"""

import base64
import binascii
import html
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote_to_bytes

import pyarrow as pa

from telemetry.model.personal_data import digit_runs

WORDS: Final = 5
# Numbers of fewer digits occur in times and sizes by themselves.
_DIGITS_MIN: Final = 7
_NAME_CHARS_MIN: Final = 8
_NAME: Final = re.compile(r"\b[A-Z][a-z]+(?: [A-Z][a-z]+)+\b")
_NOT_WORD: Final = re.compile(r"[\W_]+")


@dataclass(frozen=True, slots=True)
class Needle:
    """A value that must not appear anywhere: `form` has only letters and digits, in lower case."""

    form: str
    source: str
    is_number: bool = False


def plain(text: str) -> str:
    """A text's letters and digits, in lower case: all else is separators, and hides nothing."""
    return _NOT_WORD.sub("", text.casefold())


def needles_of_text(source: str, text: str) -> set[Needle]:
    """Return what must not be found of an utterance."""
    words = [word for word in _NOT_WORD.split(text) if word]
    windows = [words[at : at + WORDS] for at in range(len(words) - WORDS + 1)] or [words]
    needles = {Needle(plain("".join(window)), source) for window in windows}
    for run in digit_runs(text):
        if len(run.digits) >= _DIGITS_MIN:
            needles.add(Needle(run.digits, source, is_number=True))
        if run.has_words and len(run.digits) > WORDS:
            needles.add(Needle(plain(text[run.begin : run.end]), source))
    needles |= {Needle(plain(name[0]), source) for name in _NAME.finditer(text) if len(name[0]) > _NAME_CHARS_MIN}
    return needles


def needles_of_value(source: str, value: str) -> set[Needle]:
    """Return what must not be found of a number or an address."""
    form = plain(value)
    return {Needle(form, source, is_number=form.isdecimal())}


def needles_of_texts(texts: Iterable[tuple[str, str]]) -> frozenset[Needle]:
    """Return what must not be found of utterances, given as their names and their texts."""
    return frozenset().union(*(needles_of_text(source, text) for source, text in texts))


# Encodings within one another.
DEPTH_MAX: Final = 3
_UNPACKED_BYTES_MAX: Final = 256 << 20
_BASE64: Final = re.compile(rb"[A-Za-z0-9+/_-]{12,}={0,2}")
_HEX: Final = re.compile(rb"(?:[0-9A-Fa-f]{2}){8,}")
_ESCAPED: Final = re.compile(rb"\\u([0-9a-fA-F]{4})|\\x([0-9a-fA-F]{2})")
_LETTERS: Final = re.compile(rb"[0-9A-Za-z]{5,}")
_GAPS: Final = re.compile(r"(?<=[0-9])[\s.\-/()_,:]{1,3}(?=[0-9])")
_MAGIC_OF: Final = {
    b"\x1f\x8b\x08": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x78\x01": "zlib",
    b"\x78\x5e": "zlib",
    b"\x78\x9c": "zlib",
    b"\x78\xda": "zlib",
}
_MAGIC: Final = tuple(_MAGIC_OF)
_URL_SAFE: Final = bytes.maketrans(b"-_", b"+/")
_WINDOW_BITS: Final = {"zlib": zlib.MAX_WBITS, "gzip": zlib.MAX_WBITS | 16}


class Search:
    """Looks for needles. One search is for many places: what does not change is prepared once."""

    def __init__(self, needles: Iterable[Needle]) -> None:
        self._words = {needle.form: needle for needle in needles if not needle.is_number}
        self._numbers = {needle.form: needle for needle in needles if needle.is_number}
        self._any_word = _any_of(self._words)
        self._any_number = _any_of(self._numbers)

    def needles_in(self, octets: bytes) -> set[Needle]:
        """The needles that are anywhere in these bytes."""
        needles: set[Needle] = set()
        seen: set[int] = set()
        for layer in _layers(octets, 0, seen):
            needles |= self._in_text(layer.decode("utf-8", "replace"))
            for encoding in ("utf-16-le", "utf-16-be"):
                if layer.count(b"\0") * 4 > len(layer):
                    needles |= self._in_text(layer.decode(encoding, "replace"))
        return needles

    def _in_text(self, text: str) -> set[Needle]:
        needles: set[Needle] = set()
        if self._any_word is not None:
            needles |= {self._words[match[1]] for match in self._any_word.finditer(plain(text))}
        if self._any_number is not None:
            # Numbers match only as whole numbers: any digits at all are somewhere in long ones.
            for written in {text, _GAPS.sub("", text)}:
                for match in self._any_number.finditer(written):
                    before, after = written[: match.start()][-1:], written[match.end(1) :][:1]
                    if not before.isdecimal() and not after.isdecimal():
                        needles.add(self._numbers[match[1]])
        return needles


def _any_of(forms: Iterable[str]) -> re.Pattern[str] | None:
    chosen = sorted(forms, key=lambda form: (-len(form), form))
    # Within a look-ahead, so that one needle hides no other.
    return re.compile(f"(?=({'|'.join(map(re.escape, chosen))}))") if chosen else None


def _layers(octets: bytes, depth: int, seen: set[int]) -> Iterator[bytes]:
    """The bytes, and what they are when they are decoded in each way that they can be."""
    if hash(octets) in seen:
        return
    seen.add(hash(octets))
    yield octets
    if depth >= DEPTH_MAX:
        return
    for decoded in _decoded(octets):
        if decoded and decoded != octets:
            yield from _layers(decoded, depth + 1, seen)


def _decoded(octets: bytes) -> Iterator[bytes]:
    yield from _unpacked(octets)
    if b"%" in octets:
        yield unquote_to_bytes(octets)
    if b"&" in octets:
        yield html.unescape(octets.decode("utf-8", "replace")).encode("utf-8", "replace")
    if b"\\" in octets:
        yield _ESCAPED.sub(lambda match: chr(int(match[1] or match[2], 16)).encode("utf-8", "replace"), octets)
    # All runs together: each by itself would be looked into again and again.
    yield b"\n".join(filter(_may_hold_text, (binascii.unhexlify(match[0]) for match in _HEX.finditer(octets))))
    runs = (_from_base64(match[0]) for match in _BASE64.finditer(octets))
    yield b"\n".join(decoded for run in runs for decoded in run if _may_hold_text(decoded))


def _may_hold_text(octets: bytes) -> bool:
    return _LETTERS.search(octets) is not None or octets.startswith(_MAGIC)


def _from_base64(text: bytes) -> Iterator[bytes]:
    """Decode a run of its letters, which may begin anywhere in a group of four."""
    plain_text = text.rstrip(b"=").translate(_URL_SAFE)
    for begin in range(4):
        chosen = plain_text[begin:]
        yield base64.b64decode(chosen[: len(chosen) - (len(chosen) % 4 == 1)] + b"===", validate=False)


def _unpacked(octets: bytes) -> Iterator[bytes]:
    for magic, codec in _MAGIC_OF.items():
        at = octets.find(magic)
        while at >= 0:
            if content := _unpack(octets[at:], codec):
                yield content
            at = octets.find(magic, at + 1)


def _unpack(octets: bytes, codec: str) -> bytes:
    """Return what can be read of it: it may end anywhere, and other bytes may follow."""
    if codec in _WINDOW_BITS:
        try:
            return zlib.decompressobj(_WINDOW_BITS[codec]).decompress(octets, _UNPACKED_BYTES_MAX)
        except zlib.error:
            return b""
    unpacked = bytearray()
    try:
        with pa.CompressedInputStream(pa.BufferReader(octets), codec) as stream:
            # What follows is an error, and takes the piece with it in which it is met.
            while len(unpacked) < _UNPACKED_BYTES_MAX and (piece := stream.read(len(unpacked) // 8 + 1)):
                unpacked += piece
    except OSError:
        pass
    return bytes(unpacked)
