"""The tables of the Now page, as HTML: stages against objectives, cohorts side by side, the slowest turns."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from dashboard import descriptions
from dashboard.components.markup import css_percent, escape, scrolled, short
from dashboard.components.objectives import ObjectiveStatus, State, chip
from dashboard.descriptions import Clock
from dashboard.links import Choice
from telemetry.model import formatting
from telemetry.model.bounds import Statistic, turn_measured_within
from telemetry.model.metrics import DEFINITIONS, HEADLINE, METRICS, shown_in
from telemetry.model.semconv import failure_label
from telemetry.model.turns import Turn
from telemetry.store.answers import CohortSummary, FailureCount, MetricStats, Summary
from telemetry.store.questions.filters import source_of

STAGES: Final = shown_in("page")
PERCENTILES: Final[tuple[Statistic, ...]] = ("p50", "p95", "p99")
ANSWERED: Final = "percentiles are of the answered turns only"


def stages(summary: Summary, statuses: Sequence[ObjectiveStatus]) -> str:
    """p50, p95 and p99 of each stage with n, beside its objective and how that stands. Milliseconds."""
    by_metric: dict[str, ObjectiveStatus] = {}
    for status in statuses:
        if status.metric is not None:
            by_metric.setdefault(status.metric, status)
    shown = [*STAGES, *(metric for metric in by_metric if metric not in STAGES and metric in summary.metrics)]
    lines = [(by_metric.get(metric), _stage(summary, metric, by_metric.get(metric))) for metric in shown]
    lines += [(each, _other(each)) for each in statuses if by_metric.get(each.metric or "") is not each]
    rows = "".join(line for _, line in sorted(lines, key=lambda each: _missed_first(each[0])))
    valid = formatting.count(summary.turns.total - summary.turns.invalid, "valid turn")
    answered = f"; {ANSWERED}" if summary.metrics[HEADLINE].unanswered else ""
    how = f"{formatting.APPROXIMATELY} within 1 %" if summary.metrics[HEADLINE].approximate else "exact"
    table = (
        '<table><thead><tr><th>stage</th><th class="num">p50</th><th class="num">p95</th><th class="num">p99</th>'
        f'<th class="num">n</th><th>objective</th><th>verdict</th></tr></thead><tbody>{rows}</tbody></table>'
    )
    return (
        '<div class="vp"><div class="vp-head"><h2>Stages against objectives '
        f'<span class="hint">ms, {how}, over {valid}{answered}</span></h2>{_tally(statuses)}</div>'
        f"{scrolled('Stages against objectives', table, ends_in_verdict=True)}"
        f"{_bounds((DEFINITIONS[name].label, summary.metrics[name]) for name in shown)}"
        f"{_unknown_bounds(summary.metrics[HEADLINE])}</div>"
    )


def _bounds(named: Iterable[tuple[str, MetricStats]]) -> str:
    """A line for each name whose figures have measurement bounds that differ from them."""
    stated = [f"{name}: {stats.stated_bounds}" for name, stats in named if stats.stated_bounds is not None]
    return "".join(f'<div class="hint">{escape(line)}</div>' for line in stated)


def _unknown_bounds(stats: MetricStats) -> str:
    found = descriptions.describe_unknown_bounds(stats)
    return f'<div class="hint">{escape(found)}</div>' if found else ""


def _missed_first(status: ObjectiveStatus | None) -> int:
    return 2 if status is None else {"missed": 0, "unknown": 1, "met": 2}[status.state]


def _tally(statuses: Sequence[ObjectiveStatus]) -> str:
    """How many objectives are met, missed and not known, the missed first."""
    counts: list[tuple[State, int]] = [
        (state, sum(each.state == state for each in statuses)) for state in ("missed", "met", "unknown")
    ]
    is_judged = all(each.verdict.is_judged for each in statuses)
    labels = {"missed": "missed", "met": "met", "unknown": "undecided" if is_judged else "not judged"}
    return f"<span>{' '.join(chip(state, f'{n} {labels[state]}') for state, n in counts if n)}</span>"


def _other(status: ObjectiveStatus) -> str:
    """An objective that is not about a stage, or a second one about the same stage."""
    objective, verdict = status.objective, status.verdict
    name = objective.display_name or objective.name
    share = formatting.percent(verdict.ratio, verdict.target)
    return (
        f'<tr><td colspan="4" title="{escape(objective.description or name)}">{escape(name)}: {share}</td>'
        f'<td class="num">{formatting.number(verdict.eligible)}</td>{_verdict(status)}</tr>'
    )


def _verdict(status: ObjectiveStatus) -> str:
    return f'<td class="vp-promise">{escape(status.promise)}</td><td>{status.chip}</td>'


def _stage(summary: Summary, metric_name: str, status: ObjectiveStatus | None) -> str:
    stats = summary.metrics[metric_name]
    headline = ' class="headline"' if stats.name == HEADLINE else ""
    metric = DEFINITIONS[stats.name]
    name = f'<td{headline} title="{escape(metric.definition)}">{escape(metric.label)}</td>'
    verdict = (
        f'<td class="vp-promise">{escape(status.promise)}</td><td>{status.chip}</td>'
        if status
        else "<td></td><td></td>"
    )
    why = descriptions.why_no_figures(stats, source_of(summary.filter))
    if why is not None:
        columns = 4 if status else 6
        cell = f'<td class="none" colspan="{columns}" title="{escape(why)}">{escape(why)}</td>'
        return f"<tr>{name}{cell}{verdict if status else ''}</tr>"
    cells = "".join(_percentile(stats, each) for each in PERCENTILES)
    return f'<tr>{name}{cells}<td class="num"{_of_whom(stats)}>{descriptions.values(stats)}</td>{verdict}</tr>'


def _of_whom(stats: MetricStats) -> str:
    return f' title="{ANSWERED}"' if stats.unanswered else ""


def _percentile(stats: MetricStats, name: Statistic) -> str:
    few = "" if getattr(stats, name) is not None else " few"
    bounds = "" if few else descriptions.describe_bounds(stats, name)
    title = f' title="{escape(bounds)}"' if bounds else ""
    return f'<td class="num{few}"{title}>{escape(descriptions.percentile(stats, name))}</td>'


def cohorts(found: Sequence[CohortSummary], headline: Mapping[str, ObjectiveStatus | None]) -> str:
    """One row per cohort on one scale, so that two can be compared by eye. Milliseconds."""
    head = '<div class="vp-head"><h2>Cohorts <span class="hint">voice to voice, ms</span></h2></div>'
    if not found:
        return f'<div class="vp">{head}<span class="hint">no turn names a cohort: run with --cohort, or let the \
endpoint say it</span></div>'
    reach = max((_reach(each) or 0 for each in found), default=0)
    rows = "".join(_cohort(each, index, headline.get(each.cohort), reach) for index, each in enumerate(found))
    table = (
        '<table><thead><tr><th>cohort</th><th class="num">n</th><th>p50 – p99</th>'
        '<th class="num">p50</th><th class="num">p95</th><th class="num">p99</th><th class="num">good</th>'
        f'<th class="num">cache</th><th class="num">fallback</th></tr></thead><tbody>{rows}</tbody></table>'
    )
    bounds = _bounds((each.cohort, each.metrics[HEADLINE]) for each in found)
    return f'<div class="vp">{head}{scrolled("Cohorts", table)}{bounds}</div>'


def _reach(cohort: CohortSummary) -> float | None:
    stats = cohort.metrics[HEADLINE]
    return next((value for value in (stats.p99, stats.p95, stats.p50) if value is not None), None)


def _cohort(cohort: CohortSummary, index: int, status: ObjectiveStatus | None, reach: float) -> str:
    stats = cohort.metrics[HEADLINE]
    color = f"vp-c{index}" if index < 2 else "vp-c"
    good = _good(status)
    fallback = formatting.share(sum(cohort.fallback.counts.values()), cohort.fallback.reported)
    return (
        f'<tr><td class="headline"><span class="vp-key {color}"></span>{short(cohort.cohort)}</td>'
        f'<td class="num"{_of_whom(stats)}>{descriptions.values(stats)}</td><td>{_range(stats, color, reach)}</td>'
        f"{''.join(_percentile(stats, each) for each in PERCENTILES)}"
        f'{good}<td class="num">{formatting.percent(cohort.cache.hit_rate)}</td>'
        f'<td class="num">{fallback}</td></tr>'
    )


def _good(status: ObjectiveStatus | None) -> str:
    """The share of good turns, where there are turns enough to say something."""
    if status is None:
        return f'<td class="num">{formatting.DASH}</td>'
    if status.verdict.eligible >= status.verdict.minimum_turns:
        return f'<td class="num">{formatting.percent(status.verdict.ratio, status.verdict.target)}</td>'
    return f'<td class="num few">too few ({formatting.number(status.verdict.decided)})</td>'


def _range(stats: MetricStats, color: str, reach: float) -> str:
    """A bar from p50 to p99 with a tick at each percentile, on the scale of all rows."""
    known = [value for name in PERCENTILES if (value := getattr(stats, name)) is not None]
    if not known or reach <= 0:
        return ""
    at = [max(0.0, value / reach * 0.97) for value in known]
    left, width = css_percent(at[0], decimals=1), css_percent(at[-1] - at[0], decimals=1)
    ticks = "".join(f'<b class="{color}" style="left:{css_percent(place, decimals=1)}"></b>' for place in at)
    bar = f'<i class="{color}" style="left:{left};width:{width}"></i>'
    return f'<div class="vp-range">{bar}{ticks}</div>'


def failures(found: Sequence[FailureCount]) -> str:
    """Why turns failed, the commonest cause first; nothing where none did."""
    if not found:
        return ""
    rows = "".join(
        f'<tr><td class="num">{formatting.number(cause.turns)}</td>'
        f"<td>{escape(failure_label(cause.kind, cause.code))}</td>"
        f'<td class="vp-long">{escape(cause.example or formatting.DASH)}</td></tr>'
        for cause in found
    )
    table = (
        '<table><thead><tr><th class="num">turns</th><th>cause</th><th>for example</th></tr></thead>'
        f"<tbody>{rows}</tbody></table>"
    )
    head = '<div class="vp-head"><h2>Why turns failed</h2></div>'
    return f'<div class="vp">{head}{scrolled("Why turns failed", table)}</div>'


def slowest(turns: Sequence[Turn], choice: Choice, clock: Clock) -> str:
    """The slowest turns, each a link to its waterfall."""
    if not turns:
        return ""
    rows = "".join(_slow(turn, choice, clock) for turn in turns)
    grid = (
        '<div class="vp-slow"><div class="th"><span>voice to voice</span><span>began</span><span>utterance</span>'
        "<span>length</span><span>noise</span><span>cohort</span><span>route</span><span>fallback</span></div>"
        f"{rows}</div>"
    )
    return (
        '<div class="vp vp-slowest"><div class="vp-head"><h2>Slowest turns '
        '<span class="hint">open one for its waterfall</span>'
        f"</h2></div>{scrolled('Slowest turns', grid)}</div>"
    )


def _slow(turn: Turn, choice: Choice, clock: Clock) -> str:
    link = choice.link(trace=turn.trace_id, turn=str(turn.turn_index))
    value, within = METRICS[HEADLINE].value(turn), turn_measured_within(turn, METRICS[HEADLINE])
    title = "" if within is None else f' title="{escape(within)}"'
    cells = (
        f'<span class="go"{title}>{formatting.milliseconds(value)} →</span>',
        f"<span>{escape(clock(turn.started_unix_ns))}</span>",
        *(
            f"<span>{short(each or formatting.DASH)}</span>"
            for each in (turn.utterance_id, turn.length_class, turn.noise_profile, turn.cohort, turn.route)
        ),
        f"<span>{escape(turn.fallback or formatting.DASH)}</span>",
    )
    return f'<a href="{escape(link)}" target="_self">{"".join(cells)}</a>'
