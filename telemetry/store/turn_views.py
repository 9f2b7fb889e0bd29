"""All that the page of one turn shows, from one consistent read: both sides, its call, and what was kept of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from telemetry.model.metrics import HEADLINE, METRICS
from telemetry.model.semconv import Outcome
from telemetry.model.spans import SpanRow
from telemetry.model.turns import Turn
from telemetry.model.waterfall import Waterfall, waterfall
from telemetry.store.both_sides import both_sides
from telemetry.store.connection import StoreConnection, rows_of_trace
from telemetry.store.recordings.excerpt import CallExcerpt, CallOfTurn, excerpt
from telemetry.store.runs import runs
from telemetry.store.schema import span_from_row, turn_from_row
from telemetry.store.turn_pages import StoreMoment
from telemetry.store.turn_rows import TURN_COLUMNS

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


def turn_view(
    connection: StoreConnection, trace_id: str, turn_index: int, moment: StoreMoment, *, whole_call: bool = False
) -> TurnView:
    """Answer all of it."""
    client, service = both_sides(connection, trace_id, turn_index)
    shown = client or service
    if shown is None:
        return TurnView()
    of_trace = rows_of_trace(
        connection, "turns", shown.trace_id, columns=TURN_COLUMNS, order="started_unix_ns, span_id"
    )
    turns = [turn for turn in map(turn_from_row, of_trace[:MOST_TURNS]) if turn.source == shown.source]
    spans = _spans(connection, trace_id)
    kept = None
    if client is not None:
        first, end = _stretch(turns if whole_call else [client])
        kept = excerpt(
            moment.directory,
            CallOfTurn(client.run_id, client.call_id, turn_index, first - _AROUND_NS, end + _AROUND_NS),
            moment.now_unix_ns,
        )
    run = next((run for run in runs(connection) if run.run_id == shown.run_id), None)
    kept_in = None if run is None or client is None else run.declared.get("recordings")
    return TurnView(client, service, waterfall(client, service, spans), tuple(calls_turns(turns)), kept, kept_in)


def _spans(connection: StoreConnection, trace_id: str) -> list[SpanRow]:
    order = "timestamp_unix_ns, duration_ns DESC, span_id"
    found = rows_of_trace(connection, "spans", trace_id, columns="*", order=order)
    return [span_from_row(row) for row in found[:_MOST_SPANS]]


def calls_turns(turns: Sequence[Turn]) -> list[TurnOfCall]:
    """The turns of one side of a call, on one clock."""
    if not turns:
        return []
    zero = min(turn.started_perf_ns for turn in turns)
    return [_of_call(turn, zero) for turn in sorted(turns, key=lambda turn: turn.turn_index)]


def _of_call(turn: Turn, zero_perf_ns: int) -> TurnOfCall:
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
    """From the beginning of the first of these turns to the last moment that is known of any."""
    first = min(turn.speech_start_perf_ns or turn.started_perf_ns for turn in turns)
    ends = [
        moment
        for turn in turns
        for moment in (turn.started_perf_ns, turn.speech_end_perf_ns, turn.reply_end_perf_ns, turn.hangup_perf_ns)
        if moment is not None
    ]
    return first, max(ends)
