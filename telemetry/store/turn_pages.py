"""All that the Turns page shows, from one consistent read: a heat map over time, the distribution, one page of rows."""

# ruff: noqa: S608 - the identifiers in these statements come from our own tables, every value is bound

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from telemetry.model.metrics import HEADLINE
from telemetry.model.semconv import Outcome
from telemetry.store import queries
from telemetry.store.answers import Filter
from telemetry.store.connection import Row, StoreConnection, rows
from telemetry.store.explanation import Explanation, ExplanationQuestion, TurnSelection, explanation
from telemetry.store.latency_bands import EDGES_MS, HeatCell, bands_of, width_of
from telemetry.store.queries import Condition
from telemetry.store.turn_search import FoundWords, TurnSearch, search_condition
from telemetry.store.views import HeadedAnswer, ViewHead, ViewQuestion, open_view

PAGE_SIZES: Final = (25, 50, 100)
# A table is sorted anew for each of its pages: whoever wants what is behind so many turns narrows the search.
MOST_PAGED: Final = 10_000
HEAT_COLUMNS: Final = 60
OUTLIERS: Final = 60
# The column by which each order goes, None for the metric's, and whether the greatest comes first. Turns without a
# value of it come last, turns of one value in the order in which they began.
ORDERS: Final[dict[str, tuple[str | None, bool]]] = {
    "slowest": (None, True),
    "fastest": (None, False),
    "newest": ("started_unix_ns", True),
    "oldest": ("started_unix_ns", False),
}
_SHOWN: Final = (
    "trace_id",
    "turn_index",
    "call_id",
    "started_unix_ns",
    "outcome",
    "utterance_id",
    "cohort",
    "route",
    "model",
    "noise_profile",
    "cache_hit",
    "fallback",
)


@dataclass(frozen=True, slots=True)
class TurnsQuestion:
    """What the page asks. A filter without a run means the newest one; `window_ns` is how long before the end of its
    run the turns began. `page` counts from 0."""

    filter: Filter = Filter()  # noqa: RUF009 - immutable
    window_ns: int | None = None
    search: TurnSearch = TurnSearch()  # noqa: RUF009 - immutable
    metric: str = HEADLINE
    order: str = "slowest"
    page: int = 0
    page_size: int = PAGE_SIZES[0]


@dataclass(frozen=True, slots=True)
class ListedTurn:
    """A row of the table; `value_ns` is that of the metric, None where the turn has none."""

    trace_id: str
    turn_index: int
    call_id: str
    started_unix_ns: int
    outcome: Outcome
    value_ns: int | None = None
    utterance_id: str | None = None
    cohort: str | None = None
    route: str | None = None
    model: str | None = None
    noise_profile: str | None = None
    cache_hit: bool | None = None
    fallback: str | None = None


@dataclass(frozen=True, slots=True)
class TurnsAnswer(HeadedAnswer):
    """What the store answers; nothing of it is known where there is no such run.

    `total` turns are meant, `with_value` of them have a value of the metric and were measured well: those are in
    `cells`, whose columns are `width_ns` wide and whose rows are the bands of `latency_bands.EDGES_MS`. `outliers` are
    the turns with the largest values.
    """

    total: int = 0
    with_value: int = 0
    width_ns: int = 1
    cells: tuple[HeatCell, ...] = ()
    distribution: tuple[int, ...] = ()  # turns in each band
    outliers: tuple[ListedTurn, ...] = ()
    turns: tuple[ListedTurn, ...] = ()
    page: int = 0
    pages: int = 0
    values: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    words: FoundWords = FoundWords()  # noqa: RUF009 - immutable
    explanation: Explanation | None = None  # what sets the turns that are searched for apart


@dataclass(frozen=True, slots=True)
class StoreMoment:
    """The store that is asked, and when: texts are kept beside it for a time."""

    directory: Path
    now_unix_ns: int


def turns_page(connection: StoreConnection, asked: TurnsQuestion, moment: StoreMoment) -> TurnsAnswer:
    """Answer all of it. Raises KeyError for a metric or an order that there is none of."""
    column = queries.metric_column(asked.metric)
    opened = open_view(connection, ViewQuestion(asked.filter, asked.window_ns), moment.now_unix_ns)
    if isinstance(opened, ViewHead):
        return TurnsAnswer(opened)
    f = opened.head.filter
    searched, words = search_condition(asked.search, column, moment.directory, f.run_id, moment.now_unix_ns)
    where = queries.grouped(f) & searched
    totals = _totals(connection, where, column)
    width_ns = width_of(totals["first_unix_ns"], totals["last_unix_ns"], HEAT_COLUMNS)
    cells = _cells(connection, where, column, width_ns)
    bands = bands_of(cells)
    paged = min(totals["total"], MOST_PAGED)
    pages = -(-paged // asked.page_size)
    page = min(asked.page, max(0, pages - 1))
    return TurnsAnswer(
        head=opened.head,
        total=totals["total"],
        with_value=totals["with_value"],
        width_ns=width_ns,
        cells=tuple(cells),
        distribution=tuple(bands),
        outliers=_listed(connection, _Listing(where & _MEASURED, column, "slowest"), (OUTLIERS, 0)),
        turns=_listed(
            connection,
            _Listing(where, column, asked.order),
            (asked.page_size, page * asked.page_size),
        ),
        page=page,
        pages=pages,
        values={name: tuple(found) for name, found in _values(connection, f).items()},
        words=words,
        explanation=_explained(connection, asked, opened.head, searched),
    )


def _explained(
    connection: StoreConnection, asked: TurnsQuestion, head: ViewHead, searched: Condition
) -> Explanation | None:
    """What sets the turns that are searched for apart from the others of the filter; None where all are meant or none,
    and where the figures claim nothing."""
    if asked.search.is_any or asked.metric != HEADLINE or head.summary is None or head.summary.is_generator_limited:
        return None
    found = explanation(connection, ExplanationQuestion(TurnSelection(), head.filter), searched)
    return found if found.selected and found.others else None


_MEASURED: Final = Condition("outcome <> 'invalid'")


def _totals(connection: StoreConnection, where: Condition, column: str) -> Row:
    (row,) = rows(
        connection,
        f"SELECT count(*) AS total, count({column}) FILTER (outcome <> 'invalid') AS with_value, "
        "min(started_unix_ns) FILTER (outcome <> 'invalid') AS first_unix_ns, "
        f"max(started_unix_ns) FILTER (outcome <> 'invalid') AS last_unix_ns FROM turns WHERE {where.sql}",
        list(where.values),
    )
    return row


def _cells(connection: StoreConnection, where: Condition, column: str, width_ns: int) -> list[HeatCell]:
    """Count by time and latency: exact."""
    cases = " ".join(f"WHEN {column} < {round(edge * 1_000_000)} THEN {band}" for band, edge in enumerate(EDGES_MS))
    measured = where & _MEASURED
    found = rows(
        connection,
        f"""
        SELECT started_unix_ns // {width_ns} AS bucket, CASE {cases} ELSE {len(EDGES_MS)} END AS band, count(*) AS n
        FROM turns WHERE {measured.sql} AND {column} IS NOT NULL GROUP BY bucket, band ORDER BY bucket, band
        """,
        list(measured.values),
    )
    return [HeatCell(row["bucket"] * width_ns, row["band"], row["n"]) for row in found]


@dataclass(frozen=True, slots=True)
class _Listing:
    """Turns that meet a condition, in an order."""

    where: Condition
    column: str
    order: str


def _listed(connection: StoreConnection, asked: _Listing, limits: tuple[int, int]) -> tuple[ListedTurn, ...]:
    """Turns in an order, so many behind so many."""
    found = _foremost(connection, asked, sum(limits))
    return tuple(ListedTurn(**_plain(row)) for row in found[limits[1] :])


def _foremost(connection: StoreConnection, asked: _Listing, most: int) -> list[Row]:
    """The first rows of an order. Which of many turns can be among them is asked of one column first: the others are
    then read of few row groups only."""
    named, is_falling = ORDERS[asked.order]
    by, direction, where = named or asked.column, "DESC" if is_falling else "ASC", asked.where
    (last,) = rows(
        connection,
        f"SELECT {'min' if is_falling else 'max'}(value) AS value, count(value) AS n FROM (SELECT {by} AS value "
        f"FROM turns WHERE {where.sql} ORDER BY value {direction} NULLS LAST LIMIT ?)",
        [*where.values, most],
    )
    if last["n"] == most:
        where &= Condition(f"{by} {'>=' if is_falling else '<='} ?", (last["value"],))
    return rows(
        connection,
        f"SELECT {', '.join(_SHOWN)}, span_id, {asked.column} AS value_ns FROM turns WHERE {where.sql} "
        f"ORDER BY {by} {direction} NULLS LAST, started_unix_ns, span_id LIMIT ?",
        [*where.values, most],
    )


def _plain(row: Any) -> dict[str, Any]:
    value = row["value_ns"]
    return {**{name: row[name] for name in _SHOWN}, "value_ns": None if value is None else int(value)}


def _values(connection: StoreConnection, f: Filter) -> dict[str, list[str]]:
    """The models and outcomes that occur among the turns of the run."""
    where = queries.turns_of(Filter(run_id=f.run_id)) & queries.viewed(f)
    (row,) = rows(
        connection,
        f"""
        SELECT list_sort(array_agg(DISTINCT model) FILTER (WHERE model IS NOT NULL)) AS model,
               list_sort(array_agg(DISTINCT outcome)) AS outcome FROM turns WHERE {where.sql}
        """,
        list(where.values),
    )
    return {name: list(found or ()) for name, found in row.items()}
