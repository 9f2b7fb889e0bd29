"""The runs of a store: from the declarations of their generators or from their turns, and the state of each."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from telemetry.model import semconv
from telemetry.model.foreign_text import one_line, several_lines
from telemetry.model.formatting import number
from telemetry.store.answers import SHARE_LIMIT, GeneratorLimit, ProcessInfo, RunRecord, StartCounts
from telemetry.store.attribute_values import TEXT_MAX_CHARS, read_attributes
from telemetry.store.connection import Row, StoreConnection, once, rows
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
        """The run that it declares; None if it names none."""
        return next((self.attributes[name] for name in _RUN_IDS if self.attributes.get(name)), None)


@once
def run_spans(connection: StoreConnection) -> list[RunSpan]:
    """Every `voice.run` span of the store, ordered by start, then by process, with the end of a process last."""
    spans = [
        RunSpan(row["start_unix_ns"], row["end_unix_ns"], row["stored_unix_ns"], _texts(row))
        for row in rows(connection, _DECLARED)
    ]
    return sorted(
        spans,
        key=lambda span: (
            span.start_unix_ns,
            span.attributes.get(_PROCESS, ""),
            span.attributes.get(_PHASE) == "end",
        ),
    )


def _texts(row: Row) -> dict[str, str]:
    texts = {
        one_line(name): several_lines(text, TEXT_MAX_CHARS)
        for name, text in zip(row["names"] or (), row["texts"] or (), strict=True)
        if text is not None
    }
    others = read_attributes(row["others"])
    return texts | {name: msgspec.json.encode(value).decode() for name, value in others.items() if value is not None}


@once
def runs(connection: StoreConnection) -> list[RunRecord]:
    """Every run in the store, from what its generator declared or from its turns; the newest first."""
    known = {row["run_id"]: RunRecord(**row, ended=False, declared={}) for row in rows(connection, _STATEMENT)}
    # A run of several processes has ended when each of those that began it has announced its end.
    running: defaultdict[str, set[str]] = defaultdict(set)
    for span in run_spans(connection):
        run_id = span.run_id
        if run_id is not None:
            known[run_id] = _with_declaration(known.get(run_id), run_id, span)
            change = running[run_id].discard if span.attributes.get(_PHASE) == "end" else running[run_id].add
            change(str(span.attributes.get(_PROCESS)))
    for run_id, still_there in running.items():
        known[run_id] = replace(known[run_id], ended=not still_there)
    for run_id in cut_runs(connection) & known.keys():
        known[run_id] = replace(known[run_id], lacks_old_turns=True)
    return sorted(known.values(), key=storing_order, reverse=True)


@once
def cut_runs(connection: StoreConnection) -> frozenset[str]:
    """The runs from which retention has removed some turns and kept others."""
    cut = connection.execute(
        """
        SELECT DISTINCT run_id FROM removed WHERE of_table = 'turns' AND run_id IS NOT NULL
        AND run_id IN (SELECT run_id FROM turns)
        """
    ).fetchall()
    return frozenset(run_id for (run_id,) in cut)


def storing_order(run: RunRecord) -> tuple[int, int, str]:
    """The key to order runs by the time of storing: a sender's clock decides only between runs stored together."""
    return _stored_unix_ns(run), run.first_unix_ns, run.run_id


def newest_run(known: Iterable[RunRecord]) -> RunRecord | None:
    """The run to use if none is named: the run of callers that was stored last, or a service's day whose turns were
    stored long after it. A service that reports during calls is the other side of their run."""
    known = list(known)
    newest_call_run = max((run for run in known if run.service is None), key=storing_order, default=None)
    newest_service_day = max((run for run in known if run.service is not None), key=storing_order, default=None)
    if newest_call_run is None or newest_service_day is None:
        return newest_call_run or newest_service_day
    goes_on = _stored_unix_ns(newest_service_day) > _stored_unix_ns(newest_call_run) + _GOES_ON_NS
    return newest_service_day if goes_on else newest_call_run


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


# A process reports its health every second or so, and a busy machine or a spool may hold that up.
RECENT_S: Final = 30.0
# Turns that ended so long after its last report may have begun after it.
_REPORTED_WITHIN_S: Final = 2.0
NOT_AS_ASKED: Final = "the load was not what was asked for"
AS_MANY_AS_ALLOWED: Final = "as many as are allowed were under way"
# Outcomes of turns in which the service kept its caller waiting to the end.
KEPT_OUTCOMES: Final = ("no_reply", "timeout", "error")


@dataclass(frozen=True, slots=True, kw_only=True)
class LostProcess:
    """A process of the generator that ended without announcing it; None is unknown (it may never have started)."""

    worker: str = ""  # "2 of 4", as it named itself
    after_s: float | None = None  # from its beginning to its last sign of life
    calls_cut: int | None = None  # under way at its last report


def is_service_slow(total: int, by_outcome: Mapping[str, int], did_not_read: int) -> bool:
    """Return whether the service delayed so many callers, until the end of their turns or by not reading their audio,
    that it is the reason why calls remained in progress."""
    kept = max(sum(by_outcome.get(outcome, 0) for outcome in KEPT_OUTCOMES), did_not_read)
    return kept > SHARE_LIMIT * total


def calls_not_begun(starts: StartCounts | None) -> str | None:
    """Return how many due calls never began, as half a sentence; None if all did. Each is an open turn."""
    if starts is None or not starts.dropped:
        return None
    return f"{number(starts.dropped)} of {number(starts.planned)} calls that were due never began"


def is_at_work(process: ProcessInfo, now_unix_ns: int | None) -> bool:
    """Return whether a process has not ended and was heard from recently; `now_unix_ns` is None for a run that is known
    to be over. A time in the future, by more than clocks may differ, shows nothing."""
    if now_unix_ns is None or process.ended:
        return False
    return abs(now_unix_ns - process.last_seen_unix_ns) / 1e9 <= RECENT_S


def is_under_way(known: Sequence[ProcessInfo], now_unix_ns: int | None) -> bool:
    """Return whether any of a run's processes is at work."""
    return any(is_at_work(process, now_unix_ns) for process in known)


def last_heard(known: Sequence[ProcessInfo]) -> int | None:
    """The last sign of life of the process that has been silent for longest, among those that have not announced their
    end; None if all have."""
    return min((process.last_seen_unix_ns for process in known if not process.ended), default=None)


def calls_in_flight_now(known: Sequence[ProcessInfo]) -> int | None:
    """Return how many calls are in flight by the newest report of each process that has not ended; None if one of them
    has not reported, or not since its latest turns."""
    running = [process for process in known if not process.ended]
    if not known or any(_is_outdated(process) for process in running):
        return None
    return sum(process.calls_in_flight or 0 for process in running)


def _is_outdated(process: ProcessInfo) -> bool:
    reported = process.calls_reported_unix_ns
    return reported is None or process.last_seen_unix_ns - reported > _REPORTED_WITHIN_S * 1e9


def lost_processes(known: Sequence[ProcessInfo], asked: int, now_unix_ns: int | None = None) -> tuple[LostProcess, ...]:
    """The processes that started and never announced their end, and, for a run that is over, those of `asked` that
    never started. Valid once the telemetry of the run is delivered; during the run, working processes are not lost."""
    lost = [
        LostProcess(
            worker=process.worker,
            after_s=None
            if process.began_unix_ns is None
            else max(0.0, (process.last_seen_unix_ns - process.began_unix_ns) / 1e9),
            calls_cut=process.calls_in_flight,
        )
        for process in known
        if not process.ended and not is_at_work(process, now_unix_ns)
    ]
    never_began = 0 if is_under_way(known, now_unix_ns) else asked - len(known)
    return (*lost, *(LostProcess() for _ in range(never_began)))


def loss_of_processes(lost: Sequence[LostProcess], processes: int) -> str:
    """Describe the lost processes and their number of turns, as half a sentence."""
    of = max(processes, len(lost))
    verb, whose = ("was", "its") if len(lost) == 1 else ("were", "their")
    text = f"{len(lost)} of {of} generator process{'es' if of > 1 else ''} {verb} lost"
    times = [f"{process.after_s:.0f} s" for process in lost if process.after_s is not None]
    if times:
        text += f" after {' and '.join(times)}"
    cut = sum(process.calls_cut or 0 for process in lost)
    if cut:
        text += f": of {whose} {cut} call{'s' if cut > 1 else ''} in flight only the finished turns count"
    return text


def generator_limit(known: Sequence[ProcessInfo], asked: int | None, now_unix_ns: int) -> GeneratorLimit | None:
    """Return why the figures of a run with these processes say nothing about the service; None if they do. `asked` is
    the declared number of processes, None if that is not declared."""
    processes = asked or max(1, len(known))
    if lost := lost_processes(known, processes, now_unix_ns):
        return GeneratorLimit(f"{loss_of_processes(lost, processes)}; {NOT_AS_ASKED}")
    return None
