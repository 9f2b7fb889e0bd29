"""The columns of the store, derived from the turn and the metrics, and the conversion of rows.

`turns` has a column per field of `Turn`, one per metric (computed at ingest by its one definition; a metric that is a
field of the turn shares the field's column), two for the bounds of each metric that is not exact, and `ended_unix_ns`.
`spans` are complete, as they were received; each of their columns is one of the OpenTelemetry Collector's ClickHouse
table `otel_traces`. `points` are the points of OTLP's metrics, of every kind.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import msgspec
import orjson
import pyarrow as pa

from telemetry.model import semconv
from telemetry.model.bounds import BOUNDED, bounds_of_value
from telemetry.model.foreign_text import one_line, several_lines
from telemetry.model.metrics import METRICS, Metric, Side, known_timestamps
from telemetry.model.turn_spans import SpanEvent, SpanLink, SpanRow, turn_attributes
from telemetry.model.turns import Turn
from telemetry.store.attribute_values import ATTRIBUTES_TYPE, read_attributes, stored_attributes
from telemetry.store.point_rows import POINT_COLUMNS, PointRow, column_of

# A turn's integers stay below this so that sums and differences of two of them fit the store's 64 bits.
INTEGER_LIMIT: Final = 2**62
_INT64_LIMIT: Final = 2**63
_STATUS_MESSAGE_MAX_CHARS: Final = 2**16

Table = Literal["turns", "spans", "points"]
TABLES: Final[tuple[Table, ...]] = ("turns", "spans", "points")
# The moment of a row, as its sender gave it.
TIME_COLUMNS: Final[dict[Table, str]] = {"turns": "started_unix_ns", "spans": "timestamp_unix_ns", "points": "unix_ns"}

# pyarrow ships no types of its own.
ArrowTable = Any
ArrowType = Any


@dataclass(frozen=True, slots=True)
class Batch:
    """The contents of one export, decoded."""

    turns: Sequence[Turn] = ()
    spans: Sequence[SpanRow] = ()
    points: Sequence[PointRow] = ()

    @property
    def rows(self) -> int:
        """Number of rows it would add."""
        return len(self.turns) + len(self.spans) + len(self.points)


def _arrow_type(kind: msgspec.inspect.Type) -> ArrowType:
    """The column type of a turn's field. Raises TypeError for a kind of field that the store does not know."""
    if isinstance(kind, msgspec.inspect.UnionType):
        known = [part for part in kind.types if not isinstance(part, msgspec.inspect.NoneType)]
        if len(known) == 1:
            return _arrow_type(known[0])
    if isinstance(kind, msgspec.inspect.VarTupleType):
        return pa.list_(_arrow_type(kind.item_type))
    for inspected, arrow in (
        (msgspec.inspect.BoolType, pa.bool_()),
        (msgspec.inspect.IntType, pa.int64()),
        (msgspec.inspect.FloatType, pa.float64()),
        (msgspec.inspect.StrType, pa.string()),
        (msgspec.inspect.LiteralType, pa.string()),
    ):
        if isinstance(kind, inspected):
            return arrow
    raise TypeError(f"the store has no column type for {kind!r}")


def _turn_fields() -> dict[str, ArrowType]:
    inspected = msgspec.inspect.type_info(Turn)
    if not isinstance(inspected, msgspec.inspect.StructType):  # pragma: no cover - Turn is a struct
        raise TypeError("Turn is not a struct")
    return {field.name: _arrow_type(field.type) for field in inspected.fields}


def _metric_type(metric: Metric) -> ArrowType:
    return pa.int64() if metric.unit in ("ns", "count") else pa.float64()


TURN_FIELDS: Final[dict[str, ArrowType]] = _turn_fields()
# Metrics which are not a field of the turn already.
DERIVED_METRICS: Final[tuple[Metric, ...]] = tuple(m for m in METRICS.values() if m.column not in TURN_FIELDS)
_COMPUTED: Final = tuple(m for m in METRICS.values() if m.column not in TURN_FIELDS or m in BOUNDED)
SIDES: Final[tuple[Side, Side]] = ("lower", "upper")
ENDED_COLUMN: Final = "ended_unix_ns"
# The stages into which the wait of a turn is divided by its moments, by the columns of their lengths.
STAGES: Final = {stage: f"{stage}_stage_ns" for stage in ("endpointing", "asr", "llm", "tts")}
# What a turn's row has of the other side's turn (telemetry.store.pairing), and its stages. All are numbers, names are
# digests: a commit that changes texts where they are may fail (DuckDB 2.0.0).
PAIRED_COLUMNS: Final = (
    *("heard_call", "other_run", "other_turn"),
    *("other_started_unix_ns", "other_voice_to_voice_ns", "other_speech_end_audio_ns"),
    *STAGES.values(),
)
# What the store adds to each row: when it was stored by the owner's clock, and with which commit.
STORED_COLUMNS: Final = (("stored_unix_ns", pa.int64()), ("commit_number", pa.int64()))

EVENTS_TYPE: Final[ArrowType] = pa.list_(
    pa.struct([("timestamp_unix_ns", pa.int64()), ("name", pa.string()), ("attributes", ATTRIBUTES_TYPE)])
)
LINKS_TYPE: Final[ArrowType] = pa.list_(
    pa.struct(
        [
            ("trace_id", pa.string()),
            ("span_id", pa.string()),
            ("trace_state", pa.string()),
            ("attributes", ATTRIBUTES_TYPE),
        ]
    )
)

SCHEMAS: Final[dict[Table, Any]] = {
    "turns": pa.schema(
        [
            *(pa.field(name, kind) for name, kind in TURN_FIELDS.items()),
            *(pa.field(metric.column, _metric_type(metric)) for metric in DERIVED_METRICS),
            *(pa.field(metric.bound_column(side), _metric_type(metric)) for metric in BOUNDED for side in SIDES),
            pa.field(ENDED_COLUMN, pa.int64()),
        ]
    ),
    "spans": pa.schema(
        [
            ("timestamp_unix_ns", pa.int64()),
            ("trace_id", pa.string()),
            ("span_id", pa.string()),
            ("parent_span_id", pa.string()),
            ("trace_state", pa.string()),
            ("span_name", pa.string()),
            ("span_kind", pa.string()),
            ("service_name", pa.string()),
            ("resource_attributes", ATTRIBUTES_TYPE),
            ("scope_name", pa.string()),
            ("scope_version", pa.string()),
            ("span_attributes", ATTRIBUTES_TYPE),
            ("duration_ns", pa.int64()),
            ("status_code", pa.string()),
            ("status_message", pa.string()),
            ("events", EVENTS_TYPE),
            ("links", LINKS_TYPE),
        ]
    ),
    "points": pa.schema(
        [
            ("name", pa.string()),
            ("unix_ns", pa.int64()),
            ("value", pa.float64()),
            ("run_id", pa.string()),
            ("process_id", pa.string()),
            ("service", pa.string()),
            ("attributes", pa.string()),
            *POINT_COLUMNS.items(),
        ]
    ),
}

# The tables as they are made: what is given of a row, and what the store adds to it.
WHOLE_SCHEMAS: Final[dict[Table, Any]] = {
    table: pa.schema([*schema, *((name, pa.int64()) for name in PAIRED_COLUMNS if table == "turns"), *STORED_COLUMNS])
    for table, schema in SCHEMAS.items()
}


def without_rows(schema: Any) -> ArrowTable:
    """A table of a schema that holds no row.

    pyarrow's own `empty_table` imports pandas, which takes a process a quarter of a second and 30 MB.
    """
    return pa.Table.from_batches([], schema=schema)


def fits(turn: Turn) -> bool:
    """Return whether every integer of the turn can be stored."""
    return all(abs(integer) < INTEGER_LIMIT for name in TURN_FIELDS for integer in _integers(getattr(turn, name)))


def _integers(value: object) -> Iterable[int]:
    if isinstance(value, int):
        yield value
    elif isinstance(value, tuple):
        yield from (item for item in value if isinstance(item, int))


def ended_unix_ns(turn: Turn) -> int:
    """The wall-clock time of the turn's last known timestamp; its start if it has none."""
    moments = known_timestamps(turn).values()
    return turn.started_unix_ns + max(0, max(moments, default=turn.started_perf_ns) - turn.started_perf_ns)


def _stored_bounds(metric: Metric, turn: Turn, value: float | None) -> tuple[int | float | None, int | float | None]:
    """The bounds of a metric with this value on a turn as they are stored: of what is stored as an integer, the
    integers around them. A bound that is infinite, or too far away to be stored, is None, as those of a value that may
    be anywhere."""
    bounds = None if value is None else bounds_of_value(turn, metric, value)
    if bounds is None:
        return None, None
    lower, upper = bounds
    if metric.unit != "ns":
        return lower if math.isfinite(lower) else None, upper if math.isfinite(upper) else None
    return _storable(math.floor(lower)), _storable(math.ceil(upper))


def _storable(value: int | float | None) -> int | float | None:
    # Timestamps which lie further apart than the integers of the store can say are not a measurement.
    return None if isinstance(value, int) and abs(value) >= _INT64_LIMIT else value


def turns_table(turns: Sequence[Turn]) -> ArrowTable:
    """Turns as a table of the store's schema, the metrics computed."""
    if not turns:
        return without_rows(SCHEMAS["turns"])
    fields = zip(*map(msgspec.structs.astuple, turns), strict=True)
    columns = [pa.array(values, kind) for values, kind in zip(fields, TURN_FIELDS.values(), strict=True)]
    return pa.Table.from_arrays([*columns, *_derived_columns(turns)], schema=SCHEMAS["turns"])


def _derived_columns(turns: Sequence[Turn]) -> list[Any]:
    """The columns behind those of the turn's fields: the derived metrics, all bounds of metrics, and the turn's end."""
    values = {
        metric.name: [None if metric.name in turn.withheld_metrics else metric.value(turn) for turn in turns]
        for metric in _COMPUTED
    }
    columns = [pa.array([*map(_storable, values[metric.name])], _metric_type(metric)) for metric in DERIVED_METRICS]
    for metric in BOUNDED:
        bounds = [_stored_bounds(metric, turn, value) for turn, value in zip(turns, values[metric.name], strict=True)]
        columns += [pa.array(side, _metric_type(metric)) for side in zip(*bounds, strict=True)]
    columns.append(pa.array([_storable(ended_unix_ns(turn)) for turn in turns], pa.int64()))
    return columns


def spans_table(spans: Sequence[SpanRow]) -> ArrowTable:
    """Spans as a table of the store's schema."""
    rows = [
        {
            "timestamp_unix_ns": span.start_unix_ns,
            "trace_id": span.trace_id,
            "span_id": span.span_id,
            "parent_span_id": span.parent_span_id,
            "trace_state": span.trace_state,
            "span_name": span.name,
            "span_kind": span.kind,
            "service_name": span.service,
            "resource_attributes": stored_attributes(span.resource_attributes),
            "scope_name": span.scope_name,
            "scope_version": span.scope_version,
            "span_attributes": stored_attributes(span.attributes),
            "duration_ns": span.end_unix_ns - span.start_unix_ns,
            "status_code": span.status_code,
            "status_message": span.status_message,
            "events": [
                {
                    "timestamp_unix_ns": event.unix_ns,
                    "name": event.name,
                    "attributes": stored_attributes(event.attributes),
                }
                for event in span.events
            ],
            "links": [
                {
                    "trace_id": link.trace_id,
                    "span_id": link.span_id,
                    "trace_state": link.trace_state,
                    "attributes": stored_attributes(link.attributes),
                }
                for link in span.links
            ],
        }
        for span in spans
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMAS["spans"])


def points_table(points: Sequence[PointRow]) -> ArrowTable:
    """Metric points as a table; the run and the process have their own columns."""
    columns = {
        "name": [point.name for point in points],
        "unix_ns": [point.unix_ns for point in points],
        "value": [point.value for point in points],
        "run_id": [_text(point.attributes.get("run_id")) for point in points],
        "process_id": [_text(point.attributes.get("process_id")) for point in points],
        "service": [point.service for point in points],
        "attributes": [_json(point.attributes) for point in points],
    }
    schema = SCHEMAS["points"]
    arrays = [pa.array(values, schema.field(name).type) for name, values in columns.items()]
    return pa.Table.from_arrays([*arrays, *(column_of(points, name) for name in POINT_COLUMNS)], schema=schema)


def turn_from_row(row: dict[str, Any]) -> Turn:
    """The turn of a row of the store. Raises msgspec.ValidationError when the row is not a turn."""
    known = {name: value for name, value in row.items() if value is not None and name in TURN_FIELDS}
    return msgspec.convert(known, Turn)


def span_from_row(row: dict[str, Any]) -> SpanRow:
    """The span of a row of the store, with control characters in its texts written out."""
    return SpanRow(
        trace_id=row["trace_id"],
        span_id=row["span_id"],
        parent_span_id=row["parent_span_id"],
        name=one_line(row["span_name"]),
        service=one_line(row["service_name"]),
        start_unix_ns=row["timestamp_unix_ns"],
        end_unix_ns=row["timestamp_unix_ns"] + row["duration_ns"],
        attributes=read_attributes(row["span_attributes"]),
        events=tuple(
            SpanEvent(one_line(event["name"]), event["timestamp_unix_ns"], read_attributes(event["attributes"]))
            for event in row["events"]
        ),
        links=tuple(
            SpanLink(
                link["trace_id"],
                link["span_id"],
                one_line(link["trace_state"]),
                read_attributes(link["attributes"]),
            )
            for link in row["links"]
        ),
        kind=row["span_kind"],
        status_code=row["status_code"],
        status_message=several_lines(row["status_message"], _STATUS_MESSAGE_MAX_CHARS),
        trace_state=one_line(row["trace_state"]),
        scope_name=one_line(row["scope_name"]),
        scope_version=one_line(row["scope_version"]),
        resource_attributes=read_attributes(row["resource_attributes"]),
    )


def with_turn(span: SpanRow, turn: Turn | None) -> SpanRow:
    """The span with the attributes that are stored only in the row of its turn; any other span as it is."""
    if turn is None or span.name != semconv.SPAN_TURN:
        return span
    from_turn = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in turn_attributes(turn).items()
        if name.startswith(semconv.TURN_PREFIX)
    }
    return replace(span, attributes={**from_turn, **span.attributes})


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _json(value: object) -> str:
    # Values that JSON cannot say (bytes of an OTLP attribute) are kept as text.
    return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
