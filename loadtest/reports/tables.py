"""The figures of a run as tables, each defined once for the terminal, the page and Markdown. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from loadtest.reports.run_info import RunInfo
from telemetry.model import formatting
from telemetry.model.bounds import BOUNDED
from telemetry.model.formatting import DASH, condition_label, count, counted_units, error_rate_name, estimate_if, number
from telemetry.model.metrics import DEFINITIONS, HEADLINE, MIN_COUNT_FOR, shown_in
from telemetry.model.semconv import failure_label
from telemetry.store.answers import MetricStats, ShareByName, StartCounts, Summary, WerByCondition
from telemetry.store.questions.caches import ModelServer, RequestTimes

TOO_FEW: Final = "too few"
NOT_OBSERVABLE: Final = "not observable"
NOT_KNOWN: Final = "not known"
ANSWERED_MARK: Final = "*"
ANSWERED_NOTE: Final = f"{ANSWERED_MARK} of the answered turns only: a turn without an answer is in no percentile"
REMARKS: Final = "What was remarked of turns that ended well"
STATISTICS: Final = ("p50", "p95", "p99", "max")
STAGES: Final = shown_in("terminal", "terminal-always")
# Rows that are shown even when nothing was measured, so that a figure that is missing is seen to be missing.
_ALWAYS: Final = frozenset(shown_in("terminal-always"))
_BOUNDED: Final = frozenset(metric.name for metric in BOUNDED)
_SHORT: Final = {"words": "wer", "characters": "cer", "words and characters": "wer and cer"}
_BAR_WIDTH: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportTable:
    """A table with its title and what is said below it. Columns are figures but for those in `texts`."""

    title: str
    heading: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    texts: frozenset[int] = frozenset({0})
    caption: str = ""  # where it says more than the title
    strong: frozenset[int] = frozenset()  # rows in bold
    faint: frozenset[int] = field(default_factory=frozenset[int])
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def run_tables(run: RunInfo, summary: Summary) -> list[ReportTable]:
    """The tables of turns below the stages; an empty table is left out."""
    tables = [failure_table(summary), remark_table(summary)]
    if len(summary.cohorts) > 1:
        tables.append(_cohorts(summary))
    if len(summary.wer_by_condition) > 1:
        tables.append(_understood(summary.wer_by_condition))
    if len(summary.phases) > 1 or (summary.phases and summary.starts is not None):
        tables.append(_phases(summary))
    tables.append(_model_servers(run.model_servers))
    return [table for table in tables if table.rows]


def stage_table(summary: Summary) -> ReportTable:
    """Every stage with its percentiles, or why there is none."""
    stats = [summary.metrics[name] for name in STAGES if name in summary.metrics]
    stats = [stage for stage in stats if stage.n or stage.name in _ALWAYS]
    warnings: list[str] = []
    if any(stage.n and stage.unanswered for stage in stats):
        warnings.append(ANSWERED_NOTE)
        if unanswered := summary.metrics[HEADLINE].unanswered:
            turns = f"{number(unanswered)} of {formatting.turns(summary.turns.eligible)}"
            warnings.append(f"{turns} went unanswered: the objectives count them as bad")
    withheld = [stage for stage in stats if not stage.n and stage.withheld]
    notes = [f"not observable: {label(stage.name)}: {stage.withheld}" for stage in withheld]
    if any(0 < stage.n < MIN_COUNT_FOR["p99"] for stage in stats):
        notes.append("too few: a p95 needs 20 values, a p99 needs 100")
    return ReportTable(
        title="Stages",
        heading=("stage", *STATISTICS, "n"),
        rows=[(stage_label(stage.name, summary), *_stage_cells(stage), answered(stage)) for stage in stats],
        strong=frozenset(place for place, stage in enumerate(stats) if stage.name == HEADLINE),
        warnings=tuple(warnings),
        notes=(*bounds_lines(summary, STAGES), *notes),
    )


def _stage_cells(stats: MetricStats) -> list[str]:
    if not stats.n:
        return [NOT_OBSERVABLE if stats.withheld else "not measured", DASH, DASH, DASH]
    return [answered_percentile(stats, which) for which in STATISTICS]


def failure_table(summary: Summary) -> ReportTable:
    """A row per cause, the commonest first, with the reason recorded on one such turn."""
    rows = [
        (number(failure.turns), failure_label(failure.kind, failure.code), failure.example or DASH)
        for failure in summary.failures
    ]
    heading = ("turns", "cause", "for example")
    return ReportTable(title="Why turns failed", heading=heading, rows=rows, texts=frozenset({1, 2}))


def remark_table(summary: Summary) -> ReportTable:
    """A row per remark, the commonest first: the endpoint cut its reply short, or did not transcribe the question."""
    rows = [(number(remark.turns), remark.remark) for remark in summary.remarks]
    return ReportTable(title=REMARKS, heading=("turns", "remark"), rows=rows, texts=frozenset({1}))


def _heard(metrics: Mapping[str, MetricStats]) -> list[str]:
    """p50, p95 and p99 of voice-to-voice."""
    stats = metrics.get(HEADLINE)
    return [DASH if stats is None else answered_percentile(stats, which) for which in STATISTICS[:3]]


def _cohorts(summary: Summary) -> ReportTable:
    rows: list[tuple[str, ...]] = []
    for cohort in summary.cohorts:
        shares = (formatting.percent(cohort.cache.hit_rate), formatting.percent(fallback_rate(cohort.fallback)))
        rows.append((cohort.cohort, number(cohort.turns.total), *_heard(cohort.metrics), *shares))
    return ReportTable(
        title="Cohorts",
        heading=("cohort", "turns", "v2v p50", "p95", "p99", "cache hits", "fallback"),
        rows=rows,
        caption="Voice to voice by cohort",
        notes=tuple(bounds_of((cohort.cohort, cohort.metrics.get(HEADLINE)) for cohort in summary.cohorts)),
    )


def _understood(conditions: Sequence[WerByCondition]) -> ReportTable:
    """Word (or character) error rate over profiles, with a bar, the interval and what it was taken from."""
    units = counted_units(
        sum(condition.words for condition in conditions), sum(condition.characters for condition in conditions)
    )
    rows = [
        (
            condition_label(condition.noise_profile, condition.snr_asked_db, condition.channel_profile),
            formatting.percent(condition.wer),
            TOO_FEW if condition.interval is None else " to ".join(map(formatting.percent, condition.interval)),
            "█" * round(_BAR_WIDTH * min(1.0, condition.wer)),
            number(condition.words),
            number(condition.turns),
        )
        for condition in conditions
    ]
    return ReportTable(
        title="What the endpoint understood",
        heading=("profile", _SHORT[units], "95 % interval", "", units, "turns"),
        rows=rows,
        texts=frozenset({0, 3}),
        caption=f"{_rate_name(conditions).capitalize()} by profile",
    )


def _phases(summary: Summary) -> ReportTable:
    """A row per phase in the order of time; ramps are faint, as they are in no other figure."""
    rows: list[tuple[str, ...]] = []
    for phase in summary.phases:
        turns = phase.turns
        ok = formatting.percent(turns.ok / turns.eligible if turns.eligible else None)
        name = f"{phase.phase} (ramp)" if phase.is_ramp else phase.phase
        starts = () if summary.starts is None else (_starts(phase.starts),)
        rows.append((name, number(turns.total), number(turns.invalid), ok, *_heard(phase.metrics), *starts))
    starts_heading = () if summary.starts is None else ("starts",)
    return ReportTable(
        title="Phases",
        heading=("phase", "turns", "invalid", "ok", "v2v p50", "p95", "p99", *starts_heading),
        rows=rows,
        texts=frozenset({0, 7}),
        caption="Voice to voice by phase",
        faint=frozenset(place for place, phase in enumerate(summary.phases) if phase.is_ramp),
        notes=tuple(bounds_of((phase.phase, phase.metrics.get(HEADLINE)) for phase in summary.phases)),
    )


def _starts(starts: StartCounts | None) -> str:
    """Format how the calls of open arrivals began."""
    if starts is None:
        return DASH
    wrong = [f"{number(some)} {word}" for some, word in ((starts.late, "late"), (starts.dropped, "dropped")) if some]
    return ", ".join([f"{number(starts.started)} of {number(starts.planned)}", *wrong])


def _model_servers(servers: Sequence[ModelServer]) -> ReportTable:
    """A row for each server and model. Context, in a part of its own: their ratios are of tokens and their times of
    requests, of all clients."""
    rows = [
        (
            server.name if server.model is None else f"{server.name}: {server.model}",
            NOT_KNOWN
            if server.prefix_hits_per_token is None or server.prefix_tokens is None
            else f"{formatting.percent(server.prefix_hits_per_token)} of {number(server.prefix_tokens)}",
            NOT_KNOWN if server.waiting_most is None else f"≤ {number(server.waiting_most)}",
            NOT_KNOWN
            if server.queue is None or server.queue.mean_s is None
            else formatting.milliseconds(server.queue.mean_s * 1e9),
            _p95(server.queue),
            _p95(server.first_token),
            f"{server.readings} of {server.readings + server.failed_readings}",
        )
        for server in servers
    ]
    return ReportTable(
        title="Model servers, from their own metrics (all of their requests, not only this run's)",
        heading=("server", "cached tokens", "waiting", "queue mean", "queue p95", "first token p95", "read"),
        rows=rows,
    )


def _p95(times: RequestTimes | None) -> str:
    if times is None:
        return NOT_KNOWN
    if times.count < MIN_COUNT_FOR["p95"] or times.p95_above_s is None:
        return TOO_FEW
    above = formatting.milliseconds(times.p95_above_s * 1e9)
    if times.p95_until_s is None:
        return f"> {above}"
    return f"{above} to {formatting.milliseconds(times.p95_until_s * 1e9)}"


# Figures of a metric.


def turns_and_spans(turn_count: int, span_count: int) -> str:
    """An amount of telemetry, in turns and in spans: a turn is a span with the spans of its stages."""
    return f"{count(turn_count, 'turn')} ({count(span_count, 'span')})"


def statistic(stats: MetricStats, which: str) -> str:
    """p50, p95, p99 or max of a metric, or the words for why it is missing."""
    if stats.n == 0:
        return DASH
    value: float | None = getattr(stats, which)
    if value is None:
        return TOO_FEW
    return estimate_if(stats.approximate and which != "max", DEFINITIONS[stats.name].format(value))


def answered(stats: MetricStats) -> str:
    """Return how many values a metric has, `17 of 40` where turns went unanswered: its percentiles are of the
    others."""
    return f"{number(stats.n)} of {number(stats.n + stats.unanswered)}" if stats.unanswered else number(stats.n)


def answered_percentile(stats: MetricStats, which: str) -> str:
    """A `statistic`, marked where it is of the answered turns only; `ANSWERED_NOTE` explains the mark."""
    text = statistic(stats, which)
    return f"{text}{ANSWERED_MARK}" if stats.unanswered and getattr(stats, which) is not None else text


def counts(named: Mapping[str, int]) -> str:
    """Numbers by name: `cache 45, cloud 126`."""
    return ", ".join(f"{name} {number(how_many)}" for name, how_many in named.items())


def label(metric: str) -> str:
    """A metric's name for people. Raises KeyError for an unknown metric."""
    return DEFINITIONS[metric].label


def stage_label(metric: str, summary: Summary) -> str:
    """The same as `label`; the rate of word errors says where its units are characters."""
    conditions = summary.wer_by_condition
    return _rate_name(conditions).capitalize() if metric == "wer" and conditions else label(metric)


def _rate_name(conditions: Sequence[WerByCondition]) -> str:
    """Return what the rate of word errors of some conditions is called: by the units of their texts."""
    return error_rate_name(
        sum(condition.words for condition in conditions), sum(condition.characters for condition in conditions)
    )


def fallback_rate(fallback: ShareByName) -> float | None:
    """Turns answered by a fallback / turns that reported whether one was used; None when none did."""
    return sum(fallback.counts.values()) / fallback.reported if fallback.reported else None


# Between which two values the figures truly lie.


def bounds_lines(summary: Summary, names: Iterable[str]) -> list[str]:
    """The measurement bounds of metrics, where they differ from the figures: `Voice to voice: p95 818 ms (measured
    within 806–818)`, a line for each; and a line of the turns whose bounds are not known."""
    measured = [(label(name), summary.metrics[name]) for name in names if name in summary.metrics]
    return [*bounds_of(measured), *_unknown(measured)]


def bounds_of(named: Iterable[tuple[str, MetricStats | None]]) -> list[str]:
    """A line for each name whose figures have measurement bounds that differ from them."""
    return [
        f"{name}: {stated}"
        for name, stats in named
        if stats is not None and (stated := stats.stated_bounds) is not None
    ]


def _unknown(measured: Sequence[tuple[str, MetricStats]]) -> list[str]:
    unknown_of_all = [
        (name, stats.measured_within.turns_unknown, stats.n)
        for name, stats in measured
        if stats.n and stats.measured_within is not None and stats.name in _BOUNDED
    ]
    unknown = [(name, some, n) for name, some, n in unknown_of_all if some]
    if not unknown:
        return []
    if len({(some, n) for _, some, n in unknown_of_all}) == 1:
        _, some, n = unknown[0]
        return [f"measurement bounds not known for {number(some)} of {formatting.turns(n)}"]
    if all(some == n for _, some, n in unknown_of_all):
        return ["measurement bounds not known for any turn"]
    listed = ", ".join(f"{name} {number(some)} of {formatting.turns(n)}" for name, some, n in unknown)
    return [f"measurement bounds not known: {listed}"]
