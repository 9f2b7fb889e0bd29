"""Conversations for people: the table in the terminal, and its Markdown."""

from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.table import Table

from telemetry.model.formatting import count, percent
from tests.benchmarks.bench.cases import CONTROL
from tests.benchmarks.bench.compared import PACING_P99_MS
from tests.benchmarks.bench.conversations.compared import LEAST_TURNS_SHARE, ConversationRow
from tests.benchmarks.bench.tables import NAMES, NONE, line, shown

HEADINGS: Final = (
    "callers",
    "sender",
    "µs/s",
    "× C",
    "core",
    "late p99",
    "unsent",
    "v2v error p50, p99, max",
    "width p50, p99",
    "turns",
    "invalid",
)


def _cells(row: ConversationRow) -> tuple[str, ...]:
    errors = (row.error_p50_ms, row.error_p99_ms, row.error_max_ms)
    return (
        f"{row.callers:,}",
        "C" if row.sender == CONTROL else NAMES[row.sender],
        shown(row.cpu_us_per_caller_s, "{:,.0f}"),
        shown(row.times_control, "{:.2f}", with_range=True),
        shown(row.core_share, "{:.0%}"),
        shown(row.lateness_p99_ms, "{:,.2f}"),
        shown(row.never_sent_share, "{:.1%}"),
        "  ".join(shown(each, "{:,.3f}") for each in errors),
        "  ".join(shown(each, "{:,.3f}") for each in (row.width_p50_ms, row.width_p99_ms)),
        f"{row.turns:,}",
        NONE if row.sender == CONTROL else f"{row.invalid:,}",
    )


def print_conversations(console: Console, rows: Sequence[ConversationRow]) -> None:
    """The table, and what is to be known about it."""
    title = (
        "Conversations: medians of the rounds, with their range; µs for each caller and second, times in ms, all turns"
    )
    table = Table(title=title, title_justify="left")
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading == "sender" else "right", no_wrap=True)
    for row in rows:
        table.add_row(*_cells(row))
    console.print(table)
    for row in rows:
        for remark in remarks(row):
            console.print(f"{count(row.callers, 'caller')}, {NAMES[row.sender]}: {remark}", soft_wrap=True)


def remarks(row: ConversationRow) -> list[str]:
    """What is wrong with a row, a sentence each."""
    found = [f"no figure from one round, {failure}" for failure in row.failures]
    if row.peer_was_limit:
        found.append("the endpoint was itself late or short of processor; read with care")
    late = row.lateness_p99_ms
    if row.sender == CONTROL and late is not None and late.middle >= PACING_P99_MS:
        found.append("even these were late: the machine had other work; read with care")
    if row.outside:
        of = f"{row.outside:,} of {count(row.intervals, 'turn')}"
        found.append(f"the true voice-to-voice of {of} is not within the stated interval")
    if row.invalid_by_reason:
        reasons = sorted(row.invalid_by_reason.items(), key=lambda item: -item[1])
        found.append(f"invalid by {', '.join(f'{reason} ({number:,})' for reason, number in reasons)}")
    if row.unanswered:
        found.append(f"{count(row.unanswered, 'turn')} without an answer")
    if row.turns_share is not None and row.turns_share < LEAST_TURNS_SHARE:
        found.append(
            f"only {percent(row.turns_share)} of the turns of callers in C: the ratio compares less work with more"
        )
    if row.missing:
        found.append(f"{count(row.missing, 'answer')} of the endpoint in no caller's record")
    return found


def markdown_lines(rows: Sequence[ConversationRow]) -> list[str]:
    """The table of ratios, shares and errors for documents; nothing where nothing was measured."""
    if not rows:
        return []
    head = ("callers in conversation", "sender", "CPU, × C", "core", "late p99, ms", "never sent")
    columns = (*head, "v2v error p99, ms", "width p99, ms", "invalid")
    lines = ["", line(columns), line(["---:", "---", *["---:"] * 7])]
    for row in rows:
        times = "1" if row.sender == CONTROL else shown(row.times_control, "{:.2f}", with_range=True)
        pacing = (shown(row.lateness_p99_ms, "{:,.2f}"), shown(row.never_sent_share, "{:.1%}"))
        invalid = NONE if row.sender == CONTROL else f"{row.invalid:,} of {row.turns:,}"
        share = shown(row.core_share, "{:.0%}")
        doubt = (shown(row.error_p99_ms, "{:,.3f}"), shown(row.width_p99_ms, "{:,.3f}"))
        lines.append(line((f"{row.callers:,}", NAMES[row.sender], times, share, *pacing, *doubt, invalid)))
    return lines
