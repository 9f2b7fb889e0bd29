"""The part of a run that a comparison looks at, and how two runs differ before anything is measured. Pure."""

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
    """A run as a comparison takes it: its turns, and what it was `asked` to do, by name and in one order.

    `telemetry_lost` is the share of turns known to be missing, None where nothing says how many there were;
    `generator_limit` is why the figures say nothing about the service; `unreached` that no call reached it, and why;
    `left_out` which turns or calls no percentile has, where they are too many for one to be compared.
    """

    run_id: str
    turns: CohortTurns
    asked: Mapping[str, str] = field(default_factory=dict[str, str])
    telemetry_lost: float | None = None
    generator_limit: str | None = None
    left_out: str | None = None
    unreached: str | None = None
    is_under_way: bool = False
    lacks_old_turns: bool = False
    name: str = ""  # what people call it, where that is not its run id

    @property
    def label(self) -> str:
        """The name in sentences; other people's text."""
        return one_line(self.name or self.run_id, 80)

    @property
    def unsound(self) -> str | None:
        """The reason why no verdict may rest on the run; None where one may."""
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
    """One thing that two runs were asked differently; None where a run does not say."""

    name: str
    baseline: str | None
    candidate: str | None

    @property
    def sentence(self) -> str:
        """Write the difference as `users 10/20`: the baseline's, then the other's. The texts are other people's."""
        shown = (one_line(side, 80) if side is not None else "not said" for side in (self.baseline, self.candidate))
        return f"{_LABELS.get(self.name, self.name)} {(' / ' if self._has_slashes else '/').join(shown)}"

    @property
    def _has_slashes(self) -> bool:
        return any("/" in (side or "") for side in (self.baseline, self.candidate))


def asked_differences(baseline: Mapping[str, str], candidate: Mapping[str, str]) -> tuple[AskedDifference, ...]:
    """Everything that the two runs were asked differently, in the order in which they name it."""
    names = dict.fromkeys((*baseline, *candidate))
    return tuple(
        AskedDifference(name, baseline.get(name), candidate.get(name))
        for name in names
        if baseline.get(name) != candidate.get(name)
    )


def difference_sentence(differences: Sequence[AskedDifference]) -> str | None:
    """The sentence before any number: `the runs differ in: users 10/20`; None where they do not."""
    return (
        f"the runs differ in: {', '.join(difference.sentence for difference in differences)}" if differences else None
    )


def why_no_pairs(differences: Sequence[AskedDifference]) -> str | None:
    """Return why the audio of two runs cannot be the same; None where it can."""
    differing = [difference.name for difference in differences if difference.name in _AUDIO_FOLLOWS]
    return f"they were not sent the same audio: another {' and another '.join(differing)}" if differing else None
