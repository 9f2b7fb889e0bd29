"""The objectives of a run with what may be claimed of each: the one place where every report reads it. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from loadtest.reports.tails import tail_sentence
from telemetry.model import formatting
from telemetry.model.foreign_text import one_line
from telemetry.objectives.objective import Objective
from telemetry.objectives.slo import Verdict
from telemetry.store.answers import Summary

Claim = Literal["missed", "undecided", "not judged", "met"]
# In the order in which people need to see them.
_ORDER: Final[tuple[Claim, ...]] = ("missed", "undecided", "not judged", "met")


@dataclass(frozen=True, slots=True)
class JudgedObjective:
    """One objective: its name for people, what is claimed, the whole verdict, and which tail is bad, if one is."""

    title: str
    claim: Claim
    sentence: str
    verdict: Verdict
    tail: str | None = None

    @property
    def line(self) -> str:
        """The sentence, for a place that says of the whole run already why nothing is judged."""
        return self.sentence if self.claim != "not judged" else self.sentence.removesuffix(f": {self.verdict.reason}")

    @property
    def counts_sentence(self) -> str | None:
        """What the sentence of the verdict leaves out; None where the sentence is all there is to say."""
        verdict = self.verdict
        if verdict.budget_left is None or self.claim in ("undecided", "not judged"):
            return None
        left = formatting.percent(verdict.budget_left)
        budget = f"error budget left {left}" if verdict.budget_left >= 0 else "error budget overspent"
        good, decided = formatting.number(verdict.good), formatting.number(verdict.decided)
        opened = f" · {formatting.number(verdict.open_turns)} open" if verdict.open_turns else ""
        return f"{good} of {decided} {verdict.counts} good{opened} · {budget}"

    @property
    def sampling_sentence(self) -> str | None:
        """How far the share may be off as it is of these calls and no others; None where no share is known."""
        verdict = self.verdict
        if verdict.ratio is None or self.claim == "not judged":
            return None
        good = f"{formatting.percent(verdict.ratio, verdict.target)} good"
        if verdict.sampling is None:
            return f"{good}; the sampling interval needs two calls"
        low, high = map(formatting.percent, verdict.sampling)
        return f"{good}; 95 % sampling interval by call {low} to {high}, which does not change the verdict"


def judged_objectives(
    objectives: Sequence[Objective], verdicts: Sequence[Verdict], summary: Summary
) -> tuple[JudgedObjective, ...]:
    """Each verdict with its claim, in the order of the verdicts. `objectives` are those that they are on; without them
    no tail is named.
    """
    by_name = {objective.name: objective for objective in objectives}
    found: list[JudgedObjective] = []
    for verdict in verdicts:
        claim = _claim(verdict)
        objective = by_name.get(verdict.name)
        is_claimed = objective is not None and claim in ("met", "missed")
        tail = tail_sentence(objective, summary) if is_claimed and objective is not None else None
        found.append(JudgedObjective(one_line(verdict.title), claim, one_line(verdict.sentence), verdict, tail))
    return tuple(found)


def missed_first(judged: Sequence[JudgedObjective]) -> list[JudgedObjective]:
    """The objectives in the order in which people need to see them."""
    return sorted(judged, key=lambda each: _ORDER.index(each.claim))


def _claim(verdict: Verdict) -> Claim:
    if verdict.met is None:
        return "undecided" if verdict.is_judged else "not judged"
    return "met" if verdict.met else "missed"
