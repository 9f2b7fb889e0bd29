"""External text made safe for a terminal, a log, a page and the store: visible and bounded. Pure.

An escape character can rename a terminal or clear it, a line break can forge a line of a log, and a bidirectional
override shows a text in another order than it has. They are not removed but written out (`\x1b`), so that a person who
looks for the cause sees what was sent.
"""

import unicodedata
from typing import Final

# What an endpoint says of a fault is a sentence; this is a few lines of a terminal.
LONGEST_CHARS: Final = 500
CUT_SHORT: Final = "…"
_SPACES: Final = frozenset("\t\n\v\f\r\x85\u2028\u2029")
# Marks, embeddings, overrides and isolates that turn the direction of what follows; the byte-order mark; tags.
_TURNING: Final = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff")
# Control characters, lone surrogates, and the separators of lines and paragraphs. Joiners (Cf) belong to scripts.
_WRITTEN_OUT: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})


def has_control_characters(text: str) -> bool:
    """Return whether a text contains a character that is written out or that breaks its line."""
    return not text.isprintable() and any(map(_is_written_out, text))


def one_line(text: str, longest: int = LONGEST_CHARS) -> str:
    """The text on one line: line breaks become spaces, other control characters are written out. At most `longest`
    characters, the last of them `…` if some are missing."""
    # Looking at more than can be shown would let a long text cost time.
    shown = text if len(text) <= longest else text[: longest + 1]
    if not shown.isprintable():
        shown = "".join(" " if char in _SPACES else written_out(char) for char in shown)
    return shown if len(shown) <= longest else shown[: longest - len(CUT_SHORT)] + CUT_SHORT


def several_lines(text: str, longest: int) -> str:
    """Bound a text as `one_line` does, but keep its line breaks and tabs."""
    shown = visible(text if len(text) <= longest else text[: longest + 1])
    return shown if len(shown) <= longest else shown[: longest - len(CUT_SHORT)] + CUT_SHORT


def visible(text: str) -> str:
    """The whole text, with its line breaks and tabs; other control characters are written out."""
    if text.isprintable():
        return text
    return "".join(char if char in "\n\t" else written_out(char) for char in text.replace("\r\n", "\n"))


def written_out(char: str) -> str:
    """One character, as a Python escape sequence if it must not reach a terminal."""
    return char.encode("unicode_escape").decode() if _is_written_out(char) else char


def _is_written_out(char: str) -> bool:
    return char in _TURNING or "\U000e0000" <= char <= "\U000e007f" or unicodedata.category(char) in _WRITTEN_OUT
