"""One objective: a promise about the turns of a service."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from telemetry.model.formatting import declared_figure, declared_percent
from telemetry.model.metrics import CONNECT, METRICS
from telemetry.model.semconv import OUTCOME_LABELS
from telemetry.model.turns import OF_OBJECTIVES

Kind = Literal["metric", "outcome", "fallback", "cache"]
Counted = Literal["turns", "calls"]


@dataclass(frozen=True, slots=True)
class Objective:
    """A promise: at least `target` of the eligible turns are good.

    A turn is good by its `kind`: `metric` at or below `threshold` (in the metric's unit, integer ns for durations; at
    or above it where higher is better), an outcome of `outcomes`, no `fallback`, or a `cache` hit. The dimensions
    narrow which turns count; None means any.
    """

    name: str
    kind: Kind
    target: float
    metric: str | None = None
    threshold: float | None = None
    outcomes: tuple[str, ...] = ()
    cohort: str | None = None
    length_class: str | None = None
    noise_profile: str | None = None
    channel_profile: str | None = None
    route: str | None = None
    display_name: str | None = None
    description: str | None = None
    window: str | None = None
    # Of the built-in set: left out where the wire does not show what it is about. It promises nothing else.
    where_shown: bool = field(default=False, compare=False)

    @property
    def counts(self) -> Counted:
        """Turns, or calls: a call connects once, whatever number of turns it has."""
        return "calls" if self.metric == CONNECT else "turns"

    @property
    def is_of_a_part(self) -> bool:
        """Whether it covers only a part of the turns, such as those of one cohort."""
        return any(value is not None for value in self._narrowed_to)

    @property
    def _narrowed_to(self) -> tuple[str | None, ...]:
        return tuple(getattr(self, name) for name in OF_OBJECTIVES)

    @property
    def sentence(self) -> str:
        """The promise as a sentence: `95 % of turns: voice to voice at most 800 ms`."""
        metric = "" if self.metric is None else METRICS[self.metric].phrase
        return self._stated(metric, [OUTCOME_LABELS.get(outcome, outcome) for outcome in self.outcomes])

    @property
    def promise(self) -> str:
        """The promise by the names that files and telemetry have: `95 % of turns: voice_to_voice at most 800 ms`.

        It identifies what is promised: rules of alerts match it as a label, and a rollout's log knows its plan by it.
        """
        return self._stated(self.metric or "", self.outcomes)

    def _stated(self, metric: str, outcomes: Sequence[str]) -> str:
        share = f"{declared_percent(self.target)} of {self.counts}"
        only = [value for value in self._narrowed_to if value is not None]
        narrowed = f" ({', '.join(only)})" if only else ""
        return f"{share}{narrowed}: {self._bound(metric, outcomes)}"

    def _bound(self, metric: str, outcomes: Sequence[str]) -> str:
        if self.kind == "metric" and self.metric is not None and self.threshold is not None:
            definition = METRICS[self.metric]
            bound = "at least" if definition.higher_is_better else "at most"
            return f"{metric} {bound} {declared_figure(self.threshold, definition.kind)}"
        if self.kind == "outcome":
            return f"outcome {' or '.join(outcomes)}"
        return "no fallback" if self.kind == "fallback" else "answered from a cache"
