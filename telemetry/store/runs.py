"""The runs of a store, from what their generators declared or from their turns."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgspec

from telemetry.model import semconv
from telemetry.store.answers import RunRecord
from telemetry.store.connection import StoreConnection
from telemetry.store.manifest import Segment
from telemetry.store.run_catalog import CatalogRow, catalog
from telemetry.store.run_sources import RunSources
from telemetry.store.run_spans import RUN_IDS, RunSpan, run_spans

_PHASE: Final = semconv.RUN_PREFIX + "phase"
# A service's last turns of a run of callers are reported within this of theirs.
_GOES_ON_NS: Final = 10 * 60 * 1_000_000_000
_PROCESS: Final = semconv.RUN_PREFIX + "process_id"


def runs(connection: StoreConnection) -> list[RunRecord]:
    """Every run in the store, the newest first."""
    return _records(connection, catalog(connection), run_spans(connection))


def storing_order(run: RunRecord) -> tuple[int, int, str]:
    """The key of a run in the order of storing: a sender's clock decides only between runs stored together."""
    return _stored_unix_ns(run), run.first_unix_ns, run.run_id


@dataclass(frozen=True, slots=True)
class RunsOfStore:
    """Every run in a store, the newest first, and which rows belong to each of them. `faults` are the segments that
    were left out, a sentence each."""

    runs: list[RunRecord]
    sources: RunSources
    faults: tuple[str, ...]


def runs_and_sources(connection: StoreConnection, faults: tuple[str, ...]) -> RunsOfStore:
    """The runs of a snapshot that has these `faults`."""
    rows, spans = catalog(connection), run_spans(connection)
    return RunsOfStore(_records(connection, rows, spans), RunSources(rows, spans), faults)


def _records(connection: StoreConnection, rows: Iterable[CatalogRow], spans: Iterable[RunSpan]) -> list[RunRecord]:
    known: dict[str, RunRecord] = {}
    segments = {segment.file: segment for table in ("turns", "spans") for segment in connection.segments(table)}
    by_run: defaultdict[str, list[CatalogRow]] = defaultdict(list)
    for row in rows:
        if row.run_id:
            by_run[row.run_id].append(row)
    for run_id, found in by_run.items():
        targets = [(row.target_unix_ns, row.target) for row in found if row.target_unix_ns is not None]
        protocols = [(row.protocol_unix_ns, row.protocol) for row in found if row.protocol_unix_ns is not None]
        known[run_id] = RunRecord(
            run_id=run_id,
            first_unix_ns=min(row.first_unix_ns for row in found),
            last_unix_ns=max(row.last_unix_ns for row in found),
            turns=sum(row.viewed_turns for row in found),
            target=min(targets, default=(0, None))[1],
            protocol=min(protocols, default=(0, None))[1],
            ended=False,
            declared={},
            stored_unix_ns=max(_turns_stored_unix_ns(row, segments[Path(row.file).name]) for row in found),
        )
    # A run of several processes has ended when each of those that began it has announced its end.
    running: defaultdict[str, set[str]] = defaultdict(set)
    for span in spans:
        run_id = next((str(span.attributes[name]) for name in RUN_IDS if span.attributes.get(name)), None)
        if run_id is not None:
            known[run_id] = _with_declaration(known.get(run_id), run_id, span, segments[span.file])
            change = running[run_id].discard if span.attributes.get(_PHASE) == "end" else running[run_id].add
            change(str(span.attributes.get(_PROCESS)))
    for run_id, still_there in running.items():
        known[run_id] = replace(known[run_id], ended=not still_there)
    for run_id in connection.cut_runs & known.keys():
        known[run_id] = replace(known[run_id], lacks_old_turns=True)
    return sorted(known.values(), key=storing_order, reverse=True)


def _stored_unix_ns(run: RunRecord) -> int:
    return run.last_unix_ns if run.stored_unix_ns is None else run.stored_unix_ns


def _turns_stored_unix_ns(row: CatalogRow, segment: Segment) -> int:
    """When the turns of a run in a segment were stored; where it does not say, no moment after it was written."""
    stored = segment.run_stored_unix_ns(row.run_id)
    return min(row.last_unix_ns, segment.stored_unix_ns) if stored is None else stored


def _declared_unix_ns(span: RunSpan, segment: Segment) -> int:
    """The same of a declaration: spans that were merged do not say when each was stored."""
    return segment.stored_unix_ns if segment.level == 0 else min(span.end_unix_ns, segment.stored_unix_ns)


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


def _with_declaration(known: RunRecord | None, run_id: str, span: RunSpan, segment: Segment) -> RunRecord:
    stored = _declared_unix_ns(span, segment)
    if known is not None and known.stored_unix_ns is not None:
        # The turns say when a run was stored; of one without turns, its declarations do.
        stored = known.stored_unix_ns if known.turns else max(stored, known.stored_unix_ns)
    declared = {} if known is None else dict(known.declared)
    for name, value in span.attributes.items():
        if name.startswith(semconv.RUN_PREFIX) and name != _PHASE:
            declared[name.removeprefix(semconv.RUN_PREFIX)] = _shown(value)
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


def _shown(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
