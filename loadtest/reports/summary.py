"""The one documented JSON object of a run (`--json`); its JSON Schema lies beside this file.

Durations are seconds (`*_s`). Null means that it was not measured or that there are too few values to say.
"""

from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any, Final

import orjson

from loadtest.caller.address import public_target
from loadtest.exit_codes import ExitCode
from loadtest.reports.calibration_citing import Citation
from loadtest.reports.ending import ending_for
from loadtest.reports.facts import RunFacts
from loadtest.reports.hearing import hearing_objects
from telemetry.metrics import ITL, ITL_DEFINITION, METRIC_NAMES, METRICS
from telemetry.slo import Verdict
from telemetry.store.answers import (
    Agreement,
    CacheStats,
    CohortSummary,
    Generator,
    MetricStats,
    PhaseSummary,
    ShareByName,
    StartCounts,
    Summary,
    TurnCounts,
)

SCHEMA_VERSION: Final = 1
# What a cohort is shown by; the whole set per cohort is a question to the store.
COHORT_METRICS: Final = ("voice_to_voice", "asr_final_latency", "llm_first_token_latency", "tts_first_chunk_latency")
_STATISTICS: Final = ("p50", "p95", "p99", "max")


def schema() -> dict[str, Any]:
    """The JSON Schema of `summary_object`."""
    return orjson.loads(files("loadtest.reports").joinpath("summary.schema.json").read_bytes())


def summary_object(
    *, run: RunFacts, summary: Summary, verdicts: Sequence[Verdict], exit_code: ExitCode
) -> dict[str, Any]:
    """The run as one JSON-ready object. `exit_code` is the code the process ends with; where that is not what the
    figures alone would give (a fault of ours, an interrupt), `exit_reason` names the code only."""
    ending = ending_for(run=run, summary=summary, verdicts=verdicts)
    reason = ending.reason if ending.code == exit_code else exit_code.name.lower().replace("_", " ")
    return {
        "schema_version": SCHEMA_VERSION,
        "run": _run(run),
        "turns": _turns(summary.turns),
        "metrics": {name: metric_object(name, summary.metrics.get(name)) for name in METRIC_NAMES},
        "objectives": [_objective(verdict) for verdict in verdicts],
        "cache": _cache(summary.cache),
        "fallback": _fallback(summary.fallback),
        "routes": {
            "total": summary.routes.total,
            "reported": summary.routes.reported,
            "by_route": dict(summary.routes.counts),
        },
        "cohorts": [_cohort(cohort) for cohort in summary.cohorts],
        "hearing": hearing_objects(summary.hearing),
        "behaviour": _behaviour(summary),
        "phases": [_phase(phase) for phase in summary.phases],
        "ramp_turns": summary.ramp_turns,
        "starts": _starts(summary.starts),
        "agreement": _agreement(summary.agreement),
        "generator": _generator(run, summary),
        "telemetry": {
            "emitted": summary.loss.emitted,
            "received": summary.loss.received,
            "missing": summary.loss.missing,
            "spooled": run.turns_spooled,
            "unreadable_segments": summary.skipped_segments,
        },
        "exit_code": int(exit_code),
        "exit_reason": reason,
    }


def unit_and_definition(name: str) -> tuple[str, str]:
    """The unit ("s" for durations) and the definition of a metric of telemetry.metrics.METRIC_NAMES."""
    if name == ITL:
        return "s", ITL_DEFINITION
    metric = METRICS[name]
    return ("s" if metric.unit == "ns" else metric.unit), metric.definition


def metric_object(name: str, stats: MetricStats | None) -> dict[str, Any]:
    """One metric: the four statistics as `*_s` where it is a duration, else in its own unit, the other four null."""
    unit, definition = unit_and_definition(name)
    values: dict[str, float | None] = {key: None if stats is None else getattr(stats, key) for key in _STATISTICS}
    is_duration = unit == "s"
    return {
        "unit": unit,
        "definition": definition,
        "n": 0 if stats is None else stats.n,
        **{f"{key}_s": _seconds(value) if is_duration else None for key, value in values.items()},
        **{key: None if is_duration else value for key, value in values.items()},
        "withheld": None if stats is None else stats.withheld,
    }


def _seconds(value_ns: float | None) -> float | None:
    return None if value_ns is None else value_ns / 1e9


def _run(run: RunFacts) -> dict[str, Any]:
    return {
        "id": run.run_id,
        "target": public_target(run.target),
        "protocol": run.protocol,
        "corpus": {
            "name": run.corpus.name,
            "kind": run.corpus.kind,
            "utterances": run.corpus.utterances,
            "licences": list(run.corpus.licences),
        },
        "users": run.users,
        "arrivals": run.arrivals,
        "rate_per_s": run.rate_per_s,
        "max_calls": run.max_calls,
        "scenario": run.scenario,
        "run_time_s": run.run_time_s,
        "elapsed_s": run.elapsed_s,
        "profile": {
            "noise": run.profile.noise,
            "snr_db": run.profile.snr_db,
            "length": run.profile.length,
            "channel": run.profile.channel,
        },
        "cohort": run.cohort,
        "seed": run.seed,
        "started_unix_ns": run.started_unix_ns,
        "calls": {"started": run.calls_started, "connected": run.calls_connected},
        "versions": dict(run.versions),
    }


def _turns(turns: TurnCounts) -> dict[str, Any]:
    return {
        "total": turns.total,
        "ok": turns.ok,
        "invalid": turns.invalid,
        "eligible": turns.eligible,
        "by_outcome": dict(turns.by_outcome),
        "invalid_by_reason": dict(turns.invalid_by_reason),
    }


def _objective(verdict: Verdict) -> dict[str, Any]:
    return {
        "name": verdict.name,
        "met": verdict.met,
        "sentence": verdict.sentence,
        "good": verdict.good,
        "eligible": verdict.eligible,
        "ratio": verdict.ratio,
        "target": verdict.target,
        "budget_left": verdict.budget_left,
        "reason": verdict.reason,
    }


def _cache(cache: CacheStats) -> dict[str, Any]:
    return {
        "reported": cache.reported,
        "hits": cache.hits,
        "hit_rate": cache.hit_rate,
        "by_tier": dict(cache.hits_by_tier),
    }


def _fallback(fallback: ShareByName) -> dict[str, Any]:
    return {
        "total": fallback.total,
        "reported": fallback.reported,
        "rate": fallback_rate(fallback),
        "by_kind": dict(fallback.counts),
    }


def fallback_rate(fallback: ShareByName) -> float | None:
    """Turns answered by a fallback / turns that said whether one was used; None when none said."""
    return sum(fallback.counts.values()) / fallback.reported if fallback.reported else None


def _cohort(cohort: CohortSummary) -> dict[str, Any]:
    return {
        "name": cohort.cohort,
        "turns": _turns(cohort.turns),
        "metrics": {name: metric_object(name, cohort.metrics.get(name)) for name in COHORT_METRICS},
        "cache": _cache(cohort.cache),
        "fallback": _fallback(cohort.fallback),
    }


def _behaviour(summary: Summary) -> dict[str, Any]:
    told, stop = summary.behaviour, summary.metrics.get("barge_in_stop")
    return {
        "barge_in": {
            "n": told.barge_ins,
            "missed": told.barge_ins_missed,
            "recovered": told.barge_ins_recovered,
            "recovered_share": told.recovered_share,
            "stop_n": 0 if stop is None else stop.n,
            "stop_p50_s": None if stop is None else _seconds(stop.p50),
            "stop_p95_s": None if stop is None else _seconds(stop.p95),
        },
        "abandoned": {"n": summary.turns.abandoned, "share": summary.turns.abandoned_share},
        "backchannel": {"n": told.backchannels, "stopped": told.backchannels_stopped},
        "silence": {"n": told.silent_turns, "reprompted": told.reprompted},
        "intent": {
            "expected": told.intents_expected,
            "reported": told.intents_reported,
            "matched": told.intents_matched,
            "agreement": told.intent_agreement,
        },
    }


def _phase(phase: PhaseSummary) -> dict[str, Any]:
    return {
        "name": phase.phase,
        "kind": phase.kind,
        "judged": not phase.is_ramp,
        "began_unix_ns": phase.first_unix_ns,
        "turns": _turns(phase.turns),
        "metrics": {name: metric_object(name, stats) for name, stats in phase.metrics.items()},
        "starts": _starts(phase.starts),
    }


def _starts(starts: StartCounts | None) -> dict[str, int] | None:
    if starts is None:
        return None
    return {
        "planned": starts.planned,
        "started": starts.started,
        "late": starts.late,
        "missed": starts.missed,
    }


def _agreement(agreement: Agreement) -> dict[str, Any]:
    return {
        "joined": agreement.joined,
        "client_only": agreement.client_only,
        "service_only": agreement.service_only,
        "p50_s": _seconds(agreement.difference_p50_ns),
        "p99_s": _seconds(agreement.difference_p99_ns),
        "max_abs_s": _seconds(agreement.difference_abs_max_ns),
    }


def _generator(run: RunFacts, summary: Summary) -> Mapping[str, Any]:
    health: Generator = summary.generator
    return {
        "limited": summary.turns.is_generator_limited,
        "invalid_share": summary.turns.invalid_share,
        "processes": health.processes,
        "processes_lost": len(run.lost),
        "lost": [
            {"worker": lost.worker or None, "after_s": lost.after_s, "calls_cut": lost.calls_cut} for lost in run.lost
        ],
        "killed_by": run.killed_by,
        "pacing_p99_s": _seconds(health.frame_lateness_p99_ns),
        "pacing_worst_s": _seconds(health.frame_lateness_worst_ns),
        "loop_lag_worst_s": _seconds(health.loop_lag_worst_ns),
        "receive_lag_worst_s": _seconds(health.receive_lag_worst_ns),
        "drift_worst_s": _seconds(health.drift_worst_ns),
        "start_late_worst_s": _seconds(health.start_late_worst_ns),
        "gc_pause_worst_s": _seconds(health.gc_pause_worst_ns),
        "clock_offset_drift_worst_s": _seconds(health.clock_offset_drift_worst_ns),
        "unsent_worst_bytes": health.unsent_worst_bytes,
        "send_blocked_worst_s": _seconds(health.send_blocked_worst_ns),
        "frames_held_up": health.frames_held_up,
        "cpu_ratio_worst": health.cpu_ratio_worst,
        "receive_stamp": health.receive_stamp,
        "pacer": health.pacer,
        "calibration": _calibration(run.calibration),
    }


def _calibration(cited: Citation | None) -> dict[str, Any] | None:
    """What the run may say of the instrument's own error; null where nobody looked."""
    if cited is None:
        return None
    return {
        "state": cited.state,
        "sentence": cited.sentence,
        "error_s": None if cited.error_ms is None else cited.error_ms / 1e3,
        "users": cited.callers,
        "date": cited.date,
    }
