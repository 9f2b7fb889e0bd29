"""A calibration as one JSON object: what `--json` writes and what is stored for later runs to cite.

Durations are seconds (`*_s`); null means that there were too few values to say. Errors are measured - true.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from loadtest.calibration.calibration import (
    RULE,
    CalibrationStep,
    FaultCell,
    ProcessRange,
    StatedIntervals,
    best_attempts,
    by_delay,
    ceiling_of,
    process_ranges,
    ranges_sentence,
)
from loadtest.reports.calibration_citing import CALIBRATION_SCHEMA
from loadtest.reports.json_of import json_of, seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Everything a calibration found."""

    calibration_id: str
    started_unix_ns: int
    elapsed_s: float
    quick: bool
    interrupted: bool
    machine: Mapping[str, str]
    steps: Sequence[CalibrationStep]
    faults: Sequence[FaultCell]

    @property
    def date(self) -> str:
        """The day, in UTC."""
        moment = dt.datetime.fromtimestamp(self.started_unix_ns / 1e9, dt.UTC)
        return moment.date().isoformat()

    @property
    def ceiling(self) -> CalibrationStep | None:
        """The largest trustworthy load."""
        return ceiling_of(self.steps)

    @property
    def process_ranges(self) -> list[ProcessRange]:
        """Number of processes that each range of loads needs."""
        return process_ranges(self.steps)

    @property
    def failed_load(self) -> int | None:
        """The smallest load above the ceiling that was not trustworthy; None where none was shown to fail."""
        return next((step.callers for step in self._above() if step.verdict == "not trustworthy"), None)

    @property
    def ceiling_reached(self) -> bool:
        """Whether a larger load was tried and was not trustworthy; else the ceiling lies higher, or is not known."""
        return self.failed_load is not None

    def _above(self) -> list[CalibrationStep]:
        ceiling = self.ceiling
        return [step for step in best_attempts(self.steps) if ceiling is None or step.callers > ceiling.callers]


def calibration_object(calibration: Calibration) -> dict[str, Any]:
    """The calibration, ready for JSON."""
    ceiling = calibration.ceiling
    return {
        "schema_version": CALIBRATION_SCHEMA,
        "id": calibration.calibration_id,
        "date": calibration.date,
        "started_unix_ns": calibration.started_unix_ns,
        "elapsed_s": calibration.elapsed_s,
        "quick": calibration.quick,
        "interrupted": calibration.interrupted,
        "machine": dict(calibration.machine),
        "rule": RULE,
        "ceiling": {
            "callers": None if ceiling is None else ceiling.callers,
            "processes": None if ceiling is None else ceiling.processes,
            "voice_to_voice_bound_s": None if ceiling is None else seconds(ceiling.error_ns),
            "reached": calibration.ceiling_reached,
        },
        "processes": [
            {"processes": process_range.processes, "callers_to": process_range.callers}
            for process_range in calibration.process_ranges
        ],
        "sentence": ranges_sentence(calibration.process_ranges, failed=calibration.failed_load) or None,
        "steps": [_step(step) for step in calibration.steps],
        "faults": [
            {
                **json_of(cell, "behavior", "about", "turns", "invalid", "unanswered", "errors"),
                "intervals": _intervals(cell.intervals),
            }
            for cell in calibration.faults
        ],
    }


_OF_STEP: Final = (
    *("callers", "processes", "attempt", "verdict", "failed", "goals_missed", "turns", "invalid", "not_as_recorded"),
    *("invalid_by_reason", "lost", "unanswered", "unread", "annotation_beyond", "unknown_truth", "errors"),
    *("pacing", "endpoint_lag"),
)


def _step(step: CalibrationStep) -> dict[str, Any]:
    return {
        **json_of(step, *_OF_STEP),
        "voice_to_voice_bound_s": seconds(step.error_ns),
        "intervals": _intervals(step.intervals),
        "event_stamps": json_of(step.stamps),
        **json_of(step.usage),
        "by_delay": [{"planned_s": seconds(delay), **json_of(stats)} for delay, stats in by_delay(step).items()],
    }


def _intervals(intervals: StatedIntervals) -> dict[str, Any]:
    width = json_of(intervals.width, "n", "median_ns", "p95_ns", "p99_ns", "max_ns")
    return json_of(intervals, "n", "within", "share_within", "outside_worst_ns", "not_stated") | {"width": width}
