"""Word error rate by profile: how noise, channel and room degrade the endpoint's recognition."""

# ruff: noqa: S608 - the identifiers in this statement are our own, every value is bound

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from statistics import NormalDist
from typing import Any, Final

from telemetry.store import queries
from telemetry.store.answers import Filter, WerByCondition
from telemetry.store.connection import StoreConnection, rows
from telemetry.store.queries import Condition, valid

FEWEST_TURNS: Final = 20
_Z: Final = NormalDist().inv_cdf(0.975)


def wer_by_condition(connection: StoreConnection, f: Filter) -> tuple[WerByCondition, ...]:
    """A row for each profile whose turns have a transcript to compare: clean first, then by noise and falling SNR."""
    where = queries.judged(f) & valid(f) & Condition("wer_reference_words > 0")
    found = rows(
        connection,
        f"""
        SELECT noise_profile, snr_asked_db, channel_profile, count(*) AS turns,
               sum(wer_reference_words)::BIGINT AS words, sum(wer_errors)::BIGINT AS errors,
               coalesce(sum(wer_reference_characters), 0)::BIGINT AS characters,
               sum(wer_errors * wer_errors)::DOUBLE AS errors_squared,
               sum(wer_errors * wer_reference_words)::DOUBLE AS errors_times_words,
               sum(wer_reference_words * wer_reference_words)::DOUBLE AS words_squared
        FROM turns WHERE {where.sql}
        GROUP BY noise_profile, snr_asked_db, channel_profile
        ORDER BY channel_profile <> 'clean', channel_profile, noise_profile <> 'clean', noise_profile,
                 snr_asked_db DESC NULLS FIRST
        """,
        list(where.values),
    )
    return tuple(
        wer_row(row, WordErrorSums(**{each.name: row[each.name] for each in fields(WordErrorSums)})) for row in found
    )


@dataclass(frozen=True, slots=True)
class WordErrorSums:
    """Sums over the turns of one condition; `words` are those of the references, of which some may be characters."""

    turns: int
    words: int
    errors: int
    errors_squared: float
    errors_times_words: float
    words_squared: float
    characters: int = 0

    def rate_interval(self) -> tuple[float, float] | None:
        """Return the interval of errors / words; None with fewer than FEWEST_TURNS turns.

        The variance of this ratio of two sums is that of errors - rate x words, over words squared. A bootstrap would
        need each turn, and 1.2 s for 5,000 of them.
        """
        if self.turns < FEWEST_TURNS:
            return None
        rate = self.errors / self.words
        squares = self.errors_squared - 2 * rate * self.errors_times_words + rate * rate * self.words_squared
        spread = max(0.0, squares) * self.turns / (self.turns - 1)
        half = _Z * math.sqrt(spread) / self.words
        return max(0.0, rate - half), rate + half


def wer_row(condition: Mapping[str, Any], sums: WordErrorSums) -> WerByCondition:
    """The rate of one condition (its profiles and the SNR that was asked for) with its interval."""
    return WerByCondition(
        noise_profile=condition["noise_profile"],
        snr_asked_db=condition["snr_asked_db"],
        channel_profile=condition["channel_profile"],
        turns=sums.turns,
        words=sums.words,
        errors=sums.errors,
        characters=sums.characters,
        interval=sums.rate_interval(),
    )
