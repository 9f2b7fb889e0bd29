"""The phases of a run beside one another, as a table. Pure."""

from rich.table import Table

from loadtest.reports import figures
from loadtest.reports.run_info import RunInfo
from telemetry.model import formatting
from telemetry.model.metrics import HEADLINE
from telemetry.store.answers import PhaseSummary, StartCounts, Summary


def has_phases(summary: Summary) -> bool:
    """Return whether there is anything to set beside one another."""
    return len(summary.phases) > 1 or (bool(summary.phases) and summary.starts is not None)


def phase_table(summary: Summary) -> Table:
    """A row per phase in the order of time; ramps are dim, as they are in no other figure."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("phase", overflow="fold")
    for name in ("turns", "invalid", "ok", "v2v p50", "p95", "p99"):
        table.add_column(name, justify="right", no_wrap=True)
    if summary.starts is not None:
        table.add_column("starts", no_wrap=True)
    for phase in summary.phases:
        cells = _cells(phase) + ([starts_line(phase.starts)] if summary.starts is not None else [])
        table.add_row(*cells, style="dim" if phase.is_ramp else "")
    return table


def _cells(phase: PhaseSummary) -> list[str]:
    turns, heard = phase.turns, phase.metrics.get(HEADLINE)
    shown = [formatting.DASH if heard is None else figures.of_the_answered(heard, w) for w in ("p50", "p95", "p99")]
    ok = turns.ok / turns.eligible if turns.eligible else None
    name = f"{phase.phase} (ramp)" if phase.is_ramp else phase.phase
    return [name, formatting.number(turns.total), formatting.number(turns.invalid), formatting.percent(ok), *shown]


def ramp_line(summary: Summary) -> str | None:
    """Return what became of the turns of ramps, None for a run without ramps."""
    if not summary.ramp_turns:
        return None
    return f"{formatting.turns(summary.ramp_turns)} began during a ramp: shown apart under phases, in no figure above"


def load_line(run: RunInfo) -> str:
    """Return what was asked for: callers, or calls a second."""
    if run.arrivals == "closed":
        text = "callers not known" if run.users is None else f"{run.users} callers"
    else:
        rate = "" if run.rate_per_s is None else f", {run.rate_per_s:g} a second"
        text = f"{run.arrivals} arrivals{rate}"
    return f"{text} · scenario {run.scenario}" if run.scenario else text


def starts_sentence(summary: Summary) -> str:
    """Return how well the schedule of open arrivals was kept."""
    starts = summary.starts
    if starts is None:
        return formatting.DASH
    worst = formatting.milliseconds(summary.generator["start_late_worst_ns"])
    return (
        f"{formatting.number(starts.started)} of {formatting.number(starts.planned)} calls that were due began,"
        f" {formatting.number(starts.late)} more than 10 ms late (worst {worst}),"
        f" {formatting.number(starts.dropped)} dropped; connect counts from the intended start"
    )


def starts_line(starts: StartCounts | None) -> str:
    """Return how the calls of open arrivals began."""
    if starts is None:
        return formatting.DASH
    text = f"{formatting.number(starts.started)} of {formatting.number(starts.planned)}"
    parts = [
        f"{formatting.number(count)} {word}" for count, word in ((starts.late, "late"), (starts.dropped, "dropped"))
    ]
    wrong = [part for part, count in zip(parts, (starts.late, starts.dropped), strict=True) if count]
    return f"{text}, {', '.join(wrong)}" if wrong else text
