"""Progress of a run while it lasts: redrawn in place on a terminal, and as lines elsewhere. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from loadtest.reports import tables
from telemetry.model import formatting
from telemetry.model.foreign_text import one_line
from telemetry.model.metrics import DEFINITIONS, HEADLINE, METRICS
from telemetry.model.semconv import failure_label
from telemetry.objectives.objective import Objective
from telemetry.objectives.slo import Verdict
from telemetry.store.answers import Summary

_STATISTICS: Final = ("p50", "p95", "p99")
# Objectives that are about no metric: what a good turn is.
_KINDS: Final = {"outcome": "Ended well", "fallback": "No fallback", "cache": "From a cache"}
_MOST_ERRORS: Final = 4
_LONGEST_NAME: Final = 22


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveInfo:
    """The progress that is known at this moment; None is not known yet. `run_time_s` None means until its calls are
    made, which have about `expected_turns`, or until somebody stops it; it counts from the end of the preparation,
    which took `preparation_s` of `elapsed_s`. The verdicts are those on the objectives by the turns so far."""

    target: str
    users: int
    elapsed_s: float
    preparation_s: float = 0.0
    run_time_s: float | None
    expected_turns: int | None = None
    calls_in_flight: int | None = None
    summary: Summary | None = None
    objectives: Sequence[Objective] = ()
    verdicts: Sequence[Verdict] = ()
    note: str | None = None  # one sentence, when something needs to be known now

    @property
    def run_s(self) -> float:
        """Seconds since the callers could begin."""
        return self.elapsed_s - self.preparation_s


@dataclass(frozen=True, slots=True)
class StageSoFar:
    """A stage, or what else an objective is on, by the turns so far."""

    label: str
    percentiles: tuple[str, ...]
    promise: str
    so_far: str


def live_view(info: LiveInfo) -> RenderableType:
    """Return what is left, callers, turns, errors, and each stage against its objective, to be redrawn in place."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True, min_width=8)
    grid.add_column(overflow="fold")
    grid.add_row("callers", f"{_in_flight(info)} on a call to {one_line(info.target)}")
    grid.add_row("turns", _turns(info.summary))
    if errors := errors_so_far(info.summary):
        grid.add_row("errors", Text(errors, style="red"))
    if needed := turns_needed(info.verdicts):
        grid.add_row("left", needed)
    parts: list[RenderableType] = [_time(info), grid]
    if rows := stages_so_far(info):
        parts.append(_stages(rows))
        parts += [Text(line, style="dim", overflow="fold") for line in _bounds(info.summary)]
    parts += [Text(note, style="yellow", overflow="fold") for note in _notes(info)]
    return Group(*parts)


def live_lines(info: LiveInfo) -> list[str]:
    """The same as lines, for a log: what is left and the turns, the stages where there are any, errors and notes."""
    first = f"{info.elapsed_s:4.0f} s: {_in_flight(info)} on a call; turns {_turns(info.summary)}; {what_is_left(info)}"
    if needed := turns_needed(info.verdicts):
        first += f"; {needed}"
    lines = [first]
    stages = [_stage_line(row) for row in stages_so_far(info)]
    if stages:
        lines.append(f"        p50/p95/p99: {'; '.join(stages)}")
        lines += [f"        {line}" for line in _bounds(info.summary)]
    if errors := errors_so_far(info.summary):
        lines.append(f"        errors: {errors}")
    return [*lines, *(f"        {note}" for note in _notes(info))]


def _bounds(summary: Summary | None) -> list[str]:
    """The measurement bounds of voice-to-voice so far, where they differ from the tables."""
    return [] if summary is None else tables.bounds_of([(tables.label(HEADLINE), summary.metrics.get(HEADLINE))])


def what_is_left(info: LiveInfo) -> str:
    """Return how long, or how many turns, the run has to go."""
    if info.run_time_s is not None:
        remaining_s = info.run_time_s - info.run_s
        return f"{formatting.clock(remaining_s)} remaining" if remaining_s > 0 else "the last calls are ending"
    if info.expected_turns:
        return f"{formatting.number(_total(info))} of about {formatting.turns(info.expected_turns)}"
    return "until Ctrl-C"


def errors_so_far(summary: Summary | None) -> str:
    """Return why turns failed, the commonest causes first; nothing where none did."""
    if summary is None:
        return ""
    shown = [
        f"{one_line(failure_label(cause.kind, cause.code), 60)} {formatting.number(cause.turns)}"
        for cause in summary.failures[:_MOST_ERRORS]
    ]
    others = sum(cause.turns for cause in summary.failures[_MOST_ERRORS:])
    return ", ".join([*shown, *([f"others {formatting.number(others)}"] if others else [])])


def turns_needed(verdicts: Sequence[Verdict]) -> str:
    """Return how many more turns (or calls) the objective needs that needs most, and about how long they take; of one
    that more turns cannot decide, why. Nothing where every objective has its verdict."""
    lacking = [verdict for verdict in verdicts if verdict.is_observable and verdict.met is None]
    # The share of open ones among a handful of turns says nothing yet.
    lacking = [
        verdict for verdict in lacking if verdict.more_turns is not None or verdict.eligible >= verdict.minimum_turns
    ]
    if not lacking:
        return ""
    worst = max(
        lacking, key=lambda verdict: math.inf if verdict.more_turns is None else verdict.more_s or verdict.more_turns
    )
    target = formatting.declared_percent(worst.target)
    if worst.more_turns is None:
        causes = formatting.causes(worst.open)
        return f"more {worst.counts} cannot decide the {target} objective while as many are open ({causes})"
    more = formatting.count(worst.more_turns, f"more {worst.counts[:-1]}")
    time = "" if worst.more_s is None else f", {formatting.about(worst.more_s)} at this rate"
    return f"about {more} needed for the {target} objective{time}"


def stages_so_far(info: LiveInfo) -> list[StageSoFar]:
    """Voice-to-voice, and what each objective is on, in the order of the objectives."""
    if info.summary is None or not info.summary.turns.total:
        return []
    rows: list[StageSoFar] = []
    pairs = list(zip(info.objectives, info.verdicts, strict=True))
    if all(objective.metric != HEADLINE for objective, _ in pairs):
        rows.append(StageSoFar(tables.label(HEADLINE), _percentiles(info.summary, HEADLINE), "", ""))
    for objective, verdict in pairs:
        known = objective.metric in DEFINITIONS and not objective.is_of_a_part
        percentiles = _percentiles(info.summary, objective.metric or "") if known else (formatting.DASH,) * 3
        rows.append(StageSoFar(_label(objective), percentiles, _promise(objective), _so_far(verdict)))
    return rows


def _label(objective: Objective) -> str:
    name = tables.label(objective.metric) if objective.metric in DEFINITIONS else _KINDS[objective.kind]
    return name if not objective.is_of_a_part else one_line(objective.display_name or objective.name, _LONGEST_NAME)


def _percentiles(summary: Summary, metric: str) -> tuple[str, ...]:
    stats = summary.metrics[metric]
    return tuple(tables.answered_percentile(stats, which) for which in _STATISTICS)


def _promise(objective: Objective) -> str:
    share = formatting.declared_percent(objective.target)
    if objective.metric is None or objective.threshold is None:
        return share
    metric = METRICS[objective.metric]
    bound = "≥" if metric.higher_is_better else "≤"
    return f"{share} {bound} {formatting.declared_figure(objective.threshold, metric.kind)}"


def _so_far(verdict: Verdict) -> str:
    decided = formatting.number(verdict.decided)
    if not verdict.is_observable:
        return tables.NOT_OBSERVABLE
    if verdict.decided < verdict.minimum_turns:
        return f"{tables.TOO_FEW} ({decided} of {formatting.number(verdict.minimum_turns)})"
    opened = f", {formatting.number(verdict.open_turns)} open" if verdict.open_turns else ""
    return f"{formatting.percent(verdict.ratio, verdict.target)} of {decided}{opened}"


def _stages(rows: Sequence[StageSoFar]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("stage", no_wrap=True, max_width=_LONGEST_NAME)
    for name in _STATISTICS:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("objective", no_wrap=True)
    table.add_column("good so far", no_wrap=True)
    for row in rows:
        table.add_row(Text(row.label), *row.percentiles, row.promise, row.so_far)
    return table


def _stage_line(row: StageSoFar) -> str:
    shown = "/".join(figure.removesuffix(" ms") for figure in row.percentiles)
    if not any(figure.endswith(" ms") for figure in row.percentiles):
        shown = "/".join(row.percentiles)
    values = "" if set(row.percentiles) == {formatting.DASH} else f" {shown}"
    return f"{row.label}{values} ({row.promise}: {row.so_far})" if row.promise else f"{row.label}{values}"


def _notes(info: LiveInfo) -> list[str]:
    notes = [info.note] if info.note else []
    limited = [verdict for verdict in info.verdicts if verdict.is_generator_limited]
    if limited:
        names = formatting.count(len(limited), "objective")
        notes.append(f"{names} undecided so far because of turns that the load generator could not measure")
    if any(stats.unanswered and stats.n for stats in (info.summary.metrics.values() if info.summary else ())):
        notes.append(tables.ANSWERED_NOTE)
    return notes


def _in_flight(info: LiveInfo) -> str:
    in_flight = formatting.DASH if info.calls_in_flight is None else formatting.number(info.calls_in_flight)
    return f"{in_flight} of {formatting.number(info.users)}"


def _total(info: LiveInfo) -> int:
    return 0 if info.summary is None else info.summary.turns.total


def _turns(summary: Summary | None) -> str:
    if summary is None or not summary.turns.total:
        return "none yet"
    turns = summary.turns
    others = turns.total - turns.ok - turns.invalid
    counts = ((turns.ok, "ok"), (others, "not ok"), (turns.invalid, "invalid"))
    return f"{formatting.number(turns.total)}: {', '.join(f'{formatting.number(n)} {word}' for n, word in counts)}"


def _time(info: LiveInfo) -> RenderableType:
    line = Table.grid(padding=(0, 2, 0, 0))
    elapsed = Text(f"{formatting.clock(info.elapsed_s)} elapsed", style="bold")
    if info.run_time_s is not None and info.run_s < info.run_time_s:
        bar = ProgressBar(total=info.run_time_s, completed=info.run_s, width=24)
        line.add_row(elapsed, bar, Text(what_is_left(info)))
    elif info.run_time_s is None and info.expected_turns:
        heard = _total(info)
        bar = ProgressBar(total=max(info.expected_turns, heard), completed=heard, width=24)
        line.add_row(elapsed, bar, Text(what_is_left(info)))
    else:
        line.add_row(elapsed, Text(what_is_left(info)))
    return line
