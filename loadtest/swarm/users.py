"""The Locust user: each makes one call after the other. Importing locust patches the process."""

import logging
import sys
from typing import Any, Final

import gevent
from locust import User, constant, events, task
from locust.env import Environment
from locust.runners import MasterRunner, WorkerRunner

from corpora.errors import CorpusError
from loadtest.errors import VoiceprobeError
from loadtest.exit_codes import ExitCode
from loadtest.swarm.settings import SwarmSettings
from loadtest.swarm.worker import Worker
from telemetry.errors import TelemetryError
from telemetry.metrics import METRICS
from telemetry.turns import Turn

_log = logging.getLogger(__name__)

# What Locust's own statistics show, for those who watch its web UI: one request per stage and turn, never per frame.
STAGES: Final = (
    "voice_to_voice",
    "asr_partial_latency",
    "asr_final_latency",
    "llm_first_token_latency",
    "tts_first_chunk_latency",
)
REQUEST_TYPE: Final = "voice"
# A caller whose call could not be connected waits before the next try, so that a dead target is not hammered.
RETRY_PAUSE_S: Final = 1.0


class TurnFailed(Exception):  # noqa: N818 - what Locust lists under "Failures"
    """A turn that did not end well."""


class VoiceCaller(User):
    """One caller. It makes calls of several turns until Locust stops it."""

    wait_time = constant(0)

    @task
    def call(self) -> None:
        """Make one call."""
        worker: Worker | None = getattr(self.environment, "voice_worker", None)
        if worker is None or worker.winding_down:
            gevent.sleep(RETRY_PAUSE_S)
            return
        failed: list[bool] = []

        def on_turn(turn: Turn) -> None:
            report_to_locust(self.environment, turn)
            failed.append(turn.connect_ns is None and turn.turn_index == 0)

        worker.call(on_turn)
        if failed and failed[0] and not worker.winding_down:
            gevent.sleep(RETRY_PAUSE_S)


def report_to_locust(environment: Environment, turn: Turn) -> None:
    """Show a turn in Locust's own statistics. Invalid turns are counted apart: they are our fault, not the target's."""
    if turn.outcome == "invalid":
        _fire(environment, "invalid turn", None, TurnFailed(", ".join(turn.invalid_reasons)))
        return
    if turn.outcome != "ok":
        _fire(environment, "turn", None, TurnFailed(f"{turn.outcome}: {turn.outcome_reason}"))
        return
    for name in STAGES:
        value = METRICS[name].value(turn)
        if value is not None:
            _fire(environment, name, value / 1e6, None)


def _fire(environment: Environment, name: str, response_ms: float | None, failure: Exception | None) -> None:
    environment.events.request.fire(
        request_type=REQUEST_TYPE,
        name=name,
        response_time=response_ms if response_ms is not None else 0,
        response_length=0,
        exception=failure,
        context={},
    )


@events.test_start.add_listener
def _start(environment: Environment, **_: Any) -> None:
    """Prepare the speech when the test starts: only then are host and options known to every worker."""
    if isinstance(environment.runner, MasterRunner):
        return
    settings = SwarmSettings.from_options(environment.parsed_options)
    faults = settings.faults()
    try:
        if faults:
            _refuse(environment, faults)
            return
        process = f"worker-{environment.runner.worker_index}" if isinstance(environment.runner, WorkerRunner) else ""
        worker = Worker(settings, process=process)
    except (VoiceprobeError, CorpusError, TelemetryError) as error:
        _refuse(environment, [str(error)])
        return
    environment.voice_worker = worker  # pyright: ignore[reportAttributeAccessIssue] - Locust's place for ours
    _log.info(
        "run %s: %d utterances of %s (%s), profile %s, pacer %s",
        worker.run_id,
        len(worker.prepared.clips),
        worker.prepared.corpus.name,
        worker.prepared.corpus.kind,
        settings.profile.label,
        worker.engine.pacer,
    )


def _refuse(environment: Environment, faults: list[str]) -> None:
    for fault in faults:
        sys.stderr.write(f"voiceprobe: {fault}\n")
    environment.process_exit_code = int(ExitCode.USAGE)
    if environment.runner is not None:
        gevent.spawn_later(0, environment.runner.quit)


@events.test_stopping.add_listener
def _stopping(environment: Environment, **_: Any) -> None:
    worker: Worker | None = getattr(environment, "voice_worker", None)
    if worker is not None:
        worker.wind_down()


@events.test_stop.add_listener
def _stopped(environment: Environment, **_: Any) -> None:
    worker: Worker | None = getattr(environment, "voice_worker", None)
    if worker is not None:
        environment.voice_worker = None  # pyright: ignore[reportAttributeAccessIssue] - as above
        worker.close()
