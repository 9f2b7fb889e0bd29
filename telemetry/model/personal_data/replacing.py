"""Where personal data stands in a text, and the text without it. Pure."""

from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

PersonalKind = Literal["card", "phone", "email", "national_id", "iban", "digits", "name"]

_OPENING: Final = "[redacted:"


class PersonalPart(NamedTuple):
    """A part of a text, from `begin` to before `end` (in characters), that is personal data of a kind."""

    begin: int
    end: int
    kind: PersonalKind


def mark(kind: PersonalKind) -> str:
    """What stands in the place of personal data of a kind."""
    return f"{_OPENING}{kind}]"


def replaced(text: str, places: Iterable[PersonalPart]) -> str:
    """The text with a mark in each place; of places that overlap, the first covers all of them."""
    pieces: list[str] = []
    kept_to = 0
    covered: PersonalPart | None = None
    for place in sorted(places):
        if covered is not None and place.begin < kept_to:
            kept_to = max(kept_to, place.end)
            continue
        pieces += (text[kept_to : place.begin], mark(place.kind))
        covered, kept_to = place, place.end
    return "".join((*pieces, text[kept_to:]))
