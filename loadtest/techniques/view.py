"""The table of techniques, for people: in a terminal with a bar for each interval, or as a page with a forest plot."""

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any, Final

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from loadtest.pairing.differences import QUANTILES
from loadtest.pairing.view import interval_text, mean_text, ratio
from loadtest.reports.html.elements import document, section
from loadtest.reports.html.elements import table as html_table
from telemetry.model import formatting
from telemetry.model.metrics import HEADLINE

_WIDTH: Final = 31
_MEMORY_DIFFERS: Final = 0.03  # of it, from which on the difference is said


def techniques_view(rows: Sequence[Mapping[str, Any]]) -> Group:
    """Voice to voice with a technique minus without it, in ms (negative is faster): figures, a line for each interval,
    what a technique changes besides, and what could not be measured."""
    measured = [row for row in rows if not row.get("missing")]
    title = "Voice to voice with the technique minus without it, ms (95 % interval)"
    figures = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for heading in ("technique", *(f"Δp{100 * quantile:g}" for quantile in QUANTILES), "pairs"):
        figures.add_column(heading, justify="left" if heading == "technique" else "right")
    scale_ns = _scale([_headline(row, 0.5) for row in measured])
    picture = Table(box=box.SIMPLE_HEAD)
    picture.add_column("technique")
    picture.add_column(_axis(scale_ns), no_wrap=True)
    sentences: list[Text] = []
    for row in measured:
        differences = (_figure(_headline(row, quantile)) for quantile in QUANTILES)
        figures.add_row(row["technique"], *differences, f"{row['comparison']['pairs']:,}")
        picture.add_row(row["technique"], _bar(_headline(row, 0.5), scale_ns))
        sentences.append(Text(_described(row)))
    return Group(figures, picture, *sentences, *map(Text, missing_rows(rows)))


def _described(row: Mapping[str, Any]) -> str:
    origin = f"real: {row['real']}; declared timing: {row['declared']}"
    return "; ".join([f"{row['technique']}: {row['title']}", origin, *in_addition(row)])


def missing_rows(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A sentence for each technique that could not be measured here."""
    return [row["sentence"] for row in rows if row.get("missing")]


# Of the work that is reported: in which words it is shown. Means over the answers.
_WORK: Final = {
    "input_tokens": "tokens read",
    "cached_tokens": "of them kept",
    "output_tokens": "tokens written",
    "wasted_tokens": "tokens wasted",
    "speculative_starts": "early starts",
    "wrong_starts": "wrong starts",
    "cache_age_s": "seconds of age of a cached answer",
    "checks": "checks",
    "hop_ms": "ms of hops",
}
_SHARES: Final = {
    "word_error_rate": "word errors",
    "whole_answers": "whole answers",
    "audible_gaps": "answers with gaps",
    "cache_hits": "hits",
    "fallbacks": "fallbacks",
}


def in_addition(row: Mapping[str, Any]) -> list[str]:
    """Return what a technique changes besides latency, as far as it is known: quality, cost and work."""
    off, on = row["comparison"]["variants"]
    unanswered, stale = (
        [ratio(variant[part], variant[whole]) for variant in both]
        for both, part, whole in (((off, on), "unanswered", "turns"), (row["stale_answers"], "stale", "hits"))
    )
    prices, memory = row["usd_per_1000_answers"], row["memory_bytes"]
    changes: list[tuple[str, Any, Any, Callable[[Any], str]]] = [
        ("callers without an answer", unanswered[0], unanswered[1], formatting.percent),
        *((words, off[name], on[name], formatting.percent) for name, words in _SHARES.items()),
        ("stale answers of the cache", stale[0], stale[1], formatting.percent),
        ("hits by tier", off["cache_hits_by_tier"], on["cache_hits_by_tier"], _tiers),
        ("words of an answer", off["answer_words"], on["answer_words"], mean_text),
        *((words, off["work"].get(name), on["work"].get(name), mean_text) for name, words in _WORK.items()),
        ("answered here", off["routes"]["local"], on["routes"]["local"], formatting.percent),
        ("1,000 answers of the cloud", prices["off"], prices["on"], _dollars),
    ]
    if None not in memory and abs(memory[1] - memory[0]) > _MEMORY_DIFFERS * memory[0]:
        changes.append(("memory", memory[0], memory[1], _megabytes))
    labels = [] if row["labels"] is None else [row["labels"]["sentence"]]
    return [text for change in changes if (text := _changed(*change)) is not None] + labels


def _megabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.0f} MB"


def _tiers(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{tier} {formatting.percent(share)}" for tier, share in shares.items()) or "–"


def _dollars(usd: float) -> str:
    return f"${usd:.2f}"


def _changed(words: str, off: Any, on: Any, shown: Callable[[Any], str]) -> str | None:
    """Return both values if they differ or one of them is unknown; else None."""
    if off == on:
        return None
    return f"{words} {'–' if off is None else shown(off)} → {'–' if on is None else shown(on)}"


def techniques_page(rows: Sequence[Mapping[str, Any]]) -> str:
    """The table as one HTML file, with a forest plot of the medians. It loads nothing and has no script."""
    # Loaded only if used: drawing takes a second to load.
    from telemetry.charts.drawing import Picture
    from telemetry.charts.forest import forest
    from telemetry.charts.static import PAGE, both_sizes

    measured = [row for row in rows if not row.get("missing")]
    drawn = [
        {
            "name": row["technique"],
            "estimate": headline["difference_ns"] / 1e9,
            "lower": headline["lower_ns"] / 1e9,
            "upper": headline["upper_ns"] / 1e9,
            "verdict": row["comparison"]["variants"][1]["decision"],
            "text": f"{_figure(headline)} ms",
        }
        for row in measured
        if (headline := _headline(row, 0.5)) is not None and headline["difference_ns"] is not None
    ]
    label = "Differences of the median of voice to voice with each technique"
    picture = both_sizes(Picture(drawn, forest(drawn, PAGE, "s"), label)) if drawn else ""
    headings = ["technique", *(f"Δp{100 * quantile:g}, ms" for quantile in QUANTILES), "pairs"]
    cells = [
        [
            row["technique"],
            *(_figure(_headline(row, quantile)) for quantile in QUANTILES),
            f"{row['comparison']['pairs']:,}",
        ]
        for row in measured
    ]
    title = "Voice to voice with the technique minus without it, and its 95 % interval"
    sentences = "".join(f"<p>{escape(text)}</p>" for text in (*map(_described, measured), *missing_rows(rows)))
    return document(
        "Latency techniques",
        [
            "<h1>Latency techniques</h1>",
            section("Differences of the median", [picture]),
            html_table(title, headings, cells),
            section("What each technique is, and what it changes in addition: off → on", [sentences]),
        ],
    )


def _headline(row: Mapping[str, Any], quantile: float) -> Mapping[str, Any] | None:
    if row.get("missing"):
        return None
    differences = row["comparison"]["variants"][1]["differences"]
    return next((entry for entry in differences if (entry["metric"], entry["quantile"]) == (HEADLINE, quantile)), None)


def _figure(difference: Mapping[str, Any] | None) -> str:
    figures = difference or dict.fromkeys(("difference_ns", "lower_ns", "upper_ns"))
    return interval_text(figures["difference_ns"], figures["lower_ns"], figures["upper_ns"])


def _scale(differences: Sequence[Mapping[str, Any] | None]) -> float:
    ends = [
        abs(entry[end])
        for entry in differences
        if entry and entry["lower_ns"] is not None
        for end in ("lower_ns", "upper_ns")
    ]
    return max(ends, default=1.0) or 1.0


def _axis(scale_ns: float) -> str:
    low, high = (formatting.signed_milliseconds(ns, unit=False) for ns in (-scale_ns, scale_ns))
    return f"{low}{'0'.center(_WIDTH - len(low) - len(high))}{high}"


def _bar(difference: Mapping[str, Any] | None, scale_ns: float) -> str:
    """The interval as a line, the difference as a point, 0 in the middle."""
    if difference is None or difference["lower_ns"] is None:
        return ""
    half = _WIDTH // 2
    places = [round(half + half * difference[name] / scale_ns) for name in ("lower_ns", "difference_ns", "upper_ns")]
    marks = [" "] * _WIDTH
    marks[half] = "│"
    for place in range(places[0], places[2] + 1):
        marks[place] = "─" if place != half else "┼"
    marks[places[1]] = "●"
    return "".join(marks)
