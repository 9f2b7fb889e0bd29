"""The built-in objectives that a wire can show: an objective about anything else would stay undecided forever."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from telemetry.objectives.objective import Objective
from telemetry.objectives.slo import default_objectives, objectives_text

_BETWEEN_DOCUMENTS: Final = "\n---\n"
_NAME: Final = re.compile(r"^metadata:\n  name: (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ChosenObjectives:
    """Objectives, and those that were left out: each objective with the reason why the wire does not show it."""

    objectives: list[Objective]
    left_out: tuple[tuple[Objective, str], ...] = field(default=())

    def sentence(self, wire: str) -> str | None:
        """One line that names what was left out; None if nothing was."""
        if not self.left_out:
            return None
        by_reason: dict[str, list[str]] = {}
        for objective, reason in self.left_out:
            by_reason.setdefault(reason, []).append(objective.name)
        listed = "; ".join(f"{', '.join(names)} ({reason})" for reason, names in by_reason.items())
        return f"not observable on {wire}: {listed}; these built-in objectives are left out"

    @property
    def text(self) -> str:
        """The chosen ones of the built-in set as an OpenSLO file."""
        names = {objective.name for objective in self.objectives}
        documents = objectives_text(None).split(_BETWEEN_DOCUMENTS)
        kept = [text.rstrip("\n") for text in documents if names & set(_NAME.findall(text))]
        return _BETWEEN_DOCUMENTS.join(kept) + "\n"


def built_in_objectives(not_observable: Mapping[str, str]) -> ChosenObjectives:
    """The built-in objectives of a wire that does not show some metrics, each with the reason."""
    return chosen(default_objectives(), not_observable)


def chosen(objectives: Sequence[Objective], not_observable: Mapping[str, str]) -> ChosenObjectives:
    """The objectives without those about a metric that the wire does not show."""
    reasons = [(objective, not_observable.get(objective.metric or "")) for objective in objectives]
    return ChosenObjectives(
        [objective for objective, reason in reasons if reason is None],
        tuple((objective, reason) for objective, reason in reasons if reason is not None),
    )


def observed(objectives: Iterable[Objective], is_withheld: Callable[[Objective], bool]) -> tuple[Objective, ...]:
    """The objectives without those of the built-in set whose metric the wire withholds on every turn: for runs whose
    own choice was not stored."""
    return tuple(objective for objective in objectives if not (objective.where_shown and is_withheld(objective)))
