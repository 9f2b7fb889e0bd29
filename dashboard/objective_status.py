"""An objective's verdict as the pages show it: the state in a word, a shape and a color, the promise in short."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from dashboard.markup import escape
from telemetry.model import formatting
from telemetry.model.metrics import METRICS
from telemetry.objectives.slo import EligibleTurns, Objective, Verdict, judge, not_judged

State = Literal["met", "missed", "unknown"]

SYMBOLS: Final[dict[State, str]] = {"met": "✓", "missed": "✕", "unknown": "○"}


@dataclass(frozen=True, slots=True)
class ObjectiveStatus:
    """How one objective stands."""

    objective: Objective
    verdict: Verdict

    @property
    def metric(self) -> str | None:
        """The metric it is about, None when it is about something else than a metric."""
        return self.objective.metric

    @property
    def state(self) -> State:
        """Met, missed, or undecided."""
        return "unknown" if self.verdict.met is None else "met" if self.verdict.met else "missed"

    @property
    def chip(self) -> str:
        """The state as a small label; the whole verdict is its tooltip."""
        return chip(self.state, self._word(), self.verdict.sentence)

    @property
    def promise(self) -> str:
        """`95 % ≤ 800 ms`, for a line that names the metric already."""
        o = self.objective
        if o.metric is None or o.threshold is None:
            return o.sentence
        metric = METRICS.get(o.metric)
        kind = "ns" if metric is None else metric.kind
        bound = "≥" if metric is not None and metric.higher_is_better else "≤"
        return f"{formatting.declared_percent(o.target)} {bound} {formatting.declared_figure(o.threshold, kind)}"

    def _word(self) -> str:
        return {"met": "met", "missed": "missed", "unknown": self._why()}[self.state]

    def _why(self) -> str:
        if not self.verdict.is_judged:
            return "not judged"
        if self.verdict.eligible and self.verdict.decided < self.verdict.minimum_turns:
            return f"too few ({self.verdict.decided})"
        return "undecided" if self.verdict.is_observable else "not observable"


def statuses(
    objectives: Sequence[Objective],
    count: Callable[[Objective], EligibleTurns],
    *,
    unjudged: str | None = None,
) -> tuple[ObjectiveStatus, ...]:
    """Judge the objectives, each beside its verdict. `unjudged` says why no verdict may be given, if none may."""
    verdicts = judge(objectives, count)
    if unjudged is not None:
        verdicts = not_judged(objectives, verdicts, unjudged)
    return statuses_of(objectives, verdicts)


def statuses_of(objectives: Sequence[Objective], verdicts: Sequence[Verdict]) -> tuple[ObjectiveStatus, ...]:
    """The objectives, each beside its verdict, which are in the same order."""
    return tuple(ObjectiveStatus(o, v) for o, v in zip(objectives, verdicts, strict=True))


def chip(state: State, text: str, title: str = "") -> str:
    """A label whose shape, word and color say the same."""
    shown, hint = escape(text), escape(title)
    return f'<span class="vp-chip {state}" title="{hint}">{SYMBOLS[state]} {shown}</span>'
