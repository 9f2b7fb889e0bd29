"""The one documented JSON object of a run (`--json`), and its JSON Schema.

Durations are seconds (`*_s`). Null means that it was not measured or that there are too few values to say.
"""

from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Final

import orjson

from loadtest.exit_codes import ExitCode
from loadtest.protocols.address import public_target
from loadtest.reports.calibration_citing import Citation
from loadtest.reports.json_of import json_of, seconds
from loadtest.reports.run_info import RunInfo, SpoolInfo
from loadtest.reports.run_report import RunReport
from loadtest.reports.tables import fallback_rate
from telemetry.model.bounds import STATISTICS, Bounds, MeasuredWithin
from telemetry.model.generator_health import SUMMARY_FIGURES
from telemetry.model.metrics import DEFINITIONS, METRIC_NAMES, shown_in
from telemetry.objectives.slo import Verdict
from telemetry.store.answers import (
    CacheStats,
    ClientServiceDelta,
    CohortSummary,
    Generator,
    MetricStats,
    PhaseSummary,
    ShareByName,
    StartCounts,
    Summary,
    TurnCounts,
    WerByCondition,
)
from telemetry.store.questions.caches import ModelServer, RequestTimes

SCHEMA_VERSION: Final = 2
# What a cohort is shown by; the whole set per cohort is a question to the store.
COHORT_METRICS: Final = shown_in("cohorts")


def schema() -> dict[str, Any]:
    """The JSON Schema of `summary_object`: its file in this folder, with the figures of the generator's health."""
    document = orjson.loads(files("loadtest.reports").joinpath("summary.schema.json").read_bytes())
    generator = document["properties"]["generator"]
    for figure in SUMMARY_FIGURES:
        generator["properties"][figure.json_key] = {
            "type": [figure.json_type, "null"],
            "description": figure.definition,
        }
    generator["required"] += [figure.json_key for figure in SUMMARY_FIGURES]
    return document


def summary_object(report: RunReport) -> dict[str, Any]:
    """The run as one JSON-ready object: of `--json` and of summary.json."""
    run, summary, exit_code = report.run, report.summary, report.run_outcome.code
    return {
        "schema_version": SCHEMA_VERSION,
        "verdict": {"state": report.verdict.state, "sentence": report.verdict.sentence},
        "run": _run(run),
        "turns": _turns(summary.turns),
        "metrics": {name: metric_object(name, summary.metrics.get(name)) for name in METRIC_NAMES},
        "objectives": [_objective(verdict) for verdict in report.verdicts],
        "failures": [json_of(cause) for cause in summary.failures],
        "remarks": [json_of(remark) for remark in summary.remarks],
        "retries": json_of(summary.retries, "asked", "asked_worst_ns", "waits", "waited_ns"),
        "cache": _cache(summary.cache),
        "fallback": _fallback(summary.fallback),
        "routes": {
            "total": summary.routes.total,
            "reported": summary.routes.reported,
            "by_route": dict(summary.routes.counts),
        },
        "cohorts": [_cohort(cohort) for cohort in summary.cohorts],
        "wer_by_condition": [_condition(condition) for condition in summary.wer_by_condition],
        "behavior": _behavior(summary),
        "beside": {
            "unknown_events": summary.beside.unknown,
            "unknown_names": list(summary.beside.unknown_names),
            "duplicate_events": summary.beside.duplicates,
            "turns_with_service_latency": summary.beside.turns_with_service_latency,
        },
        "contradicted_values": [json_of(value) for value in summary.contradictions.values],
        "late_spans": summary.contradictions.late_spans,
        "revised_turns": summary.contradictions.revised_turns,
        "phases": [_phase(phase) for phase in summary.phases],
        "ramp_turns": summary.ramp_turns,
        "starts": _fields(summary.starts),
        "speech_bounds": json_of(summary.speech_bounds),
        "client_service_delta": _client_service_delta(summary.client_service_delta),
        "model_servers": [_model_server(server) for server in run.model_servers],
        "generator": _generator(run, summary, exit_code),
        "telemetry": _telemetry(run, summary),
        "exit_code": int(exit_code),
        "exit_reason": report.run_outcome.reason,
    }


def _telemetry(run: RunInfo, summary: Summary) -> dict[str, Any]:
    counts = json_of(summary.loss, "emitted", "received", "missing")
    return counts | {"spooled": _fields(run.spooled), "lacks_old_turns": summary.lacks_old_turns}


def unit_and_definition(name: str) -> tuple[str, str]:
    """The unit ("s" for durations) and the definition of a metric of telemetry.model.metrics.METRIC_NAMES."""
    metric = DEFINITIONS[name]
    return ("s" if metric.unit == "ns" else metric.unit), metric.definition


def metric_object(name: str, stats: MetricStats | None) -> dict[str, Any]:
    """One metric: the four statistics as `*_s` where it is a duration, else in its own unit, the other four null."""
    unit, definition = unit_and_definition(name)
    values: dict[str, float | None] = {key: None if stats is None else getattr(stats, key) for key in STATISTICS}
    is_duration = unit == "s"
    return {
        "unit": unit,
        "definition": definition,
        "n": 0 if stats is None else stats.n,
        "eligible": None if stats is None else stats.eligible,
        "unanswered": 0 if stats is None else stats.unanswered,
        **{f"{key}_s": seconds(value) if is_duration else None for key, value in values.items()},
        **{key: None if is_duration else value for key, value in values.items()},
        "approximate": stats is not None and stats.approximate,
        "withheld": None if stats is None else stats.withheld,
        "measured_within": None if stats is None else _measured_within(stats.measured_within, is_duration=is_duration),
    }


def _measured_within(measured: MeasuredWithin | None, *, is_duration: bool) -> dict[str, Any] | None:
    """The measurement bounds of the four statistics, each under the key of its statistic."""
    if measured is None:
        return None
    bounds: dict[str, Bounds | None] = {key: getattr(measured, key) for key in STATISTICS}
    return {
        **{f"{key}_s": [bound / 1e9 for bound in at] if is_duration and at else None for key, at in bounds.items()},
        **{key: None if is_duration or at is None else list(at) for key, at in bounds.items()},
        "turns_unknown": measured.turns_unknown,
    }


_OF_RUN: Final = (
    *("protocol", "corpus", "users", "arrivals", "rate_per_s", "max_calls", "scenario", "run_time_s", "elapsed_s"),
    *("profile", "cohort", "seed", "started_unix_ns", "versions"),
)
_OF_TURNS: Final = (
    *("total", "ok", "invalid", "not_as_recorded", "eligible", "by_outcome", "invalid_by_reason"),
    *("endpoint_did_not_read", "cut", "cut_by"),
)


def _run(run: RunInfo) -> dict[str, Any]:
    return {
        "id": run.run_id,
        "source": "client" if run.service is None else "service",
        "target": public_target(run.target),
        **json_of(run, *_OF_RUN),
        "state": "under way" if run.is_under_way else "ended",
        "calls": {"started": run.calls_started, "connected": run.calls_connected},
    }


def _turns(turns: TurnCounts) -> dict[str, Any]:
    return json_of(turns, *_OF_TURNS) | {"generator_faults": turns.faults}


_OF_VERDICT: Final = (
    *("name", "display_name", "met", "counts", "sentence", "good", "bad", "eligible", "ratio", "target"),
    *("budget_left", "reason", "more_turns", "more_s", "open"),
)


def _objective(verdict: Verdict) -> dict[str, Any]:
    return json_of(verdict, *_OF_VERDICT) | {"sampling_interval": verdict.sampling and list(verdict.sampling)}


def _cache(cache: CacheStats) -> dict[str, Any]:
    return json_of(cache, "reported", "hits", "hit_rate") | {"by_tier": dict(cache.hits_by_tier)}


def _fallback(fallback: ShareByName) -> dict[str, Any]:
    counts = json_of(fallback, "total", "reported")
    return counts | {"rate": fallback_rate(fallback), "by_kind": dict(fallback.counts)}


def _cohort(cohort: CohortSummary) -> dict[str, Any]:
    return {
        "name": cohort.cohort,
        "turns": _turns(cohort.turns),
        "metrics": {name: metric_object(name, cohort.metrics.get(name)) for name in COHORT_METRICS},
        "cache": _cache(cohort.cache),
        "fallback": _fallback(cohort.fallback),
    }


def _behavior(summary: Summary) -> dict[str, Any]:
    behavior, stop = summary.behavior, summary.metrics.get("barge_in_stop")
    return {
        "barge_in": {
            "n": behavior.barge_ins,
            "missed": behavior.barge_ins_missed,
            "recovered": behavior.barge_ins_recovered,
            "recovered_share": behavior.recovered_share,
            "stopped": behavior.barge_ins_stopped,
            "never_stopped": behavior.barge_ins_not_stopped,
            "ended_by_itself": behavior.barge_ins_ended,
            "cannot_tell": behavior.barge_ins_unclear,
            "stop_n": 0 if stop is None else stop.n,
            "stop_p50_s": None if stop is None else seconds(stop.p50),
            "stop_p95_s": None if stop is None else seconds(stop.p95),
        },
        "abandoned": {"n": summary.turns.abandoned, "share": summary.turns.abandoned_share},
        "backchannel": {"n": behavior.backchannels, "stopped": behavior.backchannels_stopped},
        "silence": {"n": behavior.silent_turns, "reprompted": behavior.reprompted},
        "intent": {
            "expected": behavior.intents_expected,
            "reported": behavior.intents_reported,
            "matched": behavior.intents_matched,
            "accuracy": behavior.intent_accuracy,
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
        "starts": _fields(phase.starts),
    }


def _client_service_delta(delta: ClientServiceDelta) -> dict[str, Any]:
    return {
        **json_of(delta, "joined", "client_only", "service_only", "approximate", "uncorrected"),
        "p50_s": seconds(delta.difference_p50_ns),
        "p99_s": seconds(delta.difference_p99_ns),
        "max_abs_s": seconds(delta.difference_abs_max_ns),
    }


def _generator(run: RunInfo, summary: Summary, exit_code: ExitCode) -> Mapping[str, Any]:
    health: Generator = summary.generator
    return {
        "limited": exit_code is ExitCode.GENERATOR_LIMITED,
        "invalid_share": summary.turns.invalid_share,
        "processes": health.processes,
        "processes_lost": len(run.lost),
        "lost": [
            {"worker": lost.worker or None, "after_s": lost.after_s, "calls_cut": lost.calls_cut} for lost in run.lost
        ],
        "killed_by": run.killed_by,
        "workers_missing": run.workers_missing,
        "cores": run.cores,
        "each": [
            {"worker": share.worker or None, "turns": share.turns, "cpu_ratio": share.cpu_ratio} for share in run.shares
        ],
        **{figure.json_key: figure.json_value(health[figure.name]) for figure in SUMMARY_FIGURES},
        "approximate": [figure.json_key for figure in SUMMARY_FIGURES if figure.name in health.approximate],
        "receive_stamp": health.receive_stamp,
        "pacer": health.pacer,
        "calibration": _calibration(run.calibration),
    }


def _calibration(cited: Citation | None) -> dict[str, Any] | None:
    """Return what the run may say of the instrument's own error; null where nobody looked."""
    if cited is None:
        return None
    return {
        "state": cited.state,
        "sentence": cited.sentence,
        "error_s": None if cited.error_ms is None else cited.error_ms / 1e3,
        "users": cited.callers,
        "processes": cited.processes,
        "date": cited.date,
    }


def _condition(condition: WerByCondition) -> dict[str, Any]:
    """The rate of word errors of a profile; an interval from fewer than 20 turns is null."""
    names = {"noise": condition.noise_profile, "snr_db": condition.snr_asked_db, "channel": condition.channel_profile}
    return names | json_of(condition, "turns", "words", "characters", "errors", "wer", "interval")


def _model_server(server: ModelServer) -> dict[str, Any]:
    stated = ("name", "model", "readings", "failed_readings", "prefix_tokens", "prefix_hits_per_token")
    return {
        **json_of(server, *stated),
        "requests_waiting_most": server.waiting_most,
        "queue": _request_times(server.queue),
        "first_token": _request_times(server.first_token),
    }


def _request_times(times: RequestTimes | None) -> dict[str, Any] | None:
    stated = ("mean_s", "p95_above_s", "p95_until_s")
    return None if times is None else {"requests": times.count, **json_of(times, *stated)}


def _fields(value: StartCounts | SpoolInfo | None) -> dict[str, Any] | None:
    """Its fields by their names; null for what is not known."""
    return None if value is None else json_of(value)
