"""The spans with which a service of one's own reports its turns: a table, in data/service-spans.toml.

Such a service imports nothing of ours: it names a span, its events and its attributes by this table, in any language.
"""

import tomllib
from functools import cache
from importlib.resources import files
from typing import Final, Literal

import msgspec

from telemetry.model import semconv

FILE: Final = "service-spans.toml"


class ServiceSpan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A span that may be sent; one without a `parent` is the turn itself."""

    name: str
    meaning: str
    parent: str | None = None


class ServiceEvent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A moment that may be sent as an event of the turn's span or of one below it: its time becomes `field` of the
    turn. Of several, the first or the last (`which`) counts."""

    name: str
    field: str
    meaning: str
    which: Literal["first", "last"] = "first"


class ServiceAttribute(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An attribute that may be sent on the turn's span or on one below it: its value becomes `field` of the turn."""

    name: str
    field: str
    meaning: str


class ServiceSpanTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that a service may send of a turn."""

    span: tuple[ServiceSpan, ...]
    event: tuple[ServiceEvent, ...]
    attribute: tuple[ServiceAttribute, ...]


@cache
def service_span_table() -> ServiceSpanTable:
    """The table of the data file."""
    text = (files("telemetry") / "data" / FILE).read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), ServiceSpanTable)


# A `voice.turn` span with one of these was made by our own encoder, and holds every field of a turn.
WHOLE_TURN_ATTRIBUTES: Final = frozenset({semconv.ATTR_SCHEMA, f"{semconv.TURN_PREFIX}started_perf_ns"})
