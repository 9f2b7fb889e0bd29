"""The table of techniques, for people: a row each, with a bar for the interval of its difference."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.table import Table

from loadtest.pairing.differences import QUANTILES
from loadtest.pairing.view import interval_text
from telemetry.model import formatting
from telemetry.model.metrics import HEADLINE

_WIDTH: Final = 31


def techniques_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Voice to voice with a technique minus without it, in ms; negative is faster."""
    table = Table(title="Voice to voice with the technique minus without it, ms (95 % interval)", title_justify="left")
    table.add_column("technique")
    for quantile in QUANTILES:
        table.add_column(f"Δp{100 * quantile:g}", justify="right")
    scale_ns = _scale([_headline(row, 0.5) for row in rows])
    table.add_column(_axis(scale_ns), justify="left")
    for heading in ("WER off / on", "hits", "pairs", "real"):
        table.add_column(heading, justify="left" if heading == "real" else "right")
    for row in rows:
        off, on = row["comparison"]["variants"]
        table.add_row(
            row["title"],
            *(_figure(_headline(row, quantile)) for quantile in QUANTILES),
            _bar(_headline(row, 0.5), scale_ns),
            f"{formatting.percent(off['word_error_rate'])} / {formatting.percent(on['word_error_rate'])}",
            formatting.percent(row["hit_rate"]),
            f"{row['comparison']['pairs']:,}",
            row["real"],
        )
    return table


def _headline(row: Mapping[str, Any], quantile: float) -> Mapping[str, Any] | None:
    found = row["comparison"]["variants"][1]["differences"]
    return next((each for each in found if (each["metric"], each["quantile"]) == (HEADLINE, quantile)), None)


def _figure(each: Mapping[str, Any] | None) -> str:
    figures = each or dict.fromkeys(("difference_ns", "lower_ns", "upper_ns"))
    return interval_text(figures["difference_ns"], figures["lower_ns"], figures["upper_ns"])


def _scale(found: Sequence[Mapping[str, Any] | None]) -> float:
    ends = [
        abs(each[end]) for each in found if each and each["lower_ns"] is not None for end in ("lower_ns", "upper_ns")
    ]
    return max(ends, default=1.0) or 1.0


def _axis(scale_ns: float) -> str:
    low, high = (formatting.signed_milliseconds(ns, unit=False) for ns in (-scale_ns, scale_ns))
    return f"{low}{'0'.center(_WIDTH - len(low) - len(high))}{high}"


def _bar(each: Mapping[str, Any] | None, scale_ns: float) -> str:
    """The interval as a line, the difference as a point, 0 in the middle."""
    if each is None or each["lower_ns"] is None:
        return ""
    half = _WIDTH // 2
    places = [round(half + half * each[name] / scale_ns) for name in ("lower_ns", "difference_ns", "upper_ns")]
    marks = [" "] * _WIDTH
    marks[half] = "│"
    for place in range(places[0], places[2] + 1):
        marks[place] = "─" if place != half else "┼"
    marks[places[1]] = "●"
    return "".join(marks)
