"""Generates the page of spans: their names, the attributes of a turn, response metadata and gauges."""

from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin

import msgspec

from docs_build import comments
from docs_build.markdown import cell, code, page, table
from loadtest.protocols.endpoint_headers import CACHE_AND_ROUTE, MAX_VALUE_CHARS, REQUEST_IDS, WHO_ANSWERED
from telemetry.model import semconv, turns
from telemetry.model.generator_health import GAUGES
from telemetry.model.metrics import TIMESTAMPS
from telemetry.model.services import WHOLE_TURN_ATTRIBUTES, service_span_table
from telemetry.model.turn_spans import CARRIED
from telemetry.model.turns import Turn

SEMCONV: Final = Path(semconv.__file__)
TURNS: Final = Path(turns.__file__)

INTRODUCTION: Final = f"""
Client and service emit the same spans: a `{semconv.SPAN_CALL}` for each call, a `{semconv.SPAN_TURN}` for each of its
turns, and `{semconv.SPAN_ASR}`, `{semconv.SPAN_LLM}` and `{semconv.SPAN_TTS}` below a turn. `{semconv.SPAN_RUN}` spans
mark the start and the end of a run. A turn's span carries all data of the turn; decoding it restores the turn exactly.
The version of these conventions is {semconv.SCHEMA_VERSION}, in the attribute `{semconv.ATTR_SCHEMA}`.
"""
OWN: Final = f"""
A service reports its turns with OpenTelemetry's own API, in any language: a span `{semconv.SPAN_TURN}` for each turn,
with what is known of the following. Nothing but that span is required, and events and attributes may also be on spans
below it. An event may be sent with a time in the past. [How to send them](../how-to/service-spans.md).
"""
WHOLE: Final = f"""
The load generator and the reference assistant send whole turns instead, with every field as an attribute. A span is
read so if it has {" or ".join(map(code, sorted(WHOLE_TURN_ATTRIBUTES)))}; then `run_id`, `call_id`, `turn_index`,
`source`, `outcome`, `started_unix_ns` and `started_perf_ns` are required.
"""
GEN_AI: Final = """
If OpenTelemetry's GenAI conventions have a name for a value, the span also carries it under that name:
"""
HEADERS: Final = f"""
`{semconv.TURN_PREFIX}endpoint_headers` and, on the call's span, `{semconv.CALL_PREFIX}endpoint_headers`
hold only headers with these names. No other header of an endpoint is stored or shown: no cookie, and nothing that could
be a secret. Values are cut after {MAX_VALUE_CHARS} characters.
"""
METADATA: Final = """
Some data is available only to the service. It can be reported without OpenTelemetry, as string pairs in the metadata of
a response (in OpenAI Realtime: `response.metadata`).
"""
HEALTH: Final = """
Every process of the load generator exports these OTLP gauges once a second, with the attributes `run_id` and
`process_id`.
"""
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


def spans_page() -> str:
    """Return the page with spans, attributes of a turn, response metadata and the load generator's gauges."""
    parts = [INTRODUCTION, "## Spans of your own service", OWN, *_own_service()]
    parts += ["## Attributes of a turn", WHOLE, *_turn(), GEN_AI]
    gen_ai = sorted(value for name, value in vars(semconv).items() if name.startswith("GEN_AI_"))
    parts += [", ".join(map(code, gen_ai)) + "."]
    names = (*REQUEST_IDS, *WHO_ANSWERED, *CACHE_AND_ROUTE)
    parts += ["## Headers that are kept", HEADERS, ", ".join(map(code, names)) + "."]
    parts += ["## Response metadata", METADATA, table(("Key", "Value"), _constants("META_", METADATA_MEANINGS))]
    parts += ["## Health of the load generator", HEALTH]
    rows = [(code(figure.metric or ""), cell(figure.definition)) for figure in GAUGES.values()]
    parts += [table(("Metric", "Meaning"), [*rows, *_constants("METRIC_", HEALTH_MEANINGS)])]
    return page("Spans and attributes", *parts)


def _own_service() -> list[str]:
    """Return the tables of what a service of one's own may send."""
    listed = service_span_table()
    described = {field.name: field for field in msgspec.structs.fields(Turn)}
    events = [(code(event.name), cell(event.meaning)) for event in listed.event]
    attributes = [
        (code(each.name), cell(_kind(described[each.field].type)), cell(each.meaning)) for each in listed.attribute
    ]
    return [
        table(("Span", "Is"), [(code(span.name), cell(span.meaning)) for span in listed.span]),
        "Events, each a moment:",
        table(("Event", "Says that"), events),
        "Attributes:",
        table(("Attribute", "Type", "Meaning"), attributes),
    ]


def _turn() -> list[str]:
    """Return a table for each group of fields, under the comment that is above them in the code."""
    described = {field.name: field for field in msgspec.structs.fields(Turn)}
    beside = comments.trailing(TURNS, "Turn")
    parts: list[str] = []
    for group in comments.groups(TURNS, "Turn"):
        rows = [
            (code(semconv.TURN_PREFIX + name), cell(_kind(described[name].type)), cell(_meaning(name, beside)))
            for name in group.names
            if name in CARRIED
        ]
        parts += [cell(group.comment), table(("Attribute", "Type", "Meaning"), rows)]
    return parts


def _meaning(name: str, beside: dict[str, str]) -> str:
    timestamp = name.removesuffix("_perf_ns")
    return beside[name] or (TIMESTAMPS[timestamp] if name.endswith("_perf_ns") and timestamp in TIMESTAMPS else "")


def _kind(kind: Any) -> str:
    """Return a type in words, without saying that the field may be unknown."""
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
    beside = comments.trailing(SEMCONV)
    return [
        (code(value), cell(beside.get(name) or meanings.get(name, "")))
        for name, value in vars(semconv).items()
        if name.startswith(prefix)
    ]
