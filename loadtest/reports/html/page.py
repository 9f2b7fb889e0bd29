"""The report of a run as one HTML file: the verdict in plain language first, then the pictures, then the evidence.

It loads nothing, has no script, and reads on a phone, on paper, in light and in dark. Pure; foreign text is escaped.
"""

from datetime import UTC, datetime
from importlib.resources import files
from typing import Final

from loadtest.exit_codes import ExitCode
from loadtest.protocols.address import public_target
from loadtest.reports import figures
from loadtest.reports.html import details, distribution, over_time, stage_bars
from loadtest.reports.html.elements import folded, legend, prose, section, table
from loadtest.reports.html.svg import NARROW, WIDE, text_of
from loadtest.reports.judged_objectives import JudgedObjective, missed_first
from loadtest.reports.phases import load_line
from loadtest.reports.run_report import RunReport
from telemetry.model import formatting
from telemetry.model.metrics import HEADLINE
from telemetry.store.answers import StageStats

_SYMBOLS: Final = {"met": "✓", "missed": "✕", "undecided": "?", "not judged": "–"}
# The class of the verdict's color; only a run that met everything is green.
_CLASSES: Final = {ExitCode.OK: "met", ExitCode.OBJECTIVE_MISSED: "missed", ExitCode.UNREACHABLE: "missed"}
_WORDS: Final = {
    ExitCode.OK: "Met",
    ExitCode.OBJECTIVE_MISSED: "Missed",
    ExitCode.UNDECIDED: "Undecided",
    ExitCode.GENERATOR_LIMITED: "Not judged: the load generator was the limit",
    ExitCode.UNREACHABLE: "Unreachable",
    ExitCode.INTERRUPTED: "Interrupted",
}
_NO_NETWORK: Final = "default-src 'none'; style-src 'unsafe-inline'"


def as_html(report: RunReport) -> str:
    """The whole file."""
    style = files("loadtest.reports.html").joinpath("style.css").read_text(encoding="utf-8")
    title = f"{_word(report.run_outcome.code)} · voice load test of {public_target(report.run.target)}"
    parts = [
        _head(report),
        _objectives(report),
        _over_time(report),
        _stages(report),
        _stack(report),
        _distribution(report),
        *details.sections(report),
    ]
    body = "\n".join(part for part in parts if part)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_NO_NETWORK}">\n'
        f"<title>{text_of(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        f"<main>\n{body}\n</main>\n{_foot(report)}\n</body>\n</html>\n"
    )


def _word(code: ExitCode) -> str:
    return _WORDS.get(code, code.name.lower().replace("_", " "))


def _without_word(sentence: str) -> str:
    """The sentence without the word that stands above it in large letters."""
    return sentence.removeprefix("Not judged: ").removeprefix("Undecided: ").removeprefix("Missed: ")


def _head(report: RunReport) -> str:
    run, code = report.run, report.run_outcome.code
    css = _CLASSES.get(code, "undecided")
    began = datetime.fromtimestamp(run.started_unix_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    lasted = "" if run.elapsed_s is None else f" · {formatting.clock(run.elapsed_s)} long"
    load = "reported by the service" if run.service is not None else load_line(run)
    is_known = run.corpus.kind in ("recorded human", "generated")
    speech = f"{prose(run.corpus.name)} ({prose(run.corpus.kind)} speech) · " if is_known else ""
    state = '<p class="note">The run was still under way: these are the figures so far.</p>' if run.is_under_way else ""
    return (
        f'<header><p class="hint">voiceprobe · run {text_of(run.run_id)}</p>'
        f"<h1>Voice load test of <span>{prose(public_target(run.target))}</span></h1>"
        f'<div class="verdict {css}"><p class="badge">{_word(code)}</p>'
        f"<p>{prose(_without_word(report.sentence))}</p></div>{state}"
        f'<p class="hint">{began}{lasted} · {prose(load)} · {formatting.turns(report.summary.turns.total)} · '
        f"{speech}{trust(report)}</p></header>"
    )


def trust(report: RunReport) -> str:
    """How well the run was measured, in a few words."""
    turns, loss, cited = report.summary.turns, report.summary.loss, report.run.calibration
    parts = [f"{formatting.number(turns.invalid)} of {formatting.turns(turns.total)} invalid"]
    if turns.invalid:
        parts[0] += f" ({formatting.number(turns.not_as_recorded)} not said as recorded)"
    if loss.emitted is None:
        parts.append("telemetry loss not known")
    else:
        parts.append("telemetry complete" if not loss.missing else f"{formatting.turns(loss.missing)} lost")
    if report.run.service is None:
        bound_ms = None if cited is None else cited.error_ms
        shown = None if bound_ms is None else formatting.declared_milliseconds(bound_ms * formatting.NS_PER_MS)
        parts.append("not calibrated" if shown is None else f"calibrated to ±{shown}")
    return " · ".join(parts)


def _objectives(report: RunReport) -> str:
    shown = "".join(_objective(judged) for judged in missed_first(report.judged))
    body = f'<ul class="objectives">{shown}</ul>' if shown else "<p>No objective was asked for.</p>"
    return section("Objectives", [body])


def _objective(judged: JudgedObjective) -> str:
    css = judged.claim.replace(" ", "-")
    lines = [f"<p>{prose(judged.line)}</p>"]
    if judged.tail is not None:
        lines.append(f'<p class="tail">{prose(judged.tail)}</p>')
    if judged.counts_sentence is not None:
        lines.append(f'<p class="hint">{prose(judged.counts_sentence)}</p>')
    if judged.sampling_sentence is not None:
        lines.append(f'<p class="hint">{prose(judged.sampling_sentence)}</p>')
    return (
        f'<li><span class="chip {css}">{_SYMBOLS[judged.claim]} {judged.claim}</span>'
        f"<div><h3>{prose(judged.title)}</h3>{''.join(lines)}</div></li>"
    )


def _threshold_ns(report: RunReport) -> float | None:
    """The threshold of the first objective on voice-to-voice of all turns."""
    found = (each for each in report.objectives if each.metric == HEADLINE and not each.is_of_a_part)
    return next((float(each.threshold) for each in found if each.threshold is not None), None)


def _over_time(report: RunReport) -> str:
    pictures = report.pictures
    if not report.summary.metrics[HEADLINE].n:
        return section("Voice to voice over time", ["<p>No turn was answered: there is nothing to draw.</p>"])
    shown = over_time.over_time(pictures.timeline, pictures.dots, _threshold_ns(report))
    unanswered = sum(1 for _, value in shown.dots if value is None)
    hints = [shown.window] if shown.curves else []
    hint = "; ".join([*hints, "each dot is a turn"] if shown.dots else hints)
    hint += f", each × one that went unanswered ({formatting.number(unanswered)})" if unanswered else ""
    figures_of = {
        at: {**dict.fromkeys(over_time.STATISTICS, formatting.DASH)}
        for curve in shown.curves
        for run in curve.runs
        for at, _ in run
    }
    for curve in shown.curves:
        for run in curve.runs:
            for at, value in run:
                figures_of[at][curve.name] = formatting.milliseconds(value)
    rows = [(formatting.clock(at), *values.values()) for at, values in sorted(figures_of.items())]
    parts = [over_time.draw(shown, WIDE), over_time.draw(shown, NARROW)]
    if rows:
        listed = table("Voice to voice over time", ("since the begin", *over_time.STATISTICS), rows)
        parts.append(folded("The curves as a table", listed))
    else:
        parts.append(f'<p class="hint">{prose("too few answered turns for a curve: a window needs 20")}</p>')
    return section("Voice to voice over time", parts, hint)


def _stages(report: RunReport) -> str:
    rows = stage_bars.stage_rows(report.summary, report.objectives)
    pictures = [stage_bars.draw_bars(rows, WIDE), stage_bars.draw_bars(rows, NARROW)] if rows else []
    keys = [("band-p50", "to p50"), ("band-p95", "to p95"), ("band-p99", "to p99"), ("budget", "budget (objective)")]
    by = "as the caller heard them" if report.run.service is None else report.summary.client_service_delta.reported
    body = [*pictures, legend(keys) if rows else "", details.stage_table(report)]
    return section(f"Stages against their budget, {by}", body)


def _stack(report: RunReport) -> str:
    stages = [each for each in report.pictures.stages.values() if each.p50_ns is not None]
    if not stages:
        return ""
    rows = [
        (
            each.label,
            _stage_figure(each, each.p50_ns),
            _stage_figure(each, each.p95_ns),
            formatting.number(each.n),
        )
        for each in stages
    ]
    keys = [(f"s-{each.name}", each.label) for each in stages]
    drawn = [stage_bars.draw_stack(report.pictures.stages, size) for size in (WIDE, NARROW)]
    listed = folded("The stages as a table", table("Where a turn's time goes", ("stage", "p50", "p95", "n"), rows))
    hint = (
        "ms of each stage at its p50 and at its p95, as the service reports it, else as the caller saw it, over the "
        "answered turns; percentiles of stages do not add up to that of the whole"
    )
    return section("Where a turn's time goes", [*drawn, legend(keys), listed], hint)


def _stage_figure(stage: StageStats, value_ns: float | None) -> str:
    if value_ns is None:
        return figures.TOO_FEW
    return formatting.estimate_if(stage.approximate, formatting.milliseconds(value_ns))


def _distribution(report: RunReport) -> str:
    values, stats = report.pictures.values_ns, report.summary.metrics[HEADLINE]
    if values is None:
        return section("Distribution", ["<p>Not drawn: the turns are too many to be read one by one.</p>"])
    shown = distribution.histogram(values)
    if shown is None:
        return ""
    drawn = [distribution.draw(shown, stats, _threshold_ns(report), size) for size in (WIDE, NARROW)]
    rows = [
        (" to ".join(formatting.milliseconds(bound) for bound in shown.bounds_ns(index)), formatting.number(count))
        for index, count in enumerate(shown.counts)
        if count
    ]
    listed = folded("The distribution as a table", table("Turns by voice to voice", ("voice to voice", "turns"), rows))
    hint = f"of {formatting.turns(len(values))} that were answered"
    return section("Distribution of voice to voice", [*drawn, listed], hint)


def _foot(report: RunReport) -> str:
    version = report.run.versions.get("voiceprobe")
    made = f"voiceprobe {version}" if version else "voiceprobe"
    return f'<footer><p class="hint">Made by {text_of(made)} from the store of the run; times are UTC.</p></footer>'
