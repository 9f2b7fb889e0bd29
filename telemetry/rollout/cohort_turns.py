"""The turns of one cohort as columns: all that a verdict reads of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from telemetry.model.semconv import OUTCOMES
from telemetry.rollout.check_sample import Codes, Floats

# Columns of numbers that are not metrics; NaN where a turn did not report them. `fallback` is 1 where one answered.
FALLBACK: Final = "fallback"
CACHE_HIT: Final = "cache_hit"  # 1 where a cache answered, 0 where it missed
WER_ERRORS: Final = "wer_errors"
WER_WORDS: Final = "wer_reference_words"
TOKENS: Final = "llm_tokens"
REPLY_AUDIO: Final = "reply_audio_ns"
# Columns of codes in addition to the slices.
OUTCOME: Final = "outcome"
CALL: Final = "call"  # or the user, where callers are assigned by user and the turn names one
AUDIO: Final = "audio"  # what the caller said: utterance, conditions and their drawing
NOT_REPORTED: Final = -1

_FLOAT: Final = np.dtype("<f8")
_CODE: Final = np.dtype("<i4")


@dataclass(frozen=True, slots=True)
class CohortTurns:
    """Client-heard turns of one cohort, in columns of little-endian numbers, ready to travel.

    `numbers` are 64-bit floats (metrics by their names, in their units, and those of this module), NaN where a turn has
    no value. `codes` are 32-bit whole numbers: of `outcome` positions in OUTCOMES, of `call` any, of the others
    positions in `labels`, or -1; `labels` are the same in both cohorts of a comparison. `unnamed_turns` are those that
    name no user, where users were asked for; None where calls were. `nameless_turns` are further ones, of calls whose
    other turns name this cohort, that name none. `unbegun_turns` are of calls that were due and never began, or were
    in flight in a load generator that was lost, one each: they are in no column, and lack every value.
    """

    cohort: str
    turns: int
    numbers: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    codes: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    first_unix_ns: int | None = None
    newest_unix_ns: int | None = None
    unnamed_turns: int | None = None
    nameless_turns: int = 0
    unbegun_turns: int = 0

    def number(self, name: str) -> Floats | None:
        """A column of numbers; None if there is no such column."""
        return np.frombuffer(self.numbers[name], _FLOAT) if name in self.numbers else None

    def code(self, name: str) -> Codes:
        """A column of codes. Raises KeyError if there is no such column."""
        return np.frombuffer(self.codes[name], _CODE).astype(np.int64)

    def distribution(self, metric: str) -> tuple[Floats, int]:
        """The sorted values of a metric, and the number of turns that they are a part of: the eligible ones and, of the
        unfinished ones, those with a value."""
        values = self.number(metric)
        if values is None or not self.turns:
            return np.zeros(0), 0
        has_value = self.valid & ~np.isnan(values)
        return np.sort(values[has_value]), int(np.count_nonzero(self.eligible | has_value))

    def has_outcome(self, *outcomes: str) -> NDArray[np.bool_]:
        """A mask of the turns that ended in one of these ways."""
        return np.isin(self.code(OUTCOME), [OUTCOMES.index(outcome) for outcome in outcomes])

    @property
    def eligible(self) -> NDArray[np.bool_]:
        """A mask of the turns that count for or against the service."""
        return self.valid & ~self.unfinished

    @property
    def unfinished(self) -> NDArray[np.bool_]:
        """A mask of the turns that were cut or are still pending: without a value they may have had any length."""
        return self.has_outcome("cut", "pending")

    @property
    def valid(self) -> NDArray[np.bool_]:
        """A mask of the turns that were spoken as recorded."""
        return ~self.has_outcome("invalid")

    @property
    def eligible_turns(self) -> int:
        """The number of eligible turns."""
        return int(np.count_nonzero(self.eligible)) if self.turns else 0

    @property
    def invalid_share(self) -> float:
        """Invalid turns / all turns; 0 without turns."""
        return float(self.has_outcome("invalid").mean()) if self.turns else 0.0

    @property
    def nameless_share(self) -> float:
        """Turns of its calls that name no cohort / all turns of its calls; 0 without turns."""
        return self.nameless_turns / (self.turns + self.nameless_turns) if self.turns else 0.0

    @property
    def are_users_known(self) -> bool:
        """Whether users are the units and every turn names one."""
        return self.unnamed_turns == 0

    @property
    def calls(self) -> int:
        """The number of calls (or users) that the turns belong to."""
        return int(np.unique(self.code(CALL)).size) if self.turns else 0


def missed_column(objective: str) -> str:
    """The column that holds 1 where a turn misses the objective, 0 where it is good, NaN where it is open, or does not
    count."""
    return f"objective {objective}"


def open_column(objective: str) -> str:
    """The column that holds 1 where a turn is open by the objective, else 0."""
    return f"open {objective}"


def packed_numbers(values: Any) -> bytes:
    """Numbers as a column; None is NaN."""
    return np.asarray(values, dtype=_FLOAT).tobytes()


def packed_codes(values: Any) -> bytes:
    """Codes as a column."""
    return np.asarray(values, dtype=_CODE).tobytes()
