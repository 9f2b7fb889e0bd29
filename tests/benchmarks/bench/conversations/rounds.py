"""Conversations of our callers and of those in C, in turn, on one pinned core, with an endpoint in C on the other."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from loadtest.targets.ground_truth.plan import Behavior
from tests.benchmarks.bench.cases import CONTROL, OURS
from tests.benchmarks.bench.conversations.figures import (
    ConversationFigures,
    Rows,
    TruthColumn,
    TurnColumn,
    conversation_figures,
)
from tests.benchmarks.bench.conversations.script import WAITS, prepared_speech, write_answers, write_speech
from tests.benchmarks.bench.processes import PartFailedError, finish, serving, start
from tests.benchmarks.bench.senders import ENDS_S, BenchSetup

# Who talks, in the order of a round.
TALKERS: Final = (CONTROL, OURS)


@dataclass(frozen=True, slots=True)
class ConversationTrial:
    """Callers of one kind in one round. `failed` says why there are no figures."""

    callers: int
    round: int
    sender: str
    figures: ConversationFigures | None
    failed: str | None = None


@dataclass(frozen=True, slots=True)
class ConversationBench:
    """What conversations are measured with; `setup` has the times of their windows."""

    setup: BenchSetup
    replies: Behavior

    def prepare(self) -> None:
        """Write what is said and answered. Raises CorpusError and PartFailedError."""
        if self.setup.native.conversation_caller is None or self.setup.native.conversation_endpoint is None:
            raise PartFailedError("its caller and its endpoint are in C, and were not compiled")
        clips, background = prepared_speech()
        write_speech(clips, background, self.setup.folder / "speech")
        write_answers(self.replies, self.setup.folder / "answers")

    def measure(self, sender: str, callers: int) -> ConversationFigures:
        """One window of one sender. Raises PartFailedError."""
        return self._figures(callers, *self._window(sender, callers))

    def _window(self, sender: str, callers: int, *flags: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """What the sender and the endpoint printed."""
        setup, folder = self.setup, self.setup.folder
        log, truth = folder / "log", folder / "truth"
        endpoint = [str(setup.native.conversation_endpoint), str(folder / "greeting")]
        endpoint += [str(folder / "speech"), str(folder / "answers"), str(truth)]
        with ExitStack() as stack:
            more = [*flags]
            if sender == OURS:
                sink_command = [sys.executable, "-m", "tests.benchmarks.bench.endpoints.otlp_sink"]
                sink = stack.enter_context(serving("collector", sink_command, setup.cores.peer, log))
                more += ["--collector", f"http://127.0.0.1:{sink.ready['port']}"]
            peer = stack.enter_context(serving("endpoint", endpoint, setup.cores.peer, log))
            command = self._command(sender, callers, peer.ready["port"], more)
            within_s = ENDS_S + setup.warm_up_s + setup.window_s
            answer = finish(f"{sender} callers", start(command, setup.cores.sender, log), within_s, log)
            peer.end()
        return answer, peer.last

    def _command(self, sender: str, callers: int, port: int, more: list[str]) -> list[str]:
        folder = self.setup.folder
        numbers = [str(port), str(callers), *self.setup.times()]
        records = [str(folder / "sent"), str(folder / "turns"), *WAITS.words]
        if sender == OURS:
            return [sys.executable, "-m", "tests.benchmarks.bench.callers.conversations", *numbers, *records, *more]
        return [str(self.setup.native.conversation_caller), *numbers, str(folder / "speech"), *records]

    def _figures(self, callers: int, answer: dict[str, Any], peer: dict[str, Any]) -> ConversationFigures:
        folder = self.setup.folder

        def rows(name: str, fields: int) -> Rows:
            return np.fromfile(folder / name, dtype=np.int64).reshape(-1, fields)

        records = rows("turns", len(TurnColumn)), rows("truth", len(TruthColumn))
        return conversation_figures(callers, answer, np.fromfile(folder / "sent", dtype=np.int64), records, peer)

    def rounds(
        self, loads: tuple[int, ...], rounds: int, on_trial: Callable[[ConversationTrial], None]
    ) -> Iterator[ConversationTrial]:
        """Every load, C and ours taking turns round by round, so that what the machine does meanwhile meets both."""
        for callers in sorted(loads):
            for number in range(rounds):
                for sender in TALKERS:
                    try:
                        trial = ConversationTrial(callers, number, sender, self.measure(sender, callers))
                    except PartFailedError as error:
                        trial = ConversationTrial(callers, number, sender, None, str(error))
                    on_trial(trial)
                    yield trial
