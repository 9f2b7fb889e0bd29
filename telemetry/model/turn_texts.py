"""The texts of a turn, made fit to be shown and stored: whoever hands a turn on cleans them once. Pure."""

from typing import Any, Final

import msgspec

from telemetry.model.foreign_text import LONGEST_CHARS, one_line
from telemetry.model.turns import Turn

# What was said is longer than what is said of it.
LONGEST_TRANSCRIPT_CHARS: Final = 20_000
_LONGER: Final = {"transcript_pii": LONGEST_TRANSCRIPT_CHARS}
_NAMES: Final = Turn.__struct_fields__


def with_plain_texts(turn: Turn) -> Turn:
    """The turn with every text on one line, bounded, and with control characters written out. It may come from an
    endpoint, from a service's telemetry, or from a name that somebody chose."""
    changes: dict[str, Any] = {}
    for name, value in zip(_NAMES, msgspec.structs.astuple(turn), strict=True):
        if type(value) is str:
            # What most texts are is seen at a glance.
            if len(value) > LONGEST_CHARS or not value.isprintable():
                changes[name] = one_line(value, longest_chars(name))
        elif type(value) is tuple and value and type(value[0]) is str:
            changes[name] = tuple(map(one_line, value))
    return msgspec.structs.replace(turn, **changes) if changes else turn


def longest_chars(field: str) -> int:
    """How many characters of a text of this field of a turn are kept."""
    return _LONGER.get(field, LONGEST_CHARS)
