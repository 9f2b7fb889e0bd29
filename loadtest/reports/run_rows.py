"""A run's settings and events, as rows of a name and a sentence: the same in every report. Pure."""

from loadtest.protocols.address import public_target
from loadtest.reports import figures
from loadtest.reports.failures import retry_line
from loadtest.reports.figures import counts
from loadtest.reports.phases import load_line, ramp_line
from loadtest.reports.run_info import RunInfo
from loadtest.reports.summary import fallback_rate
from telemetry.model import formatting
from telemetry.model.semconv import OUTCOME_LABELS
from telemetry.store.answers import Beside, CacheStats, ShareByName, Summary


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
        within = f"{figures.statistic(stop, 'p50')} (p50), {figures.statistic(stop, 'p95')} (p95)"
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
    rows += beside_rows(summary.beside)
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


def beside_rows(beside: Beside) -> list[tuple[str, str]]:
    """Return what arrived beside the conversations; no row where there was nothing."""
    rows: list[tuple[str, str]] = []
    if beside.unknown:
        names = f" ({', '.join(beside.unknown_names)})" if beside.unknown_names else ""
        rows.append(("unknown", f"{formatting.number(beside.unknown)} events that the protocol does not know{names}"))
    if beside.duplicates:
        rows.append(("duplicates", f"{formatting.number(beside.duplicates)} events came twice; each was heard once"))
    if beside.turns_with_service_latency:
        text = f"on {formatting.turns(beside.turns_with_service_latency)} the service stated latencies of its own"
        rows.append(("metadata", text))
    return rows


def place_rows(run: RunInfo) -> list[tuple[str, str]]:
    """Return where the run is kept, and seen: true on this machine, and while it has not been moved."""
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
    corpus = f"{run.corpus.name}: {run.corpus.kind} speech, {run.corpus.utterances} utterances"
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
