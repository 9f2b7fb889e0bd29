"""The figures of a run, as HTML: large numbers, stages against objectives, cohorts, outcomes, slow turns, and the
dimensions that explain a selection of turns.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from dashboard import descriptions
from dashboard.components.markup import (
    Html,
    State,
    TableCell,
    chip,
    css_percent,
    escape,
    hint,
    link_to,
    nothing,
    section,
    short,
    table,
)
from dashboard.components.objectives import ObjectiveStatus, gauge
from dashboard.descriptions import Clock
from dashboard.links import Choice
from telemetry.model import formatting
from telemetry.model.bounds import Statistic, turn_measured_within
from telemetry.model.foreign_text import one_line
from telemetry.model.metrics import DEFINITIONS, HEADLINE, METRICS, shown_in
from telemetry.model.semconv import OUTCOME_LABELS, OUTCOMES, UNANSWERED, Source, failure_label
from telemetry.model.turns import Turn
from telemetry.objectives.objective import Objective
from telemetry.store.answers import (
    STAGE_LABELS,
    CohortSummary,
    FailureCount,
    MetricStats,
    StageStats,
    Summary,
    TurnCounts,
)
from telemetry.store.questions.explanation import Explanation
from telemetry.store.questions.filters import source_of

STAGES: Final = shown_in("page")
PERCENTILES: Final[tuple[Statistic, ...]] = ("p50", "p95", "p99")
ANSWERED: Final = "percentiles are of the answered turns only"


def tiles(summary: Summary, statuses: Sequence[ObjectiveStatus]) -> Html:
    """The three large numbers of a run: latency, good turns, turns that were not answered."""
    headline = next((status for status in statuses if status.metric == HEADLINE), None)
    stats = summary.metrics[HEADLINE]
    latency = _latency(stats, headline, source_of(summary.filter))
    return tile_row([latency, _good(headline), _answered(summary.turns, stats.unanswered)])


def tile_row(tiles: Sequence[str]) -> Html:
    """Tiles side by side."""
    return Html(f'<div class="vp vp-tiles vp-tiles-{len(tiles)}">{"".join(tiles)}</div>')


def tile(
    name: str, value: str, sub: str, *, mark: str = "", known: bool = True, bar: str = "", hover: str = ""
) -> Html:
    """A large number below its name and above a remark; `mark` and `bar` are HTML, and `hover` says what the number is
    derived from."""
    title = f' title="{escape(hover)}"' if hover else ""
    return Html(
        f'<div class="vp-tile"><div class="top"><span class="name">{escape(name)}</span>{mark}</div>'
        f'<div class="value{"" if known else " unknown"}"{title}>{escape(value)}</div>{bar}'
        f'<div class="sub" title="{escape(sub)}">{escape(sub)}</div></div>'
    )


def _latency(stats: MetricStats, headline: ObjectiveStatus | None, source: Source) -> Html:
    value = descriptions.percentile(stats, "p95", with_unit=True)
    if stats.n == 0:
        value = descriptions.why_no_figures(stats, source) or value
    left = None if headline is None else headline.verdict.budget_left
    left_text = "error budget not known"
    if left is not None:
        share_text = f"{formatting.percent(left)} of the error budget left"
        left_text = f"error budget overspent {formatting.factor(1 - left)}" if left < 0 else share_text
    subs = (
        f"of the answered: {descriptions.values(stats)} turns" if stats.unanswered else "",
        stats.within("p95") or "",
        "no objective for it" if headline is None else headline.promise,
        "" if headline is None else left_text,
    )
    return tile(
        f"{DEFINITIONS[HEADLINE].label} p95",
        value,
        " · ".join(filter(None, subs)),
        mark="" if headline is None else headline.chip,
        known=stats.p95 is not None,
        bar=gauge(left, missed=headline is not None and headline.state == "missed"),
        hover=descriptions.ESTIMATED if "p95" in stats.estimated_within else "",
    )


def _good(headline: ObjectiveStatus | None) -> Html:
    name = "Good turns"
    if headline is None or headline.verdict.ratio is None:
        why = (headline.verdict.reason or "") if headline else "no objective for voice to voice"
        return tile(name, "not known", why, known=False)
    verdict = headline.verdict
    good, decided = formatting.number(verdict.good), formatting.number(verdict.decided)
    sub = f"{good} of {decided} within {formatting.declared_figure(headline.objective.threshold or 0, 'ns')}"
    reason = (verdict.reason or "").removeprefix("not judged: ").removeprefix("undecided: ")
    if not verdict.is_judged:
        return tile(name, "not judged", reason, known=False)
    if headline.state == "unknown" and verdict.decided < verdict.minimum_turns:
        return tile(name, f"too few ({decided})", sub, known=False)
    if headline.state == "unknown":
        return tile(name, "undecided", "; ".join(filter(None, (sub, reason))), known=False)
    return tile(name, formatting.percent(verdict.ratio, verdict.target), sub)


def _answered(turns: TurnCounts, unanswered: int) -> Html:
    """The tile of turns without an answer, counted as in the reports, with their outcomes if these account for all of
    them."""
    if not turns.eligible:
        return tile("Not answered", "not known", "no eligible turn", known=False)
    sub = "every turn was answered"
    if unanswered:
        kinds = {name: n for name in UNANSWERED if (n := turns.by_outcome.get(name))}
        named = [f"{OUTCOME_LABELS[name]} {formatting.number(n)}" for name, n in kinds.items()]
        counted = f"{formatting.number(unanswered)} of {formatting.turns(turns.eligible)}"
        # A turn that ended in an error may have been answered before.
        sub = " · ".join([counted, *named]) if sum(kinds.values()) == unanswered else counted
    return tile("Not answered", formatting.share(unanswered, turns.eligible), sub)


def stages(summary: Summary, statuses: Sequence[ObjectiveStatus]) -> Html:
    """A table of p50, p95, p99 and n of each stage in milliseconds, with its objective and the verdict."""
    by_metric: dict[str, ObjectiveStatus] = {}
    for status in statuses:
        if status.metric is not None:
            by_metric.setdefault(status.metric, status)
    shown = [*STAGES, *(metric for metric in by_metric if metric not in STAGES and metric in summary.metrics)]
    lines = [(by_metric.get(metric), _stage(summary, metric, by_metric.get(metric))) for metric in shown]
    lines += [(status, _other(status)) for status in statuses if by_metric.get(status.metric or "") is not status]
    order = {"missed": 0, "unknown": 1, "met": 2}
    lines.sort(key=lambda line: 2 if line[0] is None else order[line[0].state])
    headline, title = summary.metrics[HEADLINE], "Stages against objectives"
    valid = formatting.count(summary.turns.total - summary.turns.invalid, "valid turn")
    how = f"{formatting.APPROXIMATELY} estimated" if headline.approximate else "exact"
    remark = f"ms, {how}, over {valid}{f'; {ANSWERED}' if headline.unanswered else ''}"
    columns = ("stage", *(f"#{name}" for name in PERCENTILES), "#n", "objective", "verdict")
    unknown = descriptions.describe_unknown_bounds(headline)
    return Html(
        section(title, remark, _tally(statuses))
        + table(title, columns, [cells for _, cells in lines], css="vp-verdict-last")
        + _bounds((DEFINITIONS[name].label, summary.metrics[name]) for name in shown)
        + (hint(unknown) if unknown else "")
    )


def _bounds(named: Iterable[tuple[str, MetricStats]]) -> str:
    """A line for each name whose measurement bounds differ from its figures, and one for estimates."""
    stated = ((name, text) for name, stats in named for text in (stats.stated_bounds, stats.stated_estimates))
    return "".join(hint(f"{name}: {text}") for name, text in stated if text is not None)


def _tally(statuses: Sequence[ObjectiveStatus]) -> Html:
    """Chips with the numbers of missed, met and undecided objectives."""
    undecided = "undecided" if all(status.verdict.is_judged for status in statuses) else "not judged"
    words: dict[State, str] = {"missed": "missed", "met": "met", "unknown": undecided}
    chips = [
        chip(state, f"{n} {word}")
        for state, word in words.items()
        if (n := sum(status.state == state for status in statuses))
    ]
    return Html(f"<span>{' '.join(chips)}</span>")


def _other(status: ObjectiveStatus) -> list[str | TableCell]:
    """An objective that is not about a stage, or a second one about the same stage."""
    objective, verdict = status.objective, status.verdict
    name = objective.display_name or objective.name
    share = f"{name}: {formatting.percent(verdict.ratio, verdict.target)}"
    first = TableCell(share, objective.description or name, span=4)
    return [first, formatting.number(verdict.eligible), *_verdict(status)]


def _verdict(status: ObjectiveStatus | None) -> list[str | TableCell]:
    return ["", ""] if status is None else [TableCell(status.promise, css="vp-promise"), status.chip]


def _stage(summary: Summary, metric_name: str, status: ObjectiveStatus | None) -> list[str | TableCell]:
    stats, metric = summary.metrics[metric_name], DEFINITIONS[metric_name]
    name = TableCell(metric.label, metric.definition, "headline" if metric_name == HEADLINE else "")
    why = descriptions.why_no_figures(stats, source_of(summary.filter))
    if why is not None:
        reason = TableCell(why, why, "none", span=4 if status else 6)
        return [name, reason, *(_verdict(status) if status else [])]
    return [name, *_percentiles(stats), _count(stats), *_verdict(status)]


def _count(stats: MetricStats) -> TableCell:
    return TableCell(descriptions.values(stats), ANSWERED if stats.unanswered else "")


def _percentiles(stats: MetricStats) -> list[TableCell]:
    """The cells of p50, p95 and p99; below an estimate is its interval."""
    cells: list[TableCell] = []
    for name in PERCENTILES:
        figure, _, between = descriptions.percentile(stats, name).partition(" (")
        if getattr(stats, name) is None:
            cells.append(TableCell(descriptions.percentile(stats, name), css="few"))
            continue
        below = f'<span class="vp-below">{escape(between.removesuffix(")"))}</span>' if between else ""
        cells.append(TableCell(Html(f"{escape(figure)}{below}"), descriptions.describe_bounds(stats, name)))
    return cells


def cohorts(summaries: Sequence[CohortSummary], headline: Mapping[str, ObjectiveStatus | None]) -> Html:
    """A table with one row per cohort, all on one scale in milliseconds, for comparison by eye."""
    head = section("Cohorts", "voice to voice, ms")
    if not summaries:
        return Html(head + hint("no turn names a cohort: run with --cohort, or let the endpoint say it"))
    all_stats = [summary.metrics[HEADLINE] for summary in summaries]
    farthest = (next((v for v in (of.p99, of.p95, of.p50) if v is not None), None) for of in all_stats)
    reach = max((value or 0 for value in farthest), default=0)
    columns = ("cohort", "#n", "p50 – p99", *(f"#{name}" for name in PERCENTILES), "#good", "#cache", "#fallback")
    rows: list[list[str | TableCell]] = []
    for index, (summary, stats) in enumerate(zip(summaries, all_stats, strict=True)):
        status, color = headline.get(summary.cohort), f"vp-c{index}" if index < 2 else "vp-c"
        good: str | TableCell = formatting.DASH
        if status is not None:
            # Only if there are enough turns for a ratio.
            is_enough = status.verdict.eligible >= status.verdict.minimum_turns
            few = TableCell(f"too few ({formatting.number(status.verdict.decided)})", css="few")
            good = formatting.percent(status.verdict.ratio, status.verdict.target) if is_enough else few
        rows.append(
            [
                TableCell(Html(f'<span class="vp-key {color}"></span>{short(summary.cohort)}'), css="headline"),
                *(_count(stats), _range(stats, color, reach), *_percentiles(stats), good),
                formatting.percent(summary.cache.hit_rate),
                formatting.share(sum(summary.fallback.counts.values()), summary.fallback.reported),
            ]
        )
    bounds = _bounds((summary.cohort, stats) for summary, stats in zip(summaries, all_stats, strict=True))
    return Html(head + table("Cohorts", columns, rows) + bounds)


def _range(stats: MetricStats, color: str, reach: float) -> Html:
    """A bar from p50 to p99 with a tick at each percentile, on the scale of all rows."""
    known = [value for name in PERCENTILES if (value := getattr(stats, name)) is not None]
    if not known or reach <= 0:
        return Html()
    at = [max(0.0, value / reach * 0.97) for value in known]
    left, width = css_percent(at[0], decimals=1), css_percent(at[-1] - at[0], decimals=1)
    ticks = "".join(f'<b class="{color}" style="left:{css_percent(place, decimals=1)}"></b>' for place in at)
    return Html(f'<div class="vp-range"><i class="{color}" style="left:{left};width:{width}"></i>{ticks}</div>')


def failures(causes: Sequence[FailureCount]) -> Html:
    """A table of the causes of failed turns, the most common first; empty if no turn failed."""
    if not causes:
        return Html()
    rows = [
        (
            failure_label(cause.kind, cause.code),
            formatting.number(cause.turns),
            TableCell(cause.example or formatting.DASH, css="vp-long"),
        )
        for cause in causes
    ]
    title = "Why turns failed"
    return Html(section(title) + table(title, ("cause", "#turns", "for example"), rows))


def slowest(turns: Sequence[Turn], choice: Choice, clock: Clock) -> Html:
    """A table of the slowest turns, each with a link to its waterfall."""
    if not turns:
        return Html()
    columns = ("voice to voice", "began", "utterance", "length", "noise", "cohort", "route", "fallback")
    rows = [
        (
            TableCell(
                link_to(
                    choice.link(trace=turn.trace_id, turn=str(turn.turn_index)),
                    f"{formatting.milliseconds(METRICS[HEADLINE].value(turn))} →",
                ),
                turn_measured_within(turn, METRICS[HEADLINE]) or "",
            ),
            clock(turn.started_unix_ns),
            *(
                short(value or formatting.DASH)
                for value in (turn.utterance_id, turn.length_class, turn.noise_profile, turn.cohort, turn.route)
            ),
            turn.fallback or formatting.DASH,
        )
        for turn in turns
    ]
    title = "Slowest turns"
    return Html(section(title, "open one for its waterfall") + table(title, columns, rows, css="vp-slow"))


# Objectives on these metrics count from the end of the caller's speech: the deadline of all stages up to this one.
_REACHED: Final = {"asr_final_latency": "ASR", "llm_first_token_latency": "LLM", "voice_to_voice": "voice to voice"}
# Objectives on these are about one stage: its deadline counts from its start.
_ALONE: Final = {
    "endpointing": "endpointing",
    "llm_ttft": "llm",
    "tts_first_chunk_latency": "tts",
    "leading_silence": "leading_silence",
}


def budget(stats: Mapping[str, StageStats], objectives: Sequence[Objective] = ()) -> Html:
    """Bars of the stages of voice-to-voice at p50 and at p95, on one scale, with a tick at the deadline that an
    objective sets for a stage."""
    remark = (
        "each stage at p50 and at p95, ms, as the service reports it, else as the caller saw it, over the answered "
        "turns; percentiles of stages do not add up to that of the whole"
    )
    head = section("Where a turn's time goes", remark)
    known = [stage for stage in stats.values() if stage.p50_ns is not None]
    if not known:
        return Html(head + hint("no turn shows its stages"))
    asked = {
        objective.metric: objective.threshold
        for objective in objectives
        if objective.threshold and not objective.is_of_a_part
    }
    by = {name: at for metric, name in _REACHED.items() if (at := asked.get(metric)) is not None}
    over_by = dict(sorted(by.items(), key=lambda item: item[1]))
    alone = {stage: at for metric, stage in _ALONE.items() if (at := asked.get(metric)) is not None}
    rows = {name: _ticks(known, name, over_by, alone) for name in ("p50", "p95")}
    lengths = [sum(max(0.0, _ns(stage, name) or 0.0) for stage in known) for name in rows]
    reach = max(*lengths, *(at for ticks in rows.values() for at, _, _ in ticks))
    keys = [
        f'<span><span class="vp-key vp-s-{stage.name}"></span>{stage.label} <b>{_value(stage, stage.p50_ns)}</b> / '
        f"{_value(stage, stage.p95_ns) if stage.p95_ns is not None else f'too few ({stage.n})'}</span>"
        for stage in known
    ]
    named = [(f"{name} over by", at, "") for name, at in over_by.items()]
    named += [(f"{STAGE_LABELS[of.name]} within", alone[of.name], " alone") for of in known if of.name in alone]
    keys += [
        f'<span><span class="vp-budget-key{css}" aria-hidden="true"></span>{text} '
        f"<b>{formatting.declared_milliseconds(ns)}</b></span>"
        for text, ns, css in named
    ]
    bars = "".join(_bar(known, name, reach, ticks) for name, ticks in rows.items())
    return Html(f'<div class="vp">{head}{bars}<div class="vp-legend">{"".join(keys)}</div></div>')


def _ns(stage: StageStats, name: str) -> float | None:
    return getattr(stage, f"{name}_ns")


def _ticks(
    known: Sequence[StageStats], name: str, over_by: Mapping[str, float], alone: Mapping[str, float]
) -> list[tuple[float, str, str]]:
    """The ticks of a row as position in ns, title and style: objectives for the time until a stage ends are at a fixed
    position, objectives for one stage alone count from its start in this row."""
    ticks = [
        (at, f"{what}: its objective is {formatting.declared_milliseconds(at)} after the caller's speech", "")
        for what, at in over_by.items()
    ]
    begins = 0.0
    for stage in known:
        value, own = _ns(stage, name), alone.get(stage.name)
        if value is not None and own is not None:
            title = f"{STAGE_LABELS[stage.name]}: its objective is {formatting.declared_milliseconds(own)} for it alone"
            ticks.append((begins + own, title, " alone"))
        begins += max(0.0, value or 0.0)
    return ticks


def _value(stage: StageStats, ns: float | None, *, unit: bool = False) -> str:
    return formatting.estimate_if(stage.approximate, formatting.milliseconds(ns, unit=unit))


def _bar(known: Sequence[StageStats], name: str, reach: float, ticks: Sequence[tuple[float, str, str]]) -> str:
    label = f'<span class="hint">{name}</span>'
    if all(_ns(stage, name) is None for stage in known):
        return f'<div class="vp-stackrow">{label}<span class="hint">too few turns</span></div>'
    drawn = ""
    for stage in known:
        if (value := _ns(stage, name)) is not None and value > 0:
            between = [formatting.milliseconds(bound, unit=False) for bound in stage.estimated_within.get(name, ())]
            length = _value(stage, value, unit=True) + (f" (95 % {'–'.join(between)})" if between else "")
            width = css_percent(value / reach)
            drawn += f'<i class="vp-s-{stage.name}" style="width:{width}" title="{stage.label}: {length}"></i>'
    marks = "".join(
        f'<u class="vp-budget{css}" style="left:{css_percent(at / reach)}" title="{title}"></u>'
        for at, title, css in ticks
    )
    bar = f'<div class="vp-stack">{drawn}</div>'
    return f'<div class="vp-stackrow">{label}<div class="vp-stacked">{bar}{marks}</div></div>'


def outcomes(turns: TurnCounts) -> Html:
    """The outcomes of all turns, including invalid ones, and the turns that the load generator cut short, by reason."""
    shown = [(name, OUTCOME_LABELS[name], n) for name in OUTCOMES if (n := turns.by_outcome.get(name))]
    parts = "".join(
        f'<i class="vp-o-{name}" style="width:{css_percent(n / turns.total)}" title="{label}: {n:,}"></i>'
        for name, label, n in shown
    )
    legend = "".join(
        f'<span><span class="vp-key vp-o-{name}"></span>{escape(label)} <b>{n:,}</b> '
        f"{formatting.share(n, turns.total)}</span>"
        for name, label, n in shown
    )
    cut = ", ".join(f"{name} {formatting.number(count)}" for name, count in turns.cut_by.items())
    by = nothing(f"cut by {cut}: counted against the service only where it was late by then") if cut else ""
    return Html(
        f'{section("Outcomes", "of every turn")}<div class="vp"><div class="vp-stack vp-below-head">{parts}</div>'
        f'<div class="vp-legend">{legend}</div></div>{by}'
    )


_LONGEST_VALUE: Final = 40
NOTHING: Final = "no dimension is shown to set them apart"


def explanation(explained: Explanation, selection: str) -> Html:
    """A table of the dimensions that explain a selection of turns, the strongest first; `selection` names the selected
    turns ("bad turns") and may be any text."""
    title, rows = "Which dimension explains it", list[tuple[str, ...]]()
    for dimension in explained.dimensions:
        if (value := dimension.value) is not None and dimension.is_shown:
            bar = f'<span class="vp-gauge vp-inline"><i style="width:{css_percent(dimension.strength)}"></i></span>'
            rows.append(
                (
                    Html(f"<b>{escape(dimension.name)}</b>"),
                    formatting.NOT_REPORTED if value.label is None else one_line(value.label, _LONGEST_VALUE),
                    formatting.percent(value.share_selected),
                    formatting.percent(value.share_others),
                    Html(f"{bar} {formatting.decimal(dimension.strength)}"),
                    "< 0.001" if dimension.p_value < 0.001 else formatting.significant(dimension.p_value),
                )
            )
    over = f"{formatting.number(explained.selected)} {selection} against {formatting.number(explained.others)} others"
    sampled = ", a sample over their time" if explained.is_sample else ""
    parts: list[str] = [section(title, f"{over}{sampled}; corrected for calls, values and dimensions")]
    if rows:
        columns = ("dimension", "most above its share", "#of these", "#of the others", "strength", "#p")
        parts.append(table(title, columns, rows))
    else:
        few = any(dimension.untried == "too few turns" for dimension in explained.dimensions)
        parts.append(hint(f"{NOTHING}{': too few turns or calls on a side' if few else ''}"))
    rest = [
        dimension.name for dimension in explained.dimensions if dimension.untried is None and not dimension.is_shown
    ]
    lines = [("not shown", rest if rows else [])]
    for why, reason in (("one value", "the same on both sides"), ("not reported", formatting.NOT_REPORTED)):
        lines.append((reason, [dimension.name for dimension in explained.dimensions if dimension.untried == why]))
    return Html("".join([*parts, *(hint(f"{reason}: {', '.join(names)}") for reason, names in lines if names)]))
