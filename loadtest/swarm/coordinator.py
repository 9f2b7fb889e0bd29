"""The master of a swarm: the name of the run, which worker plans which calls, where users are placed, when a run ends.

Users are placed so that every process has the same share of the load at every moment. `--run-time` counts from the
moment when every process has prepared its speech: Locust counts from the order to start, and a short run of a busy
machine would end before its first call. The master's options travel to the workers with the order to start; workers
answer with messages.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import TYPE_CHECKING, Any, Final

import gevent
from locust import events, runners
from locust.dispatch import UsersDispatcher
from locust.env import Environment
from locust.runners import STATE_MISSING, STATE_RUNNING, STATE_SPAWNING, MasterRunner, WorkerRunner
from locust.util.timespan import parse_timespan

from loadtest.exit_codes import ExitCode
from loadtest.protocols.address import public_target
from loadtest.scenario.access import TARGET_VARIABLE
from loadtest.scenario.arrivals import WHOLE, Share, deal
from loadtest.scenario.declaration import AskedLoad
from loadtest.scenario.document import encode_settings
from loadtest.scenario.settings import SwarmSettings
from loadtest.swarm.resolution import hold_back, put_back
from loadtest.swarm.worker import Worker, new_run_id

if TYPE_CHECKING:
    from locust.runners import WorkerNode

UsersOnWorkers = dict[str, dict[str, int]]  # by worker and user class


class EvenDispatcher(UsersDispatcher):
    """Places each new user on the worker with the fewest, among those on the one with the fewest of its class.

    Locust deals them out in turn. Callers of two classes then lie on a worker each, and callers that leave take from
    the last workers what later callers do not bring back: after a few spikes one of two workers has all of them.
    Users leave in the reverse order in which they came, so what is left was even before.
    """

    def _add_users_on_workers(self) -> UsersOnWorkers:
        wanted = min(self._current_user_count + self._user_count_per_dispatch_iteration, self._target_user_count)
        added = self._place(self._user_generator, wanted - self._current_user_count, self._users_on_workers)
        self._no_user_to_spawn = len(added) < wanted - self._current_user_count
        self._current_user_count += len(added)
        self._active_users += added
        return self._users_on_workers

    def _distribute_users(
        self, target_user_count: int
    ) -> "tuple[UsersOnWorkers, Iterator[str | None], cycle[WorkerNode], list[tuple[WorkerNode, str]]]":
        """Place all users again, as if none had been placed; Locust asks for it when a worker came or went."""
        classes = [user_class.__name__ for user_class in self._original_user_classes]
        empty: UsersOnWorkers = {worker.id: dict.fromkeys(classes, 0) for worker in self._worker_nodes}
        users = self._user_gen()
        return empty, users, cycle(self._worker_nodes), self._place(users, target_user_count, empty)

    def _place(
        self, users: Iterator[str | None], count: int, on_workers: UsersOnWorkers
    ) -> "list[tuple[WorkerNode, str]]":
        """Place the next `count` users, fewer where there are no more; who was placed where, in order."""
        total = {worker.id: sum(on_workers[worker.id].values()) for worker in self._worker_nodes}
        placed: list[tuple[WorkerNode, str]] = []
        while len(placed) < count and (user := next(users)) is not None:
            class_counts = {worker.id: on_workers[worker.id][user] for worker in self._worker_nodes}
            worker = min(self._worker_nodes, key=lambda node: (total[node.id], class_counts[node.id]))
            on_workers[worker.id][user] += 1
            total[worker.id] += 1
            placed.append((worker, user))
        return placed


# A process that never gets ready does not keep the run alive for ever.
LONGEST_PREPARATION_S: Final = 600.0


def take_over(options: Any) -> None:
    """Take the time limit of a headless run from Locust."""
    options.voice_limit_s = options.run_time
    options.run_time = None


def limit_s(environment: Environment) -> float | None:
    """Return how long the run lasts; None where nothing bounds it, or phases do."""
    options: Any = environment.parsed_options
    if isinstance(environment.runner, WorkerRunner):
        limit = getattr(options, "voice_run_time", None)  # as the master had it
    else:
        limit = getattr(options, "voice_limit_s", None) or options.run_time
    if isinstance(limit, str):  # as Locust's web page hands it on
        limit = parse_timespan(limit) if limit else None
    return limit or None


def end_at_the_limit(environment: Environment, end: Callable[[], None], preparation_s: float = 0.0) -> None:
    """Call `end` when the run that starts now, or after so long a preparation, has lasted long enough. Where Locust
    counts by itself, nothing happens."""
    taken_s = getattr(environment.parsed_options, "voice_limit_s", None)
    if taken_s and not isinstance(environment.runner, WorkerRunner):
        gevent.spawn_later(preparation_s + taken_s, end)


LOOK_EVERY_S: Final = 0.5
# How many heartbeats, one a second, a worker may miss before it is taken for missing. Locust's three are fewer than a
# busy machine may cost one that goes on as before.
MISSED_HEARTBEATS: Final = 10
MADE: Final = "voice_calls_made"
REFUSED: Final = "voice_refused"


class Coordinator:
    """The master's part. It makes no calls: it names the run, deals the calls out and watches over the workers."""

    def __init__(self, environment: Environment, runner: MasterRunner) -> None:
        self._environment, self._runner = environment, runner
        self._options: Any = environment.parsed_options
        self._handed_over: str = self._options.voice_settings
        self._held: dict[str, Any] = {}
        self._made: set[str] = set()
        self._lost: set[str] = set()
        self._began_s = 0.0
        self._is_abandoned = False
        runners.HEARTBEAT_LIVENESS = MISSED_HEARTBEATS
        runner.register_message(MADE, self._on_made)
        runner.register_message(REFUSED, self._on_refused)

    def begin(self, settings: SwarmSettings) -> None:
        """Check the settings and put them among the options, which travel to the workers with the order to start."""
        # Of Locust's own options only a few travel: what every worker declares of the run goes by names of ours.
        self._options.voice_users = self._runner.target_user_count
        self._options.voice_run_time = limit_s(self._environment)
        self._options.voice_workers = sorted(self._runner.get_worker_index(name) for name in self._active())
        self._made.clear()
        self._lost.clear()
        self._began_s = time.monotonic()
        self._is_abandoned = False
        settings = settings.replaced(run_id=settings.run_id or new_run_id())
        faults = settings.faults(calls=False)
        workers, users = len(self._options.voice_workers), self._options.num_users or 1
        if settings.calls is not None and users < workers and not settings.has_open_arrivals:
            faults.append(f"--users {users} is too few for --calls with {workers} workers: each needs one to call")
        if faults:
            refuse(self._environment, faults)
            return
        self._options.voice_settings = encode_settings(settings)
        self._held = hold_back(self._options)
        gevent.spawn(self._watch, settings.calls is not None)

    def stopping(self) -> None:
        """The run is being stopped. Locust does so by itself when it has not heard of any worker for some seconds, and
        then waits for the next start, which never comes in a headless run."""
        self._is_abandoned = all(client.state == STATE_MISSING for client in self._runner.clients.all)

    def end(self) -> None:
        """The run is over."""
        put_back(self._options, self._held)
        self._held = {}
        # The next run has what the page then says.
        self._options.voice_settings = self._handed_over

    def _active(self) -> set[str]:
        clients = self._runner.clients
        return {client.id for client in (*clients.ready, *clients.spawning, *clients.running)}

    def _watch(self, ends_with_the_calls: bool) -> None:
        gevent.sleep(LOOK_EVERY_S)
        while self._runner.state in (STATE_SPAWNING, STATE_RUNNING):
            self._note_losses()
            active = self._active()
            if not active:
                self._abandon()
                return
            if ends_with_the_calls and active <= self._made:
                finish(self._environment)
                return
            gevent.sleep(LOOK_EVERY_S)
        if self._is_abandoned:
            self._abandon()

    def _abandon(self) -> None:
        if self._environment.process_exit_code == ExitCode.USAGE:
            return  # workers that refused the run are gone, too: it ends for that
        self._say("no worker is left: the run ends here")
        self._environment.process_exit_code = int(ExitCode.GENERATOR_LIMITED)
        finish(self._environment)

    def _note_losses(self) -> None:
        missing = {client.id for client in self._runner.clients.all if client.state == STATE_MISSING}
        after_s = time.monotonic() - self._began_s
        for name in missing - self._lost:
            self._say(f"{self._named(name)} went missing after {after_s:.0f} s: calls under way there are not counted")
        for name in self._lost - missing & self._active():
            self._say(f"{self._named(name)} is back after {after_s:.0f} s")
        self._lost = missing | (self._lost - self._active())
        if self._environment.process_exit_code == ExitCode.USAGE:
            return
        if self._lost:
            self._environment.process_exit_code = int(ExitCode.GENERATOR_LIMITED)
        elif self._environment.process_exit_code == ExitCode.GENERATOR_LIMITED:
            self._environment.process_exit_code = None

    def _on_made(self, msg: Any, **_: Any) -> None:
        self._made.add(msg.node_id)

    def _on_refused(self, msg: Any, **_: Any) -> None:
        refuse(self._environment, [f"{self._named(msg.node_id)}: {fault}" for fault in msg.data["faults"]])

    def _named(self, client_id: str) -> str:
        return f"worker {self._runner.get_worker_index(client_id) + 1}"

    def _say(self, sentence: str) -> None:
        sys.stderr.write(f"voiceprobe: {sentence}\n")


@events.init.add_listener
def _introduce(environment: Environment, **_: Any) -> None:
    options: Any = environment.parsed_options
    whole = os.environ.get(TARGET_VARIABLE, "")
    if environment.host and options is not None and public_target(whole) == environment.host:
        options.voice_target = whole
    elif environment.web_ui is not None and environment.host and options is not None:
        # Locust's page shows the public address, which is replaced by the whole one when the test starts.
        options.voice_target = environment.host
        environment.host = options.host = public_target(environment.host)
    if isinstance(environment.runner, MasterRunner):
        environment.dispatcher_class = EvenDispatcher
        environment.voice_coordinator = Coordinator(environment, environment.runner)  # pyright: ignore[reportAttributeAccessIssue]


def wait_until_joined(environment: Environment) -> None:
    """A worker that comes late may be started while Locust still makes its runner."""
    while environment.runner is None:
        gevent.sleep(0.01)


def share_of(environment: Environment) -> Share:
    """The calls that this process plans."""
    if not isinstance(environment.runner, WorkerRunner):
        return WHOLE
    return deal(getattr(environment.parsed_options, "voice_workers", []), environment.runner.worker_index)


def load_of(environment: Environment) -> AskedLoad:
    """Return how much was asked of the whole run, as the master has it, or this process where there is no master."""
    options: Any = environment.parsed_options
    runner = environment.runner
    if isinstance(runner, WorkerRunner):
        dealt = len(getattr(options, "voice_workers", ()))
        users, processes = getattr(options, "voice_users", 0), max(dealt, options.expect_workers or 1)
    else:
        users, processes = (runner.target_user_count if runner is not None else 0), 1
    return AskedLoad(users or options.num_users or 1, limit_s(environment), processes)


def end_with_the_calls(environment: Environment, worker: Worker) -> None:
    """End the run, or report to the master, when this process has made its calls, where a number was asked for."""
    if worker.settings.calls is not None:
        gevent.spawn(_wait_for_the_calls, environment, worker)


def _wait_for_the_calls(environment: Environment, worker: Worker) -> None:
    while not worker.all_made:
        if worker.winding_down:
            return
        gevent.sleep(LOOK_EVERY_S)
    if isinstance(environment.runner, WorkerRunner):
        environment.runner.send_message(MADE)
    else:
        finish(environment)


def refuse(environment: Environment, faults: list[str]) -> None:
    """Report to the log and the master why there can be no run, and exit."""
    for fault in faults:
        sys.stderr.write(f"voiceprobe: {fault}\n")
    environment.process_exit_code = int(ExitCode.USAGE)
    if isinstance(environment.runner, WorkerRunner):
        environment.runner.send_message(REFUSED, {"faults": faults})
    if environment.runner is not None:
        gevent.spawn_later(0, environment.runner.quit)


def finish(environment: Environment) -> None:
    """End the run as its time limit would; a page that somebody looks at stays."""
    runner, options = environment.runner, environment.parsed_options
    if runner is None:
        return
    if options is not None and options.headless:
        runner.quit()
    else:
        runner.stop()
