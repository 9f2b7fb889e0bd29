"""The causes of failed turns, as a table, and what callers did when they were asked to wait. Pure."""

from typing import Final

from rich.table import Table
from rich.text import Text

from telemetry.model import formatting
from telemetry.model.semconv import failure_label
from telemetry.store.answers import Summary


def failure_table(summary: Summary) -> Table:
    """A row per cause, the commonest first, with the reason recorded on one such turn."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("turns", justify="right", no_wrap=True)
    table.add_column("cause", overflow="fold", max_width=34)
    table.add_column("for example", overflow="fold")
    for cause in summary.failures:
        # Text, not markup: endpoints write codes and sentences as they like.
        row = (
            formatting.number(cause.turns),
            Text(failure_label(cause.kind, cause.code)),
            Text(cause.example or formatting.DASH),
        )
        table.add_row(*row)
    return table


REMARKS: Final = "What was remarked of turns that ended well"


def remark_table(summary: Summary) -> Table:
    """A row per remark, the commonest first: the endpoint cut its reply short, or did not transcribe the question."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("turns", justify="right", no_wrap=True)
    table.add_column("remark", overflow="fold")
    for each in summary.remarks:
        table.add_row(formatting.number(each.turns), Text(each.remark))
    return table


def retry_line(summary: Summary) -> str | None:
    """Return what became of requests to call later, None where there were none."""
    retries = summary.retries
    if not retries.asked:
        return None
    longest = 0.0 if retries.asked_worst_ns is None else retries.asked_worst_ns / 1e9
    return (
        f"the endpoint asked {_times(retries.asked)} to call again later (after {longest:,.4g} s at most);"
        f" callers waited before {formatting.number(retries.waits)} calls, {retries.waited_ns / 1e9:,.4g} s in all"
    )


def _times(count: int) -> str:
    return "once" if count == 1 else f"{formatting.number(count)} times"
