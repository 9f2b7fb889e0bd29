"""Single turns: the page that searches and lists them, and that of one turn with its call."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final

import msgspec

from telemetry.model.metrics import HEADLINE, METRICS
from telemetry.model.semconv import SPAN_TURN, Outcome
from telemetry.model.turn_spans import SpanRow
from telemetry.model.turns import Turn
from telemetry.model.waterfall import Waterfall, waterfall
from telemetry.store.answers import Filter
from telemetry.store.connection import BadQuestionError, Row, StoreConnection, rows, rows_of_trace
from telemetry.store.questions.explanation import Explanation, ExplanationQuestion, TurnSelection, explained
from telemetry.store.questions.filters import TURN_COLUMNS, Condition, Natural, grouped, metric_column, values_of
from telemetry.store.questions.pages import HeadedAnswer, ViewHead, ViewQuestion, Window, open_view
from telemetry.store.questions.pairs import both_sides
from telemetry.store.questions.runs import runs
from telemetry.store.questions.timelines import bucket_width_ns
from telemetry.store.recordings.excerpt import CallExcerpt, CallOfTurn, excerpt
from telemetry.store.recordings.files import calls_with_words
from telemetry.store.schema import span_from_row, turn_from_row, with_turn

# What is below an edge is in its band, what is beyond the last one in one more. Finer where people hear a difference;
# the last one is open, so that no outlier is left out.
EDGES_MS: Final = (
    *(0, 50, 100, 150, 200, 300, 400, 500, 600, 700, 800, 900, 1_000, 1_200, 1_400, 1_600, 1_800, 2_000),
    *(2_500, 3_000, 4_000, 5_000, 7_000, 10_000, 15_000, 20_000, 30_000, 60_000),
)


@dataclass(frozen=True, slots=True)
class HeatCell:
    """The number of turns that began in a period and have a value in a band; bands count from 0."""

    start_unix_ns: int
    band: int
    n: int


def band_limits_ms(band: int) -> tuple[int | None, int | None]:
    """Return the lower and the upper limit of a band; None if it is open."""
    low = EDGES_MS[band - 1] if band else None
    return low, EDGES_MS[band] if band < len(EDGES_MS) else None


def _column_width_ns(first_unix_ns: int | None, last_unix_ns: int | None) -> int:
    """Return a round width by which a period has at most HEAT_COLUMNS columns."""
    # Without turns, both are None.
    return bucket_width_ns((last_unix_ns or 0) - (first_unix_ns or 0), HEAT_COLUMNS)


def bands_of(cells: Sequence[HeatCell]) -> list[int]:
    """The turns of each band over the whole period."""
    counts = [0] * (len(EDGES_MS) + 1)
    for cell in cells:
        counts[cell.band] += cell.n
    return counts


# Nobody types more, and a statement has room for it.
MOST_CHARS = 200


@dataclass(frozen=True, slots=True)
class TurnSearch:
    """The conditions on turns in addition to a filter; latencies of the metric in ns and moments at which turns began,
    each from the first to below the second."""

    text: str = ""
    outcome: str | None = None
    model: str | None = None
    from_ns: int | None = None
    below_ns: int | None = None
    since_unix_ns: int | None = None
    until_unix_ns: int | None = None

    @property
    def is_any(self) -> bool:
        """Whether it excludes no turn."""
        return self == TurnSearch()


@dataclass(frozen=True, slots=True)
class FoundWords:
    """The number of kept calls that were searched for words, and whether there were more."""

    calls: int = 0
    is_all: bool = True


def search_condition(
    connection: StoreConnection, search: TurnSearch, column: str, run_id: str | None
) -> tuple[Condition, FoundWords]:
    """Convert a search to a condition on turns. Words are searched in the transcripts of the store and in the kept
    texts."""
    where = Condition("TRUE")
    if search.since_unix_ns is not None:
        where &= Condition("started_unix_ns >= ?", (search.since_unix_ns,))
    if search.until_unix_ns is not None:
        where &= Condition("started_unix_ns < ?", (search.until_unix_ns,))
    if search.outcome is not None:
        where &= Condition("outcome = ?", (search.outcome,))
    if search.model is not None:
        where &= Condition("model = ?", (search.model,))
    if search.from_ns is not None:
        where &= Condition(f"{column} >= ?", (search.from_ns,))
    if search.below_ns is not None:
        where &= Condition(f"{column} < ?", (search.below_ns,))
    text = search.text.strip()[:MOST_CHARS]
    if not text:
        return where, FoundWords()
    matches, searched, is_all = [], 0, True
    if run_id is not None:
        matches, searched, is_all = calls_with_words(connection.directory, run_id, text, connection.now_unix_ns)
    by_text = Condition(
        "starts_with(lower(trace_id), lower(?)) OR starts_with(lower(call_id), lower(?)) "
        "OR contains(lower(utterance_id), lower(?)) OR contains(lower(transcript_pii), lower(?))",
        (text,) * 4,
    )
    if matches:
        by_text = Condition(
            f"({by_text.sql}) OR (call_id, turn_index) IN (SELECT unnest(?::VARCHAR[]), unnest(?::BIGINT[]))",
            (*by_text.values, [call for call, _ in matches], [index for _, index in matches]),
        )
    return where & by_text, FoundWords(searched, is_all)


PAGE_SIZES: Final = (25, 50, 100)
# A table is sorted again for each of its pages: to reach turns beyond them, narrow the search.
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
    """The question of the page. A filter without a run means the newest one; `window_ns` is how long before the end of
    its run the turns began. `page` counts from 0."""

    filter: Filter = Filter()  # noqa: RUF009 - immutable
    window_ns: Window = None
    search: TurnSearch = TurnSearch()
    metric: str = HEADLINE
    order: Annotated[str, msgspec.Meta(pattern=f"^({'|'.join(ORDERS)})$")] = "slowest"
    page: Annotated[int, msgspec.Meta(ge=0, le=MOST_PAGED)] = 0
    page_size: Annotated[int, msgspec.Meta(ge=1, le=PAGE_SIZES[-1])] = PAGE_SIZES[0]


_TURNS: Final = TurnsQuestion()


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
    """The answer of the store; nothing of it is known where there is no such run.

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
    words: FoundWords = FoundWords()
    explanation: Explanation | None = None  # what sets the turns that are searched for apart


def turns_page(connection: StoreConnection, asked: TurnsQuestion = _TURNS) -> TurnsAnswer:
    """Answer the Turns page. Raises BadQuestionError for an unknown metric or order."""
    if asked.order not in ORDERS:
        raise BadQuestionError(f"there is no order {asked.order!r:.60}; known are {', '.join(ORDERS)}")
    column = metric_column(asked.metric)
    head = open_view(connection, ViewQuestion(asked.filter, asked.window_ns))
    if head.run is None:
        return TurnsAnswer(head)
    f = head.filter
    searched, words = search_condition(connection, asked.search, column, f.run_id)
    where = grouped(f) & searched
    totals = _totals(connection, where, column)
    width_ns = _column_width_ns(totals["first_unix_ns"], totals["last_unix_ns"])
    cells = _cells(connection, where, column, width_ns)
    bands = bands_of(cells)
    paged = min(totals["total"], MOST_PAGED)
    pages = -(-paged // asked.page_size)
    page = min(asked.page, max(0, pages - 1))
    return TurnsAnswer(
        head=head,
        total=totals["total"],
        with_value=totals["with_value"],
        width_ns=width_ns,
        cells=tuple(cells),
        distribution=tuple(bands),
        outliers=_listed(connection, where & _MEASURED, column, "slowest", (OUTLIERS, 0)),
        turns=_listed(connection, where, column, asked.order, (asked.page_size, page * asked.page_size)),
        page=page,
        pages=pages,
        values=values_of(connection, Filter(run_id=f.run_id), ("model", "outcome")),
        words=words,
        explanation=_explained(connection, asked, head, searched),
    )


def _explained(
    connection: StoreConnection, asked: TurnsQuestion, head: ViewHead, searched: Condition
) -> Explanation | None:
    """Return what distinguishes the turns of the search from the others of the filter; None if it selects all or none,
    and if the figures say nothing about the service."""
    if asked.search.is_any or asked.metric != HEADLINE or head.summary is None or head.summary.is_generator_limited:
        return None
    explanation = explained(connection, ExplanationQuestion(TurnSelection(), head.filter), searched)
    return explanation if explanation.selected and explanation.others else None


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
    counts = rows(
        connection,
        f"""
        SELECT started_unix_ns // {width_ns} AS bucket, CASE {cases} ELSE {len(EDGES_MS)} END AS band, count(*) AS n
        FROM turns WHERE {measured.sql} AND {column} IS NOT NULL GROUP BY bucket, band ORDER BY bucket, band
        """,
        list(measured.values),
    )
    return [HeatCell(row["bucket"] * width_ns, row["band"], row["n"]) for row in counts]


def _listed(
    connection: StoreConnection, where: Condition, column: str, order: str, limits: tuple[int, int]
) -> tuple[ListedTurn, ...]:
    """Return a page of turns in an order.

    One column first determines which turns can be on the page: the others are then read from few row groups
    only.
    """
    named, is_falling = ORDERS[order]
    by, direction, most = named or column, "DESC" if is_falling else "ASC", sum(limits)
    (last,) = rows(
        connection,
        f"SELECT {'min' if is_falling else 'max'}(value) AS value, count(value) AS n FROM (SELECT {by} AS value "
        f"FROM turns WHERE {where.sql} ORDER BY value {direction} NULLS LAST LIMIT ?)",
        [*where.values, most],
    )
    if last["n"] == most:
        where &= Condition(f"{by} {'>=' if is_falling else '<='} ?", (last["value"],))
    page = rows(
        connection,
        f"SELECT {', '.join(_SHOWN)}, {column} AS value_ns FROM turns WHERE {where.sql} "
        f"ORDER BY {by} {direction} NULLS LAST, started_unix_ns, span_id LIMIT ? OFFSET ?",
        [*where.values, *limits],
    )
    for row in page:
        row["value_ns"] = None if row["value_ns"] is None else int(row["value_ns"])
    return tuple(ListedTurn(**row) for row in page)


# A call has up to a thousand turns of ours; a service may report more.
MOST_TURNS: Final = 2_000
_MOST_SPANS: Final = 5_000
_AROUND_NS: Final = 500_000_000


@dataclass(frozen=True, slots=True)
class TurnOfCall:
    """One turn of a call on the call's own clock, in ns from its first turn's beginning."""

    turn_index: int
    start_ns: int
    end_ns: int
    outcome: Outcome
    speech_ns: tuple[int, int] | None = None
    reply_ns: tuple[int, int] | None = None
    voice_to_voice_ns: int | None = None


@dataclass(frozen=True, slots=True)
class TurnView:
    """A turn; both sides are None where the store has neither. `excerpt` is None where nothing was kept of its call.

    `kept_in` is the folder, on the machine of the callers, in which the run kept calls; None for a run that kept none.
    """

    client: Turn | None = None
    service: Turn | None = None
    picture: Waterfall | None = None
    call: tuple[TurnOfCall, ...] = ()
    excerpt: CallExcerpt | None = None
    kept_in: str | None = None


def turn_view(connection: StoreConnection, trace_id: str, turn_index: Natural, *, whole_call: bool = False) -> TurnView:
    """Answer the page of one turn."""
    client, service = both_sides(connection, trace_id, turn_index)
    shown = client or service
    if shown is None:
        return TurnView()
    call_rows = rows_of_trace(
        connection, "turns", shown.trace_id, columns=TURN_COLUMNS, order="started_unix_ns, span_id"
    )
    turns = [turn for turn in map(turn_from_row, call_rows[:MOST_TURNS]) if turn.source == shown.source]
    spans = _spans(connection, trace_id, _MOST_SPANS)
    kept = None
    if client is not None:
        first, end = _stretch(turns if whole_call else [client])
        kept = excerpt(
            connection.directory,
            CallOfTurn(client.run_id, client.call_id, turn_index, first - _AROUND_NS, end + _AROUND_NS),
            connection.now_unix_ns,
        )
    run = next((run for run in runs(connection) if run.run_id == shown.run_id), None)
    kept_in = None if run is None or client is None else run.declared.get("recordings")
    return TurnView(client, service, waterfall(client, service, spans), tuple(calls_turns(turns)), kept, kept_in)


def spans_of_trace(connection: StoreConnection, trace_id: str) -> list[SpanRow]:
    """The spans of a trace in the order of their beginning, each with every attribute that it came with."""
    spans = _spans(connection, trace_id)
    if not any(span.name == SPAN_TURN for span in spans):
        return spans
    turns = rows_of_trace(connection, "turns", trace_id, columns=TURN_COLUMNS, order="span_id")
    turns_by_span = {row["span_id"]: turn_from_row(row) for row in turns}
    return [with_turn(span, turns_by_span.get(span.span_id)) for span in spans]


def _spans(connection: StoreConnection, trace_id: str, most: int | None = None) -> list[SpanRow]:
    """Return the spans as stored, without the attributes that are only in the row of their turn."""
    order = "timestamp_unix_ns, duration_ns DESC, span_id"
    stored = rows_of_trace(connection, "spans", trace_id, columns="*", order=order)
    return [span_from_row(row) for row in stored[:most]]


def calls_turns(turns: Sequence[Turn]) -> list[TurnOfCall]:
    """The turns of one side of a call, on one clock."""
    if not turns:
        return []
    zero = min(turn.started_perf_ns for turn in turns)
    return [_on_call_clock(turn, zero) for turn in sorted(turns, key=lambda turn: turn.turn_index)]


def _on_call_clock(turn: Turn, zero_perf_ns: int) -> TurnOfCall:
    first, end = _stretch([turn])
    value = METRICS[HEADLINE].value(turn)
    return TurnOfCall(
        turn_index=turn.turn_index,
        start_ns=first - zero_perf_ns,
        end_ns=end - zero_perf_ns,
        outcome=turn.outcome,
        speech_ns=_between(turn.speech_start_perf_ns, turn.speech_end_perf_ns, zero_perf_ns),
        reply_ns=_between(turn.first_audio_perf_ns, turn.reply_end_perf_ns, zero_perf_ns),
        voice_to_voice_ns=None if value is None else int(value),
    )


def _between(start_perf_ns: int | None, end_perf_ns: int | None, zero_perf_ns: int) -> tuple[int, int] | None:
    if start_perf_ns is None or end_perf_ns is None or end_perf_ns < start_perf_ns:
        return None
    return start_perf_ns - zero_perf_ns, end_perf_ns - zero_perf_ns


def _stretch(turns: Sequence[Turn]) -> tuple[int, int]:
    """Return the start of the first of these turns and the last known time of any."""
    first = min(turn.speech_start_perf_ns or turn.started_perf_ns for turn in turns)
    ends = [
        moment
        for turn in turns
        for moment in (turn.started_perf_ns, turn.speech_end_perf_ns, turn.reply_end_perf_ns, turn.hangup_perf_ns)
        if moment is not None
    ]
    return first, max(ends)
