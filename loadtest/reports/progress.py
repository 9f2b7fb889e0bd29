"""The live view of a run on a terminal: where it stands, in four lines."""

from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from loadtest.reports import figures
from telemetry.model import formatting
from telemetry.model.metrics import DEFINITIONS, HEADLINE
from telemetry.store.answers import MetricStats, TurnCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveInfo:
    """What is known at this moment; None is not known yet. `run_time_s` None means until its calls are made, which have
    about `expected_turns`, or until somebody stops it."""

    target: str
    users: int
    elapsed_s: float
    run_time_s: float | None
    expected_turns: int | None = None
    calls_in_flight: int | None = None
    turns: TurnCounts | None = None
    voice_to_voice: MetricStats | None = None
    note: str | None = None  # one sentence, when something needs to be known now


def live_view(info: LiveInfo) -> RenderableType:
    """Callers, turns, voice-to-voice so far, invalid turns and the time, to be redrawn in place."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True, min_width=14)
    grid.add_column(overflow="fold")
    in_flight = formatting.DASH if info.calls_in_flight is None else formatting.number(info.calls_in_flight)
    grid.add_row("callers", f"{in_flight} of {formatting.number(info.users)} on a call to {info.target}")
    grid.add_row("turns", _turns(info.turns))
    grid.add_row(DEFINITIONS[HEADLINE].label, _voice_to_voice(info.voice_to_voice))
    parts: list[RenderableType] = [_time(info), grid]
    if info.note:
        parts.append(Text(info.note, style="yellow", overflow="fold"))
    return Group(*parts)


def _turns(turns: TurnCounts | None) -> str:
    if turns is None or not turns.total:
        return "none yet"
    others = turns.total - turns.ok - turns.invalid
    return f"{formatting.number(turns.total)}: {turns.ok} ok, {others} not ok, {turns.invalid} invalid"


def _voice_to_voice(stats: MetricStats | None) -> str:
    if stats is None or not stats.n:
        return "none yet"
    shown = ", ".join(f"{which} {figures.statistic(stats, which)}" for which in ("p50", "p95"))
    if stats.unanswered:
        return f"{shown}, of the answered: {figures.answered(stats)} turns"
    return f"{shown} (n {formatting.number(stats.n)})"


def _time(info: LiveInfo) -> RenderableType:
    if info.run_time_s is None and info.expected_turns:
        return _until_the_calls_are_made(info, info.expected_turns)
    if info.run_time_s is None:
        return Text(f"running for {formatting.clock(info.elapsed_s)}, until Ctrl-C", style="bold")
    remaining_s = info.run_time_s - info.elapsed_s
    line = Table.grid(padding=(0, 2, 0, 0))
    if remaining_s <= 0:
        line.add_row(Text(f"{formatting.clock(info.elapsed_s)} elapsed, the last calls are ending", style="bold"))
        return line
    bar = ProgressBar(total=info.run_time_s, completed=info.elapsed_s, width=24)
    line.add_row(
        Text(f"{formatting.clock(info.elapsed_s)} elapsed", style="bold"),
        bar,
        Text(f"{formatting.clock(remaining_s)} remaining"),
    )
    return line


def _until_the_calls_are_made(info: LiveInfo, expected: int) -> RenderableType:
    heard = info.turns.total if info.turns is not None else 0
    line = Table.grid(padding=(0, 2, 0, 0))
    line.add_row(
        Text(f"{formatting.clock(info.elapsed_s)} elapsed", style="bold"),
        ProgressBar(total=max(expected, heard), completed=heard, width=24),
        Text(f"{formatting.number(heard)} of about {formatting.turns(expected)}"),
    )
    return line
