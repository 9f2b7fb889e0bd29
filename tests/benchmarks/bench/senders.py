"""The senders against each other: the C control, our engine and the naive locustfile, in turn, on one pinned core."""

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from tests.benchmarks.bench import messages
from tests.benchmarks.bench.cases import BARE, CONTROL, DUPLEX, ONE_WAY, SENDERS, Case
from tests.benchmarks.bench.figures import Figures, figures
from tests.benchmarks.bench.native import Native
from tests.benchmarks.bench.processes import Cores, PartFailedError, finish, serving, start
from tests.benchmarks.bench.window import CONNECT_S

# Beside connecting and its window, a sender starts up and comes to its end.
ENDS_S: Final = CONNECT_S + 30.0


@dataclass(frozen=True, slots=True)
class Trial:
    """One sender in one round. `failed` says why there are no figures."""

    case: Case
    round: int
    sender: str
    figures: Figures | None
    failed: str | None = None


@dataclass(frozen=True, slots=True)
class BenchSetup:
    """What senders are measured with: a folder for records, the parts in C, the cores, and the times."""

    folder: Path
    native: Native
    cores: Cores
    warm_up_s: float
    window_s: float
    certificate: tuple[Path, Path] | None  # (certificate, key)

    def prepare(self) -> None:
        """Write the bytes that the parts in C send."""
        (self.folder / "greeting").write_bytes(messages.greeting())
        (self.folder / "out").write_bytes(messages.out_frame())
        (self.folder / DUPLEX).write_bytes(messages.server_frame(messages.in_message()))
        (self.folder / BARE).write_bytes(messages.server_frame(messages.bare_message()))

    def senders(self, case: Case) -> tuple[str, ...]:
        """Who takes part: the control speaks no TLS, and is there only where it could be compiled."""
        without_control = case.wire == "wss" or self.native.control is None
        return tuple(sender for sender in SENDERS if sender != CONTROL or not without_control)

    def times(self) -> tuple[str, str]:
        """Warm-up and window as the parts are told."""
        return str(round(self.warm_up_s * 1e3)), str(round(self.window_s * 1e3))

    def _sender_command(self, sender: str, case: Case, port: int, record: Path) -> list[str]:
        numbers = [str(port), str(case.callers), *self.times()]
        if sender == CONTROL:
            return [str(self.native.control), *numbers, str(self.folder / "out"), str(record), str(messages.IN_BYTES)]
        tls = ["--ca-file", str(self.certificate[0])] if case.wire == "wss" and self.certificate else []
        return [sys.executable, "-m", f"tests.benchmarks.bench.callers.{sender}", *numbers, str(record), *tls]

    def peer_command(self, case: Case, record: Path) -> list[str]:
        """How to start the other end."""
        source = "-" if case.mode == ONE_WAY else str(self.folder / case.mode)
        tls = [str(path) for path in self.certificate] if case.wire == "wss" and self.certificate else []
        command = self.native.peer_command(tls=case.wire == "wss")
        return [*command, str(self.folder / "greeting"), source, str(messages.OUT_BYTES), str(record), *tls]

    def measure(self, sender: str, case: Case) -> Figures:
        """One window of one sender. Raises PartFailedError."""
        peer_began = time.perf_counter()
        answer, peer = self._window(sender, case)
        peer_s = time.perf_counter() - peer_began
        spoken = np.fromfile(self.folder / "peer-sent", dtype="<i8").reshape(-1, 2)
        inside = (spoken[:, 0] >= answer["began_perf_ns"]) & (spoken[:, 0] < answer["ended_perf_ns"])
        peer["lateness_ns"] = spoken[inside, 1]
        return figures(case.callers, answer, np.fromfile(self.folder / "sent", dtype="<i8"), peer, peer_s)

    def _window(self, sender: str, case: Case, *flags: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """What the sender and its peer printed."""
        log = self.folder / "log"
        with serving("peer", self.peer_command(case, self.folder / "peer-sent"), self.cores.peer, log) as peer:
            command = [*self._sender_command(sender, case, peer.ready["port"], self.folder / "sent"), *flags]
            within_s = ENDS_S + self.warm_up_s + self.window_s
            answer = finish(f"{sender} sender", start(command, self.cores.sender, log), within_s, log)
            peer.end()
        return answer, peer.last

    def rounds(self, cases: list[Case], rounds: int, on_trial: Callable[[Trial], None]) -> Iterator[Trial]:
        """Every case, its senders taking turns round by round, so that what the machine does meanwhile meets all."""
        for case in cases:
            for number in range(rounds):
                for sender in self.senders(case):
                    try:
                        trial = Trial(case, number, sender, self.measure(sender, case))
                    except PartFailedError as error:
                        trial = Trial(case, number, sender, None, str(error))
                    on_trial(trial)
                    yield trial
