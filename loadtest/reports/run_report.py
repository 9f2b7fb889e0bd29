"""All that the reports of one run are made from: what is printed, shared and gated shows the same. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from loadtest.errors import OutputError
from loadtest.exit_codes import ExitCode
from loadtest.reports.judged_objectives import JudgedObjective, judged_objectives
from loadtest.reports.run_info import RunInfo
from loadtest.reports.run_outcome import RunOutcome
from telemetry.model.turns import Turn
from telemetry.model.waterfall import Waterfall
from telemetry.objectives.objective import Objective
from telemetry.objectives.run_verdict import RunVerdict
from telemetry.objectives.slo import Verdict
from telemetry.store.answers import StageStats, Summary
from telemetry.store.questions.timelines import TimelinePoint


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowTurn:
    """One of the slowest turns, laid out on one clock. `has_both_sides` where a caller heard it and the service
    reported it."""

    turn: Turn
    waterfall: Waterfall
    has_both_sides: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPictures:
    """The data of the pictures of a run; empty where nothing was measured.

    `dots` are the valid turns while they are few, each with when it began (unix ns) and its voice-to-voice in ns, None
    where it went unanswered. `values_ns` is the voice-to-voice of all of them, None where they are too many.
    """

    timeline: Sequence[TimelinePoint] = ()
    dots: Sequence[tuple[int, float | None]] = ()
    values_ns: Sequence[float] | None = ()
    stages: Mapping[str, StageStats] = field(default_factory=dict[str, StageStats])
    slowest: Sequence[SlowTurn] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """One run with its verdict. `objectives` are those that the verdicts are on; its files were written into `folder`,
    or could not be."""

    run: RunInfo
    summary: Summary
    objectives: Sequence[Objective]
    verdicts: Sequence[Verdict]
    run_outcome: RunOutcome
    verdict: RunVerdict
    pictures: RunPictures = RunPictures()
    folder: Path | None = None
    unwritten: OutputError | None = None

    @property
    def sentence(self) -> str:
        """The verdict on the run in plain language."""
        if self.run_outcome.code is ExitCode.INTERRUPTED:
            return f"{self.run_outcome.reason}; so far: {self.verdict.sentence}"
        return self.verdict.sentence

    @property
    def judged(self) -> tuple[JudgedObjective, ...]:
        """The objectives with what may be claimed of each, in the order of their file."""
        return judged_objectives(self.objectives, self.verdicts, self.summary)
