"""The runs of a store: from what their generators declared or from their turns."""

# ruff: noqa: S608 - the identifiers in these statements come from our own tables, every value is bound

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from telemetry.model import semconv
from telemetry.model.foreign_text import one_line, several_lines
from telemetry.store.answers import RunRecord
from telemetry.store.attribute_values import TEXT_MAX_CHARS, read_attributes
from telemetry.store.connection import Row, StoreConnection, rows
from telemetry.store.questions.filters import COUNTED, VIEWED

# The attributes under which a sender may name the run; the first that it states counts.
_RUN_IDS: Final = (semconv.RUN_PREFIX + "run_id", semconv.RUN_PREFIX + "id", "run_id")
_PHASE: Final = semconv.RUN_PREFIX + "phase"
# A service's last turns of a run of callers are reported within this of theirs.
_GOES_ON_NS: Final = 10 * 60 * 1_000_000_000
_PROCESS: Final = semconv.RUN_PREFIX + "process_id"
# The target and the protocol are those of the earliest turn that states one.
_STATEMENT: Final = f"""
    SELECT run_id, min(started_unix_ns) AS first_unix_ns,
           coalesce(max(ended_unix_ns), max(started_unix_ns)) AS last_unix_ns,
           count(*) FILTER (WHERE {VIEWED} AND {COUNTED}) AS turns,
           arg_min(target, started_unix_ns) FILTER (WHERE {VIEWED} AND target IS NOT NULL) AS target,
           arg_min(protocol, started_unix_ns) FILTER (WHERE {VIEWED} AND protocol IS NOT NULL) AS protocol,
           max(stored_unix_ns) AS stored_unix_ns
    FROM turns WHERE run_id <> '' GROUP BY run_id
    """
# What a declaration says, as texts; what is neither a text nor a whole number nor a yes or no stays in `others`.
_TEXT: Final = "coalesce(a.value.string_value, a.value.int_value::VARCHAR, a.value.bool_value::VARCHAR)"
_DECLARED: Final = f"""
    SELECT start_unix_ns, end_unix_ns, stored_unix_ns, [a.key for a in declared] AS names,
           [{_TEXT} for a in declared] AS texts, [a for a in declared if {_TEXT} IS NULL] AS others
    FROM (SELECT timestamp_unix_ns AS start_unix_ns, timestamp_unix_ns + duration_ns AS end_unix_ns, stored_unix_ns,
                 span_id, [a for a in span_attributes
                           if starts_with(a.key, '{semconv.RUN_PREFIX}') OR a.key = 'run_id'] AS declared
          FROM spans WHERE span_name = '{semconv.SPAN_RUN}')
    ORDER BY start_unix_ns, span_id
    """


@dataclass(frozen=True, slots=True)
class RunSpan:
    """A `voice.run` span, with which a process of the generator declares its run at its beginning and at its end, by
    the attributes that are about the run; `stored_unix_ns` is by the store's clock."""

    start_unix_ns: int
    end_unix_ns: int
    stored_unix_ns: int
    attributes: Mapping[str, str]

    @property
    def run_id(self) -> str | None:
        """The run that it declares; None where it names none."""
        return next((self.attributes[name] for name in _RUN_IDS if self.attributes.get(name)), None)


def run_spans(connection: StoreConnection) -> list[RunSpan]:
    """Every `voice.run` span of the store in the order of their beginning, those of one moment by their processes, and
    of a process its end last."""
    found = [
        RunSpan(row["start_unix_ns"], row["end_unix_ns"], row["stored_unix_ns"], _texts(row))
        for row in rows(connection, _DECLARED)
    ]
    return sorted(
        found,
        key=lambda span: (
            span.start_unix_ns,
            span.attributes.get(_PROCESS, ""),
            span.attributes.get(_PHASE) == "end",
        ),
    )


def _texts(row: Row) -> dict[str, str]:
    found = {
        one_line(name): several_lines(text, TEXT_MAX_CHARS)
        for name, text in zip(row["names"] or (), row["texts"] or (), strict=True)
        if text is not None
    }
    others = read_attributes(row["others"])
    return found | {name: msgspec.json.encode(value).decode() for name, value in others.items() if value is not None}


def runs(connection: StoreConnection) -> list[RunRecord]:
    """Every run in the store, from what its generator declared or from its turns; the newest first."""
    return runs_declared(connection, run_spans(connection))


def runs_declared(connection: StoreConnection, declared: Iterable[RunSpan]) -> list[RunRecord]:
    """As `runs`; `declared` is what the runs of the store declared."""
    known = {row["run_id"]: RunRecord(**row, ended=False, declared={}) for row in rows(connection, _STATEMENT)}
    # A run of several processes has ended when each of those that began it has announced its end.
    running: defaultdict[str, set[str]] = defaultdict(set)
    for span in declared:
        run_id = span.run_id
        if run_id is not None:
            known[run_id] = _with_declaration(known.get(run_id), run_id, span)
            change = running[run_id].discard if span.attributes.get(_PHASE) == "end" else running[run_id].add
            change(str(span.attributes.get(_PROCESS)))
    for run_id, still_there in running.items():
        known[run_id] = replace(known[run_id], ended=not still_there)
    for run_id in connection.cut_runs() & known.keys():
        known[run_id] = replace(known[run_id], lacks_old_turns=True)
    return sorted(known.values(), key=storing_order, reverse=True)


def storing_order(run: RunRecord) -> tuple[int, int, str]:
    """The key of a run in the order of storing: a sender's clock decides only between runs stored together."""
    return _stored_unix_ns(run), run.first_unix_ns, run.run_id


def newest_run(known: Iterable[RunRecord]) -> RunRecord | None:
    """The run that is meant where none is named: the one of callers that was stored last, or a service's day of which
    turns were stored long after it. A service that reports while callers are on the line is the other side of their
    run."""
    known = list(known)
    of_callers = max((run for run in known if run.service is None), key=storing_order, default=None)
    of_services = max((run for run in known if run.service is not None), key=storing_order, default=None)
    if of_callers is None or of_services is None:
        return of_callers or of_services
    goes_on = _stored_unix_ns(of_services) > _stored_unix_ns(of_callers) + _GOES_ON_NS
    return of_services if goes_on else of_callers


def _stored_unix_ns(run: RunRecord) -> int:
    return run.last_unix_ns if run.stored_unix_ns is None else run.stored_unix_ns


def _with_declaration(known: RunRecord | None, run_id: str, span: RunSpan) -> RunRecord:
    stored = span.stored_unix_ns
    if known is not None and known.stored_unix_ns is not None:
        # The turns say when a run was stored; of one without turns, its declarations do.
        stored = known.stored_unix_ns if known.turns else max(stored, known.stored_unix_ns)
    declared = {} if known is None else dict(known.declared)
    for name, value in span.attributes.items():
        if name.startswith(semconv.RUN_PREFIX) and name != _PHASE:
            declared[name.removeprefix(semconv.RUN_PREFIX)] = value
    return RunRecord(
        run_id=run_id,
        first_unix_ns=span.start_unix_ns if known is None else min(known.first_unix_ns, span.start_unix_ns),
        last_unix_ns=span.end_unix_ns if known is None else max(known.last_unix_ns, span.end_unix_ns),
        turns=0 if known is None else known.turns,
        target=(known.target if known is not None else None) or declared.get("target"),
        protocol=(known.protocol if known is not None else None) or declared.get("protocol"),
        ended=False,
        declared=declared,
        stored_unix_ns=stored,
    )
