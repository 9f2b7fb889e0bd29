"""The Locust user: each makes one call after the other. Importing locust patches the process."""

import logging
import random
import sys
from functools import partial
from typing import Any, Final

import gevent
from locust import User, constant, events, task
from locust.env import Environment
from locust.stats import StatsError

from corpora.manifest.errors import CorpusError
from loadtest.engine.local_limits import most_files, shortage_of_files
from loadtest.errors import UsageError, VoiceprobeError
from loadtest.scenario.declaration import AskedLoad
from loadtest.scenario.settings import SwarmSettings
from loadtest.swarm.coordinator import (
    Coordinator,
    end_with_the_calls,
    load_of,
    refuse,
    share_of,
    wait_until_joined,
)
from loadtest.swarm.redial import Redial, RedialBackoff
from loadtest.swarm.resolution import settings_of
from loadtest.swarm.starting import Starting
from loadtest.swarm.worker import Worker
from telemetry.model.errors import TelemetryError
from telemetry.model.metrics import HEADLINE, METRICS
from telemetry.model.turns import Turn

_log = logging.getLogger(__name__)

# Stages that Locust's own statistics show in addition to voice to voice, for its web UI. Its percentiles know nothing
# of turns that went unanswered, so the names of the rows say whose they are.
STAGES: Final = (
    "asr_partial_latency",
    "asr_final_latency",
    "llm_first_token_latency",
    "tts_first_chunk_latency",
)
REQUEST_TYPE: Final = "voice"
OF_THE_ANSWERED: Final = "{} (of the answered)"
INVALID: Final = "invalid turn"
IDLE_S: Final = 1.0  # how often a user with nothing to do looks again
WAIT_LOOK_S: Final = 0.1  # how often one that waits before it calls again looks whether it is to leave
# The longest time between the first callers' detections of the run's start.
START_LOOK_S: Final = 0.01
STAND_BY_S: Final = 0.2


class TurnFailed(Exception):  # noqa: N818 - what Locust lists under "Failures"
    """A turn that did not end well."""


class VoiceUser(User):
    """One caller. It makes calls of several turns until Locust stops it."""

    wait_time = constant(0)

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self._leaving = False
        self._retry_wait_ns: int | None = None  # before the call to come, because the endpoint asked for it
        self._backoff = RedialBackoff(random.random)

    def stop(self, force: bool = False) -> bool:
        """Locust wants fewer callers: this one begins no further turn."""
        self._leaving = True
        return super().stop(force)

    @task
    def call(self) -> None:
        """Make one call."""
        worker: Worker | None = getattr(self.environment, "voice_worker", None)
        if worker is None or worker.winding_down or worker.all_planned:
            gevent.sleep(IDLE_S)
            return
        if worker.open_calls is not None:
            gevent.sleep(STAND_BY_S)  # calls begin by their own schedule
            return
        if worker.clock.started_perf_ns is None:
            gevent.sleep(START_LOOK_S)
            return
        try:
            pause_ns = worker.call(self._on_turn, leaving=lambda: self._leaving, retry_wait_ns=self._retry_wait_ns)
        except Exception:  # whatever it is, Locust reports it and calls again at once: the pause bounds how often
            self._backoff.note_failure()
            self._wait(worker, self._backoff.redial(0))
            raise
        self._wait(worker, self._backoff.redial(pause_ns))

    def _on_turn(self, turn: Turn) -> None:
        self._backoff.note(turn)
        report_to_locust(self.environment, turn)

    def _wait(self, worker: Worker, redial: Redial) -> None:
        """Wait until it is time to call again, or there will be no further call."""
        perf_ns = worker.engine.clocks.perf_ns
        began = perf_ns()
        while (left_ns := redial.wait_ns - (perf_ns() - began)) > 0:
            if worker.winding_down or worker.all_planned or self._leaving:
                return
            gevent.sleep(min(WAIT_LOOK_S, left_ns / 1e9))
        self._retry_wait_ns = None if redial.asked_ns is None else perf_ns() - began


def report_to_locust(environment: Environment, turn: Turn) -> None:
    """Show a turn in Locust's own statistics. Invalid turns are counted apart: they are our fault, not the target's.

    A request of Locust's is a turn, its response time voice to voice: so "Aggregated" and the charts of the web UI are
    about nothing else. The other stages and invalid turns have rows of their own.
    """
    if turn.outcome == "invalid":
        _note_invalid(environment, TurnFailed(", ".join(turn.invalid_reasons)))
        return
    if turn.outcome not in ("ok", "cut"):
        _fire(environment, "turn", None, TurnFailed(f"{turn.outcome}: {turn.outcome_reason}"))
        return
    heard_ns = METRICS[HEADLINE].value(turn)
    if heard_ns is not None:
        _fire(environment, OF_THE_ANSWERED.format(HEADLINE), heard_ns / 1e6, None)
    for name in STAGES:
        value_ns = METRICS[name].value(turn)
        if value_ns is not None:
            environment.stats.get(OF_THE_ANSWERED.format(name), REQUEST_TYPE).log(value_ns / 1e6, 0)  # pyright: ignore[reportArgumentType] - Locust rounds it


def _note_invalid(environment: Environment, reasons: TurnFailed) -> None:
    row = environment.stats.get(INVALID, REQUEST_TYPE)
    row.log(None, 0)  # pyright: ignore[reportArgumentType] - Locust takes None for no response time
    row.log_error(reasons)
    key = StatsError.create_key(REQUEST_TYPE, INVALID, reasons)
    environment.stats.errors.setdefault(key, StatsError(REQUEST_TYPE, INVALID, reasons)).occurred()


def _fire(environment: Environment, name: str, response_ms: float | None, failure: Exception | None) -> None:
    environment.events.request.fire(
        request_type=REQUEST_TYPE,
        name=name,
        response_time=response_ms,
        response_length=0,
        exception=failure,
        context={},
    )


@events.test_start.add_listener
def _start(environment: Environment, **_: Any) -> None:
    """Prepare the speech when the test starts: only then are host and options known to every worker."""
    wait_until_joined(environment)
    coordinator: Coordinator | None = getattr(environment, "voice_coordinator", None)
    starting: Starting = environment.voice_starting  # pyright: ignore[reportAttributeAccessIssue] - as below
    try:
        settings = settings_of(environment)
    except UsageError as error:
        refuse(environment, str(error).splitlines())
        return
    clock = starting.begin(settings.phases)
    if coordinator is not None:
        coordinator.begin(settings)
        return
    faults = settings.faults()
    try:
        if faults:
            refuse(environment, faults)
            return
        worker = Worker(
            settings, share=share_of(environment), progress=_yield_to_hub, clock=clock, load=load_of(environment)
        )
    except (VoiceprobeError, CorpusError, TelemetryError) as error:
        refuse(environment, str(error).splitlines())
        return
    except OSError as error:
        refuse(environment, [f"the callers cannot be started: {error}"])
        return
    environment.voice_worker = worker  # pyright: ignore[reportAttributeAccessIssue] - Locust's place for ours
    _warn_of_few_files(settings, load_of(environment))
    if worker.no_pacer_because:
        sys.stderr.write(
            f"voiceprobe: no pacer thread ({worker.no_pacer_because}): the interpreter sends the frames, and what else "
            "it does makes some of them late\n"
        )
    worker.begin_open_calls(partial(report_to_locust, environment))
    starting.ready()
    end_with_the_calls(environment, worker)
    _log.info(
        "run %s: %d utterances of %s (%s), profile %s, pacer %s",
        worker.run_id,
        len(worker.prepared.clips),
        worker.prepared.corpus.name,
        worker.prepared.corpus.kind,
        settings.profile_label,
        worker.engine.pacer,
    )


def _warn_of_few_files(settings: SwarmSettings, load: AskedLoad) -> None:
    """Warn before the first call if this process may open too few files for its callers."""
    calls = settings.max_calls if settings.has_open_arrivals else load.users
    shortage = shortage_of_files(calls, load.processes, most_files())
    if shortage is not None:
        sys.stderr.write(f"voiceprobe: {shortage}; calls that find none left are invalid\n")


def _yield_to_hub(done: int, total: int) -> None:
    # Preparing speech may take longer than a master waits for a sign of life.
    del done, total
    gevent.sleep(0)


@events.test_stopping.add_listener
def _stopping(environment: Environment, **_: Any) -> None:
    coordinator: Coordinator | None = getattr(environment, "voice_coordinator", None)
    if coordinator is not None:
        coordinator.stopping()
    worker: Worker | None = getattr(environment, "voice_worker", None)
    if worker is not None:
        worker.wind_down(environment.stop_timeout or 0.0)
        if worker.open_calls is not None:
            worker.open_calls.join(environment.stop_timeout or 0.0)


@events.test_stop.add_listener
def _stopped(environment: Environment, **_: Any) -> None:
    coordinator: Coordinator | None = getattr(environment, "voice_coordinator", None)
    if coordinator is not None:
        coordinator.end()
    worker: Worker | None = getattr(environment, "voice_worker", None)
    if worker is not None:
        environment.voice_worker = None  # pyright: ignore[reportAttributeAccessIssue] - as above
        worker.close()
    starting: Starting = environment.voice_starting  # pyright: ignore[reportAttributeAccessIssue] - as above
    starting.end()
