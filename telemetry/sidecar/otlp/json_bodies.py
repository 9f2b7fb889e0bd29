"""Parses JSON of which a little is not as it must be, so that one text or value does not refuse what it came with.

A text that was cut within a character has bytes that are not UTF-8, or, from JavaScript, half of a pair of escapes:
U+FFFD stands for these. What is nested deeper than a parser goes is cut off.
"""

import re
from typing import Any, Final

import orjson

from telemetry.sidecar.otlp.attributes import DEPTH_MAX, OtlpDecodeError

# An attribute's value takes four brackets a level at most, and all around it seven.
_BRACKETS_MAX: Final = 4 * (DEPTH_MAX + 1) + 7
# A text to its end, or a bracket. Nothing is looked at twice, also where the last text has no end.
_TEXT_OR_BRACKET: Final = re.compile(rb'"(?>[^"\\]+|\\.)*+"?|[\[\]{}]', re.DOTALL)
_HALF_ESCAPE: Final = re.compile(
    rb"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)


def json_content(body: bytes) -> Any:
    """What a body of JSON says. Raises OtlpDecodeError when it is not JSON."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        pass
    try:
        return orjson.loads(_shallow(_in_unicode(body)))
    except orjson.JSONDecodeError as error:
        raise OtlpDecodeError(f"the body is not JSON ({error})") from error


def _in_unicode(body: bytes) -> bytes:
    return _HALF_ESCAPE.sub(lambda found: rb"\ufffd" if found[1] else found[0], body.decode(errors="replace").encode())


def _shallow(body: bytes) -> bytes:
    """The JSON with `null` for every array and object that is nested too deeply."""
    pieces: list[bytes] = []
    depth = kept = 0
    for found in _TEXT_OR_BRACKET.finditer(body):
        bracket = found[0]
        if bracket in (b"{", b"["):
            if depth == _BRACKETS_MAX:
                pieces += body[kept : found.start()], b"null"
            depth += 1
        elif bracket in (b"}", b"]"):
            depth -= 1
            if depth == _BRACKETS_MAX:
                kept = found.end()
    if not pieces or depth > _BRACKETS_MAX:
        return body
    return b"".join((*pieces, body[kept:]))
