"""Word error rates of the endpoint, by profile: the terminal's table and the JSON rows. Pure."""

from collections.abc import Sequence
from typing import Any, Final

from rich.table import Table

from loadtest.reports import figures
from telemetry.model import formatting
from telemetry.model.formatting import condition_label
from telemetry.store.answers import WerByCondition

BAR_WIDTH = 20
_SHORT: Final = {"words": "wer", "characters": "cer", "words and characters": "wer and cer"}


def wer_table(rows: Sequence[WerByCondition]) -> Table:
    """Word (or character) error rate over profiles, with a bar, the interval and what it was taken from."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("profile", overflow="fold")
    units = figures.units_name(rows)
    for name in (_SHORT[units], "95 % interval"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for name in (units, "turns"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        interval = row.interval
        table.add_row(
            condition_label(row.noise_profile, row.snr_asked_db, row.channel_profile),
            formatting.percent(row.wer),
            figures.TOO_FEW
            if interval is None
            else f"{formatting.percent(interval[0])} to {formatting.percent(interval[1])}",
            "█" * round(BAR_WIDTH * min(1.0, row.wer)),
            formatting.number(row.words),
            formatting.number(row.turns),
        )
    return table


def wer_by_condition_objects(rows: Sequence[WerByCondition]) -> list[dict[str, Any]]:
    """JSON-ready rows; an interval from fewer than 20 turns is null."""
    return [
        {
            "noise": row.noise_profile,
            "snr_db": row.snr_asked_db,
            "channel": row.channel_profile,
            "turns": row.turns,
            "words": row.words,
            "characters": row.characters,
            "errors": row.errors,
            "wer": row.wer,
            "interval": None if row.interval is None else list(row.interval),
        }
        for row in rows
    ]
