"""Why turns failed, as a table, and what callers did when they were asked to wait. Pure."""

from typing import Final

from rich.table import Table
from rich.text import Text

from telemetry.model import formatting
from telemetry.store.answers import FailureCount, Summary

_KINDS: Final[dict[str | None, str]] = {
    "dns": "host name",
    "tcp": "connection",
    "tls": "TLS",
    "http_status": "HTTP",
    "close_code": "closed with",
    "protocol_violation": "broke protocol",
    "endpoint_error": "its error",
    "timeout": "time-out",
    "no_reply": "no reply",
    "abandoned": "caller hung up",
    "interrupted": "broke off its reply",
    "bad_audio": "bad audio",
    "generator": "generator",
    "other": "other",
    None: "not recorded",
}


def failure_table(summary: Summary) -> Table:
    """A row per cause, the commonest first, with what was said of one such turn."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("turns", justify="right", no_wrap=True)
    table.add_column("cause", overflow="fold", max_width=34)
    table.add_column("for example", overflow="fold")
    for cause in summary.failures:
        # Text, not markup: endpoints write codes and sentences as they like.
        row = (formatting.number(cause.turns), Text(cause_label(cause)), Text(cause.example or formatting.DASH))
        table.add_row(*row)
    return table


def cause_label(cause: FailureCount) -> str:
    """A cause in a few words: `HTTP 429`, `closed with 1008`."""
    kind = _KINDS.get(cause.kind, cause.kind or "")
    return kind if cause.code is None else f"{kind} {cause.code}"


def retry_line(summary: Summary) -> str | None:
    """What became of requests to call later, None where there were none."""
    told = summary.retries
    if not told.asked:
        return None
    longest = 0.0 if told.asked_worst_ns is None else told.asked_worst_ns / 1e9
    return (
        f"the endpoint asked {_times(told.asked)} to call again later (after {longest:,.4g} s at most);"
        f" callers waited before {formatting.number(told.waits)} calls, {told.waited_ns / 1e9:,.4g} s in all"
    )


def _times(count: int) -> str:
    return "once" if count == 1 else f"{formatting.number(count)} times"
