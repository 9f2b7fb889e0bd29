"""The live view of a rollout on a terminal: the stages on a line, the verdict, and each check against its margin."""

from collections.abc import Sequence
from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from loadtest.reports import rollout
from telemetry.model.formatting import NS_PER_S, declared_percent, percent, turns
from telemetry.rollout.plan import Look, RolloutPlan
from telemetry.rollout.progress import explanation_of, forecast
from telemetry.rollout.verdict import CheckVerdict, RolloutVerdict

_STYLES = {"promote": "bold green", "hold": "bold yellow", "roll_back": "bold red"}


def rollout_view(
    plan: RolloutPlan, verdict: RolloutVerdict, looks: Sequence[Look], notes: tuple[str, ...] = ()
) -> RenderableType:
    """A verdict to be redrawn in place. `looks` are those that are known, `notes` sentences about what else happened,
    the newest last."""
    parts: list[RenderableType] = [
        stage_line(plan, verdict.stage),
        Text(verdict.sentence, style=_STYLES[verdict.verdict], overflow="fold"),
        *(Text(f"  {line}", overflow="fold") for line in lines_below(verdict, looks)),
    ]
    if verdict.checks:
        parts.append(check_table(verdict.checks, plan))
    parts += [Text(note, style="dim", overflow="fold") for note in notes]
    return Group(*parts)


def check_table(checks: Sequence[CheckVerdict], plan: RolloutPlan) -> RenderableType:
    """The checks of a verdict as a table, with what its shares mean below."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for name in rollout.HEADINGS:
        table.add_column(name, overflow="fold")
    rows = rollout.check_rows(checks, plan)
    for check, row in zip(checks, rows, strict=True):
        table.add_row(*map(Text, rollout.row_cells(check.name, row)))
    note = explanation_of(rows)
    return table if note is None else Group(table, Text(note, style="dim", overflow="fold"))


def stage_line(plan: RolloutPlan, at: str) -> Text:
    """The stages on a line, with the one where the rollout is."""
    line = Text(f"{plan.name}:  ", style="dim")
    names = [stage.name for stage in plan.stages]
    here = names.index(at)
    for position, stage in enumerate(plan.stages):
        if position:
            line.append(" ── ", style="dim")
        mark, style = ("●", "green") if position < here else ("◉", "bold") if position == here else ("○", "dim")
        line.append(f"{mark} {stage.name} {declared_percent(stage.share)}", style=style)
    return line


def lines_below(verdict: RolloutVerdict, looks: Sequence[Look]) -> list[str]:
    """Return what the verdict is about, what else it waits for, and when that will be there."""
    found: list[str] = []
    cohorts, ratio, needed = verdict.cohorts, verdict.sample_ratio, needed_sentence(verdict, looks)
    if cohorts is not None:
        both = ", ".join(f"{turns(each.turns)} of {each.name}" for each in (cohorts.candidate, cohorts.control))
        found.append(f"{both}, look {verdict.looks}")
        if ratio is not None:
            split, planned = percent(ratio.share), declared_percent(ratio.expected_share)
            unit = "calls" if verdict.units is None else f"{verdict.units.unit}s"
            found[0] += f"; {split} of the {unit} are on {cohorts.candidate.name}, {planned} planned"
    found += [] if needed is None else [needed]
    return [*found, *verdict.other_reasons, *(f"note: {note}" for note in verdict.notes)]


def needed_sentence(verdict: RolloutVerdict, looks: Sequence[Look]) -> str | None:
    """Return how many more turns the verdict waits for, and when they will be there at the traffic of these looks; None
    where it waits for none."""
    sentence, expected = verdict.needed_sentence, forecast(looks, verdict.turns_needed)
    if sentence is None or expected is None:
        return sentence
    left_s = (expected.due_unix_ns - looks[-1].at_unix_ns) / NS_PER_S
    at = datetime.fromtimestamp(expected.due_unix_ns / NS_PER_S, UTC)
    form = "%H:%M:%S UTC" if left_s < 3600 * 12 else "%Y-%m-%d %H:%M UTC"
    return f"{sentence}: at {expected.turns_per_s:.2g} a second, in {_lasting(left_s)}, at {at.strftime(form)}"


def _lasting(seconds: float) -> str:
    for size, name in ((86_400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {name}"
    return f"{seconds:.0f} seconds"
