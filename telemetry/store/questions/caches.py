"""Answers from caches, by routes and fallbacks; and the reports of model servers at the time of the turns: context,
kept separate from the figures of turns.

vLLM counts the *tokens* that its prefix cache was queried for and had. That is not a share of requests or turns, and is
never averaged with one. Its waiting times are in buckets: a percentile is only known to be between two bounds. All
other figures are over the valid turns with a question, outside ramps unless the filter names the phase.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from telemetry.model import semconv
from telemetry.model.formatting import NOT_REPORTED
from telemetry.model.metrics import HEADLINE, METRICS, MIN_COUNT_FOR
from telemetry.model.semconv import GEN_AI_REQUEST_MODEL, SCRAPE_SCOPE, SCRAPE_UP
from telemetry.model.stats import shown_quantiles
from telemetry.store.answers import Filter
from telemetry.store.connection import Row, StoreConnection, rows
from telemetry.store.questions.filters import FRACTIONS, Natural, grouped, judged, valid
from telemetry.store.questions.timelines import COUNT_TICK_NS, CountsOverTime, counts_over_time

# Which of the valid turns tell whether a cache answered what was asked: those of which both intents are known.
_JUDGED_ANSWER: Final = "turn_kind IS DISTINCT FROM 'silence' AND expected_intent IS NOT NULL AND intent IS NOT NULL"
_INTENTS: Final = {
    "hits_judged": f"cache_hit AND {_JUDGED_ANSWER}",
    "hits_false": f"cache_hit AND {_JUDGED_ANSWER} AND expected_intent <> intent",
    "misses_judged": f"NOT cache_hit AND {_JUDGED_ANSWER}",
    "misses_false": f"NOT cache_hit AND {_JUDGED_ANSWER} AND expected_intent <> intent",
}
# Models are named by others: no page has room for any number of them.
MOST_NAMES: Final = 12
OTHERS: Final = "others"
NO_FALLBACK: Final = "no fallback reported"  # also where the endpoint says nothing of how it answered
MISS: Final = "miss"
HIT: Final = "any hit"
_NAMED: Final = "coalesce(nullif({0}, ''), '{1}')"
_MODEL: Final = _NAMED.format("model", NOT_REPORTED)
# The tier that answered, or that none did; null where the endpoint says nothing of a cache.
_CACHE: Final = (
    f"CASE WHEN cache_hit THEN {_NAMED.format('cache_tier', NOT_REPORTED)} WHEN NOT cache_hit THEN '{MISS}' END"
)
_ORDER: Final = {
    "cache": (HIT, *semconv.CACHE_TIERS, NOT_REPORTED, MISS),
    "route": semconv.ROUTES,
    "fallback": (NO_FALLBACK, *semconv.FALLBACKS),
}


@dataclass(frozen=True, slots=True)
class WaitOfGroup:
    """The waits of callers for answers that one cache, route, model or fallback gave: voice to voice, ns.

    `turns` are all, `n` those of them that got an answer; p95 is None under 20 of these, p99 under 100.
    """

    name: str
    turns: int
    n: int
    mean_ns: float | None
    p50_ns: float | None
    p95_ns: float | None
    p99_ns: float | None


@dataclass(frozen=True, slots=True)
class TimeSaved:
    """The mean time by which hits were answered sooner than misses, and that times the hits. The two answer different
    questions, so it is an estimate and not a measurement."""

    hits: int
    per_hit_ns: float
    total_ns: float


@dataclass(frozen=True, slots=True)
class FalseAnswers:
    """Turns whose answer had another intent than the script names, among those with both intents known."""

    judged: int
    other_intent: int

    @property
    def share(self) -> float | None:
        """Their share; None if no turn has both intents."""
        return self.other_intent / self.judged if self.judged else None


@dataclass(frozen=True, slots=True)
class CacheAnswer:
    """The figures of caches, routes and fallbacks. `waits` has the groups of `cache`, `route`, `model` and
    `fallback`; a dimension that no turn reports has none. `saved` is None without 20 answered hits and 20 misses."""

    turns: int = 0
    reported: int = 0
    hits: int = 0
    tiers: CountsOverTime = CountsOverTime(COUNT_TICK_NS)  # noqa: RUF009 - immutable
    fallbacks: CountsOverTime = CountsOverTime(COUNT_TICK_NS)  # noqa: RUF009 - immutable
    waits: Mapping[str, tuple[WaitOfGroup, ...]] = field(default_factory=dict[str, tuple[WaitOfGroup, ...]])
    saved: TimeSaved | None = None
    false_hits: FalseAnswers = FalseAnswers(0, 0)
    false_misses: FalseAnswers = FalseAnswers(0, 0)

    @property
    def hit_rate(self) -> float | None:
        """Hits / turns that report hit or miss, None without one."""
        return self.hits / self.reported if self.reported else None


def cache_answer(connection: StoreConnection, f: Filter) -> CacheAnswer:
    """The answer from the turns of a filter."""
    groups, ticks, judged = _groups(connection, f), _ticks(connection, f), _intents(connection, f)
    by_name = {group.name: group for group in groups["cache"]}
    hits, misses = by_name.get(HIT), by_name.get(MISS)
    every = [row["tick"] for row in ticks]
    tiers, fallbacks = (
        [(row[name], row["tick"], row["n"]) for row in ticks if row[name] is not None] for name in ("cache", "fallback")
    )
    return CacheAnswer(
        turns=sum(group.turns for group in groups["route"]),
        reported=sum(group.turns for group in (hits, misses) if group is not None),
        hits=0 if hits is None else hits.turns,
        tiers=counts_over_time(tiers, (MISS, *_ORDER["cache"]), among=every),
        fallbacks=counts_over_time(fallbacks, _ORDER["fallback"], among=every),
        waits={what: of_kind for what, of_kind in groups.items() if _is_reported(of_kind)},
        saved=_saved(hits, misses),
        false_hits=FalseAnswers(judged["hits_judged"], judged["hits_false"]),
        false_misses=FalseAnswers(judged["misses_judged"], judged["misses_false"]),
    )


def _is_reported(groups: Sequence[WaitOfGroup]) -> bool:
    return any(group.name not in (NOT_REPORTED, NO_FALLBACK) for group in groups)


def _saved(hits: WaitOfGroup | None, misses: WaitOfGroup | None) -> TimeSaved | None:
    if hits is None or misses is None or hits.mean_ns is None or misses.mean_ns is None:
        return None
    # As many as a p95 needs: fewer say little about the mean of a distribution with a long tail.
    if hits.p95_ns is None or misses.p95_ns is None:
        return None
    per_hit_ns = misses.mean_ns - hits.mean_ns
    return TimeSaved(hits.n, per_hit_ns, per_hit_ns * hits.n)


def _groups(connection: StoreConnection, f: Filter) -> dict[str, tuple[WaitOfGroup, ...]]:
    """The groups of each kind: a hit is one of its tier and one of any. Of models, only the most common are named."""
    where, wait = grouped(f) & valid(f), METRICS[HEADLINE].column
    models = connection.execute(
        f"""
        SELECT {_MODEL} AS name FROM turns WHERE {where.sql} GROUP BY name
        ORDER BY name = '{NOT_REPORTED}', count(*) DESC, name LIMIT {MOST_NAMES}
        """,
        where.values,
    ).fetchall()
    waits = rows(
        connection,
        f"""
        SELECT what, name, count(*) AS turns, count(wait) AS n, avg(wait) AS mean, quantile_cont(wait, {FRACTIONS}) AS q
        FROM (SELECT unnest(['cache', 'cache', 'route', 'model', 'fallback']) AS what,
                     unnest([CASE WHEN cache_hit THEN '{HIT}' END, {_CACHE}, {_NAMED.format("route", NOT_REPORTED)},
                             CASE WHEN list_contains(?::VARCHAR[], {_MODEL}) THEN {_MODEL} ELSE '{OTHERS}' END,
                             {_NAMED.format("fallback", NO_FALLBACK)}]) AS name, {wait} AS wait
              FROM turns WHERE {where.sql})
        WHERE name IS NOT NULL GROUP BY what, name
        """,
        [[name for (name,) in models], *where.values],
    )
    return {
        what: tuple(map(_group, sorted((row for row in waits if row["what"] == what), key=_place)))
        for what in ("cache", "route", "model", "fallback")
    }


def _place(row: Row) -> tuple[int, bool, int, str]:
    """The key to order the groups of a kind."""
    known, name = _ORDER.get(row["what"], ()), row["name"]
    place = known.index(name) if name in known else len(known)
    return place, name in (NOT_REPORTED, OTHERS), -row["turns"], name


def _group(row: Row) -> WaitOfGroup:
    return WaitOfGroup(row["name"], row["turns"], row["n"], row["mean"], *shown_quantiles(row["n"], row["q"]))


def _ticks(connection: StoreConnection, f: Filter) -> list[Row]:
    """Count turns over time by what a cache said and by fallback."""
    where = grouped(f) & valid(f)
    statement = f"""
        SELECT started_unix_ns // {COUNT_TICK_NS} AS tick, {_CACHE} AS cache, fallback, count(*) AS n
        FROM turns WHERE {where.sql} GROUP BY ALL
        """
    return rows(connection, statement, where.values)


def _intents(connection: StoreConnection, f: Filter) -> Row:
    """Return how many hits and misses had their intents compared, and how many answered another intent."""
    where = judged(f) & valid(f)
    columns = ", ".join(f"count(*) FILTER ({condition}) AS {name}" for name, condition in _INTENTS.items())
    (row,) = rows(connection, f"SELECT {columns} FROM turns WHERE {where.sql}", where.values)
    return row


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
    """Times of `count` requests in seconds. The p95 is above `p95_above_s` and at most `p95_until_s`, None if it is
    beyond the last bucket; both are None with fewer than 20 requests."""

    count: int
    mean_s: float | None
    p95_above_s: float | None
    p95_until_s: float | None


@dataclass(frozen=True, slots=True)
class ModelServer:
    """A server and model over a period. None is unknown: the server does not report it, or was read less than twice.

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
    """Return what each model server reported from shortly before `since_unix_ns` to `until_unix_ns`, by name and
    model."""
    readings = rows(connection, _READINGS, [SCRAPE_SCOPE, since_unix_ns - _BEFORE_NS, until_unix_ns, since_unix_ns])
    if not readings:
        return ()
    up = {row["service"]: row for row in readings if row["name"] == SCRAPE_UP}
    by_model: dict[tuple[str, str | None], list[dict[str, Any]]] = {}
    for row in readings:
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
# again.
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
    """Return the growth of a counter over all engines of a server, by the first of its names that the server uses."""
    for name in names:
        grown = [row["grown"] for row in series if row["name"] == name and row["steps"]]
        if grown:
            return round(sum(grown))
    return None


def _spread(series: list[dict[str, Any]], name: str) -> RequestTimes | None:
    histograms = [row for row in series if row["name"] == name and row["steps"]]
    if not histograms:
        return None
    bounds = histograms[0]["bounds"]
    # Engines of one server share their bounds; a server of another version that took its place may not.
    counts = [
        sum(step[place] for row in histograms for step in row["buckets"] if len(step) == len(bounds) + 1)
        for place in range(len(bounds) + 1)
    ]
    count = sum(counts)
    above_s, until_s = _between(bounds, counts, 0.95) if count >= MIN_COUNT_FOR["p95"] else (None, None)
    seconds = sum(row["seconds"] or 0.0 for row in histograms)
    return RequestTimes(count, seconds / count if count else None, above_s, until_s)


def _between(bounds: Sequence[float], counts: Sequence[int], fraction: float) -> tuple[float, float | None]:
    """The bounds of a quantile: it is above the first and at most the second, None for no bound."""
    rank, passed = fraction * sum(counts), 0
    for place, count in enumerate(counts):
        passed += count
        if count and passed >= rank:
            return (bounds[place - 1] if place else 0.0), (bounds[place] if place < len(bounds) else None)
    raise ValueError("a quantile of no values was asked for")
