"""Pairing of a turn's two sides in one row, when either is stored: the service's report and the caller's measurement.

A service's call belongs to a caller's if it continues the caller's trace, ends its own name with that of the caller's,
or has the name of exactly one call of callers of about that time. A response is identified by its id within the call;
if the wire shows none, by the turn's position in it. Of repeated reports, the first counts.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import duckdb
import pyarrow as pa

from telemetry.model.semconv import RAMP
from telemetry.store.database import number
from telemetry.store.schema import PAIRED_COLUMNS, STAGES, ArrowTable

# The clocks of two hosts, and the beginning of a turn as its two sides see it, differ by less than this.
SIDES_APART_NS: Final = 3600 * 1_000_000_000
# A service may put something before the trace of the caller's call, and dashes into it.
_TRACE_DIGITS: Final = 32
_POINTS: Final = tuple(
    f"{name}_perf_ns" for name in ("speech_end", "endpoint", "asr_final", "llm_first_token", "tts_first_chunk")
)
# The columns that identify equal turns, and those derived from both sides.
_READ: Final = (
    *("source", "run_id", "trace_id", "span_id", "call_id", "response_id", "turn_index", "started_unix_ns"),
    *("outcome", "phase_kind", "voice_to_voice_ns", "speech_end_audio_ns", *_POINTS),
)
_UPDATE: Final = f"""
    UPDATE turns SET {", ".join(f"{name} = c.{name}" for name in PAIRED_COLUMNS)} FROM changed_sides c
    WHERE turns.rowid = c.place
    """
_NAMED: Final = f"right(lower(replace(call_id, '-', '')), {_TRACE_DIGITS})"
# Of the many turns of about that time only the names are looked at, and of those that are meant the rest.
_SIDES: Final = f"""
    SELECT rowid, {", ".join((*PAIRED_COLUMNS, *_READ))} FROM turns WHERE rowid IN (
        SELECT rowid FROM turns WHERE started_unix_ns BETWEEN $1 AND $2 AND (
            trace_id IN (SELECT unnest($3)) OR call_id IN (SELECT unnest($3))
            OR CASE WHEN source = 'service' THEN {_NAMED} END IN (SELECT unnest($3))))
    """
_NEWEST: Final = "SELECT coalesce(max(least(started_unix_ns, stored_unix_ns)), 0) FROM turns"
# The calls of services, each with its first turn.
_RECENT: Final = """
    SELECT source, trace_id, call_id, min(started_unix_ns) FROM turns
    WHERE source = 'service' AND started_unix_ns >= ? GROUP BY ALL
    """
# Names are recalled from the store where so many have come since.
_MANY_NAMES: Final = 1_000_000
_INT64: Final = range(-(2**63), 2**63)

Call = tuple[str, str, str, int]  # the source of a turn, its trace, its call, and when it began
_Row = dict[str, Any]


class TurnSides:
    """Pairs the sides of turns in the transaction that stores them, through its cursor.

    It remembers the names of the calls of which services reported recently: most turns of callers have no other side,
    and for the rest only rows of about the age of the other side are read.
    """

    def __init__(self, cursor: duckdb.DuckDBPyConnection) -> None:
        self._cursor = cursor
        self._recall()

    def paired(self, turns: ArrowTable, removed: Sequence[Call] = ()) -> ArrowTable:
        """Add `PAIRED_COLUMNS` to the turns to be stored. Stored turns of the other side are updated, including those
        whose other side was removed."""
        if not turns.num_rows and not removed:
            return turns
        columns = [turns.column(name).to_pylist() for name in _READ]
        new: list[_Row] = [dict(zip(_READ, values, strict=True)) for values in zip(*columns, strict=True)]
        calls: list[Call] = [(row["source"], row["trace_id"], row["call_id"], row["started_unix_ns"]) for row in new]
        stored = self._other_sides(calls, removed)
        changes: list[_Row] = []
        for row, change in _paired(sorted([*stored, *new], key=lambda row: (row["started_unix_ns"], row["span_id"]))):
            if "rowid" not in row:
                row.update(change)
            # Another side may be older than what was read: only where all was, a turn is found to have none any more.
            elif any(row[name] != value for name, value in change.items()) and (
                removed or change["other_turn"] is not None or row["other_turn"] is None
            ):
                changes.append({"place": row["rowid"], **change})
        if changes:
            fields = [(name, pa.int64()) for name in ("place", *PAIRED_COLUMNS)]
            self._cursor.register("changed_sides", pa.Table.from_pylist(changes, schema=pa.schema(fields)))
            self._cursor.execute(_UPDATE)
        for name in PAIRED_COLUMNS:
            turns = turns.append_column(name, pa.array([row[name] for row in new], pa.int64()))
        return turns

    def _other_sides(self, new: Sequence[Call], removed: Sequence[Call]) -> list[_Row]:
        """The stored turns of the calls of these turns that may be the other side."""
        if len(self._since) > self._most_names:
            self._recall()
        self._remember(new)
        calls, began = {*new, *removed}, [call[3] for call in (*new, *removed)]
        first, last = min(began) - SIDES_APART_NS, max(began) + SIDES_APART_NS
        if not removed and first >= self._known_since_ns and all(call[0] == "client" for call in new):
            # The trace identifies the call, whatever else has its name.
            known = {call: call[1] if call[1] in self._since else call[2] for call in calls}
            calls = {call for call, name in known.items() if name in self._since}
            first = min([min(began), *(self._since[known[call]] for call in calls)])
        names = {name for call in calls for name in _names(call)}
        if not names:
            return []
        rows = self._read(names, first, last)
        heard = {row[name] for row in rows if row["source"] == "client" for name in ("trace_id", "call_id")} - {""}
        return self._read(names | heard, first, last) if heard - names else rows

    def _read(self, names: set[str], first_unix_ns: int, last_unix_ns: int) -> list[_Row]:
        rows = self._cursor.execute(_SIDES, [first_unix_ns, last_unix_ns, [*names]]).fetchall()
        return [dict(zip(("rowid", *PAIRED_COLUMNS, *_READ), row, strict=True)) for row in rows]

    def _recall(self) -> None:
        self._known_since_ns = number(self._cursor, _NEWEST) - 2 * SIDES_APART_NS
        self._since: dict[str, int] = {}
        self._remember(self._cursor.execute(_RECENT, [self._known_since_ns]).fetchall())
        self._most_names = _MANY_NAMES + 2 * len(self._since)

    def _remember(self, calls: Iterable[Call]) -> None:
        """Remember since when services report on the calls of these turns. Turns are paired by the name of a call only
        if no other call has it: all calls of about that time must be read."""
        for call in calls:
            if call[0] == "service":
                for name in _names(call):
                    is_trace = name in (call[1], _named_trace(call[2]))
                    since = call[3] - (0 if is_trace else SIDES_APART_NS)
                    self._since[name] = min(since, self._since.get(name, since))


def _names(call: Call) -> set[str]:
    """Return the names under which the other side may know a call."""
    _, trace_id, call_id, _ = call
    return {trace_id, call_id, _named_trace(call_id)} - {""}


def _named_trace(call_id: str) -> str:
    return call_id.replace("-", "").lower()[-_TRACE_DIGITS:]


def digest(*names: str) -> int:
    """Hash names to a number that a column can hold."""
    return int.from_bytes(hashlib.blake2b("\0".join(names).encode(), digest_size=8).digest(), "big", signed=True)


def _paired(rows: Sequence[_Row]) -> Iterator[tuple[_Row, _Row]]:
    """Yield each turn of some calls, ordered by start, with the new values of its row."""
    clients = [row for row in rows if row["source"] == "client"]
    services = [row for row in rows if row["source"] == "service"]
    runs = {row["trace_id"]: row["run_id"] for row in clients if row["trace_id"]}
    traces = defaultdict[str, set[str]](set)
    for row in clients:
        if row["trace_id"] and row["call_id"]:
            traces[row["call_id"]].add(row["trace_id"])
    at_place = defaultdict[tuple[str | None, int], list[_Row]](list)
    responses: dict[tuple[str | None, object], _Row] = {}
    for row in services:
        known = [name for name in (row["trace_id"], _named_trace(row["call_id"])) if name in runs]
        alone = traces.get(row["call_id"], set[str]())
        row["heard"] = known[0] if known else next(iter(alone)) if len(alone) == 1 else None
        response = (row["heard"] or row["trace_id"], row["response_id"] or row["turn_index"])
        row["first"] = id(responses.setdefault(response, row))
        if row["heard"] and row["first"] == id(row):
            at_place[row["heard"], row["turn_index"]].append(row)
    heard_by: dict[int, _Row] = {}
    for row in clients:
        call = row["trace_id"] or None
        service = responses.get((call, row["response_id"]))
        if service is None:
            others = at_place[call, row["turn_index"]]
            service = next((other for other in others if not row["response_id"] or not other["response_id"]), None)
        if service is not None:
            heard_by.setdefault(id(service), row)
        yield row, _client_columns(row, service)
    for row in services:
        yield row, _service_columns(row, heard_by.get(row["first"]), runs.get(row["heard"]))


def _client_columns(client: _Row, service: _Row | None) -> _Row:
    heard = {"heard_call": digest(client["trace_id"]) if client["trace_id"] else None}
    if service is None:
        return _NO_OTHER | heard | _stages(client, client)
    by_service, by_client = service["speech_end_audio_ns"], client["speech_end_audio_ns"]
    later_ns = 0 if by_service is None or by_client is None else by_service - by_client
    is_stated = service["voice_to_voice_ns"] is not None
    return heard | _other(service) | (_stages(client, service, later_ns) if is_stated else _stages(client, client))


def _service_columns(service: _Row, client: _Row | None, heard_run: str | None) -> _Row:
    """The columns of a service's turn. A turn that figures exclude has nothing to compare with, and a repeated one has
    no stages."""
    is_first, columns = service["first"] == id(service), dict(_NO_OTHER)
    if service["heard"] is not None and heard_run is not None:
        columns |= {"heard_call": digest(service["heard"]), "other_run": digest(heard_run)}
    if client is not None:
        columns |= _other(client)
        if not is_first or client["outcome"] == "invalid" or client["phase_kind"] == RAMP:
            columns["other_voice_to_voice_ns"] = None
    return columns | (_stages(service, service) if is_first else dict.fromkeys(STAGES.values()))


_NO_OTHER: Final[_Row] = dict.fromkeys(PAIRED_COLUMNS)


def _other(turn: _Row) -> _Row:
    return {
        "other_run": digest(turn["run_id"]),
        "other_turn": digest(turn["trace_id"], turn["span_id"]),
        "other_started_unix_ns": turn["started_unix_ns"],
        "other_voice_to_voice_ns": turn["voice_to_voice_ns"],
        "other_speech_end_audio_ns": turn["speech_end_audio_ns"],
    }


def _stages(turn: _Row, points: _Row, later_ns: int = 0) -> _Row:
    """The stages of a turn's wait, from the timestamps of one side. Unknown if timestamps are too far apart for a
    column.

    A transcript that arrived after the first token was not needed for it: then the model's stage begins at the
    endpoint.
    """
    lengths: dict[str, int | None] = dict.fromkeys(STAGES)
    if turn["outcome"] != "invalid" and (turn["voice_to_voice_ns"] or 0) > 0:
        speech_end, endpoint, final, token, chunk = (points[name] for name in _POINTS)
        spoken = None if speech_end is None else speech_end - later_ns
        closed = speech_end if endpoint is None else endpoint
        if None in (final, token, closed) or not closed <= final <= token:
            final = None
        closed = spoken if endpoint is None else endpoint
        begins = {"endpointing": spoken, "asr": closed, "llm": closed if final is None else final, "tts": token}
        ends = {"endpointing": endpoint, "asr": final, "llm": token, "tts": chunk}
        for stage, end in ends.items():
            begin = begins[stage]
            if begin is not None and end is not None and end - begin in _INT64:
                lengths[stage] = end - begin
    return {STAGES[stage]: length for stage, length in lengths.items()}
