"""The final summary on a terminal: the verdict first, then the stages, what happened, and how well it was measured."""

from collections.abc import Iterable, Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from loadtest.caller.address import public_target
from loadtest.exit_codes import ExitCode
from loadtest.reports import wording
from loadtest.reports.behaviour import behaviour_rows
from loadtest.reports.ending import Ending, generator_loss
from loadtest.reports.facts import RunFacts
from loadtest.reports.hearing import hearing_table
from loadtest.reports.phases import has_phases, load_line, phase_table, ramp_line, starts_sentence
from loadtest.reports.summary import fallback_rate
from telemetry.slo import Verdict
from telemetry.store.answers import CacheStats, Generator, MetricStats, ShareByName, Summary

# The stages in the order in which a turn passes them; `always` rows are shown even when nothing was measured, so that a
# figure that is missing is seen to be missing.
_ALWAYS: Final = (
    "voice_to_voice",
    "asr_partial_latency",
    "asr_final_latency",
    "llm_first_token_latency",
    "tts_first_chunk_latency",
)
_STAGES: Final = (
    "voice_to_voice",
    "endpointing",
    "asr_partial_latency",
    "asr_final_latency",
    "llm_first_token_latency",
    "llm_ttft",
    "time_to_first_sentence",
    "itl",
    "tts_first_chunk_latency",
    "leading_silence",
    "connect",
    "barge_in_stop",
    "talk_over",
    "underrun_worst",
    "tokens_per_s",
    "tokens_per_s_wall",
    "audio_rtf",
    "wer",
)
_STATISTICS: Final = ("p50", "p95", "p99", "max")
_MET: Final = {True: ("✔", "met", "green"), False: ("✘", "missed", "red"), None: ("?", "not shown", "yellow")}


def final_view(*, run: RunFacts, summary: Summary, verdicts: Sequence[Verdict], ending: Ending) -> RenderableType:
    """Everything a run prints at its end. Readable without colour and from 80 columns on."""
    parts: list[RenderableType] = [
        _heading("Verdict"),
        _verdicts(verdicts, ending),
        _heading("Stages, as the caller heard them"),
        _stages(summary),
        *_withheld(summary),
        _heading("What happened"),
        _pairs(_happened(summary)),
    ]
    if len(summary.cohorts) > 1:
        parts += [_heading("Cohorts"), _cohorts(summary)]
    if len(summary.hearing) > 1:
        parts += [_heading("What the endpoint understood"), hearing_table(summary.hearing)]
    if has_phases(summary):
        parts += [_heading("Phases"), phase_table(summary)]
    parts += [_heading("How well this was measured"), _pairs(_evidence(run, summary))]
    parts += [_heading("Run"), _pairs(_run(run))]
    return Group(*parts)


def _heading(text: str) -> RenderableType:
    return Padding(Rule(Text(text, style="bold"), align="left", style="dim"), (1, 0, 0, 0))


def _pairs(rows: Iterable[tuple[str, str]]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True, min_width=14)
    table.add_column(overflow="fold")
    for name, text in rows:
        table.add_row(name, text)
    return table


def _verdicts(verdicts: Sequence[Verdict], ending: Ending) -> RenderableType:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, min_width=11)
    table.add_column(overflow="fold")
    for verdict in verdicts:
        sign, word, style = _MET[verdict.met]
        table.add_row(Text(f"{sign} {word}", style=f"bold {style}"), Text(verdict.sentence))
        if standing := _standing(verdict):
            table.add_row("", Text(standing, style="dim"))
    style = "green" if ending.code is ExitCode.OK else "red"
    word = ending.code.name.lower().replace("_", " ")
    table.add_row(Text(f"exit {int(ending.code)}", style=f"bold {style}"), Text(f"{word}: {ending.reason}"))
    return table


def _standing(verdict: Verdict) -> str:
    """What the sentence of a verdict leaves out; nothing where the sentence is all there is to say."""
    if verdict.budget_left is None:
        return ""
    budget = (
        f"error budget left {wording.percent(verdict.budget_left)}"
        if verdict.budget_left >= 0
        else "error budget overspent"
    )
    return f"{wording.number(verdict.good)} of {wording.turns(verdict.eligible)} good · {budget}"


def _stages(summary: Summary) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("stage", no_wrap=True)
    for name in (*_STATISTICS, "n"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in _STAGES:
        stats = summary.metrics.get(name)
        if stats is None or (stats.n == 0 and name not in _ALWAYS):
            continue
        table.add_row(wording.label(name), *_cells(stats), style="bold" if name == "voice_to_voice" else "")
    return table


def _cells(stats: MetricStats) -> list[str]:
    if stats.n == 0:
        word = wording.NOT_OBSERVABLE if stats.withheld else "not measured"
        return [word, wording.UNKNOWN, wording.UNKNOWN, wording.UNKNOWN, "0"]
    return [*(wording.statistic(stats, which) for which in _STATISTICS), wording.number(stats.n)]


def _withheld(summary: Summary) -> list[RenderableType]:
    stats = [summary.metrics[name] for name in _STAGES if name in summary.metrics]
    rows = [(wording.label(each.name), each.withheld) for each in stats if each.n == 0 and each.withheld]
    lines: list[RenderableType] = [
        Text(f"not observable: {name}: {reason}", style="dim", overflow="fold") for name, reason in rows
    ]
    if any(0 < each.n < 100 for each in stats):
        lines.append(Text("too few: a p95 needs 20 values, a p99 needs 100", style="dim"))
    return lines


def _happened(summary: Summary) -> list[tuple[str, str]]:
    turns = summary.turns
    outcomes = ", ".join(
        f"{wording.number(count)} {name.replace('_', ' ')}" for name, count in turns.by_outcome.items() if count
    )
    rows = [("turns", f"{wording.number(turns.total)} ({outcomes})" if outcomes else wording.number(turns.total))]
    rows += behaviour_rows(summary)
    if (ramp := ramp_line(summary)) is not None:
        rows.append(("ramps", ramp))
    rows.append(("cache", cache_line(summary.cache)))
    rows.append(("fallback", fallback_line(summary.fallback)))
    if summary.routes.counts:
        rows.append(("routes", _counts(summary.routes.counts)))
    return rows


def cache_line(cache: CacheStats) -> str:
    """Hit rate and hits by tier, or that nobody said."""
    if not cache.reported:
        return "not reported by the endpoint"
    tiers = f" ({_counts(cache.hits_by_tier)})" if cache.hits_by_tier else ""
    return f"{wording.percent(cache.hit_rate)} hits of {wording.turns(cache.reported)} that reported{tiers}"


def fallback_line(fallback: ShareByName) -> str:
    """How often a fallback answered, by kind, or that nobody said."""
    if not fallback.reported:
        return "not reported by the endpoint"
    kinds = f" ({_counts(fallback.counts)})" if fallback.counts else ""
    return f"{wording.percent(fallback_rate(fallback))} of {wording.turns(fallback.reported)} that reported{kinds}"


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {wording.number(count)}" for name, count in counts.items())


def _cohorts(summary: Summary) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("cohort", overflow="fold")
    for name in ("turns", "v2v p50", "v2v p95", "cache hits", "fallback"):
        table.add_column(name, justify="right", no_wrap=True)
    for cohort in summary.cohorts:
        heard = cohort.metrics.get("voice_to_voice")
        table.add_row(
            cohort.cohort,
            wording.number(cohort.turns.total),
            wording.UNKNOWN if heard is None else wording.statistic(heard, "p50"),
            wording.UNKNOWN if heard is None else wording.statistic(heard, "p95"),
            wording.percent(cohort.cache.hit_rate),
            wording.percent(fallback_rate(cohort.fallback)),
        )
    return table


def _evidence(run: RunFacts, summary: Summary) -> list[tuple[str, str]]:
    health = summary.generator
    pacing = (
        f"p99 {wording.milliseconds(health.frame_lateness_p99_ns)} late,"
        f" worst {wording.milliseconds(health.frame_lateness_worst_ns)},"
        f" worst loop lag {wording.milliseconds(health.loop_lag_worst_ns)}"
        f" (pacer: {health.pacer or 'not reported'})"
    )
    receive = (
        f"stamped by: {health.receive_stamp or 'not reported'},"
        f" worst lag to the program {wording.milliseconds(health.receive_lag_worst_ns)}"
    )
    rows = [("processes", _processes(run))] if run.processes > 1 or run.lost or run.killed_by else []
    return [
        *rows,
        ("invalid", _invalid(summary)),
        *([("starts", starts_sentence(summary))] if summary.starts is not None else []),
        ("pacing", pacing),
        ("receiving", receive),
        *([("calibration", run.calibration.sentence)] if run.calibration is not None else []),
        ("sockets", _sockets(health)),
        ("process", _process(health)),
        ("agreement", _agreement(summary)),
        ("telemetry", _telemetry(run, summary)),
    ]


def _sockets(health: Generator) -> str:
    unsent, held_up = health.unsent_worst_bytes, health.frames_held_up
    worst = "not reported" if unsent is None else f"{wording.number(unsent)} bytes"
    text = f"most that one caller had unsent: {worst}"
    if held_up:
        blocked = wording.milliseconds(health.send_blocked_worst_ns)
        text += f"; {wording.number(held_up)} frames held up by full sockets (worst in a turn {blocked})"
    return text


def _process(health: Generator) -> str:
    return (
        f"busiest {wording.percent(health.cpu_ratio_worst)} of a core,"
        f" worst GC pause {wording.milliseconds(health.gc_pause_worst_ns)},"
        f" wall clock moved by {wording.milliseconds(health.clock_offset_drift_worst_ns)}"
    )


def _processes(run: RunFacts) -> str:
    return generator_loss(run) or f"all {run.processes} ended as they should"


def _invalid(summary: Summary) -> str:
    turns = summary.turns
    if not turns.total:
        return "no turn was measured"
    text = f"{wording.number(turns.invalid)} of {wording.turns(turns.total)}"
    if turns.invalid_by_reason:
        text += f" ({_counts(turns.invalid_by_reason)})"
    return f"{text}: generator-limited" if summary.turns.is_generator_limited else text


def _agreement(summary: Summary) -> str:
    agreement = summary.agreement
    if not agreement.joined:
        return "not known: the service reported none of these turns"
    p99 = wording.TOO_FEW if agreement.difference_p99_ns is None else wording.milliseconds(agreement.difference_p99_ns)
    return (
        f"client against service on {wording.turns(agreement.joined)}: p50"
        f" {wording.milliseconds(agreement.difference_p50_ns)}, p99 {p99},"
        f" largest {wording.milliseconds(agreement.difference_abs_max_ns)}"
    )


def _telemetry(run: RunFacts, summary: Summary) -> str:
    loss = summary.loss
    emitted = "an unknown number" if loss.emitted is None else wording.number(loss.emitted)
    text = f"{wording.number(loss.received)} of {emitted} received"
    if loss.missing:
        text += f", {wording.number(loss.missing)} lost"
    if run.turns_spooled:
        text += f", {wording.number(run.turns_spooled)} kept in the local spool"
    if summary.skipped_segments:
        text += f", {wording.number(summary.skipped_segments)} unreadable store files left out"
    return text


def _run(run: RunFacts) -> list[tuple[str, str]]:
    altered = [f"noise {run.profile.noise}"] if run.profile.noise else []
    altered += [f"{run.profile.snr_db:g} dB SNR"] if run.profile.snr_db is not None else []
    altered += [f"{run.profile.length} utterances"] if run.profile.length else []
    altered += [f"channel {run.profile.channel}"] if run.profile.channel else []
    corpus = f"{run.corpus.name}: {run.corpus.kind} speech, {run.corpus.utterances} utterances"
    if run.corpus.licences:
        corpus += f" ({', '.join(run.corpus.licences)})"
    rows = [
        ("run", f"{run.run_id} · {run.protocol} · {load_line(run)} · seed {run.seed}"),
        ("target", public_target(run.target)),
        ("corpus", " · ".join([corpus, *altered])),
    ]
    rows += [("store", run.store)] if run.store else []
    rows += [("dashboard", run.dashboard_url)] if run.dashboard_url else []
    return rows
