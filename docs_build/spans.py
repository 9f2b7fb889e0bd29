"""The attributes of a turn's span, what a custom service may send, response metadata and gauges."""

from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin

import msgspec

from docs_build import comments
from docs_build.markdown import cell, code, sections, table
from loadtest.protocols.headers import CACHE_AND_ROUTE, REQUEST_IDS, WHO_ANSWERED
from telemetry.model import semconv, turns
from telemetry.model.generator_health import GAUGES
from telemetry.model.metrics import TIMESTAMPS
from telemetry.model.services import WHOLE_TURN_ATTRIBUTES, service_span_table
from telemetry.model.turn_spans import CARRIED
from telemetry.model.turns import Turn

SEMCONV: Final = Path(semconv.__file__)
TURNS: Final = Path(turns.__file__)

METADATA_MEANINGS: Final = {
    "META_CACHE_TIER": f"the cache that answered: {', '.join(semconv.CACHE_TIERS)}",
    "META_CACHE_HIT": "`true` or `false`: whether a cache answered",
    "META_ROUTE": f"where the answer was generated: {', '.join(semconv.ROUTES)}",
    "META_FALLBACK": f"the fallback that answered: {', '.join(semconv.FALLBACKS)}",
    "META_COHORT": "name of the call's cohort",
    "META_USER": "id of the user who called, where the service knows it; stored as a pseudonym",
    "META_MODEL": "name of the model that answered",
    "META_INTENT": "the intent that the service recognized",
}
HEALTH_MEANINGS: Final = {
    "METRIC_GENERATOR_STARTS": f"starts of open arrivals in a phase; `which`: {', '.join(semconv.START_COUNTS)}",
}


def own_service() -> str:
    """Return the tables of what a custom service may send."""
    listed = service_span_table()
    kinds = {field.name: cell(_kind(field.type)) for field in msgspec.structs.fields(Turn)}
    events = [(code(event.name), cell(event.meaning)) for event in listed.event]
    attributes = [
        (code(attribute.name), kinds[attribute.field], cell(attribute.meaning)) for attribute in listed.attribute
    ]
    return sections(
        [
            table(("Span", "Is"), [(code(span.name), cell(span.meaning)) for span in listed.span]),
            "Events, each a moment:",
            table(("Event", "Says that"), events),
            "Attributes:",
            table(("Attribute", "Type", "Meaning"), attributes),
        ]
    )


def whole_turns() -> str:
    """Return the attributes by which a span of a whole turn is recognized."""
    return " or ".join(map(code, sorted(WHOLE_TURN_ATTRIBUTES)))


def gen_ai_names() -> str:
    """Return the attributes of OpenTelemetry's GenAI conventions that a turn has."""
    return ", ".join(map(code, sorted(value for name, value in vars(semconv).items() if name.startswith("GEN_AI_"))))


def header_names() -> str:
    """Return the headers of an endpoint that are kept."""
    return ", ".join(map(code, (*REQUEST_IDS, *WHO_ANSWERED, *CACHE_AND_ROUTE)))


def metadata_keys() -> str:
    """Return the table of a response's metadata."""
    return table(("Key", "Value"), _constants("META_", METADATA_MEANINGS))


def health_gauges() -> str:
    """Return the table of the load generator's gauges."""
    rows = [(code(figure.metric or ""), cell(figure.definition)) for figure in GAUGES.values()]
    return table(("Metric", "Meaning"), [*rows, *_constants("METRIC_", HEALTH_MEANINGS)])


def turn_attributes() -> str:
    """Return a table for each group of fields, under the comment that is above them in the code."""
    described = {field.name: field for field in msgspec.structs.fields(Turn)}
    comments_of = comments.trailing(TURNS, "Turn")
    parts: list[str] = []
    for group in comments.groups(TURNS, "Turn"):
        rows = [
            (code(semconv.TURN_PREFIX + name), cell(_kind(described[name].type)), cell(_meaning(name, comments_of)))
            for name in group.names
            if name in CARRIED
        ]
        parts += [cell(group.comment), table(("Attribute", "Type", "Meaning"), rows)]
    return sections(parts)


def _meaning(name: str, comments_of: dict[str, str]) -> str:
    timestamp = name.removesuffix("_perf_ns")
    return comments_of[name] or (TIMESTAMPS[timestamp] if name.endswith("_perf_ns") and timestamp in TIMESTAMPS else "")


def _kind(kind: Any) -> str:
    """Return a type as text, without saying that the field may be unknown."""
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(map(str, get_args(kind)))
    if get_origin(kind) is tuple:
        return f"array of {_kind(get_args(kind)[0])}"
    parts = [part for part in get_args(kind) if part is not type(None) and not isinstance(part, msgspec.Meta)]
    if parts:
        return _kind(parts[0])
    return {str: "text", int: "integer", float: "number", bool: "true or false"}[kind]


def _constants(prefix: str, meanings: dict[str, str]) -> list[tuple[str, str]]:
    """Return name and meaning of the constants with a prefix; a trailing comment takes precedence."""
    comments_of = comments.trailing(SEMCONV)
    return [
        (code(value), cell(comments_of.get(name) or meanings.get(name, "")))
        for name, value in vars(semconv).items()
        if name.startswith(prefix)
    ]
