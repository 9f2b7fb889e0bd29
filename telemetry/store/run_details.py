"""How a run went under its own conditions: latency by the calls in flight and by the profile of the speech, and what
callers did beside asking and waiting; all from one consistent read."""

# ruff: noqa: S608 - the identifiers in these statements come from our own tables, every value is bound

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from telemetry.model.generator_health import gauge_metric
from telemetry.model.intervals import interval_ranks, wilson_interval
from telemetry.model.metrics import HEADLINE, METRICS
from telemetry.model.stats import enough
from telemetry.store.answers import Behavior, Filter, MetricStats, WerByCondition
from telemetry.store.connection import Row, StoreConnection, rows
from telemetry.store.questions import filters
from telemetry.store.questions.conversations import wer_by_condition
from telemetry.store.questions.filters import valid
from telemetry.store.questions.summaries import summary

Ints = Any  # a numpy array of int64

MOST_LEVELS: Final = 12
_WINDOW_NS: Final = 1_000_000_000
_STEPS: Final = (1, 2, 5)


@dataclass(frozen=True, slots=True)
class LoadLevel:
    """The turns that began while `low` to `high` calls were in flight. Percentiles of voice-to-voice, in ns, of the
    answered ones; `p95_interval` holds the true p95 with 95 % confidence were turns independent, whatever the
    distribution."""

    low: int
    high: int
    turns: int
    p50: float | None
    p95: float | None
    p95_interval: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class ConditionLatency:
    """Voice-to-voice of the turns spoken under one profile, as LoadLevel has it."""

    noise_profile: str | None
    snr_asked_db: float | None
    channel_profile: str | None
    turns: int
    p50: float | None
    p95: float | None
    p95_interval: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class RunDetails:
    """What the list of runs does not hold of a run. `abandoned` counts the turns in which the caller lost patience, of
    `eligible` turns, `abandoned_interval` is that of their share; `waited_p50` is how long such callers had waited for
    an answer, in ns."""

    run_id: str
    loads: tuple[LoadLevel, ...] = ()
    latencies: tuple[ConditionLatency, ...] = ()
    word_errors: tuple[WerByCondition, ...] = ()
    behavior: Behavior = Behavior()  # noqa: RUF009 - immutable
    barge_in_stop: MetricStats | None = None
    abandoned: int = 0
    eligible: int = 0
    abandoned_interval: tuple[float, float] | None = None
    waited_p50: float | None = None


def run_details(connection: StoreConnection, run_id: str, now_unix_ns: int) -> RunDetails:
    """All of it for one run; nothing of a run that is not there."""
    f = Filter(run_id=run_id)
    whole = summary(connection, f, now_unix_ns)
    turns = whole.turns
    return RunDetails(
        run_id=run_id,
        loads=_loads(connection, f),
        latencies=_latencies(connection, f),
        word_errors=wer_by_condition(connection, f),
        behavior=whole.behavior,
        barge_in_stop=whole.metrics.get("barge_in_stop"),
        abandoned=turns.abandoned,
        eligible=turns.eligible,
        abandoned_interval=wilson_interval(turns.abandoned, turns.eligible),
        waited_p50=_waited(connection, f),
    )


def _loads(connection: StoreConnection, f: Filter) -> tuple[LoadLevel, ...]:
    """By levels of a round width. A ramp counts: it is where the load changes."""
    where, points = filters.turns_of(f) & valid(f), filters.points_of(f)
    flight = f"""
        SELECT bucket, sum(mean) AS calls FROM (
            SELECT unix_ns // {_WINDOW_NS} AS bucket, process_id, avg(value) AS mean
            FROM points WHERE name = ? AND {points.sql} GROUP BY ALL
        ) GROUP BY bucket
        """
    values: list[Any] = [gauge_metric("calls_in_flight"), *points.values]
    (most,) = rows(connection, f"SELECT max(calls) AS calls FROM ({flight})", values)
    if not most["calls"]:
        return ()
    width = level_width(float(most["calls"]))
    found = _grouped(
        connection,
        f"""
        SELECT greatest(0, ceil(calls / {width}) - 1)::BIGINT AS level, list({METRICS[HEADLINE].column}) AS found
        FROM turns JOIN ({flight}) ON started_unix_ns // {_WINDOW_NS} = bucket
        WHERE {where.sql} AND {METRICS[HEADLINE].column} IS NOT NULL GROUP BY level ORDER BY level
        """,
        [*values, *where.values],
    )
    return tuple(
        LoadLevel(row["level"] * width + 1, (row["level"] + 1) * width, *_figures(latencies))
        for row, latencies in found
    )


def level_width(most: float) -> int:
    """The smallest round width by which so many calls take at most MOST_LEVELS levels."""
    power = 0
    while True:
        for step in _STEPS:
            width = step * 10**power
            if math.ceil(most / width) <= MOST_LEVELS:
                return width
        power += 1


def _latencies(connection: StoreConnection, f: Filter) -> tuple[ConditionLatency, ...]:
    """Clean first, then by noise and falling SNR."""
    where = filters.judged(f) & valid(f)
    found = _grouped(
        connection,
        f"""
        SELECT noise_profile, snr_asked_db, channel_profile, list({METRICS[HEADLINE].column}) AS found
        FROM turns WHERE {where.sql} AND {METRICS[HEADLINE].column} IS NOT NULL
        GROUP BY noise_profile, snr_asked_db, channel_profile
        ORDER BY channel_profile <> 'clean', channel_profile, noise_profile NOT IN ('clean', 'none'), noise_profile,
                 snr_asked_db DESC NULLS FIRST
        """,
        list(where.values),
    )
    return tuple(
        ConditionLatency(
            row["noise_profile"],
            row["snr_asked_db"],
            row["channel_profile"],
            *_figures(latencies),
        )
        for row, latencies in found
    )


def _figures(values: Ints) -> tuple[int, float | None, float | None, tuple[float, float] | None]:
    """How many values, p50, p95 and its interval. Of millions they are chosen, not sorted."""
    n, (p50, p95) = len(values), map(float, np.quantile(values, (0.5, 0.95)))
    ranks = interval_ranks(n, 0.95)
    interval = None
    if ranks is not None:
        low, high = np.partition(values, ranks)[list(ranks)]
        interval = float(low), float(high)
    return n, enough("p50", n, p50), enough("p95", n, p95), interval


def _grouped(connection: StoreConnection, statement: str, values: Sequence[Any]) -> Iterator[tuple[Row, Ints]]:
    """The rows of a statement without their column `found`, a list, and that as an array."""
    columns: dict[str, Any] = connection.execute(statement, list(values)).fetchnumpy()
    lists = columns.pop("found")
    names = list(columns)
    plain: list[list[Any]] = [np.ma.asarray(columns[name]).tolist() for name in names]  # what is masked as None
    for place, latencies in enumerate(lists):
        yield {name: column[place] for name, column in zip(names, plain, strict=True)}, latencies


def _waited(connection: StoreConnection, f: Filter) -> float | None:
    """From the end of the caller's speech until it hung up without an answer, at the median."""
    where = filters.judged(f) & valid(f)
    (row,) = rows(
        connection,
        f"""
        SELECT quantile_cont(hangup_perf_ns - speech_end_perf_ns, 0.5) AS waited FROM turns
        WHERE {where.sql} AND outcome = 'abandoned' AND first_audio_perf_ns IS NULL
        """,
        list(where.values),
    )
    return row["waited"]
