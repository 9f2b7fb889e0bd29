"""Pictures of turns: a heat map of latency over time, and the distribution.

Every turn is in a cell of the heat map, and the slowest ones are drawn as points: an outlier is never averaged away.
"""

from collections.abc import Callable

from dashboard.descriptions import Clock, time_of_day
from telemetry.charts import turns
from telemetry.charts.drawing import Palette, Picture, Row, table_of
from telemetry.model import formatting
from telemetry.model.formatting import NS_PER_S, in_milliseconds, milliseconds
from telemetry.store.questions.turns import EDGES_MS, HeatCell, TurnsAnswer, band_limits_ms


def band_label(band: int) -> str:
    """A band in words: `500 ms to 600 ms`."""
    low, high = band_limits_ms(band)
    if low is None:
        return "before the end of speech"
    return f"from {_band_edge(low)}" if high is None else f"{_band_edge(low)} to {_band_edge(high)}"


def _band_edge(ms: int) -> str:
    return f"{ms} ms" if ms < 1_000 else f"{ms / 1_000:g} s"


def shown_bands(answer: TurnsAnswer) -> list[int]:
    """The bands from the least to the greatest that hold a turn, the greatest first."""
    known = [band for band, n in enumerate(answer.distribution) if n]
    return [] if not known else list(range(known[-1], known[0] - 1, -1))


def heat_map(
    answer: TurnsAnswer, colors: Palette, clock: Clock = time_of_day, link: Callable[[HeatCell], str] = lambda _: ""
) -> Picture:
    """Draw the turns by time and latency; a click on a cell or a point is reported, and `link` leads to a cell's."""
    nothing = dict.fromkeys(("from", "to", "n", "since", "trace", "turn", "at", "value"))
    cells: list[Row] = [
        {
            **nothing,
            "band": band_label(cell.band),
            "number": cell.band,
            "from": in_milliseconds(cell.start_unix_ns),
            "from_text": clock(cell.start_unix_ns),
            "to": in_milliseconds(cell.start_unix_ns + answer.width_ns),
            "since": cell.start_unix_ns // NS_PER_S,
            "n": cell.n,
            "n_text": f"{cell.n:,}",
        }
        for cell in answer.cells
    ]
    points: list[Row] = [
        {
            **nothing,
            "band": band_label(band := sum(in_milliseconds(turn.value_ns) >= edge for edge in EDGES_MS)),
            "number": band,
            "at": in_milliseconds(turn.started_unix_ns),
            "trace": turn.trace_id,
            "turn": turn.turn_index,
            "value": milliseconds(turn.value_ns),
        }
        for turn in answer.outliers
        if turn.value_ns is not None
    ]
    columns = {"from": "from_text", "voice to voice": "band", "turns": "n_text"}
    return Picture(
        [*cells, *points],
        turns.heat_map([band_label(band) for band in shown_bands(answer)], colors),
        "Turns by the time when they began and by voice to voice; the slowest ones as points",
        table_of("turns by time and latency", cells, columns, [link(cell) for cell in answer.cells]),
    )


def distribution(answer: TurnsAnswer, colors: Palette, link: Callable[[int], str] = lambda _: "") -> Picture:
    """Draw how many turns each band has."""
    bands, total = shown_bands(answer), max(1, sum(answer.distribution))
    rows: list[Row] = [
        {
            "band": band_label(band),
            "n": answer.distribution[band],
            "n_text": f"{answer.distribution[band]:,}",
            "share": formatting.share(answer.distribution[band], total),
        }
        for band in bands
    ]
    columns = {"voice to voice": "band", "turns": "n_text", "share": "share"}
    return Picture(
        rows,
        turns.distribution([band_label(band) for band in bands], colors),
        "How many turns each band of voice to voice has",
        table_of("turns by latency", rows, columns, [*map(link, bands)]),
    )
