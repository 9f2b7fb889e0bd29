"""The parts of the report's page below its pictures: single turns, failures, cohorts, evidence, the run. Pure."""

from collections.abc import Iterable
from typing import Final

from loadtest.reports import figures
from loadtest.reports.evidence import evidence_rows
from loadtest.reports.failures import REMARKS
from loadtest.reports.html import waterfalls
from loadtest.reports.html.elements import folded, pairs, prose, section, table
from loadtest.reports.measured_within import bounds_lines, bounds_of
from loadtest.reports.phases import has_phases, starts_line
from loadtest.reports.run_report import RunReport, SlowTurn
from loadtest.reports.run_rows import happened_rows, run_rows
from loadtest.reports.summary import fallback_rate
from telemetry.model import formatting
from telemetry.model.formatting import condition_label
from telemetry.model.metrics import HEADLINE, shown_in
from telemetry.model.semconv import failure_label
from telemetry.store.answers import MetricStats, Summary

_STATISTICS: Final = ("p50", "p95", "p99", "max")


def sections(report: RunReport) -> list[str]:
    """All parts that there is something to say in, in the order of the page."""
    summary = report.summary
    return [
        _slowest(report),
        section("What happened", [pairs(happened_rows(summary))]),
        _failures(summary),
        _remarks(summary),
        _cohorts(summary),
        _understood(summary),
        _phases(summary),
        section("How well this was measured", [pairs(evidence_rows(report.run, summary))]),
        section("The run", [pairs(run_rows(report.run, summary))]),
    ]


def stage_table(report: RunReport) -> str:
    """Every stage with its percentiles, or why there is none."""
    rows: list[tuple[str, ...]] = []
    notes: list[str] = []
    always = shown_in("terminal-always")
    for name in shown_in("terminal", "terminal-always"):
        stats = report.summary.metrics.get(name)
        if stats is None or (not stats.n and name not in always):
            continue
        rows.append((figures.stage_label(name, report.summary), *_values(stats), figures.answered(stats)))
        if not stats.n and stats.withheld:
            notes.append(f"not observable: {figures.label(name)}: {stats.withheld}")
    notes = [*bounds_lines(report.summary, shown_in("terminal", "terminal-always")), *notes]
    if any(stats.unanswered and stats.n for stats in report.summary.metrics.values()):
        notes.append(figures.ANSWERED_NOTE)
    notes.append("too few: a p95 needs 20 values, a p99 needs 100")
    return table("Stages", ("stage", *_STATISTICS, "n"), rows) + _hints(notes)


def _hints(notes: Iterable[str]) -> str:
    return "".join(f'<p class="hint">{prose(note)}</p>' for note in notes)


def _values(stats: MetricStats) -> list[str]:
    if not stats.n:
        return [figures.NOT_OBSERVABLE if stats.withheld else "not measured", *[formatting.DASH] * 3]
    return [figures.of_the_answered(stats, which) for which in _STATISTICS]


def _percentiles(stats: MetricStats | None) -> list[str]:
    return [formatting.DASH if stats is None else figures.of_the_answered(stats, which) for which in _STATISTICS[:3]]


def _slowest(report: RunReport) -> str:
    slowest = report.pictures.slowest
    if not slowest:
        return ""
    hint = "each turn on one clock, in ms from the end of the caller's speech; the slowest first"
    if any(slow.has_both_sides for slow in slowest):
        hint += "; full bars are heard by the caller, pale ones below them reported by the service"
    return section("The slowest turns", [_turn(slow, place) for place, slow in enumerate(slowest, start=1)], hint)


def _turn(slow: SlowTurn, place: int) -> str:
    head = f"<h3>{place}. {prose(waterfalls.heading(slow))}</h3>"
    about = "".join(f"<span>{prose(name)} <b>{prose(value)}</b></span> " for name, value in waterfalls.about(slow))
    drawn = waterfalls.draw(slow.waterfall)
    heading = ("stage", "side", "begins", "ends", "took")
    listed = folded("The turn as a table", table(f"Turn {place}", heading, waterfalls.rows(slow.waterfall), texts=2))
    return f'<article>{head}<p class="about">{about}</p>{drawn}{listed}</article>'


def _failures(summary: Summary) -> str:
    if not summary.failures:
        return ""
    rows = [
        (failure_label(cause.kind, cause.code), cause.example or formatting.DASH, formatting.number(cause.turns))
        for cause in summary.failures
    ]
    return section("Why turns failed", [table("Why turns failed", ("cause", "for example", "turns"), rows, texts=2)])


def _remarks(summary: Summary) -> str:
    if not summary.remarks:
        return ""
    rows = [(each.remark, formatting.number(each.turns)) for each in summary.remarks]
    return section(REMARKS, [table(REMARKS, ("remark", "turns"), rows)])


def _cohorts(summary: Summary) -> str:
    if len(summary.cohorts) < 2:
        return ""
    rows: list[tuple[str, ...]] = []
    for cohort in summary.cohorts:
        heard = cohort.metrics.get(HEADLINE)
        values = _percentiles(heard)
        shares = (formatting.percent(cohort.cache.hit_rate), formatting.percent(fallback_rate(cohort.fallback)))
        rows.append((cohort.cohort, formatting.number(cohort.turns.total), *values, *shares))
    heading = ("cohort", "turns", "p50", "p95", "p99", "cache hits", "fallback")
    bounds = bounds_of((each.cohort, each.metrics.get(HEADLINE)) for each in summary.cohorts)
    return section("Cohorts", [table("Voice to voice by cohort", heading, rows), _hints(bounds)])


def _understood(summary: Summary) -> str:
    if len(summary.wer_by_condition) < 2:
        return ""
    rows = [
        (
            condition_label(row.noise_profile, row.snr_asked_db, row.channel_profile),
            formatting.percent(row.wer),
            figures.TOO_FEW if row.interval is None else " to ".join(map(formatting.percent, row.interval)),
            formatting.number(row.words),
            formatting.number(row.turns),
        )
        for row in summary.wer_by_condition
    ]
    rate, units = (name(summary.wer_by_condition) for name in (figures.rate_name, figures.units_name))
    heading = ("profile", rate, "95 % interval", units, "turns")
    return section("What the endpoint understood", [table(f"{rate.capitalize()} by profile", heading, rows)])


def _phases(summary: Summary) -> str:
    if not has_phases(summary):
        return ""
    rows: list[tuple[str, ...]] = []
    for phase in summary.phases:
        heard, turns = phase.metrics.get(HEADLINE), phase.turns
        values = _percentiles(heard)
        name = f"{phase.phase} (ramp)" if phase.is_ramp else phase.phase
        cells = (name, formatting.number(turns.total), formatting.number(turns.invalid), *values)
        rows.append((*cells, starts_line(phase.starts)) if summary.starts is not None else cells)
    heading = ("phase", "turns", "invalid", "p50", "p95", "p99", *(("starts",) if summary.starts is not None else ()))
    bounds = bounds_of((each.phase, each.metrics.get(HEADLINE)) for each in summary.phases)
    return section("Phases", [table("Voice to voice by phase", heading, rows), _hints(bounds)])
