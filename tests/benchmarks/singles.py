"""The parts that compare with nobody: the hot path's protocols, telemetry for each turn, the truth of event stamps."""

import json
import sys
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tests.benchmarks.figures import Lateness, percentiles_ms
from tests.benchmarks.messages import STAMP_KINDS
from tests.benchmarks.processes import finish, serving, start
from tests.benchmarks.senders import ENDS_S, Bench, Case

PROBES: Final = 20
# Where the truth itself was interrupted between its two looks at the clock, it does not know well enough.
MOST_UNSURE_NS: Final = 100_000
_TELEMETRY_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class StampError:
    """How far one kind of stamp was from the truth, in ms: later than the moment just before the message was sent."""

    case: Case
    kind: str
    messages: int
    left_out: int  # the truth itself was not sure of them
    p50_ms: float | None
    p99_ms: float | None
    max_ms: float | None


def protocols(bench: Bench, times: int) -> dict[str, float]:
    """Microseconds by what is done. Raises PartFailedError."""
    log = bench.folder / "log"
    command = [sys.executable, "-m", "tests.benchmarks.protocols", str(times)]
    return finish("protocols part", start(command, bench.cores.sender, log), _TELEMETRY_S, log)


def telemetry(bench: Bench, turns: int) -> dict[str, Any]:
    """Microseconds of processor time for each turn. Raises PartFailedError."""
    log = bench.folder / "log"
    sink_command = [sys.executable, "-m", "tests.benchmarks.otlp_sink"]
    with serving("collector", sink_command, bench.cores.peer, log) as sink:
        collector = f"http://127.0.0.1:{sink.said['port']}"
        command = [sys.executable, "-m", "tests.benchmarks.telemetry_cost", collector, str(turns)]
        found = finish("telemetry part", start(command, bench.cores.sender, log), _TELEMETRY_S, log)
        sink.end()
    return {**found, "requests": sink.last["requests"], "bytes": sink.last["bytes"]}


def stamps(bench: Bench, case: Case) -> list[StampError]:
    """How true the stamps are while the engine serves the case's callers. Raises PartFailedError."""
    log, seen, known = bench.folder / "log", bench.folder / "stamps", bench.folder / "truth"
    truth_command = [sys.executable, "-m", "tests.benchmarks.truth", str(known)]
    peer_command = bench.peer_command(case, bench.folder / "peer-sent")
    with (
        serving("peer", peer_command, bench.cores.peer, log) as peer,
        serving("truth", truth_command, bench.cores.peer, log) as truth,
    ):
        numbers = [str(peer.said["port"]), str(case.callers), *bench.times(), str(seen)]
        command = [sys.executable, "-m", "tests.benchmarks.stamps", *numbers, str(truth.said["port"]), str(PROBES)]
        within_s = ENDS_S + bench.warm_up_s + bench.window_s
        finish("stamps part", start(command, bench.cores.sender, log), within_s, log)
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
