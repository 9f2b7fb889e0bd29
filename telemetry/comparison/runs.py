"""The part of a run that a comparison reads, and how the settings of two runs differ. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from telemetry.model.foreign_text import one_line
from telemetry.model.formatting import percent
from telemetry.rollout.cohort_turns import CohortTurns

# With more of its telemetry missing, the turns that are there are a choice of turns.
LOST_SHARE_LIMIT: Final = 0.01
_LABELS: Final = {
    "rate_per_s": "calls a second",
    "max_calls": "calls at most",
    "utterances": "number of utterances",
}
# What the drawing of noise, losses and rooms follows from: where one differs, equal names are not equal audio.
_AUDIO_FOLLOWS: Final = ("corpus", "seed")


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """A run as the input of a comparison: its turns, and its settings (`asked`), by name and in a fixed order.

    `telemetry_lost` is the share of turns known to be missing, None if the number of turns is unknown; `unmeasured` is
    the number of those turns and of the calls that were due and never began;
    `generator_limit` is why the figures say nothing about the service; `unreached` why no call reached it; `left_out`
    which turns or calls the percentiles lack, if they are too many for a comparison.
    """

    run_id: str
    turns: CohortTurns
    asked: Mapping[str, str] = field(default_factory=dict[str, str])
    telemetry_lost: float | None = None
    unmeasured: int = 0
    generator_limit: str | None = None
    left_out: str | None = None
    unreached: str | None = None
    is_under_way: bool = False
    lacks_old_turns: bool = False
    name: str = ""  # what people call it, where that is not its run id

    @property
    def label(self) -> str:
        """The name in sentences; external text."""
        return one_line(self.name or self.run_id, 80)

    @property
    def unsound(self) -> str | None:
        """The reason why the run supports no verdict; None if it does."""
        if self.unreached is not None:
            return f"{self.label} says nothing about the service: {self.unreached}"
        if self.generator_limit is not None:
            return f"{self.label} is generator-limited ({self.generator_limit}): no verdict on the service"
        if self.left_out is not None:
            return f"in {self.label} {self.left_out}, and percentiles leave them out: no verdict"
        if (self.telemetry_lost or 0.0) > LOST_SHARE_LIMIT:
            return f"{percent(self.telemetry_lost, LOST_SHARE_LIMIT)} of the telemetry of {self.label} is missing"
        return None

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on what weakens the figures without taking the verdict away."""
        notes: list[str] = []
        if self.is_under_way:
            notes.append(f"{self.label} is still under way: these are its figures so far")
        if self.lacks_old_turns:
            notes.append(f"the store no longer keeps the oldest turns of {self.label}: the figures are of the others")
        if self.telemetry_lost and self.unsound is None:
            notes.append(f"{percent(self.telemetry_lost)} of the telemetry of {self.label} is missing")
        return tuple(notes)


@dataclass(frozen=True, slots=True)
class AskedDifference:
    """One setting in which two runs differ; None if a run does not state it."""

    name: str
    baseline: str | None
    candidate: str | None

    @property
    def sentence(self) -> str:
        """Format the difference as `users 10/20`: the baseline's, then the other's. The texts are external."""
        shown = (one_line(side, 80) if side is not None else "not said" for side in (self.baseline, self.candidate))
        return f"{_LABELS.get(self.name, self.name)} {(' / ' if self._has_slashes else '/').join(shown)}"

    @property
    def _has_slashes(self) -> bool:
        return any("/" in (side or "") for side in (self.baseline, self.candidate))


def asked_differences(baseline: Mapping[str, str], candidate: Mapping[str, str]) -> tuple[AskedDifference, ...]:
    """All settings in which the two runs differ, in the order in which they name them."""
    names = dict.fromkeys((*baseline, *candidate))
    return tuple(
        AskedDifference(name, baseline.get(name), candidate.get(name))
        for name in names
        if baseline.get(name) != candidate.get(name)
    )


def difference_sentence(differences: Sequence[AskedDifference]) -> str | None:
    """The sentence before any figure: `the runs differ in: users 10/20`; None if they do not."""
    return (
        f"the runs differ in: {', '.join(difference.sentence for difference in differences)}" if differences else None
    )


def why_no_pairs(differences: Sequence[AskedDifference]) -> str | None:
    """Return why the audio of two runs cannot be the same; None where it can."""
    differing = [difference.name for difference in differences if difference.name in _AUDIO_FOLLOWS]
    return f"they were not sent the same audio: another {' and another '.join(differing)}" if differing else None
