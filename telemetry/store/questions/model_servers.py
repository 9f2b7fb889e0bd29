"""What model servers reported of themselves while turns took place: context, kept apart from the figures of turns.

vLLM counts the *tokens* that its prefix cache was asked for and had. That is no share of requests or turns, and is
never averaged with one. Its times of waiting come in buckets: a percentile is known to lie between two bounds, no
better.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from telemetry.model.metrics import MIN_COUNT_FOR
from telemetry.model.semconv import GEN_AI_REQUEST_MODEL, SCRAPE_SCOPE, SCRAPE_UP
from telemetry.store.connection import StoreConnection, rows
from telemetry.store.questions.filters import Natural

# The same series by their present and their former name; a server has one of them.
_QUERIES: Final = ("vllm:prefix_cache_queries", "vllm:gpu_prefix_cache_queries")
_HITS: Final = ("vllm:prefix_cache_hits", "vllm:gpu_prefix_cache_hits")
_WAITING: Final = "vllm:num_requests_waiting"
_QUEUE: Final = "vllm:request_queue_time_seconds"
_FIRST_TOKEN: Final = "vllm:time_to_first_token_seconds"  # noqa: S105 - a token of text
# A page is read every so often: the last reading before the turns is what they are counted from.
_BEFORE_NS: Final = 120 * 10**9


@dataclass(frozen=True, slots=True)
class RequestTimes:
    """Times of `count` requests in seconds. The p95 lies above `p95_above_s` and at most at `p95_until_s`, None where
    it lies beyond the last bucket; both are None with fewer than 20 requests."""

    count: int
    mean_s: float | None
    p95_above_s: float | None
    p95_until_s: float | None


@dataclass(frozen=True, slots=True)
class ModelServer:
    """A server and model over a time. None is not known: the server does not say, or was read fewer than two times.

    `prefix_hits_per_token` is cached prompt tokens ÷ prompt tokens looked up.
    """

    name: str
    model: str | None
    readings: int
    failed_readings: int
    prefix_tokens: int | None
    prefix_hits_per_token: float | None
    waiting_most: int | None
    queue: RequestTimes | None
    first_token: RequestTimes | None


def model_servers(
    connection: StoreConnection, since_unix_ns: Natural, until_unix_ns: Natural
) -> tuple[ModelServer, ...]:
    """What each model server reported from shortly before `since_unix_ns` to `until_unix_ns`, by name and model."""
    found = rows(connection, _READINGS, [SCRAPE_SCOPE, since_unix_ns - _BEFORE_NS, until_unix_ns, since_unix_ns])
    if not found:
        return ()
    up = {row["service"]: row for row in found if row["name"] == SCRAPE_UP}
    by_model: dict[tuple[str, str | None], list[dict[str, Any]]] = {}
    for row in found:
        if row["name"] != SCRAPE_UP:
            model = json.loads(row["attributes"]).get(GEN_AI_REQUEST_MODEL)
            by_model.setdefault((row["service"], model), []).append(row)
    for service in up:
        if not any(name == service for name, _ in by_model):
            by_model[service, None] = []
    return tuple(
        _server(name, model, up.get(name), series)
        for (name, model), series in sorted(by_model.items(), key=lambda item: (item[0][0], item[0][1] or ""))
    )


# Of each series: by how much it grew from one reading to the next. A smaller value than before is a server that began
# anew.
_READINGS: Final = """
    WITH read AS (
        SELECT service, name, attributes, unix_ns, kind, value, count, sum, bucket_counts, explicit_bounds
        FROM points WHERE scope_name = ? AND unix_ns >= ? AND unix_ns < ?
    ),
    following AS (
        SELECT *, lag(value) OVER series AS value_before, lag(count) OVER series AS count_before,
               lag(sum) OVER series AS sum_before, lag(bucket_counts) OVER series AS buckets_before
        FROM read WINDOW series AS (PARTITION BY service, name, attributes ORDER BY unix_ns)
    ),
    steps AS (
        SELECT *, count_before IS NOT NULL AND count >= count_before
                  AND len(bucket_counts) = len(buckets_before) AS goes_on
        FROM following WHERE unix_ns >= ?
    )
    SELECT service, name, attributes, count(*) AS readings,
           count(coalesce(value_before, count_before)) AS steps, max(value) AS most,
           count(*) FILTER (WHERE value = 0) AS zeros,
           sum(CASE WHEN value_before IS NULL THEN 0 WHEN value >= value_before THEN value - value_before
                    ELSE value END) AS grown,
           sum(CASE WHEN goes_on THEN sum - sum_before ELSE sum END) FILTER (WHERE count_before IS NOT NULL) AS seconds,
           list(CASE WHEN goes_on THEN list_transform(range(1, len(bucket_counts) + 1),
                                                      lambda i: bucket_counts[i] - buckets_before[i])
                     ELSE bucket_counts END ORDER BY unix_ns) FILTER (WHERE count_before IS NOT NULL) AS buckets,
           arg_max(explicit_bounds, unix_ns) AS bounds
    FROM steps GROUP BY service, name, attributes ORDER BY service, name, attributes
    """


def _server(name: str, model: str | None, up: dict[str, Any] | None, series: list[dict[str, Any]]) -> ModelServer:
    tokens, hits = _grown(series, _QUERIES), _grown(series, _HITS)
    waiting = [row["most"] for row in series if row["name"] == _WAITING and row["most"] is not None]
    return ModelServer(
        name=name,
        model=model,
        readings=0 if up is None else up["readings"] - up["zeros"],
        failed_readings=0 if up is None else up["zeros"],
        prefix_tokens=tokens,
        prefix_hits_per_token=hits / tokens if tokens and hits is not None else None,
        # Engines of one server wait apart; the most of all at one moment is not known.
        waiting_most=round(max(waiting)) if waiting else None,
        queue=_spread(series, _QUEUE),
        first_token=_spread(series, _FIRST_TOKEN),
    )


def _grown(series: list[dict[str, Any]], names: Sequence[str]) -> int | None:
    """By how much a counter grew over all engines of a server, by the first of its names that the server uses."""
    for name in names:
        found = [row["grown"] for row in series if row["name"] == name and row["steps"]]
        if found:
            return round(sum(found))
    return None


def _spread(series: list[dict[str, Any]], name: str) -> RequestTimes | None:
    found = [row for row in series if row["name"] == name and row["steps"]]
    if not found:
        return None
    bounds = found[0]["bounds"]
    # Engines of one server share their bounds; a server of another version that took its place may not.
    counts = [
        sum(step[place] for row in found for step in row["buckets"] if len(step) == len(bounds) + 1)
        for place in range(len(bounds) + 1)
    ]
    count = sum(counts)
    above_s, until_s = _between(bounds, counts, 0.95) if count >= MIN_COUNT_FOR["p95"] else (None, None)
    seconds = sum(row["seconds"] or 0.0 for row in found)
    return RequestTimes(count, seconds / count if count else None, above_s, until_s)


def _between(bounds: Sequence[float], counts: Sequence[int], fraction: float) -> tuple[float, float | None]:
    """The bounds between which a quantile lies: above the first and at most at the second, None for no bound."""
    rank, passed = fraction * sum(counts), 0
    for place, count in enumerate(counts):
        passed += count
        if count and passed >= rank:
            return (bounds[place - 1] if place else 0.0), (bounds[place] if place < len(bounds) else None)
    raise ValueError("a quantile of no values was asked for")
