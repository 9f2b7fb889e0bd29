"""The figures that two runs are compared by, and their samples from the turns. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from telemetry.model.formatting import figure, signed_difference
from telemetry.model.metrics import DEFINITIONS, HEADLINE, METRICS
from telemetry.objectives.objective import Objective
from telemetry.rollout.check_sample import CheckSample
from telemetry.rollout.checks import kept_values, sample_of
from telemetry.rollout.cohort_turns import CACHE_HIT, FALLBACK, WER_ERRORS, WER_WORDS, CohortTurns, missed_column
from telemetry.rollout.plan import FRACTIONS, Check

FigureGroup = Literal["latency", "turns", "answers"]
STATISTICS: Final = ("p50", "p95", "p99")
# Where the time of a turn goes, in the order in which a turn passes it.
METRICS_COMPARED: Final = (
    HEADLINE,
    "endpointing",
    "asr_final_latency",
    "llm_first_token_latency",
    "tts_first_chunk_latency",
    "leading_silence",
)
REPORTED: Final = (FALLBACK, CACHE_HIT, WER_ERRORS, WER_WORDS)


@dataclass(frozen=True, slots=True)
class ComparedFigure:
    """One figure of a run. `check` says how a turn's value is read; without one it is 1 where `column` is not 0 (or,
    of a `complement`, that of an objective, where it is), of the turns that report it."""

    name: str
    label: str
    group: FigureGroup
    check: Check | None = None
    column: str = ""
    is_complement: bool = False
    higher_is_better: bool | None = False  # None: neither is better

    @property
    def fraction(self) -> float | None:
        """The fraction of the quantile, 0.95 for p95; None for a ratio."""
        return self.check.fraction if self.check is not None and self.check.kind == "quantile" else None

    @property
    def kind(self) -> str:
        """The kind of its figures, as `formatting.figure` reads it."""
        return "share" if self.check is None else self.check.figure_kind

    @property
    def unit(self) -> str:
        """The kind of its values: `ns`, or `ratio`."""
        return "ns" if self.kind == "ns" else "ratio"

    def format(self, value: float | None) -> str:
        """A formatted value."""
        return figure(value, self.kind)

    def format_difference(self, value: float | None) -> str:
        """A formatted difference, with its sign."""
        return signed_difference(value, self.kind)

    def sample(self, turns: CohortTurns, *, is_paired: bool) -> CheckSample:
        """The values of the turns that count. Raises TooFewError if there are none."""
        if self.check is not None:
            return sample_of(self.check, turns, is_paired)
        column = turns.number(self.column)
        values = np.full(turns.turns, np.nan) if column is None else column
        if self.is_complement:  # of an objective, whose rule says which turns count, of whatever outcome
            return kept_values(turns, (1 - values, None), is_paired, counted=np.ones(turns.turns, np.bool_))
        return kept_values(turns, (values, None), is_paired)


def quantile_figure(metric: str, statistic: str) -> ComparedFigure:
    """A percentile of a metric; its name is `voice_to_voice_p95`. Raises KeyError for an unknown name."""
    label = f"{DEFINITIONS[metric].label} {statistic}"
    check = Check(label, "quantile", 0.0, metric=metric, statistic=statistic)
    if statistic not in FRACTIONS:
        raise KeyError(statistic)
    return ComparedFigure(
        f"{metric}_{statistic}", label, "latency", check, higher_is_better=METRICS[metric].higher_is_better
    )


def figures_for(objectives: Sequence[Objective]) -> tuple[ComparedFigure, ...]:
    """All figures, in the order in which they are shown."""
    latencies = [quantile_figure(metric, statistic) for metric in METRICS_COMPARED for statistic in STATISTICS]
    good = [
        ComparedFigure(
            f"good_{objective.name}",
            objective.display_name or objective.name,
            "turns",
            column=missed_column(objective.name),
            is_complement=True,
            higher_is_better=True,
        )
        for objective in counted(objectives)
    ]
    outcomes = [
        ComparedFigure("no_reply", "No reply", "turns", Check("No reply", "no_reply", 0.0)),
        ComparedFigure("errors", "Errors", "turns", Check("Errors", "errors", 0.0)),
        ComparedFigure("abandoned", "Abandoned", "turns", Check("Abandoned", "abandonment", 0.0)),
    ]
    answers = [
        ComparedFigure("cache_hits", "Cache hits", "answers", column=CACHE_HIT, higher_is_better=None),
        ComparedFigure("fallbacks", "Fallbacks", "answers", Check("Fallbacks", "fallback", 0.0)),
        ComparedFigure("wer", "Word error rate", "answers", Check("Word error rate", "wer", 0.0)),
    ]
    return (*latencies, *good, *outcomes, *answers)


def counted(objectives: Iterable[Objective]) -> list[Objective]:
    """The objectives whose good turns are compared: those that count turns, of all turns."""
    return [objective for objective in objectives if objective.counts == "turns" and not objective.is_of_a_part]
