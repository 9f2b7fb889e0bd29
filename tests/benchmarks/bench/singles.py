"""The parts without a comparison: telemetry for each turn, and the error of event stamps."""

import json
import sys
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tests.benchmarks.bench.cases import Case
from tests.benchmarks.bench.figures import Lateness, percentiles_ms
from tests.benchmarks.bench.messages import STAMP_KINDS
from tests.benchmarks.bench.processes import finish, serving, start
from tests.benchmarks.bench.senders import ENDS_S, BenchSetup

PROBES: Final = 20
# Where the endpoint was interrupted between its two readings of the clock, the moment of sending is not certain.
MOST_UNSURE_NS: Final = 100_000
_TELEMETRY_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class StampError:
    """How far one kind of stamp was from the truth, in ms: later than the moment just before the message was sent."""

    case: Case
    kind: str
    messages: int
    left_out: int  # the moment of sending was not certain
    p50_ms: float | None
    p99_ms: float | None
    max_ms: float | None


def telemetry(setup: BenchSetup, turns: int) -> dict[str, Any]:
    """Microseconds of processor time for each turn. Raises PartFailedError."""
    log = setup.folder / "log"
    sink_command = [sys.executable, "-m", "tests.benchmarks.bench.endpoints.otlp_sink"]
    with serving("collector", sink_command, setup.cores.peer, log) as sink:
        collector = f"http://127.0.0.1:{sink.ready['port']}"
        command = [sys.executable, "-m", "tests.benchmarks.bench.callers.telemetry_cost", collector, str(turns)]
        found = finish("telemetry part", start(command, setup.cores.sender, log), _TELEMETRY_S, log)
        sink.end()
    return {**found, "requests": sink.last["requests"], "bytes": sink.last["bytes"]}


def stamps(setup: BenchSetup, case: Case) -> list[StampError]:
    """How true the stamps are while the engine serves the case's callers. Raises PartFailedError."""
    log, seen, known = setup.folder / "log", setup.folder / "stamps", setup.folder / "truth"
    truth_command = [sys.executable, "-m", "tests.benchmarks.bench.endpoints.ground_truth", str(known)]
    peer_command = setup.peer_command(case, setup.folder / "peer-sent")
    with (
        serving("peer", peer_command, setup.cores.peer, log) as peer,
        serving("truth", truth_command, setup.cores.peer, log) as truth,
    ):
        numbers = [str(peer.ready["port"]), str(case.callers), *setup.times(), str(seen)]
        numbers += [str(truth.ready["port"]), str(PROBES)]
        command = [sys.executable, "-m", "tests.benchmarks.bench.callers.stamps", *numbers]
        within_s = ENDS_S + setup.warm_up_s + setup.window_s
        finish("stamps part", start(command, setup.cores.sender, log), within_s, log)
        truth.end()
    record = json.loads(seen.read_text())
    return stamp_errors(case, record["stamps"], json.loads(known.read_text()), record["began_perf_ns"])


def stamp_errors(
    case: Case, seen: dict[str, list[int]], known: dict[str, list[list[int]]], began_perf_ns: int
) -> list[StampError]:
    """Stamps against the truth, by the number of the message on its connection, from the window's beginning on. What
    is still under way has no stamp yet."""
    found: list[StampError] = []
    for kind in STAMP_KINDS:
        pairs = [
            (stamp - before, after - before)
            for path, stamps_of in seen.items()
            if path.startswith(f"/{kind}-")
            for stamp, (before, after) in zip(stamps_of, known[path], strict=False)
            if before >= began_perf_ns
        ]
        errors: Lateness = np.array([error for error, unsure in pairs if unsure <= MOST_UNSURE_NS], np.int64)
        found.append(StampError(case, kind, len(errors), len(pairs) - len(errors), *percentiles_ms(np.abs(errors))))
    return found
