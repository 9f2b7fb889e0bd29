"""Search for personal data: found in every form, and no false matches."""

import base64
import gzip
import json
import zlib
from collections.abc import Callable
from urllib.parse import quote

import pyarrow as pa
import pytest

from loadtest.audit.search import Search, needles_of_text, needles_of_texts, needles_of_value

TEXT = "My card number is four zero zero zero one two three four, and I am called Margaret Ellsworth."
WORDS = Search(needles_of_texts([("card", TEXT)]))
NUMBER = Search(needles_of_value("phone", "+49 30 901820"))

FORMS: dict[str, Callable[[str], bytes]] = {
    "as it is": lambda text: text.encode(),
    "among other bytes": lambda text: b"\x00\xff\x12" + text.encode() + b"\xfe",
    "in capitals": lambda text: text.upper().encode(),
    "with other separators": lambda text: text.replace(" ", "_").encode(),
    "JSON": lambda text: json.dumps({"a": [text]}).encode(),
    "escaped": lambda text: "".join(f"\\u{ord(char):04x}" for char in text).encode(),
    "base64": lambda text: base64.b64encode(text.encode()),
    "base64 from the second byte": lambda text: base64.b64encode(b"x" + text.encode()),
    "base64 from the third byte": lambda text: base64.urlsafe_b64encode(b"xy" + text.encode()),
    "hex": lambda text: text.encode().hex().encode(),
    "hex in capitals": lambda text: b"id=" + text.encode().hex().upper().encode() + b";",
    "percent": lambda text: quote(text).encode(),
    "gzip": lambda text: gzip.compress(text.encode()),
    "gzip within a file": lambda text: b"head" + gzip.compress(text.encode()) + b"tail",
    "zstd": lambda text: bytes(pa.compress(text.encode(), "zstd", asbytes=True)),
    "zstd within a file": lambda text: b"head" + bytes(pa.compress(text.encode(), "zstd", asbytes=True)) + b"tail",
    "zlib": lambda text: zlib.compress(text.encode()),
    "UTF-16": lambda text: text.encode("utf-16-le"),
    "base64 of gzip": lambda text: base64.b64encode(gzip.compress(text.encode())),
    "gzip of JSON of base64": lambda text: gzip.compress(
        json.dumps({"a": base64.b64encode(text.encode()).decode()}).encode()
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_text_is_found_in_every_form(form: str) -> None:
    assert {needle.source for needle in WORDS.needles_in(FORMS[form](TEXT))} == {"card"}
    assert {needle.source for needle in NUMBER.needles_in(FORMS[form]("call +49-30-901820 now"))} == {"phone"}


@pytest.mark.parametrize(
    "part",
    [
        "four zero zero zero one two three four",
        "4000 1234",
        "40001234",
        "margaret.ellsworth",
        "and I am called Margaret and others",
    ],
)
def test_parts_of_it_are_found(part: str) -> None:
    assert WORDS.needles_in(f"..., {part}!".encode())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "my card number, and four other words",
        "Margaret and an Ellsworth of another family",
        "1763400012345678901",
        "[redacted:card] number is [redacted:digits]",
        "banking-card-number",
        *(base64.b64encode(bytes(range(256))).decode(), bytes(range(256)).hex()),
    ],
)
def test_other_text_matches_no_needle(text: str) -> None:
    assert WORDS.needles_in(text.encode()) == set()
    assert NUMBER.needles_in(text.encode()) == set()


def test_a_number_within_a_longer_one_is_another() -> None:
    assert NUMBER.needles_in(b"1234930901820") == set()
    assert NUMBER.needles_in(b"t=4930901820;")


def test_a_short_text_is_looked_for_as_a_whole() -> None:
    assert {needle.form for needle in needles_of_text("a", "Call me.")} == {"callme"}
