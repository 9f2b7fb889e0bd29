"""The result for people: tables in the terminal, and the Markdown that goes into the README."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from tests.benchmarks.bench.compared import TELEMETRY_STEPS, Row, TargetResult
from tests.benchmarks.bench.figures import Spread
from tests.benchmarks.bench.singles import StampError

NAMES: Final = {
    "control": "C, epoll + timerfd",
    "ours": "voiceprobe",
    "naive": "naive locustfile",
}
NONE: Final = "–"


def shown(value: Spread | None, form: str, *, with_range: bool = False) -> str:
    """The median, with the range of the rounds where there were several; a dash for what is not known."""
    if value is None:
        return NONE
    middle = form.format(value.middle)
    if not with_range or value.rounds < 2:
        return middle
    return f"{middle} ({form.format(value.least)}–{form.format(value.most)})"


HEADINGS: Final = (
    "callers",
    "sender",
    "CPU µs/frame",
    "× C",
    "core",
    "late p50, p99, max ms",
    "drift ms/s",
    "not sent",
)


def _cells(row: Row) -> tuple[str, ...]:
    late = (row.lateness_p50_ms, row.lateness_p99_ms, row.lateness_max_ms)
    return (
        f"{row.case.callers:,} {row.case.mode} {row.case.wire}",
        NAMES[row.sender],
        shown(row.cpu_us_per_frame, "{:.1f}", with_range=True),
        shown(row.times_control, "{:.2f}", with_range=True),
        shown(row.core_share, "{:.0%}"),
        "  ".join(shown(value, "{:.2f}" if value and value.middle < 100 else "{:,.0f}") for value in late),
        shown(row.drift_ms_per_s, "{:z.2f}"),
        shown(row.never_sent_share, "{:.1%}"),
    )


def print_senders(console: Console, rows: Sequence[Row]) -> None:
    """The senders' table, and what is to be known about it."""
    table = Table(title="Senders: medians of the rounds, with their range", title_justify="left")
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading in HEADINGS[:2] else "right", no_wrap=True)
    for row in rows:
        table.add_row(*_cells(row))
    console.print(table)
    for row in rows:
        where = f"{row.case.callers:,} callers, {row.case.mode}, {row.case.wire}, {NAMES[row.sender]}"
        for failure in row.failures:
            console.print(f"{where}: no figure from one round, {failure}", soft_wrap=True)
        if row.peer_was_limit:
            console.print(f"{where}: the peer was itself late or short of processor; read with care", soft_wrap=True)
    if any(row.case.wire == "wss" for row in rows):
        console.print("The control speaks no TLS. Over wss ours stands beside the naive one, and each beside itself:")
        for row in rows:
            if row.times_ws is not None:
                where = f"{row.case.callers:,} callers, {row.case.mode}"
                naive = f"; {row.times_naive.middle:.2f} × the naive one" if row.times_naive is not None else ""
                own = f"{row.times_ws:.2f} × its CPU per frame over ws"
                console.print(f"  {where}, {NAMES[row.sender]}: {own}{naive}", soft_wrap=True)


def print_telemetry(console: Console, found: Mapping[str, Any]) -> None:
    """What telemetry costs."""
    table = Table(title=f"Telemetry, processor time for each of {found['turns']:,} turns", title_justify="left")
    table.add_column("step")
    table.add_column("µs", justify="right")
    for label, name in TELEMETRY_STEPS.items():
        table.add_row(label, f"{found[name]:.0f}")
    table.add_row("all", f"{sum(found[name] for name in TELEMETRY_STEPS.values()):.0f}")
    console.print(table)
    console.print(
        f"{found['spans_exported']:,} spans in {found['requests']:,} requests, {found['spans_lost']:,} lost",
        soft_wrap=True,
    )


def print_stamps(console: Console, errors: Sequence[StampError]) -> None:
    """How true event stamps are."""
    table = Table(title="Event stamps: how much later than the truth", title_justify="left")
    for heading in ("beside", "stamped by", "messages", "p50 ms", "p99 ms", "max ms"):
        table.add_column(heading, justify="left" if heading in ("beside", "stamped by") else "right")
    for error in errors:
        figures = (error.p50_ms, error.p99_ms, error.max_ms)
        values = (NONE if value is None else f"{value:.3f}" for value in figures)
        beside, who = f"{error.case.callers:,} callers, {error.case.mode}", "the kernel"
        table.add_row(beside, who if error.kind == "kernel" else "the program", f"{error.messages:,}", *values)
    console.print(table)
    left_out = sum(error.left_out for error in errors)
    if left_out:
        console.print(f"{left_out:,} more are left out: the truth itself was interrupted while sending", soft_wrap=True)


def print_verdicts(console: Console, verdicts: Sequence[TargetResult]) -> None:
    """Each target beside what was found."""
    table = Table(title="Targets", title_justify="left")
    table.add_column("target")
    table.add_column("found", justify="right")
    table.add_column("")
    for verdict in verdicts:
        table.add_row(verdict.target, verdict.found, verdict.word)
    console.print(table)


def markdown(rows: Sequence[Row], verdicts: Sequence[TargetResult], machine: str, others: Sequence[str] = ()) -> str:
    """The README's tables: ratios and pacing rather than seconds, which are the machine's. `others` are the lines of
    further tables, before the targets."""
    lines = [f"Measured on {machine}."]
    plain = [row for row in rows if row.case.wire == "ws"]
    if plain:
        head = ("callers", "mode", "sender", "CPU per frame, × C", "late p99, ms", "never sent")
        lines += ["", line(head), line(["---"] * 3 + ["---:"] * 3)]
    for row in plain:
        times = "1" if row.sender == "control" else shown(row.times_control, "{:.2f}", with_range=True)
        lines.append(line((*_who(row), times, *_late_and_lost(row))))
    secured = [row for row in rows if row.case.wire == "wss"]
    if secured:
        # The control speaks no TLS: over wss ours stands beside the naive one, and each beside itself over ws.
        head = ("callers over wss", "mode", "sender", "× naive", "× its own over ws", "late p99, ms", "never sent")
        lines += ["", line(head), line(["---"] * 3 + ["---:"] * 4)]
    for row in secured:
        times_naive = "1" if row.sender == "naive" else shown(row.times_naive, "{:.2f}", with_range=True)
        times_ws = NONE if row.times_ws is None else f"{row.times_ws:.2f}"
        lines.append(line((*_who(row), times_naive, times_ws, *_late_and_lost(row))))
    lines += [*others, "", line(("target", "found", "here")), line(["---", "---:", "---"])]
    lines += [line((verdict.target, verdict.found, verdict.word)) for verdict in verdicts]
    return "\n".join(lines)


def _who(row: Row) -> tuple[str, str, str]:
    return f"{row.case.callers:,}", row.case.mode, NAMES[row.sender]


def _late_and_lost(row: Row) -> tuple[str, str]:
    return shown(row.lateness_p99_ms, "{:,.2f}"), shown(row.never_sent_share, "{:.1%}")


def line(cells: Sequence[str]) -> str:
    """A line of a table in Markdown."""
    return f"| {' | '.join(cells)} |"
