"""End of a run whose workers are gone: by their reported reason, else as one that the generator limited."""

from types import SimpleNamespace
from typing import Any

import pytest

from loadtest.exit_codes import ExitCode

with pytest.MonkeyPatch.context() as patched:
    # Locust would patch this process, in which other tests run.
    patched.setenv("LOCUST_SKIP_MONKEY_PATCH", "1")
    from locust import runners
    from locust.env import Environment
    from locust.event import Events

    from loadtest.swarm.coordinator import REFUSED, Coordinator


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
