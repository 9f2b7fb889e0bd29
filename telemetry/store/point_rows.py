"""A metric point as the store keeps it: gauges, sums, histograms, exponential histograms and summaries of OTLP.

Columns that a kind does not have are null in its rows, and so are all but the first columns in rows of earlier
versions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import pyarrow as pa

PointKind = Literal["gauge", "sum", "histogram", "exponential_histogram", "summary"]
# A point of any of these is a number; rows of former versions, which have no kind, are as well.
NUMBER_KINDS: Final[tuple[PointKind, ...]] = ("gauge", "sum")


@dataclass(frozen=True, slots=True)
class Exemplar:
    """A single measurement of a point; its ids are hex text, empty where it was made outside a span."""

    unix_ns: int
    value: float
    trace_id: str = ""
    span_id: str = ""


@dataclass(frozen=True, slots=True)
class PointRow:
    """One OTLP metric point. `value` is that of a gauge or sum; None for the others, and where `flags` say that nothing
    was recorded.

    `start_unix_ns` is when a sum or a distribution began to count. `bucket_counts` has one count more than
    `explicit_bounds`; the buckets of an exponential histogram begin at `…_offset` and grow by 2^(2^-scale).
    `quantiles` are pairs of the quantile and its value, in the unit of the metric like all values.
    """

    name: str
    unix_ns: int
    value: float | None
    attributes: Mapping[str, object] = field(default_factory=dict[str, object])
    service: str = ""
    kind: PointKind | None = None
    unit: str | None = None
    scope_name: str | None = None
    temporality: Literal["delta", "cumulative"] | None = None
    is_monotonic: bool | None = None
    start_unix_ns: int | None = None
    flags: int | None = None
    count: int | None = None
    sum: float | None = None
    min: float | None = None
    max: float | None = None
    explicit_bounds: Sequence[float] | None = None
    bucket_counts: Sequence[int] | None = None
    scale: int | None = None
    zero_count: int | None = None
    zero_threshold: float | None = None
    positive_offset: int | None = None
    positive_bucket_counts: Sequence[int] | None = None
    negative_offset: int | None = None
    negative_bucket_counts: Sequence[int] | None = None
    quantiles: Sequence[tuple[float, float | None]] | None = None
    exemplars: Sequence[Exemplar] = ()


# Columns that not every version of the store has; they have the names of the fields above.
POINT_COLUMNS: Final[Mapping[str, Any]] = {
    "kind": pa.string(),
    "unit": pa.string(),
    "scope_name": pa.string(),
    "temporality": pa.string(),
    "is_monotonic": pa.bool_(),
    "start_unix_ns": pa.int64(),
    "flags": pa.int64(),
    "count": pa.int64(),
    "sum": pa.float64(),
    "min": pa.float64(),
    "max": pa.float64(),
    "explicit_bounds": pa.list_(pa.float64()),
    "bucket_counts": pa.list_(pa.int64()),
    "scale": pa.int32(),
    "zero_count": pa.int64(),
    "zero_threshold": pa.float64(),
    "positive_offset": pa.int32(),
    "positive_bucket_counts": pa.list_(pa.int64()),
    "negative_offset": pa.int32(),
    "negative_bucket_counts": pa.list_(pa.int64()),
    "quantiles": pa.list_(pa.struct([("quantile", pa.float64()), ("value", pa.float64())])),
    "exemplars": pa.list_(
        pa.struct(
            [("unix_ns", pa.int64()), ("value", pa.float64()), ("trace_id", pa.string()), ("span_id", pa.string())]
        )
    ),
}


def column_of(points: Sequence[PointRow], name: str) -> Any:
    """One of the columns of points, as an array."""
    values: list[Any] = [getattr(point, name) for point in points]
    if name == "quantiles":
        values = [pairs and [{"quantile": quantile, "value": value} for quantile, value in pairs] for pairs in values]
    elif name == "exemplars":
        fields = ("unix_ns", "value", "trace_id", "span_id")
        values = [[{of: getattr(one, of) for of in fields} for one in items] or None for items in values]
    return pa.array(values, POINT_COLUMNS[name])
