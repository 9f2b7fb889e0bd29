"""The start of a run: callers wait until every process has prepared its speech, and then all clocks start together.
From then on a scenario's phases say how many callers there are.

No time of one host is compared with another's: the master says "go", and each process starts a clock of its own.
"""

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import gevent
from locust import LoadTestShape, events
from locust.env import Environment
from locust.runners import MasterRunner, WorkerRunner

from loadtest.errors import UsageError
from loadtest.scenario.document import BEGUN_VARIABLE
from loadtest.scenario.phases import LoadProfile, Phase, RunClock
from loadtest.swarm.coordinator import LONGEST_PREPARATION_S, end_at_the_limit, finish, take_over
from loadtest.swarm.resolution import settings_of

READY: Final = "voice_ready"
GO: Final = "voice_go"
LOOK_EVERY_S: Final = 0.05
# How many heartbeats of Locust's, one a second, a worker may miss before all are ready: it reads modules and speech
# without a pause in which it could send one, for as long as the machine makes it.
MISSED_IN_PREPARATION: Final = 60


class Starting:
    """One process's part in the start of runs; `clock` is that of the present run, None between runs."""

    def __init__(self, environment: Environment) -> None:
        self.clock: RunClock | None = None
        self._environment = environment
        self._ready: set[str] = set()
        runner = environment.runner
        if isinstance(runner, MasterRunner):
            runner.register_message(READY, self._on_ready)
        elif isinstance(runner, WorkerRunner):
            runner.register_message(GO, self._on_go)

    def begin(self, phases: Sequence[Phase]) -> RunClock:
        """A run is to begin: its clock, which does not go yet."""
        self.clock = clock = RunClock(phases)
        runner = self._environment.runner
        options: Any = self._environment.parsed_options
        self._ready.clear()
        if isinstance(runner, MasterRunner):
            # The workers hear that all callers are there some time after it; where they all come at once there is no
            # ramp at all.
            options.voice_ramps_up = runner.target_user_count > runner.spawn_rate
            gevent.spawn(self._wait_for_all, clock, runner)
        elif not isinstance(runner, WorkerRunner) or getattr(options, "voice_ramps_up", True):
            clock.expect_ramp_up()
        end_at_the_limit(self._environment, lambda: self._end_run(clock), LONGEST_PREPARATION_S)
        return clock

    def ready(self) -> None:
        """This process has prepared itself."""
        runner = self._environment.runner
        if isinstance(runner, WorkerRunner):
            runner.send_message(READY)
        elif self.clock is not None:
            self._start(self.clock)

    def all_spawned(self) -> None:
        """Locust says that all callers are there."""
        if self.clock is not None:
            self.clock.all_spawned(time.perf_counter_ns())

    def end(self) -> None:
        """The run is over."""
        self.clock = None

    def _start(self, clock: RunClock) -> None:
        clock.start(time.perf_counter_ns())
        _say_begun()
        end_at_the_limit(self._environment, lambda: self._end_run(clock))

    def _end_run(self, clock: RunClock) -> None:
        if self.clock is clock:
            finish(self._environment)

    # The master's side.

    def _wait_for_all(self, clock: RunClock, runner: MasterRunner) -> None:
        while self.clock is clock:
            clients = runner.clients
            active = {client.id for client in (*clients.ready, *clients.spawning, *clients.running)}
            if active and active <= self._ready:
                self._start(clock)
                runner.send_message(GO, {"elapsed_ns": 0})
                return
            for name in active:
                clients[name].heartbeat = max(clients[name].heartbeat, MISSED_IN_PREPARATION)
            gevent.sleep(LOOK_EVERY_S)

    def _on_ready(self, msg: Any, **_: Any) -> None:
        self._ready.add(msg.node_id)
        clock, runner = self.clock, self._environment.runner
        if clock is not None and clock.started_perf_ns is not None and runner is not None:
            # It joined a run that goes on already.
            elapsed_ns = time.perf_counter_ns() - clock.started_perf_ns
            runner.send_message(GO, {"elapsed_ns": elapsed_ns}, msg.node_id)

    # The worker's side.

    def _on_go(self, msg: Any, **_: Any) -> None:
        if self.clock is not None:
            self.clock.start(time.perf_counter_ns() - int(msg.data["elapsed_ns"]))


def _say_begun() -> None:
    """Make the file by which the command that started this process sees that the run has begun, if one did."""
    if (file := os.environ.get(BEGUN_VARIABLE)) is not None:
        # It is there for the live view: a run goes on without it.
        with contextlib.suppress(OSError):
            Path(file).touch()


class ScenarioShape(LoadTestShape):
    """Asks the course of the phases what is wanted at this moment of the run.

    It says that it is abstract so that Locust does not find it in a locustfile: there it would take `--users` and
    `--run-time` their meaning also where there are no phases.
    """

    abstract = True

    def __init__(self, phases: Sequence[Phase], clock: Callable[[], RunClock | None]) -> None:
        super().__init__()
        self._load_profile, self._clock = LoadProfile(phases), clock

    def tick(self) -> Any:
        """Return what Locust asks once a second."""
        clock = self._clock()
        run_s = None if clock is None else clock.run_s(time.perf_counter_ns())
        return self._load_profile.tick(run_s, 0 if self.runner is None else self.runner.user_count)


@events.init.add_listener
def _introduce(environment: Environment, **_: Any) -> None:
    starting = Starting(environment)
    environment.voice_starting = starting  # pyright: ignore[reportAttributeAccessIssue] - Locust's place for ours
    runner = environment.runner
    if runner is None:
        return

    def all_spawned(**_: Any) -> None:
        starting.all_spawned()

    environment.events.spawning_complete.add_listener(all_spawned)
    if isinstance(runner, WorkerRunner):
        return
    try:
        phases = settings_of(environment).scenario.phases
    except UsageError:
        return  # reported when the test starts
    if phases:
        shape = ScenarioShape(phases, lambda: starting.clock)
        shape.runner = runner
        environment.shape_class = shape
    elif (options := environment.parsed_options) is not None and options.headless:
        take_over(options)
