"""The report of a run as one HTML file: the verdict in plain language first, then the pictures, then the evidence.

It loads nothing, has no script, and reads on a phone, on paper, in light and in dark. Pure; foreign text is escaped.
"""

from datetime import UTC, datetime
from typing import Final

from loadtest.exit_codes import ExitCode
from loadtest.protocols.address import public_target
from loadtest.reports.html import pictures
from loadtest.reports.html.elements import document, folded, pairs, prose, section, table, text_of
from loadtest.reports.judged_objectives import JudgedObjective, missed_first
from loadtest.reports.rows import evidence_rows, happened_rows, load_line, run_rows
from loadtest.reports.run_report import RunReport, SlowTurn
from loadtest.reports.tables import TOO_FEW, ReportTable, run_tables, stage_table
from telemetry.charts.drawing import Picture, Row
from telemetry.charts.run import waterfall
from telemetry.charts.static import PAGE, both_sizes
from telemetry.model import formatting
from telemetry.model.bounds import BOUNDED, turn_figures, turn_measured_within
from telemetry.model.formatting import NS_PER_MS, in_milliseconds
from telemetry.model.metrics import HEADLINE, METRICS, shown_in
from telemetry.model.waterfall import BAR_LABELS, BAR_NAMES, SIDE_LABELS, Bar, Waterfall
from telemetry.store.answers import StageStats


def _sections(report: RunReport) -> list[str]:
    """All parts that there is something to say in, in the order of the page."""
    run, summary = report.run, report.summary
    return [
        _slowest(report),
        section("What happened", [pairs(happened_rows(summary))]),
        *(section(below.title, [_listed(below)]) for below in run_tables(run, summary)),
        section("How well this was measured", [pairs(evidence_rows(run, summary))]),
        section("The run", [pairs(run_rows(run, summary))]),
    ]


def _listed(shown: ReportTable) -> str:
    """A table with what is said below it. A row begins with a text: a figure there goes to the end."""
    heading, rows, texts = shown.heading, shown.rows, shown.texts
    if 0 not in texts:
        heading, rows = (*heading[1:], heading[0]), [(*row[1:], row[0]) for row in rows]
        texts = frozenset(place - 1 for place in texts)
    below = "".join(f'<p class="hint">{prose(line)}</p>' for line in (*shown.notes, *shown.warnings))
    return table(shown.caption or shown.title, heading, rows, texts=texts) + below


def _slowest(report: RunReport) -> str:
    slowest = report.pictures.slowest
    if not slowest:
        return ""
    hint = "each turn on one clock, in ms from the end of the caller's speech; the slowest first"
    if any(slow.has_both_sides for slow in slowest):
        hint += "; full bars are heard by the caller, pale ones below them reported by the service"
    return section("The slowest turns", [_turn(slow, place) for place, slow in enumerate(slowest, start=1)], hint)


def _turn(slow: SlowTurn, place: int) -> str:
    head = f"<h3>{place}. {prose(turn_heading(slow))}</h3>"
    about = "".join(f"<span>{prose(name)} <b>{prose(value)}</b></span> " for name, value in _turn_about(slow))
    drawn = draw_waterfall(slow.waterfall)
    heading, rows = ("stage", "side", "begins", "ends", "took"), _bar_rows(slow.waterfall)
    cells = folded("The turn as a table", table(f"Turn {place}", heading, rows, texts=2))
    return f'<article>{head}<p class="about">{about}</p>{drawn}{cells}</article>'


# Speech and reply last seconds, the stages between them a tenth of that: the picture is about the wait.
_LONG: Final = ("speech", "playing")
_BEFORE: Final = 0.16
_AFTER: Final = 0.24
_SHORTEST_NS: Final = 200.0 * NS_PER_MS


def view_ns(shown: Waterfall) -> tuple[float, float]:
    """The bounds of the picture: the whole wait, with some of the speech before and of the reply after."""
    ends = [bar.end_ns for bar in shown.bars if bar.name not in _LONG]
    begins = [bar.start_ns for bar in shown.bars if bar.name == "playing"]
    wait = max(float(max([*ends, *begins], default=0)), _SHORTEST_NS)
    return min(0.0, *begins, 0.0) - wait * _BEFORE, wait * (1 + _AFTER)


def turn_heading(slow: SlowTurn) -> str:
    """Return how long the caller waited in this turn, and which stage took most of it."""
    heard, reported = slow.waterfall.client_voice_to_voice_ns, slow.waterfall.service_voice_to_voice_ns
    waited = formatting.milliseconds(reported if heard is None else heard)
    if heard is not None and (within := turn_measured_within(slow.turn, METRICS[HEADLINE])) is not None:
        waited += f" ({within})"
    longest = longest_stage(slow.waterfall)
    if longest is None:
        return waited
    return f"{waited}: {BAR_LABELS[longest.name]} took {formatting.milliseconds(longest.length_ns)}"


def longest_stage(shown: Waterfall) -> Bar | None:
    """The longest part of the wait, as the service reports it where it does; None where no stage is known."""
    stages = [bar for bar in shown.bars if bar.name not in _LONG and bar.length_ns > 0]
    reported = [bar for bar in stages if bar.source == "service" or bar.name in ("unexplained", "leading_silence")]
    has_service = any(bar.source == "service" for bar in stages)
    return max(reported if has_service else stages, key=lambda bar: bar.length_ns, default=None)


def _turn_about(slow: SlowTurn) -> list[tuple[str, str]]:
    """Return what a turn was: a name and a value for each thing that is known of it."""
    turn = slow.turn
    known = [
        ("utterance", turn.utterance_id),
        ("cohort", turn.cohort),
        ("route", turn.route),
        ("model", turn.model),
        ("cache", None if turn.cache_hit is None else "hit" if turn.cache_hit else "miss"),
        ("fallback", turn.fallback),
        ("noise", turn.noise_profile),
        ("call", f"{turn.call_id}, turn {turn.turn_index}"),
        ("trace", turn.trace_id or None),
    ]
    figures = turn_figures(turn, (METRICS[name] for name in shown_in("page") if METRICS[name] in BOUNDED))
    return [*((name, value) for name, value in known if value), *figures]


def _bar_rows(shown: Waterfall) -> list[tuple[str, str, str, str, str]]:
    """The bars as cells of a table: stage, side, begin, end, length."""
    return [
        (
            BAR_LABELS[bar.name],
            SIDE_LABELS[bar.source],
            formatting.signed_milliseconds(bar.start_ns),
            formatting.signed_milliseconds(bar.end_ns),
            formatting.milliseconds(bar.length_ns),
        )
        for bar in shown.bars
    ]


def draw_waterfall(shown: Waterfall) -> str:
    """The picture: a line per stage, the caller's bar above the service's; zero is the end of the caller's speech."""
    low, high = view_ns(shown)
    seen = [bar for bar in shown.bars if bar.length_ns > 0 and bar.end_ns >= low and bar.start_ns <= high]
    names = [(name, BAR_LABELS[name]) for name in BAR_NAMES if any(bar.name == name for bar in seen)]
    rows: list[Row] = []
    for name, label in names:
        bars = [bar for bar in seen if bar.name == name]
        rows.append({"name": label, "figures": " / ".join(formatting.milliseconds(bar.length_ns) for bar in bars)})
        rows += [
            {
                "name": label,
                "place": int(bar.source == "service"),
                "low": in_milliseconds(bar.start_ns),
                "high": in_milliseconds(bar.end_ns),
                "text": f"{label}, {SIDE_LABELS[bar.source]}: {formatting.milliseconds(bar.length_ns)}",
            }
            for bar in bars
        ]
    origin = "the end of the speech" if shown.origin == "speech_end" else "the begin of the turn"
    spec = waterfall(names, (in_milliseconds(low), in_milliseconds(high)), origin, PAGE)
    return both_sizes(Picture(rows, spec, "One turn on one clock; the table has its figures"))


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


def as_html(report: RunReport) -> str:
    """The whole file."""
    title = f"{_word(report.run_outcome.code)} · voice load test of {public_target(report.run.target)}"
    version = report.run.versions.get("voiceprobe")
    made = f"voiceprobe {version}" if version else "voiceprobe"
    body = [
        _head(report),
        _objectives(report),
        _over_time(report),
        _stages(report),
        _stack(report),
        _distribution(report),
        *_sections(report),
    ]
    return document(title, body, f"Made by {made} from the store of the run; times are UTC.")


def _word(code: ExitCode) -> str:
    return _WORDS.get(code, code.name.lower().replace("_", " "))


def _without_word(sentence: str) -> str:
    """The sentence without the word of its heading."""
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
    """Return how well the run was measured, in a few words."""
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
    whole = (
        objective for objective in report.objectives if objective.metric == HEADLINE and not objective.is_of_a_part
    )
    return next((float(objective.threshold) for objective in whole if objective.threshold is not None), None)


def _over_time(report: RunReport) -> str:
    title = "Voice to voice over time"
    if not report.summary.metrics[HEADLINE].n:
        return section(title, ["<p>No turn was answered: there is nothing to draw.</p>"])
    shown = pictures.over_time(report.pictures.timeline, report.pictures.dots)
    unanswered = sum(1 for _, value in shown.dots if value is None)
    hints = [shown.window] if shown.curves else []
    hint = "; ".join([*hints, "each dot is a turn"] if shown.dots else hints)
    hint += f", each × one that went unanswered ({formatting.number(unanswered)})" if unanswered else ""
    rows: dict[float, dict[str, str]] = {}
    for name, runs in shown.curves.items():
        for at, value in (point for run in runs for point in run):
            empty: dict[str, str] = dict.fromkeys(pictures.STATISTICS, formatting.DASH)
            rows.setdefault(at, empty)[name] = formatting.milliseconds(value)
    parts = [pictures.draw_over_time(shown, _threshold_ns(report))]
    if rows:
        cells = [(formatting.clock(at), *values.values()) for at, values in sorted(rows.items())]
        listed = table(title, ("since the begin", *pictures.STATISTICS), cells)
        parts.append(folded("The curves as a table", listed))
    else:
        parts.append(f'<p class="hint">{prose("too few answered turns for a curve: a window needs 20")}</p>')
    if shown.in_flight:
        calls = [(formatting.clock(at), formatting.number(calls)) for at, calls in shown.in_flight]
        listed = table("Calls in flight", ("since the begin", "calls"), calls)
        parts.append(folded("The calls in flight as a table", listed))
    return section(title, parts, hint)


def _stages(report: RunReport) -> str:
    drawn = pictures.draw_stages(report.summary, report.objectives)
    by = "as the caller heard them" if report.run.service is None else report.summary.client_service_delta.reported
    hint = "each bar reaches to p50, p95 and p99; an upright line is a budget (an objective)" if drawn else ""
    return section(f"Stages against their budget, {by}", [drawn, _listed(stage_table(report.summary))], hint)


def _stack(report: RunReport) -> str:
    stages = [stage for stage in report.pictures.stages.values() if stage.p50_ns is not None]
    if not stages:
        return ""
    rows = [
        (
            stage.label,
            _stage_figure(stage, stage.p50_ns),
            _stage_figure(stage, stage.p95_ns),
            formatting.number(stage.n),
        )
        for stage in stages
    ]
    listed = folded("The stages as a table", table("Where a turn's time goes", ("stage", "p50", "p95", "n"), rows))
    hint = (
        "ms of each stage at its p50 and at its p95, as the service reports it, else as the caller saw it, over the "
        "answered turns; percentiles of stages do not add up to that of the whole"
    )
    return section("Where a turn's time goes", [pictures.draw_stack(stages), listed], hint)


def _stage_figure(stage: StageStats, value_ns: float | None) -> str:
    if value_ns is None:
        return TOO_FEW
    return formatting.estimate_if(stage.approximate, formatting.milliseconds(value_ns))


def _distribution(report: RunReport) -> str:
    values, stats = report.pictures.values_ns, report.summary.metrics[HEADLINE]
    if values is None:
        return section("Distribution", ["<p>Not drawn: the turns are too many to be read one by one.</p>"])
    shown = pictures.histogram(values)
    if shown is None:
        return ""
    rows = [
        (" to ".join(formatting.milliseconds(bound) for bound in shown.bounds_ns(index)), formatting.number(count))
        for index, count in enumerate(shown.counts)
        if count
    ]
    listed = folded("The distribution as a table", table("Turns by voice to voice", ("voice to voice", "turns"), rows))
    hint = f"of {formatting.turns(len(values))} that were answered"
    drawn = pictures.draw_distribution(shown, stats, _threshold_ns(report))
    return section("Distribution of voice to voice", [drawn, listed], hint)
