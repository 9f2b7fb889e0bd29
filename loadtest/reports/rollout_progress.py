"""The live view of a rollout on a terminal: the stages on a line, the verdict, and each check against its margin."""

from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from loadtest.reports import rollout
from telemetry.model.formatting import NS_PER_S, declared_percent, turns
from telemetry.rollout.gate import GateVerdict
from telemetry.rollout.plan import RolloutPlan
from telemetry.rollout.progress import forecast

_STYLES = {"promote": "bold green", "hold": "bold yellow", "roll_back": "bold red"}


def rollout_view(plan: RolloutPlan, verdict: GateVerdict, notes: tuple[str, ...] = ()) -> RenderableType:
    """A verdict to be redrawn in place. `notes` are sentences about what else happened, the newest last."""
    parts: list[RenderableType] = [
        stage_line(plan, verdict.stage.name),
        Text(verdict.sentence, style=_STYLES[verdict.verdict], overflow="fold"),
        *(Text(f"  {line}", overflow="fold") for line in lines_below(plan, verdict)),
    ]
    if verdict.checks:
        parts.append(check_table(verdict))
    parts += [Text(note, style="dim", overflow="fold") for note in notes]
    return Group(*parts)


def check_table(verdict: GateVerdict) -> RenderableType:
    """The checks of a verdict as a table, with what its shares mean below."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for name in rollout.heading():
        table.add_column(name, overflow="fold")
    for result in verdict.checks:
        table.add_row(*map(Text, rollout.check_row(result)))
    note = rollout.explanation(verdict)
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


def lines_below(plan: RolloutPlan, verdict: GateVerdict) -> list[str]:
    """What the verdict is about, what else it waits for, and when that will be there."""
    found = [
        f"{turns(verdict.candidate_turns)} of {plan.candidate}, {turns(verdict.control_turns)} of {plan.control}, "
        f"look {len(verdict.history.looks)}"
    ]
    ratio = verdict.sample_ratio
    if ratio is not None:
        found[0] += f"; {ratio.split(plan.candidate)}"
    needed = needed_sentence(plan, verdict)
    if needed is not None:
        found.append(needed)
    if verdict.verdict != "promote":
        found += verdict.reasons[1:]
    return [*found, *(f"note: {note}" for note in verdict.notes)]


def needed_sentence(plan: RolloutPlan, verdict: GateVerdict) -> str | None:
    """How many more turns the verdict waits for, and when they will be there at the present traffic; None where it
    waits for none."""
    if not verdict.turns_needed:
        return None
    sentence = f"about {turns(verdict.turns_needed)} more of {plan.candidate} are needed"
    expected, last = forecast(verdict.history, verdict.turns_needed), verdict.history.last_look
    if expected is None or last is None:
        return sentence
    left_s = (expected.due_unix_ns - last.at_unix_ns) / NS_PER_S
    at = datetime.fromtimestamp(expected.due_unix_ns / NS_PER_S, UTC)
    form = "%H:%M:%S UTC" if left_s < 3600 * 12 else "%Y-%m-%d %H:%M UTC"
    return f"{sentence}: at {expected.turns_per_s:.2g} a second, in {_lasting(left_s)}, at {at.strftime(form)}"


def _lasting(seconds: float) -> str:
    for size, name in ((86_400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {name}"
    return f"{seconds:.0f} seconds"
