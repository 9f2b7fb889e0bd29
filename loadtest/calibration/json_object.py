"""A calibration as one JSON object: what `--json` writes and what is stored for later runs to cite.

Durations are seconds (`*_s`); null means that there were too few values to say. Errors are measured - true.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loadtest.calibration.calibration import (
    RULE,
    CalibrationStep,
    ErrorStats,
    FaultCell,
    StatedIntervals,
    best_attempts,
    by_delay,
    ceiling_of,
)
from loadtest.calibration.process_counts import ProcessRange, process_ranges, ranges_sentence
from loadtest.reports.calibration_citing import CALIBRATION_SCHEMA


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
        """How many processes the loads want."""
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
            "voice_to_voice_bound_s": None if ceiling is None else _seconds(ceiling.error_ns),
            "reached": calibration.ceiling_reached,
        },
        "processes": [{"processes": each.processes, "callers_to": each.callers} for each in calibration.process_ranges],
        "sentence": ranges_sentence(calibration.process_ranges, failed=calibration.failed_load) or None,
        "steps": [_step(step) for step in calibration.steps],
        "faults": [
            {
                "behavior": cell.behavior,
                "about": cell.about,
                "turns": cell.turns,
                "invalid": cell.invalid,
                "unanswered": cell.unanswered,
                "errors": {name: _errors(stats) for name, stats in cell.errors.items()},
                "intervals": _intervals(cell.intervals),
            }
            for cell in calibration.faults
        ],
    }


def _step(step: CalibrationStep) -> dict[str, Any]:
    return {
        "callers": step.callers,
        "processes": step.processes,
        "attempt": step.attempt,
        "verdict": step.verdict,
        "failed": list(step.failed),
        "goals_missed": list(step.goals_missed),
        "turns": step.turns,
        "invalid": step.invalid,
        "not_as_recorded": step.not_as_recorded,
        "invalid_by_reason": dict(step.invalid_by_reason),
        "lost": step.lost,
        "unanswered": step.unanswered,
        "unread": step.unread,
        "annotation_beyond": step.annotation_beyond,
        "unknown_truth": step.unknown_truth,
        "voice_to_voice_bound_s": _seconds(step.error_ns),
        "errors": {name: _errors(stats) for name, stats in step.errors.items()},
        "intervals": _intervals(step.intervals),
        "event_stamps": _errors(step.stamps),
        "pacing": _errors(step.pacing),
        "endpoint_lag": _errors(step.endpoint_lag),
        "generator_cpu": step.usage.generator_cpu,
        "endpoint_cpu": step.usage.endpoint_cpu,
        "cpu_per_frame_s": _seconds(step.usage.cpu_per_frame_ns),
        "by_delay": [{"planned_s": _seconds(delay), **_errors(stats)} for delay, stats in by_delay(step).items()],
    }


def _intervals(intervals: StatedIntervals) -> dict[str, Any]:
    return {
        "n": intervals.n,
        "within": intervals.within,
        "share_within": intervals.share_within,
        "outside_worst_s": _seconds(intervals.outside_worst_ns),
        "not_stated": intervals.not_stated,
        "width": {name: value for name, value in _errors(intervals.width).items() if name != "p50_s"},
    }


def _errors(stats: ErrorStats) -> dict[str, Any]:
    return {
        "n": stats.n,
        "median_s": _seconds(stats.median_ns),
        "p50_s": _seconds(stats.p50_ns),
        "p95_s": _seconds(stats.p95_ns),
        "p99_s": _seconds(stats.p99_ns),
        "max_s": _seconds(stats.max_ns),
    }


def _seconds(value_ns: float | None) -> float | None:
    return None if value_ns is None else round(value_ns / 1e9, 9)
