"""The end of a run: by `--run-time`, counted from when every process is ready, or because its workers are gone."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from locust import runners
from locust.env import Environment
from locust.event import Events
from locust.runners import WorkerRunner

from loadtest.exit_codes import ExitCode
from loadtest.scenario.document import BEGUN_VARIABLE
from loadtest.swarm import coordinator, starting
from loadtest.swarm.coordinator import LONGEST_PREPARATION_S, REFUSED, Coordinator, limit_s, take_over
from loadtest.swarm.starting import Starting


class Master:
    """A master all of whose workers are gone."""

    state = runners.STATE_RUNNING

    def __init__(self) -> None:
        self.clients = SimpleNamespace(all=[], ready=[], spawning=[], running=[])
        self.heard: dict[str, Any] = {}
        self.quits = 0

    def register_message(self, name: str, listener: Any) -> None:
        self.heard[name] = listener

    def get_worker_index(self, name: str) -> int:
        return int(name)

    def quit(self) -> None:
        self.quits += 1


@pytest.mark.parametrize(
    ("refused", "code", "words"),
    [
        (True, ExitCode.USAGE, "voiceprobe: worker 1: --header X: not set\n"),
        (False, ExitCode.GENERATOR_LIMITED, "voiceprobe: no worker is left: the run ends here\n"),
    ],
)
def test_run_without_workers_ends_for_reason_of_its_workers(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], refused: bool, code: ExitCode, words: str
) -> None:
    monkeypatch.setattr(runners, "HEARTBEAT_LIVENESS", runners.HEARTBEAT_LIVENESS)
    master, environment = Master(), Environment(events=Events())
    environment.parsed_options = SimpleNamespace(voice_settings="", headless=True)  # pyright: ignore[reportAttributeAccessIssue]
    environment.runner = master  # pyright: ignore[reportAttributeAccessIssue]
    coordinator = Coordinator(environment, master)  # pyright: ignore[reportArgumentType]
    if refused:
        master.heard[REFUSED](SimpleNamespace(node_id="0", data={"faults": ["--header X: not set"]}))
    coordinator.stopping()
    coordinator._watch(ends_with_the_calls=False)
    assert (environment.process_exit_code, master.quits) == (code, 1)
    assert capfd.readouterr().err == words


class Worker(WorkerRunner):
    def __init__(self) -> None:
        """None of its connections."""

    def register_message(self, *_: Any, **__: Any) -> None: ...

    def __del__(self) -> None: ...


@pytest.fixture
def timers(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, Any]]:
    """Collect the scheduled functions, and their delays."""
    scheduled: list[tuple[float, Any]] = []
    monkeypatch.setattr(coordinator, "gevent", SimpleNamespace(spawn_later=lambda *given: scheduled.append(given)))
    return scheduled


def swarm(runner: object, **options: Any) -> Environment:
    environment = Environment(events=Events())
    environment.runner = runner  # pyright: ignore[reportAttributeAccessIssue]
    environment.parsed_options = SimpleNamespace(**options)  # pyright: ignore[reportAttributeAccessIssue]
    return environment


def test_run_time_counts_from_start_of_run_not_from_its_order(
    timers: list[tuple[float, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[Environment] = []
    monkeypatch.setattr(starting, "finish", ended.append)
    environment = swarm(SimpleNamespace(), headless=True, run_time=7)
    take_over(environment.parsed_options)
    assert environment.parsed_options.run_time is None, "Locust counts nothing"
    assert limit_s(environment) == 7
    of = Starting(environment)
    of.begin(())
    assert [after_s for after_s, _ in timers] == [LONGEST_PREPARATION_S + 7]
    of.ready()
    assert [after_s for after_s, _ in timers] == [LONGEST_PREPARATION_S + 7, 7]
    timers[1][1]()
    assert ended == [environment]
    of.end()
    timers[0][1]()
    assert ended == [environment], "the next run is another one"


def test_command_sees_when_the_run_of_its_swarm_has_begun(
    timers: list[tuple[float, Any]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(BEGUN_VARIABLE, str(tmp_path / "begun"))
    of = Starting(swarm(SimpleNamespace(), headless=True, run_time=7))
    of.begin(())
    assert not (tmp_path / "begun").exists()
    of.ready()
    assert (tmp_path / "begun").exists()
    monkeypatch.setenv(BEGUN_VARIABLE, str(tmp_path / "no" / "folder"))
    of.begin(())
    of.ready()
    assert of.clock is not None
    assert of.clock.started_perf_ns is not None, "a run goes on without it"


def test_a_worker_leaves_the_end_to_its_master(timers: list[tuple[float, Any]]) -> None:
    """The master's options travel to it."""
    environment = swarm(Worker(), headless=True, run_time=None, voice_limit_s=7, voice_run_time=9)
    assert limit_s(environment) == 9
    coordinator.end_at_the_limit(environment, lambda: None)
    assert not timers


@pytest.mark.parametrize(("given", "limit"), [(None, None), ("", None), ("1m", 60), (30, 30), (0, None)])
def test_run_from_locust_page_is_limited_by_page_value(
    timers: list[tuple[float, Any]], given: object, limit: float | None
) -> None:
    environment = swarm(SimpleNamespace(), headless=False, run_time=given)
    assert limit_s(environment) == limit
    coordinator.end_at_the_limit(environment, lambda: None)
    assert not timers
