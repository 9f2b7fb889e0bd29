"""Word error rate by profile: how noise, channel and room degrade the endpoint's recognition."""

# ruff: noqa: S608 - the identifiers in this statement are our own, every value is bound

import math
from statistics import NormalDist
from typing import Any, Final

from telemetry.store import queries
from telemetry.store.answers import Filter, WerByCondition
from telemetry.store.queries import VALID_CLIENT, Condition
from telemetry.store.snapshot import Connection, rows

FEWEST_TURNS: Final = 20
_Z: Final = NormalDist().inv_cdf(0.975)


def wer_by_condition(connection: Connection, f: Filter) -> tuple[WerByCondition, ...]:
    """A row for each profile whose turns have a transcript to compare: clean first, then by noise and falling SNR."""
    where = queries.judged(f) & Condition(f"{VALID_CLIENT} AND wer_reference_words > 0")
    found = rows(
        connection,
        f"""
        SELECT noise_profile, snr_asked_db, channel_profile, count(*) AS turns,
               sum(wer_reference_words)::BIGINT AS words, sum(wer_errors)::BIGINT AS errors,
               sum(wer_errors * wer_errors)::DOUBLE AS ee, sum(wer_errors * wer_reference_words)::DOUBLE AS ew,
               sum(wer_reference_words * wer_reference_words)::DOUBLE AS ww
        FROM turns WHERE {where.sql}
        GROUP BY noise_profile, snr_asked_db, channel_profile
        ORDER BY channel_profile <> 'clean', channel_profile, noise_profile <> 'clean', noise_profile,
                 snr_asked_db DESC NULLS FIRST
        """,
        list(where.values),
    )
    return tuple(_row(row) for row in found)


def _row(row: dict[str, Any]) -> WerByCondition:
    return WerByCondition(
        noise_profile=row["noise_profile"],
        snr_asked_db=row["snr_asked_db"],
        channel_profile=row["channel_profile"],
        turns=row["turns"],
        words=row["words"],
        errors=row["errors"],
        interval=_interval(row["turns"], row["words"], row["errors"], row["ee"], row["ew"], row["ww"]),
    )


def _interval(turns: int, words: int, errors: int, ee: float, ew: float, ww: float) -> tuple[float, float] | None:
    """Of the ratio of two sums over turns: its variance is that of errors - rate x words, over words squared.

    From five sums that the query gives: a bootstrap would need each turn, and 1.2 s for 5,000 of them.
    """
    if turns < FEWEST_TURNS:
        return None
    rate = errors / words
    spread = max(0.0, ee - 2 * rate * ew + rate * rate * ww) * turns / (turns - 1)
    half = _Z * math.sqrt(spread) / words
    return max(0.0, rate - half), rate + half
