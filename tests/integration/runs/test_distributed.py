"""Swarms of several processes: what they share, and what is left when one of them is killed."""

import json
import os
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from loadtest.calibration.json_object import calibration_object
from loadtest.exit_codes import ExitCode
from loadtest.run import processes
from loadtest.run.calibrations import fingerprint, keep
from loadtest.run.sidecars import start_sidecar
from telemetry.model.turns import Turn
from telemetry.store.answers import ProcessInfo
from telemetry.store.reader import StoreReader
from tests.integration.calling import CORPUS
from tests.integration.commands import begun, completed
from tests.integration.waiting import wait_until
from tests.unit.loadtest.calibration.calibration_material import calibration, step

LOCUST = ["-m", "locust", "-f", str(processes.ROOT / "loadtest" / "locustfile.py"), "--headless"]
SPEECH = ["--corpus", CORPUS, "--length", "short", "--clips", "4", "--think", "0.1", "--endpointing", "200ms"]
# A worker that was not heard of for some 10 s during a run is taken for missing.
HELD_UP_S = 15.0


def _start(url: str, out: Path, *arguments: str) -> subprocess.Popen[str]:
    given = ["run", url, *SPEECH, "--turns", "1", "--out", str(out), "--json", str(out / "summary.json"), *arguments]
    return begun(*given)


def _finish(process: subprocess.Popen[str], out: Path) -> tuple[str, dict[str, Any]]:
    output, err = process.communicate(timeout=600)
    assert err == ""
    summary = json.loads((out / "summary.json").read_text())
    assert summary["exit_code"] == process.returncode
    return " ".join(output.split()), summary


def _is_over(pid: int) -> bool:
    """Whether a process runs no more; its parent may not have reaped it yet."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _known(store: Path) -> list[ProcessInfo]:
    if not store.is_dir():
        return []
    with StoreReader(store) as reader:
        runs = reader.runs()
        return reader.processes(runs[0].run_id) if runs else []


def _busy(store: Path, count: int) -> Callable[[], list[ProcessInfo]]:
    """Asks for the processes once so many of them have finished a turn."""

    def busy() -> list[ProcessInfo]:
        working = [process for process in _known(store) if process.turns]
        return working if len(working) >= count else []

    return busy


def _turns(store: Path) -> list[Turn]:
    with StoreReader(store) as reader:
        return reader.turns(source="client")


def _pid(process: ProcessInfo) -> int:
    return int(process.process_id.partition("-")[0])


def _unbroken(turns: list[Turn]) -> bool:
    """Whether each process's turns are all there, from its first to its last."""
    numbers: dict[str, list[int]] = {}
    for turn in turns:
        numbers.setdefault(turn.process_id, []).append(turn.sequence if turn.sequence is not None else -1)
    return all(sorted(sequences) == list(range(len(sequences))) for sequences in numbers.values())


@pytest.mark.nightly
def test_a_run_that_hears_of_no_worker_ends_and_says_so(url: str, tmp_path: Path) -> None:
    """Locust stops such a run, and then waits for somebody who starts another."""
    process = _start(url, tmp_path, "--users", "2", "--processes", "2", "--calls", "1000")
    wait_until(_busy(tmp_path / "store", 2))
    workers = [_pid(info) for info in _known(tmp_path / "store")]
    for pid in workers:
        os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: "no worker is left" in (tmp_path / "logs" / "locust.log").read_text())
    finally:
        for pid in workers:
            os.kill(pid, signal.SIGCONT)
    _, summary = _finish(process, tmp_path)
    assert process.returncode == ExitCode.GENERATOR_LIMITED
    assert "lost contact with its workers" in summary["exit_reason"] or summary["generator"]["processes_lost"]
    assert summary["generator"]["workers_missing"]
    assert summary["turns"]["total"] > 0


@pytest.mark.nightly
def test_workers_delayed_in_preparation_are_awaited(url: str, tmp_path: Path) -> None:
    """They send no sign of life for longer than what makes a worker missing later on, and than the run lasts then."""
    process = _start(url, tmp_path, "--users", "2", "--processes", "2", "--calls", "2", "--run-time", "12s")
    workers: list[int] = []

    def further() -> list[int]:
        pids = {int(log.name.partition("-")[0]) for log in (tmp_path / "spool").glob("*.wal")}
        return list(pids.difference(workers))

    # The run does not begin before both are ready, so the second one is still preparing when it is found.
    while len(workers) < 2:
        for pid in wait_until(further):
            os.kill(pid, signal.SIGSTOP)
            workers.append(pid)
    time.sleep(HELD_UP_S)
    for pid in workers:
        os.kill(pid, signal.SIGCONT)
    output, summary = _finish(process, tmp_path)
    assert summary["turns"]["total"] == 2, output
    assert not summary["generator"]["workers_missing"]
    assert summary["run"]["run_time_s"] == 12.0


@pytest.mark.nightly
@pytest.mark.parametrize(("count", "shares"), [(2, [2, 3]), (3, [1, 2, 2])])
def test_processes_have_even_shares_of_callers_and_report(
    url: str, tmp_path: Path, count: int, shares: list[int]
) -> None:
    store = tmp_path / "store"
    process = _start(url, tmp_path, "--users", "5", "--processes", str(count), "--run-time", "5m")

    def are_even() -> bool:
        # Every caller is on the line but for a moment between two calls.
        known = _known(store)
        calls = [process.calls_in_flight or 0 for process in known]
        assert max(calls, default=0) <= max(shares)
        return sorted(calls) == shares and all(process.turns for process in known)

    wait_until(are_even)
    victim = _known(store)[0]
    os.kill(_pid(victim), signal.SIGKILL)
    wait_until(lambda: "went missing after" in (tmp_path / "logs" / "locust.log").read_text())
    process.send_signal(signal.SIGINT)
    output, summary = _finish(process, tmp_path)
    by_process = summary["generator"]["each"]
    assert [share["worker"] for share in by_process] == [f"{number} of {count}" for number in range(1, count + 1)]
    assert all(share["turns"] > 0 and share["cpu_ratio"] > 0 for share in by_process)
    assert [lost["worker"] for lost in summary["generator"]["lost"]] == [victim.worker]
    assert summary["generator"]["cores"] >= 1
    assert sum(share["turns"] for share in by_process) == summary["turns"]["total"]
    assert f"1 of {count} generator processes was lost" in output
    assert "turns each" in output


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("given", "words", "count"),
    [
        ((), "2 callers want 2 processes on this machine: one process was found good for 1 caller", 1),
        (("--processes", "auto"), "2 processes for 2 callers", 2),
    ],
)
def test_calibration_states_how_many_processes_callers_need(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: tuple[str, ...], words: str, count: int
) -> None:
    monkeypatch.setenv("VOICEPROBE_HOME", str(tmp_path / "home"))
    keep(calibration_object(calibration(step(1), step(2, processes=2), machine=fingerprint())))
    process = _start(url, tmp_path, "--users", "2", "--calls", "2", *given)
    output, summary = _finish(process, tmp_path)
    assert words in output
    assert summary["generator"]["processes"] == count
    assert summary["generator"]["calibration"]["processes"] == 2
    assert summary["generator"]["calibration"]["state"] == ("beyond" if count == 1 else "calibrated")


@pytest.mark.nightly
def test_killed_processes_lose_only_what_they_had_not_finished(url: str, tmp_path: Path) -> None:
    store = tmp_path / "store"
    process = _start(url, tmp_path, "--users", "2", "--processes", "2", "--run-time", "5m")
    victim, other = wait_until(_busy(store, 2))
    master = os.getpgid(_pid(victim))
    os.kill(_pid(victim), signal.SIGKILL)
    before = other.turns
    wait_until(lambda: next(known.turns for known in _known(store) if known.process_id == other.process_id) > before)
    os.kill(master, signal.SIGKILL)
    output, summary = _finish(process, tmp_path)
    assert summary["exit_code"] == ExitCode.GENERATOR_LIMITED
    assert "1 of 2 generator processes was lost after" in summary["exit_reason"]
    assert summary["exit_reason"] in output
    assert summary["generator"]["killed_by"] == "SIGKILL"
    (lost,) = summary["generator"]["lost"]
    assert lost["worker"] == victim.worker
    turns = _turns(store)
    assert sum(turn.process_id == victim.process_id for turn in turns) >= victim.turns
    assert summary["turns"]["total"] == len(turns)
    assert _unbroken(turns)
    assert summary["telemetry"]["missing"] == 0
    assert list((tmp_path / "spool").iterdir()) == []
    for process in (victim, other):
        wait_until(partial(_is_over, _pid(process)))


@pytest.mark.nightly
def test_swarm_started_by_hand_is_one_run_and_names_lost_workers(url: str, tmp_path: Path) -> None:
    port, store = str(processes.free_port()), tmp_path / "store"
    child, sidecar = start_sidecar(store, tmp_path / "logs", slo=None)

    def locust(name: str, *arguments: str) -> processes.Child:
        return processes.start(name, [*LOCUST, *arguments], tmp_path / "logs", says_ready=False)

    def worker(name: str) -> processes.Child:
        return locust(name, "--worker", "--master-port", port, "--spool", str(tmp_path / "spool"))

    leading = ["--master", "--master-bind-host", "127.0.0.1", "--master-bind-port", port, "--expect-workers", "2"]
    asked = ["--host", url, "--users", "2", "--stop-timeout", "20", "--sidecar", sidecar.url, *SPEECH, "--turns", "1"]
    master = locust("master", *leading, *asked)
    first, second = worker("first"), worker("second")
    with processes.ending(child, first, second, master):
        working = wait_until(_busy(store, 2))
        late = worker("late")
        with processes.ending(late):
            wait_until(lambda: len(_known(store)) == 3)
            os.kill(first.process.pid, signal.SIGKILL)
            wait_until(lambda: "went missing after" in master.log.read_text())
            assert master.end(60.0) == ExitCode.GENERATOR_LIMITED
            for ended in (second, late):
                ended.process.wait(600.0)
        known = _known(store)
        turns = _turns(store)
    with StoreReader(store) as reader:
        (run,) = reader.runs()
    assert not run.ended
    assert {turn.run_id for turn in turns} == {run.run_id}
    by_pid = {_pid(process): process for process in known}
    assert {process.worker for process in working} == {"1 of 2", "2 of 2"}
    assert by_pid[late.process.pid].worker == "late-2"
    assert [by_pid[caller.process.pid].ended for caller in (first, second, late)] == [False, True, True]
    assert _unbroken(turns)


@pytest.mark.slow
def test_master_reports_faults_before_it_starts_callers(tmp_path: Path) -> None:
    port = str(processes.free_port())
    leading = ["--master", "--master-bind-host", "127.0.0.1", "--master-bind-port", port, "--expect-workers", "1"]
    master = processes.start(
        "master", [*LOCUST, *leading, "--host", "ftp://x", "--noise", "pinkk"], tmp_path, says_ready=False
    )
    worker = processes.start("worker", [*LOCUST, "--worker", "--master-port", port], tmp_path, says_ready=False)
    with processes.ending(worker, master):
        assert master.process.wait(600.0) == ExitCode.USAGE
    output = master.log.read_text()
    assert "voiceprobe: 'ftp://x' is not a WebSocket address" in output
    assert "pinkk" in output
    assert "Traceback" not in output


@pytest.mark.nightly
def test_worker_reads_own_environment_and_reports_what_it_lacks(tmp_path: Path) -> None:
    port = str(processes.free_port())
    leading = ["--master", "--master-bind-host", "127.0.0.1", "--master-bind-port", port, "--expect-workers", "1"]
    asked = ["--host", "ws://127.0.0.1:9/", "--header", "X-Key=VP_NOT_SET", "--header", "X-Other=VP_NOT_THERE"]
    master = processes.start("master", [*LOCUST, *leading, *asked], tmp_path, says_ready=False)
    worker = processes.start("worker", [*LOCUST, "--worker", "--master-port", port], tmp_path, says_ready=False)
    with processes.ending(worker, master):
        assert master.process.wait(600.0) == ExitCode.USAGE
        assert worker.process.wait(600.0) == ExitCode.USAGE
    for log in (master.log, worker.log):
        output = log.read_text()
        assert "--header X-Key: the environment variable VP_NOT_SET is not set" in output
        assert "--header X-Other: the environment variable VP_NOT_THERE is not set" in output
        assert "Traceback" not in output
    assert "voiceprobe: worker 1: --header" in master.log.read_text()


def _deliver(folder: Path, sidecar_url: str) -> str:
    done = completed("deliver", str(folder), "--sidecar", sidecar_url)
    assert done.returncode == 0, done.stderr
    return " ".join(done.stdout.split())


@pytest.mark.nightly
def test_turns_spooled_without_sidecar_are_delivered_later(url: str, tmp_path: Path) -> None:
    port, dead = str(processes.free_port()), f"http://127.0.0.1:{processes.free_port()}"
    leading = ["--master", "--master-bind-host", "127.0.0.1", "--master-bind-port", port, "--expect-workers", "2"]
    asked = ["--host", url, "--users", "2", "--calls", "4", "--stop-timeout", "20", "--sidecar", dead]
    asked += ["--region", "of-the-master", *SPEECH, "--turns", "1", "--exit-code-on-error", "0"]
    master = processes.start("master", [*LOCUST, *leading, *asked], tmp_path / "logs", says_ready=False)
    own = {
        "first": ["--spool", str(tmp_path / "first"), "--region", "north"],
        "second": ["--spool", str(tmp_path / "second")],
    }
    workers = [
        processes.start(name, [*LOCUST, "--worker", "--master-port", port, *given], tmp_path / "logs", says_ready=False)
        for name, given in own.items()
    ]
    with processes.ending(*workers, master):
        assert master.process.wait(600.0) == 0, master.last_words()
        for worker in workers:
            assert worker.process.wait(600.0) == 0, worker.last_words()
            assert "are lost" not in worker.log.read_text()
    child, sidecar = start_sidecar(tmp_path / "store", tmp_path / "logs", slo=None)
    with processes.ending(child):
        for name in own:
            output = _deliver(tmp_path / name, sidecar.url)
            assert re.search(
                rf"delivered from {tmp_path / name}: [1-9]\d* turns? \(\d+ spans\) of the spool", output
            ), output
    turns = _turns(tmp_path / "store")
    assert len(turns) == 4
    assert _unbroken(turns)
    assert Counter(turn.region for turn in turns) == {"north": 2, "of-the-master": 2}
    with StoreReader(tmp_path / "store") as reader:
        assert [run.ended for run in reader.runs()] == [True]


@pytest.mark.nightly
def test_a_worker_without_a_spool_says_what_is_lost(url: str, tmp_path: Path) -> None:
    dead = f"http://127.0.0.1:{processes.free_port()}"
    asked = ["--host", url, "--users", "1", "--calls", "1", "--sidecar", dead, *SPEECH, "--turns", "1"]
    asked += ["--exit-code-on-error", "0"]
    swarm = processes.start("locust", [*LOCUST, *asked], tmp_path, says_ready=False)
    with processes.ending(swarm):
        assert swarm.process.wait(600.0) == 0, swarm.last_words()
    output = swarm.log.read_text()
    lost = rf"spans are lost \([^)]+\): the sidecar at {dead} did not take them"
    assert re.search(lost, output), output
    assert "there was no --spool to keep them" in output
    # On a machine that paused in the turn, it is shown as invalid, and has no figure.
    assert "voice_to_voice" in output or re.search(r"invalid turn\s+1\b", output), output
