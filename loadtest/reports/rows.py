"""A run's settings and events and how well it was measured, as rows of a name and a sentence: the same in every report.

Pure.
"""

from collections.abc import Callable, Sequence

from loadtest.protocols.address import public_target
from loadtest.reports.run_info import RunInfo
from loadtest.reports.run_outcome import generator_loss
from loadtest.reports.tables import TOO_FEW, counts, fallback_rate, statistic, turns_and_spans
from telemetry.model import formatting
from telemetry.model.formatting import NOT_REPORTED
from telemetry.model.generator_health import SUMMARY_FIGURES, invalid_text
from telemetry.model.semconv import OUTCOME_LABELS
from telemetry.store.answers import Beside, CacheStats, Generator, ShareByName, Summary


def behavior_rows(summary: Summary) -> list[tuple[str, str]]:
    """A row for each thing that callers did in this run; none for what they did not."""
    behavior, turns = summary.behavior, summary.turns
    rows: list[tuple[str, str]] = []
    if turns.abandoned:
        rows.append(("abandoned", f"{formatting.percent(turns.abandoned_share)} of {formatting.turns(turns.eligible)}"))
    if behavior.barge_ins or behavior.barge_ins_missed:
        rows.append(("barge-in", _barge_in(summary)))
    if behavior.backchannels:
        stopped = formatting.number(behavior.backchannels_stopped)
        rows.append(
            ("backchannel", f"{formatting.number(behavior.backchannels)} said, the reply stopped at {stopped} of them")
        )
    if behavior.silent_turns:
        asked = formatting.number(behavior.reprompted)
        rows.append(
            (
                "silence",
                f"{formatting.turns(behavior.silent_turns)} without a word, asked again in {asked} of them",
            )
        )
    if behavior.intents_expected:
        rows.append(("intent", _intent(summary)))
    return rows


def _barge_in(summary: Summary) -> str:
    behavior, stop = summary.behavior, summary.metrics.get("barge_in_stop")
    parts = [f"{formatting.number(behavior.barge_ins)} interruption{'' if behavior.barge_ins == 1 else 's'}"]
    if behavior.barge_ins:
        parts.append(f"{formatting.percent(behavior.recovered_share)} answered after it")
    if stop is not None and stop.n:
        within = f"{statistic(stop, 'p50')} (p50), {statistic(stop, 'p95')} (p95)"
        parts.append(f"{formatting.number(stop.n)} stopped within {within}")
    elif behavior.barge_ins:
        parts.append("no stop was measured")
    ends = (
        (behavior.barge_ins_not_stopped, "never stopped"),
        (behavior.barge_ins_ended, "ended by itself"),
        (behavior.barge_ins_unclear, "cannot tell"),
    )
    parts += [f"{formatting.number(count)} {label}" for count, label in ends if count]
    if behavior.barge_ins_missed:
        parts.append(f"{formatting.number(behavior.barge_ins_missed)} more came too late for the reply")
    return ", ".join(parts)


def _intent(summary: Summary) -> str:
    behavior = summary.behavior
    if not behavior.intents_reported:
        return "not reported by the endpoint"
    return (
        f"{formatting.percent(behavior.intent_accuracy)} as expected, of {formatting.turns(behavior.intents_reported)} "
        f"that reported one ({formatting.number(behavior.intents_expected)} expected one)"
    )


def happened_rows(summary: Summary) -> list[tuple[str, str]]:
    """Return how the turns ended, what callers did, and what the endpoint reported of itself."""
    turns = summary.turns
    outcomes = ", ".join(
        f"{formatting.number(count)} {OUTCOME_LABELS[name]}" for name, count in turns.by_outcome.items() if count
    )
    rows = [("turns", f"{formatting.number(turns.total)} ({outcomes})" if outcomes else formatting.number(turns.total))]
    if turns.cut:
        rows.append(("cut", f"{formatting.turns(turns.cut)} before the end, by {counts(turns.cut_by)}"))
    rows += behavior_rows(summary)
    if (retries := retry_line(summary)) is not None:
        rows.append(("retries", retries))
    if (ramp := ramp_line(summary)) is not None:
        rows.append(("ramps", ramp))
    rows.append(("cache", cache_line(summary.cache)))
    rows.append(("fallback", fallback_line(summary.fallback)))
    rows += other_event_rows(summary.beside)
    rows += summary.contradictions.texts.items()
    if summary.routes.counts:
        rows.append(("routes", counts(summary.routes.counts)))
    return rows


def cache_line(cache: CacheStats) -> str:
    """Hit rate and hits by tier, or that none was reported."""
    if not cache.reported:
        return "not reported by the endpoint"
    tiers = f" ({counts(cache.hits_by_tier)})" if cache.hits_by_tier else ""
    return f"{formatting.percent(cache.hit_rate)} hits of {formatting.turns(cache.reported)} that reported{tiers}"


def fallback_line(fallback: ShareByName) -> str:
    """Return how often a fallback answered, by kind, or that none was reported."""
    if not fallback.reported:
        return "not reported by the endpoint"
    kinds = f" ({counts(fallback.counts)})" if fallback.counts else ""
    return (
        f"{formatting.percent(fallback_rate(fallback))} of {formatting.turns(fallback.reported)} that reported{kinds}"
    )


def other_event_rows(events: Beside) -> list[tuple[str, str]]:
    """Rows for what arrived outside the conversations."""
    rows: list[tuple[str, str]] = []
    if events.unknown:
        names = f" ({', '.join(events.unknown_names)})" if events.unknown_names else ""
        rows.append(("unknown", f"{formatting.number(events.unknown)} events that the protocol does not know{names}"))
    if events.duplicates:
        rows.append(("duplicates", f"{formatting.number(events.duplicates)} events came twice; each was heard once"))
    if events.turns_with_service_latency:
        text = f"on {formatting.turns(events.turns_with_service_latency)} the service stated latencies of its own"
        rows.append(("metadata", text))
    return rows


def place_rows(run: RunInfo) -> list[tuple[str, str]]:
    """The places of the run's store and dashboard, on this machine, while the run has not been moved."""
    rows = [("store", run.store)] if run.store else []
    return [*rows, ("dashboard", run.dashboard_url)] if run.dashboard_url else rows


def run_rows(run: RunInfo, summary: Summary) -> list[tuple[str, str]]:
    """Return what was asked for: the run, its target and its speech."""
    if run.service is not None:
        day = f"{run.service.service} · {run.service.day.isoformat()} (UTC) · {summary.client_service_delta.reported}"
        return [("service", day), ("run", run.run_id)]
    altered = [f"noise {run.profile.noise}"] if run.profile.noise else []
    altered += [f"{formatting.declared_decibels(run.profile.snr_db)} SNR"] if run.profile.snr_db is not None else []
    altered += [f"{run.profile.length} utterances"] if run.profile.length else []
    altered += [f"channel {run.profile.channel}"] if run.profile.channel else []
    corpus = f"{run.corpus.name}: {run.corpus.kind} speech, {formatting.count(run.corpus.utterances, 'utterance')}"
    if run.corpus.licenses:
        corpus += f" ({', '.join(run.corpus.licenses)})"
    if run.corpus.edges_phrase is not None:
        corpus += f", {run.corpus.edges_phrase}"
    return [
        (
            "run",
            f"{run.run_id} · {run.protocol} · {load_line(run)} · seed {'not known' if run.seed is None else run.seed}",
        ),
        ("target", public_target(run.target)),
        ("corpus", " · ".join([corpus, *altered])),
    ]


def retry_line(summary: Summary) -> str | None:
    """Return what became of requests to call later, None where there were none."""
    retries = summary.retries
    if not retries.asked:
        return None
    longest = 0.0 if retries.asked_worst_ns is None else retries.asked_worst_ns / 1e9
    return (
        f"the endpoint asked {_times(retries.asked)} to call again later (after {longest:,.4g} s at most);"
        f" callers waited before {formatting.number(retries.waits)} calls, {retries.waited_ns / 1e9:,.4g} s in all"
    )


def _times(count: int) -> str:
    return "once" if count == 1 else f"{formatting.number(count)} times"


def ramp_line(summary: Summary) -> str | None:
    """Return what became of the turns of ramps, None for a run without ramps."""
    if not summary.ramp_turns:
        return None
    return f"{formatting.turns(summary.ramp_turns)} began during a ramp: shown apart under phases, in no figure above"


def load_line(run: RunInfo) -> str:
    """Return what was asked for: callers, or calls a second."""
    if run.arrivals == "closed":
        text = "callers not known" if run.users is None else formatting.count(run.users, "caller")
    else:
        rate = "" if run.rate_per_s is None else f", {run.rate_per_s:g} a second"
        text = f"{run.arrivals} arrivals{rate}"
    return f"{text} · scenario {run.scenario}" if run.scenario else text


def starts_sentence(summary: Summary) -> str:
    """Return how well the schedule of open arrivals was kept."""
    starts = summary.starts
    if starts is None:
        return formatting.DASH
    worst = formatting.milliseconds(summary.generator["start_late_worst_ns"])
    return (
        f"{formatting.number(starts.started)} of {formatting.number(starts.planned)} calls that were due began,"
        f" {formatting.number(starts.late)} more than 10 ms late (worst {worst}),"
        f" {formatting.number(starts.dropped)} dropped; connect counts from the intended start"
    )


def evidence_rows(run: RunInfo, summary: Summary) -> list[tuple[str, str]]:
    """Return what of the instrument and of the telemetry is known; of what only a service reported, how both sides
    differ."""
    health = summary.generator
    pacing = f"{_health(health, 'pacing')} (pacer: {health.pacer or NOT_REPORTED})"
    receive = f"stamped by: {health.receive_stamp or NOT_REPORTED}, {_health(health, 'receiving')}"
    if run.service is not None:
        return [("service delta", _client_service_delta(run, summary))]
    rows = [("processes", _processes(run))] if run.processes > 1 or run.lost or run.killed_by else []
    return [
        *rows,
        ("invalid", _invalid(summary)),
        *([("not read", _not_read(summary))] if summary.turns.endpoint_did_not_read else []),
        *([("starts", starts_sentence(summary))] if summary.starts is not None else []),
        ("pacing", pacing),
        ("receiving", receive),
        ("speech bounds", bounds_sentence(summary)),
        *([("calibration", run.calibration.sentence)] if run.calibration is not None else []),
        ("sockets", _health(health, "sockets")),
        ("process", _health(health, "process")),
        ("service delta", _client_service_delta(run, summary)),
        ("telemetry", _telemetry(run, summary)),
    ]


def _health(health: Generator, row: str) -> str:
    """The figures of the generator's health that one row shows."""
    return ", ".join(
        health.describe(figure)
        for figure in SUMMARY_FIGURES
        if figure.terminal_row == row and (health[figure.name] or not figure.hidden_when_zero)
    )


def _processes(run: RunInfo) -> str:
    ended = generator_loss(run) or f"all {run.processes} ended as they should"
    turns = [share.turns for share in run.shares]
    used = [share.cpu_ratio for share in run.shares if share.cpu_ratio is not None]
    per_process = [f"{_range(turns, formatting.number)} turns each"] if turns else []
    per_process += [f"≤ {_range(used, formatting.percent)} of a core in 3 of 4 s"] if used else []
    return "; ".join([ended, *([", ".join(per_process)] if per_process else [])])


def _range(values: Sequence[float], shown: Callable[[float], str]) -> str:
    """The least and the most, or one value where both look alike."""
    least, most = shown(min(values)), shown(max(values))
    return least if least == most else f"{least} to {most}"


def _invalid(summary: Summary) -> str:
    turns = summary.turns
    if not turns.total:
        return "no turn was measured"
    text = f"{formatting.number(turns.invalid)} of {formatting.turns(turns.total)}"
    if turns.invalid:
        text += f": {invalid_text(turns.not_as_recorded, turns.faults, turns.invalid_by_reason)}"
    return text


def _not_read(summary: Summary) -> str:
    turns, blocked = summary.turns, formatting.milliseconds(summary.generator["send_blocked_worst_ns"])
    timed = "timed from when the caller spoke"
    counted = f"{timed}; those that were cut do not count" if turns.cut else f"they count, {timed}"
    return (
        f"the endpoint did not read in {formatting.number(turns.endpoint_did_not_read)} of"
        f" {formatting.turns(turns.valid)} (for up to {blocked}): {counted}"
    )


def _client_service_delta(run: RunInfo, summary: Summary) -> str:
    client_service_delta = summary.client_service_delta
    if not client_service_delta.joined:
        other = "the service reported" if run.service is None else "callers heard"
        return f"not known: {other} none of these turns"
    is_estimate = client_service_delta.approximate
    p99 = (
        TOO_FEW
        if client_service_delta.difference_p99_ns is None
        else formatting.estimate_if(is_estimate, formatting.milliseconds(client_service_delta.difference_p99_ns))
    )
    p50 = formatting.estimate_if(is_estimate, formatting.milliseconds(client_service_delta.difference_p50_ns))
    return (
        f"client against service on {formatting.turns(client_service_delta.joined)}: p50 {p50}, p99 {p99},"
        f" largest {formatting.milliseconds(client_service_delta.difference_abs_max_ns)}"
        f"{client_service_delta.note}{_not_reported(client_service_delta.client_only)}"
    )


def _not_reported(turns: int) -> str:
    return f"; the service had not reported {formatting.turns(turns)} that callers heard" if turns else ""


def _telemetry(run: RunInfo, summary: Summary) -> str:
    loss = summary.loss
    emitted = "an unknown number" if loss.emitted is None else formatting.number(loss.emitted)
    text = f"{formatting.number(loss.received)} of {emitted} received"
    if run.lost and loss.emitted is not None:
        text += " (a lost process may have had more)"
    if loss.missing:
        text += f", {formatting.number(loss.missing)} lost"
    if (kept := run.spooled) is not None:
        if kept.spans:
            text += f", {turns_and_spans(kept.turns, kept.spans)} delivered from the spool after the run"
        if kept.waiting_spans:
            text += f", {turns_and_spans(kept.waiting_turns, kept.waiting_spans)} waiting in the spool"
    return text


def bounds_sentence(summary: Summary) -> str:
    """Return how well it is known where the callers' speech ended and began."""
    bounds = summary.speech_bounds
    if not bounds.turns:
        return "no turn was spoken"
    sides = (
        ("end", bounds.end_median_ns, bounds.end_worst_ns),
        ("start", bounds.start_median_ns, bounds.start_worst_ns),
    )
    parts = [
        f"{side} of speech exact"
        if not worst
        else f"{side} of speech known to"
        f" {formatting.estimate_if(bounds.approximate, '±' + formatting.milliseconds(middle))} (median),"
        f" ±{formatting.milliseconds(worst)} (worst)"
        for side, middle, worst in sides
        if middle is not None
    ]
    if bounds.turns_unknown:
        parts.append(
            f"± not known for {formatting.number(bounds.turns_unknown)} of {formatting.turns(bounds.turns)}:"
            " see voiceprobe corpus check"
        )
    return "; ".join(parts)
