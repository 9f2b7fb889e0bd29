"""The process of a sidecar that evaluates its rollouts: reads messages from standard input, answers on standard
output, and ends with its input.

python -m telemetry.sidecar.rollouts.process
"""

import contextlib
import logging
import os
import queue
import sys
import threading
import time
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from telemetry.objectives.slo import load_objectives
from telemetry.sidecar.logs import start_child_logging
from telemetry.sidecar.messages import LENGTH, frame
from telemetry.sidecar.rollouts.evaluation import RolloutEvaluator
from telemetry.sidecar.rollouts.messages import RolloutOptions, StageAsked, ToRollouts
from telemetry.sidecar.rollouts.schedule import LookSchedule
from telemetry.store.reader import StoreReader
from telemetry.store.without_pandas import refuse_pandas

_POLITENESS: Final = 5

_log = logging.getLogger(__name__)


def serve(evaluator: RolloutEvaluator, asked: "queue.SimpleQueue[StageAsked | None]", answers: BinaryIO) -> None:
    """Look at one rollout after the other as they are due, and answer what is asked in between, until None comes."""
    schedule = LookSchedule([each.name for each in evaluator.settings], evaluator.every_s)
    while True:
        try:
            message = asked.get(timeout=schedule.wait_s(time.monotonic()))
        except queue.Empty:
            _look(evaluator, schedule, schedule.next(), answers)
            continue
        if message is None:
            return
        answers.write(frame(evaluator.begin(message)))
        _look(evaluator, schedule, message.rollout, answers)


def _look(evaluator: RolloutEvaluator, schedule: LookSchedule, name: str, answers: BinaryIO) -> None:
    state = evaluator.look(name)
    schedule.looked(name, time.monotonic(), is_kept=state.is_kept)
    if not state.is_kept:
        _log.warning("%s", state.sentence)
    answers.write(frame(state))
    answers.flush()


def _read(messages: BinaryIO) -> ToRollouts | None:
    head = messages.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    return msgspec.msgpack.decode(messages.read(*LENGTH.unpack(head)), type=ToRollouts)


def _receive(messages: BinaryIO, asked: "queue.SimpleQueue[StageAsked | None]") -> None:
    while isinstance(message := _read(messages), StageAsked):
        asked.put(message)
    asked.put(None)


def main() -> None:
    """Evaluate what the first message names."""
    refuse_pandas()
    start_child_logging("rollouts")
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing else may write between two answers
    os.nice(_POLITENESS)
    options = _read(sys.stdin.buffer)
    if not isinstance(options, RolloutOptions):
        return
    asked: queue.SimpleQueue[StageAsked | None] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(sys.stdin.buffer, asked), daemon=True, name="receive").start()
    objectives = load_objectives(None if options.slo is None else Path(options.slo))
    store = Path(options.store)
    with StoreReader(store) as reader:
        evaluator = RolloutEvaluator(store, options.rollouts, objectives, reader, time.time_ns, options.every_s)
        with contextlib.suppress(BrokenPipeError):  # the front is gone
            serve(evaluator, asked, answers)
        evaluator.close()


if __name__ == "__main__":
    main()
