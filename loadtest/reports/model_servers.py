"""Reports of model servers during a run: the terminal's table and the JSON rows. Pure.

Context, in a part of its own: their ratios are of tokens and their times of requests, of whoever made them.
"""

from collections.abc import Sequence
from typing import Any, Final

from rich.table import Table

from loadtest.reports import figures
from telemetry.model import formatting
from telemetry.model.metrics import MIN_COUNT_FOR
from telemetry.store.questions.caches import ModelServer, RequestTimes

TITLE: Final = "Model servers, from their own metrics (all of their requests, not only this run's)"
NOT_KNOWN: Final = "not known"


def model_server_table(servers: Sequence[ModelServer]) -> Table:
    """A row for each server and model."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("server", overflow="fold")
    for name in ("cached tokens", "waiting", "queue mean", "queue p95", "first token p95", "read"):
        table.add_column(name, justify="right", overflow="fold")
    for server in servers:
        named = server.name if server.model is None else f"{server.name}: {server.model}"
        table.add_row(
            named,
            _cached(server),
            NOT_KNOWN if server.waiting_most is None else f"≤ {formatting.number(server.waiting_most)}",
            _mean(server.queue),
            _p95(server.queue),
            _p95(server.first_token),
            f"{server.readings} of {server.readings + server.failed_readings}",
        )
    return table


def model_server_objects(servers: Sequence[ModelServer]) -> list[dict[str, Any]]:
    """JSON-ready rows; what is not known is null."""
    return [
        {
            "name": server.name,
            "model": server.model,
            "readings": server.readings,
            "failed_readings": server.failed_readings,
            "prefix_tokens": server.prefix_tokens,
            "prefix_hits_per_token": server.prefix_hits_per_token,
            "requests_waiting_most": server.waiting_most,
            "queue": _spread(server.queue),
            "first_token": _spread(server.first_token),
        }
        for server in servers
    ]


def _cached(server: ModelServer) -> str:
    if server.prefix_hits_per_token is None or server.prefix_tokens is None:
        return NOT_KNOWN
    return f"{formatting.percent(server.prefix_hits_per_token)} of {formatting.number(server.prefix_tokens)}"


def _mean(spread: RequestTimes | None) -> str:
    return NOT_KNOWN if spread is None or spread.mean_s is None else formatting.milliseconds(spread.mean_s * 1e9)


def _p95(spread: RequestTimes | None) -> str:
    if spread is None:
        return NOT_KNOWN
    if spread.count < MIN_COUNT_FOR["p95"] or spread.p95_above_s is None:
        return figures.TOO_FEW
    above = formatting.milliseconds(spread.p95_above_s * 1e9)
    if spread.p95_until_s is None:
        return f"> {above}"
    return f"{above} to {formatting.milliseconds(spread.p95_until_s * 1e9)}"


def _spread(spread: RequestTimes | None) -> dict[str, Any] | None:
    if spread is None:
        return None
    return {
        "requests": spread.count,
        "mean_s": spread.mean_s,
        "p95_above_s": spread.p95_above_s,
        "p95_until_s": spread.p95_until_s,
    }
