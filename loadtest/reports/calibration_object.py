"""A calibration as one JSON object: what `--json` writes and what is stored for later runs to cite.

Durations are seconds (`*_s`); null means that there were too few values to say. Errors are measured - true.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from loadtest.reports.calibration import RULE, ErrorStats, FaultCell, Rung, best_attempts, by_delay, ceiling_of

SCHEMA_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Everything a calibration found."""

    calibration_id: str
    started_unix_ns: int
    elapsed_s: float
    quick: bool
    interrupted: bool
    machine: Mapping[str, str]
    rungs: Sequence[Rung]
    faults: Sequence[FaultCell]

    @property
    def date(self) -> str:
        """The day, in UTC."""
        moment = dt.datetime.fromtimestamp(self.started_unix_ns / 1e9, dt.UTC)
        return moment.date().isoformat()

    @property
    def ceiling(self) -> Rung | None:
        """The largest trustworthy load."""
        return ceiling_of(self.rungs)

    @property
    def ceiling_reached(self) -> bool:
        """Whether a larger load was tried and was not trustworthy; else the ceiling lies higher, or is not known."""
        ceiling = self.ceiling
        above = [rung for rung in best_attempts(self.rungs) if ceiling is None or rung.callers > ceiling.callers]
        return any(rung.verdict == "not trustworthy" for rung in above)


def calibration_object(calibration: Calibration) -> dict[str, Any]:
    """The calibration, ready for JSON."""
    ceiling = calibration.ceiling
    return {
        "schema_version": SCHEMA_VERSION,
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
            "voice_to_voice_bound_s": None if ceiling is None else _seconds(ceiling.error_ns),
            "reached": calibration.ceiling_reached,
        },
        "rungs": [_rung(rung) for rung in calibration.rungs],
        "faults": [
            {
                "behaviour": cell.behaviour,
                "about": cell.about,
                "turns": cell.turns,
                "invalid": cell.invalid,
                "unanswered": cell.unanswered,
                "errors": {name: _errors(stats) for name, stats in cell.errors.items()},
            }
            for cell in calibration.faults
        ],
    }


def _rung(rung: Rung) -> dict[str, Any]:
    return {
        "callers": rung.callers,
        "attempt": rung.attempt,
        "verdict": rung.verdict,
        "failed": list(rung.failed),
        "goals_missed": list(rung.goals_missed),
        "turns": rung.turns,
        "invalid": rung.invalid,
        "invalid_by_reason": dict(rung.invalid_by_reason),
        "lost": rung.lost,
        "unanswered": rung.unanswered,
        "unknown_truth": rung.unknown_truth,
        "voice_to_voice_bound_s": _seconds(rung.error_ns),
        "errors": {name: _errors(stats) for name, stats in rung.errors.items()},
        "event_stamps": _errors(rung.stamps),
        "pacing": _errors(rung.pacing),
        "endpoint_lag": _errors(rung.endpoint_lag),
        "generator_cpu": rung.usage.generator_cpu,
        "endpoint_cpu": rung.usage.endpoint_cpu,
        "cpu_per_frame_s": _seconds(rung.usage.cpu_per_frame_ns),
        "by_delay": [{"planned_s": _seconds(delay), **_errors(stats)} for delay, stats in by_delay(rung).items()],
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
