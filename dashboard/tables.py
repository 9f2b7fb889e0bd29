"""The tables of the Now page, as HTML: stages against objectives, cohorts side by side, the slowest turns."""

from collections.abc import Mapping, Sequence
from datetime import tzinfo
from typing import Final

from dashboard import words
from dashboard.filters import Choice
from dashboard.source import HEADLINE
from dashboard.standing import Standing, State, chip
from dashboard.words import escape
from telemetry.metrics import METRICS
from telemetry.store.answers import CohortSummary, MetricStats, Summary
from telemetry.turns import Turn

STAGES: Final = (
    HEADLINE,
    "endpointing",
    "asr_partial_latency",
    "asr_final_latency",
    "llm_first_token_latency",
    "tts_first_chunk_latency",
    "leading_silence",
    "time_to_first_sentence",
    "underrun_worst",
)
PERCENTILES: Final = ("p50", "p95", "p99")


def stages(summary: Summary, standings: Sequence[Standing]) -> str:
    """p50, p95 and p99 of each stage with n, beside its objective and how that stands. Milliseconds."""
    by_metric: dict[str, Standing] = {}
    for standing in standings:
        if standing.metric is not None:
            by_metric.setdefault(standing.metric, standing)
    shown = [*STAGES, *(metric for metric in by_metric if metric not in STAGES and metric in summary.metrics)]
    rows = "".join(_stage(summary.metrics[metric], by_metric.get(metric)) for metric in shown)
    rows += "".join(_other(each) for each in standings if by_metric.get(each.metric or "") is not each)
    valid = words.count(summary.turns.eligible, "valid turn")
    return (
        '<div class="vp"><div class="vp-head"><h2>Stages against objectives '
        f'<span class="hint">ms, exact, over {valid}</span></h2>{_tally(standings)}</div>'
        '<table><thead><tr><th>stage</th><th class="num">p50</th><th class="num">p95</th><th class="num">p99</th>'
        f'<th class="num">n</th><th>objective</th><th>verdict</th></tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _tally(standings: Sequence[Standing]) -> str:
    """How many objectives are met, missed and not known, the missed first."""
    counts: list[tuple[State, int]] = [
        (state, sum(each.state == state for each in standings)) for state in ("missed", "met", "unknown")
    ]
    labels = {"missed": "missed", "met": "met", "unknown": "not known"}
    return f"<span>{' '.join(chip(state, f'{n} {labels[state]}') for state, n in counts if n)}</span>"


def _other(standing: Standing) -> str:
    """An objective that is not about a stage, or a second one about the same stage."""
    objective, verdict = standing.objective, standing.verdict
    name = objective.display_name or objective.name
    share = words.percent(verdict.ratio)
    return (
        f'<tr><td colspan="4" title="{escape(objective.description or name)}">{escape(name)}: {share}</td>'
        f'<td class="num">{verdict.eligible:,}</td><td>{escape(standing.promise)}</td><td>{standing.chip}</td></tr>'
    )


def _stage(stats: MetricStats, standing: Standing | None) -> str:
    headline = ' class="headline"' if stats.name == HEADLINE else ""
    definition = METRICS[stats.name].definition if stats.name in METRICS else ""
    name = f'<td{headline} title="{escape(definition)}">{escape(words.label(stats.name))}</td>'
    verdict = f"<td>{escape(standing.promise)}</td><td>{standing.chip}</td>" if standing else "<td></td><td></td>"
    why = words.why_no_figures(stats)
    if why is not None:
        columns = 4 if standing else 6
        cell = f'<td class="none" colspan="{columns}" title="{escape(why)}">{escape(why)}</td>'
        return f"<tr>{name}{cell}{verdict if standing else ''}</tr>"
    cells = "".join(_percentile(stats, each) for each in PERCENTILES)
    return f'<tr>{name}{cells}<td class="num">{stats.n:,}</td>{verdict}</tr>'


def _percentile(stats: MetricStats, name: str) -> str:
    few = "" if getattr(stats, name) is not None else " few"
    return f'<td class="num{few}">{escape(words.percentile(stats, name))}</td>'


def cohorts(found: Sequence[CohortSummary], headline: Mapping[str, Standing | None]) -> str:
    """One row per cohort on one scale, so that two can be compared by eye. Milliseconds."""
    head = '<div class="vp-head"><h2>Cohorts <span class="hint">voice to voice, ms</span></h2></div>'
    if not found:
        return f'<div class="vp">{head}<span class="hint">no turn names a cohort: run with --cohort, or let the \
endpoint say it</span></div>'
    reach = max((_reach(each) or 0 for each in found), default=0)
    rows = "".join(_cohort(each, index, headline.get(each.cohort), reach) for index, each in enumerate(found))
    return (
        f'<div class="vp">{head}<table><thead><tr><th>cohort</th><th class="num">n</th><th>p50 – p99</th>'
        '<th class="num">p50</th><th class="num">p95</th><th class="num">p99</th><th class="num">good</th>'
        f'<th class="num">cache</th><th class="num">fallback</th></tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _reach(cohort: CohortSummary) -> float | None:
    stats = cohort.metrics[HEADLINE]
    return next((value for value in (stats.p99, stats.p95, stats.p50) if value is not None), None)


def _cohort(cohort: CohortSummary, index: int, standing: Standing | None, reach: float) -> str:
    stats = cohort.metrics[HEADLINE]
    colour = f"vp-c{index}" if index < 2 else "vp-c"
    good = words.percent(standing.verdict.ratio if standing else None)
    fallback = words.share(sum(cohort.fallback.counts.values()), cohort.fallback.reported)
    return (
        f'<tr><td class="headline"><span class="vp-key {colour}"></span>{escape(cohort.cohort)}</td>'
        f'<td class="num">{stats.n:,}</td><td>{_range(stats, colour, reach)}</td>'
        f"{''.join(_percentile(stats, each) for each in PERCENTILES)}"
        f'<td class="num">{good}</td><td class="num">{words.percent(cohort.cache.hit_rate)}</td>'
        f'<td class="num">{fallback}</td></tr>'
    )


def _range(stats: MetricStats, colour: str, reach: float) -> str:
    """A bar from p50 to p99 with a tick at each percentile, on the scale of all rows."""
    known = [value for name in PERCENTILES if (value := getattr(stats, name)) is not None]
    if not known or reach <= 0:
        return ""
    at = [max(0.0, value / reach * 97) for value in known]
    ticks = "".join(f'<b class="{colour}" style="left:{place:.1f}%"></b>' for place in at)
    bar = f'<i class="{colour}" style="left:{at[0]:.1f}%;width:{at[-1] - at[0]:.1f}%"></i>'
    return f'<div class="vp-range">{bar}{ticks}</div>'


def slowest(turns: Sequence[Turn], choice: Choice, zone: tzinfo) -> str:
    """The slowest turns, each a link to its waterfall."""
    if not turns:
        return ""
    rows = "".join(_slow(turn, choice, zone) for turn in turns)
    return (
        '<div class="vp vp-slowest"><div class="vp-head"><h2>Slowest turns '
        '<span class="hint">open one for its waterfall</span>'
        '</h2></div><div class="vp-slow"><div class="th"><span>voice to voice</span><span>began</span>'
        "<span>utterance</span><span>length</span><span>noise</span><span>cohort</span><span>route</span>"
        f"<span>fallback</span></div>{rows}</div></div>"
    )


def _slow(turn: Turn, choice: Choice, zone: tzinfo) -> str:
    link = choice.link(trace=turn.trace_id, turn=str(turn.turn_index))
    value = METRICS[HEADLINE].value(turn)
    cells = (
        f'<span class="go">{words.ms_text(value)} →</span>',
        f"<span>{escape(words.clock(turn.started_unix_ns, zone).rpartition(' ')[0])}</span>",
        *(
            f"<span>{escape(each or words.DASH)}</span>"
            for each in (turn.utterance_id, turn.length_class, turn.noise_profile, turn.cohort, turn.route)
        ),
        f"<span>{escape(turn.fallback or 'none')}</span>",
    )
    return f'<a href="{escape(link)}" target="_self">{"".join(cells)}</a>'
