"""Custom services: the run of turns that each reports (one per service and UTC day), and the table of the spans with
which it reports them, in data/service-spans.toml.

Such a service imports nothing of ours: it names a span, its events and its attributes by this table, in any language.
"""

import re
import tomllib
from datetime import UTC, date, datetime
from functools import cache
from importlib.resources import files
from typing import Final, Literal, NamedTuple

import msgspec

from telemetry.model import semconv

# What every figure of such a run is, for people.
REPORTED: Final = "reported by the service, not heard by a caller"
UNNAMED_SERVICE: Final = "unknown_service"  # OpenTelemetry's own name for a service without one
SERVICE_RUN_PREFIX: Final = "service:"
_RUN_ID: Final = re.compile(SERVICE_RUN_PREFIX + r"(?P<service>.+):(?P<day>\d{4}-\d{2}-\d{2})", re.DOTALL)


class ServiceDay(NamedTuple):
    """A service by its `service.name`, and a day in UTC."""

    service: str
    day: date


def service_run_id(service: str, unix_ns: int) -> str:
    """The run of a turn of `service` that began at `unix_ns` of the wall clock: `service:NAME:YYYY-MM-DD`, in UTC."""
    day = datetime.fromtimestamp(unix_ns // 1_000_000_000, UTC).date()
    return f"{SERVICE_RUN_PREFIX}{service or UNNAMED_SERVICE}:{day.isoformat()}"


def service_day(run_id: str) -> ServiceDay | None:
    """The service and day of a run id made by `service_run_id`; None for any other run id."""
    match = _RUN_ID.fullmatch(run_id)
    if match is None:
        return None
    try:
        return ServiceDay(match["service"], date.fromisoformat(match["day"]))
    except ValueError:
        return None


FILE: Final = "service-spans.toml"


class ServiceSpan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A span that may be sent; one without a `parent` is the turn itself."""

    name: str
    meaning: str
    parent: str | None = None


class ServiceEvent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A timestamp that may be sent as an event of the turn's span or of one below it: its time becomes `field` of the
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
