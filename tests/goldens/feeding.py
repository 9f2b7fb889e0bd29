"""Feeding of requests into a store and a page of `/metrics`: the one module that knows a writer.

It does what the sidecar's store process does with a request, on a clock of its own: decodes it, appends its tables,
makes turns of the spans of services when these are due, and counts what was stored.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

import pyarrow as pa

from telemetry.objectives.slo import default_objectives
from telemetry.rollout.gate import decide
from telemetry.rollout.plan_document import parse_plan
from telemetry.sidecar.counts.exposition import Exposition
from telemetry.sidecar.counts.state import IngestState
from telemetry.sidecar.faults import FaultBoard
from telemetry.sidecar.otlp.tables import DecodedTables
from telemetry.sidecar.rollouts.rollout_log import RolloutLog
from telemetry.sidecar.service_turns import ServiceTurns
from telemetry.store.questions.rollouts import evidence_of, question_of
from telemetry.store.reader import StoreReader
from telemetry.store.schema import ArrowTable, turns_table
from telemetry.store.writer import StoreWriter
from tests.fixtures_sidecar import decode_metrics, decode_traces
from tests.goldens.calls import MINUTE, RUNS
from tests.goldens.exports import DAY_NS, Arrival

# When the store is asked: hours after the last run, on the day of the bot's last calls.
NOW_UNIX_NS: Final = RUNS[-1].ends_unix_ns + DAY_NS
ROLLOUT_PLAN: Final = """\
name = "fast"
unit = "call"
slices = ["noise_profile"]
[cohorts]
control = "stable"
candidate = "fast"
[primary]
margin = "300ms"
[[stages]]
name = "quarter"
share = 0.25
fewest_turns = 20
[[stages]]
name = "half"
share = 0.5
[[guardrails]]
check = "no_reply"
margin = 0.1
[[guardrails]]
check = "good_turns"
within = "1s"
margin = 0.1
"""


class _Feeder:
    """A store that is being filled, and the counts of `/metrics`."""

    def __init__(self, directory: Path) -> None:
        self.unix_ns = 0
        self._state = IngestState()
        objectives = default_objectives()
        self._exposition = Exposition(objectives, state=self._state, clock_s=self._now_s)
        self.writer = StoreWriter(directory, unix_ns=self._now_ns)
        self._faults = FaultBoard()
        self._turns = ServiceTurns(
            self.writer,
            self._exposition.observe,
            self._state,
            self._faults,
            revised=self._exposition.observe_revised,
            unix_ns=self._now_ns,
        )

    def _now_ns(self) -> int:
        return self.unix_ns

    def _now_s(self) -> float:
        return self.unix_ns / 1e9

    def take(self, arrivals: Sequence[Arrival]) -> None:
        """Take requests that are committed together, when the last of them comes."""
        self._until(arrivals[-1].unix_ns)
        tables = [_decoded(arrival) for arrival in arrivals]
        for table in tables:
            self._state.unmapped_spans += table.unmapped
        turns = [turn for table in tables for turn in table.turns]
        spans, points = (pa.concat_tables([getattr(table, name) for table in tables]) for name in ("spans", "points"))
        appended = self.writer.append_tables(turns_table(turns), spans, points)
        self._exposition.observe([turns[place] for place in appended.turn_places])
        self._turns.take(appended.spans)
        self._turns.refresh()

    def _until(self, unix_ns: int) -> None:
        """Let the clock go on, and turns become due meanwhile."""
        while self.unix_ns + MINUTE < unix_ns and self.unix_ns:
            self.unix_ns += MINUTE
            self._turns.refresh()
        self.unix_ns = unix_ns
        self._turns.refresh()

    def close(self) -> str:
        """Wait for all turns, and give the page of `/metrics`."""
        self._until(self.unix_ns + 30 * MINUTE)
        self._turns.close()
        self.writer.close()
        assert self._faults.all() == ()
        return self._exposition.render("")[0].decode()


def _decoded(arrival: Arrival) -> DecodedTables:
    decode = decode_traces if arrival.signal == "traces" else decode_metrics
    decoded = decode([arrival.body])
    assert not decoded.requests[0].rejected, decoded.requests[0].reasons
    assert decoded.requests[0].fault is None
    return decoded


def feed(directory: Path, arrivals: Iterable[Arrival]) -> str:
    """Fill a store with requests, those of a minute at a time, and give its page of `/metrics`."""
    feeder = _Feeder(directory)
    for _, of_minute in groupby(arrivals, key=lambda arrival: arrival.unix_ns // MINUTE):
        feeder.take([*of_minute])
    return feeder.close()


def feed_tables(directory: Path, tables: Iterable[tuple[ArrowTable, ArrowTable, ArrowTable]], unix_ns: int) -> None:
    """Fill a store with tables of turns, spans and points, all stored at one moment."""
    with StoreWriter(directory, unix_ns=lambda: unix_ns) as writer:
        for turns, spans, points in tables:
            writer.append_tables(turns, spans, points)


def keep_rollout(directory: Path) -> None:
    """Begin the rollout of the run `canary`, look at it three times, and move it on after a promotion."""
    run = RUNS[-1]
    plan = parse_plan(ROLLOUT_PLAN, "fast")
    with RolloutLog(directory, plan, ROLLOUT_PLAN, run.begins_unix_ns) as log:
        for place in (1, 2, 3):
            at = run.begins_unix_ns + (run.ends_unix_ns - run.begins_unix_ns) * place // 3

            def now(at: int = at) -> int:
                return at

            with StoreReader(directory, wall_clock_ns=now) as reader:
                evidence = reader.rollout_turns(question_of(plan, log.history.stage_since_unix_ns))
            verdict = decide(plan, evidence_of(evidence), log.history, at)
            log.append(plan, verdict)
            if verdict.verdict == "promote" and verdict.next_stage is not None:
                log.move(verdict.next_stage.name, at)
