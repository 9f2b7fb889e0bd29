"""A metric over time: buckets of one round width, aligned to the clock so that a live picture does not wander."""

# ruff: noqa: S608 - the identifiers in these statements come from our own tables, every value is bound

from typing import Final

from telemetry.model.generator_health import gauge_metric
from telemetry.model.stats import enough
from telemetry.store import queries
from telemetry.store.answers import Filter, GeneratorPoint, TimelinePoint
from telemetry.store.connection import StoreConnection, rows
from telemetry.store.queries import valid

_SECOND_NS: Final = 1_000_000_000
_WIDTHS_S: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400)


def bucket_width_ns(length_ns: int, buckets: int) -> int:
    """The smallest round width by which the length takes at most `buckets` buckets, whatever it starts at."""
    for width_s in _WIDTHS_S:
        if length_ns // (width_s * _SECOND_NS) + 2 <= buckets:
            return width_s * _SECOND_NS
    day_ns = _WIDTHS_S[-1] * _SECOND_NS
    # Aligned buckets: a length of k widths may touch k + 1 of them.
    days = -(-length_ns // (day_ns * max(1, buckets - 1)))
    return max(1, days) * day_ns


def timeline(connection: StoreConnection, f: Filter, column: str, buckets: int) -> list[TimelinePoint]:
    """The points of the filter from its first to its last bucket, those without a turn included (n = 0)."""
    where = queries.turns_of(f) & valid(f)
    (span,) = rows(
        connection,
        f"SELECT min(started_unix_ns) AS first, max(started_unix_ns) AS last FROM turns WHERE {where.sql}",
        list(where.values),
    )
    if span["first"] is None:
        return []
    width_ns = bucket_width_ns(span["last"] - span["first"], buckets)
    first = span["first"] // width_ns
    found = {
        row["bucket"]: row
        for row in rows(
            connection,
            f"""
            SELECT started_unix_ns // {width_ns} AS bucket, count({column}) AS n,
                   quantile_cont({column}, [0.5, 0.95, 0.99]) AS q
            FROM turns WHERE {where.sql} GROUP BY bucket
            """,
            list(where.values),
        )
    }
    in_flight = calls_in_flight(connection, f, width_ns)
    points: list[TimelinePoint] = []
    for bucket in range(first, span["last"] // width_ns + 1):
        row = found.get(bucket)
        n = 0 if row is None else row["n"]
        p50, p95, p99 = row["q"] if row is not None and n else (None, None, None)
        points.append(
            TimelinePoint(
                start_unix_ns=bucket * width_ns,
                n=n,
                p50=p50,
                p95=enough("p95", n, p95),
                p99=enough("p99", n, p99),
                calls_in_flight=in_flight.get(bucket),
            )
        )
    return points


def calls_in_flight(connection: StoreConnection, f: Filter, width_ns: int) -> dict[int, int]:
    """By bucket, what the generator reported: the mean of each process over the bucket, added up. Unknown where it
    reported nothing, and where the filter asks for what only turns carry."""
    if queries.is_by_turn(f):
        return {}
    where = queries.points_of(f)
    found = rows(
        connection,
        f"""
        SELECT bucket, round(sum(mean))::BIGINT AS calls FROM (
            SELECT unix_ns // {width_ns} AS bucket, process_id, avg(value) AS mean
            FROM points WHERE name = ? AND {where.sql} GROUP BY ALL
        ) GROUP BY bucket
        """,
        [gauge_metric("calls_in_flight"), *where.values],
    )
    return {row["bucket"]: row["calls"] for row in found}


def generator_points(connection: StoreConnection, f: Filter) -> list[GeneratorPoint]:
    """What the generator's processes reported of themselves over time, the oldest first."""
    where = queries.points_of(f)
    found = rows(
        connection,
        f"""
        SELECT unix_ns, process_id, max(value) FILTER (name = ?) AS cpu, max(value) FILTER (name = ?)::BIGINT AS frames
        FROM points WHERE process_id IS NOT NULL AND {where.sql} GROUP BY unix_ns, process_id
        HAVING cpu IS NOT NULL OR frames IS NOT NULL ORDER BY unix_ns, process_id
        """,
        [gauge_metric("cpu_ratio"), gauge_metric("frames_sent"), *where.values],
    )
    return [GeneratorPoint(row["unix_ns"], row["process_id"], row["cpu"], row["frames"]) for row in found]
