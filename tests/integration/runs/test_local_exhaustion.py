"""Exhaustion of this machine's ports and open files is never blamed on the service: real kernels' limits."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from loadtest.run import processes
from tests.integration.commands import WAIT_S

PORTS = 10
CALLERS = 14

# Callers of one engine, all at once, in a network of their own with few local ports; prints their turns.
_IN_A_NETWORK = """
import json
from pathlib import Path
from tests.integration.calling import Callers
from tests.integration.quick_endpoint import quick_endpoint
Path("/proc/sys/net/ipv4/ip_local_port_range").write_text("40000 {last}")
with quick_endpoint() as endpoint:
    calls = Callers(endpoint.url, {callers}, turns_per_call=1, manual_turns=True).call()
print(json.dumps([[t.turn_index, t.outcome, t.outcome_observed, t.invalid_reasons, t.failure_kind, t.failure_code,
                   t.connect_ns is None, t.outcome_reason] for call in calls for t in call]))
"""
# The same with few open files. The engine of the callers raises no hard limit.
_WITH_FEW_FILES = """
import json, resource
from tests.integration.calling import Callers
from tests.integration.quick_endpoint import quick_endpoint
with quick_endpoint() as endpoint:
    resource.setrlimit(resource.RLIMIT_NOFILE, (50, 50))
    calls = Callers(endpoint.url, {callers}, turns_per_call=1, manual_turns=True).call()
print(json.dumps([[t.turn_index, t.outcome, t.outcome_observed, t.invalid_reasons, t.failure_kind, t.failure_code,
                   t.connect_ns is None, t.outcome_reason] for call in calls for t in call]))
"""


def turns_of(program: str, *, network: bool) -> list[list[Any]]:
    command = [sys.executable, "-c", program]
    if network:
        if shutil.which("unshare") is None or shutil.which("ip") is None:
            pytest.skip("this system has no unshare or no ip")
        inside = 'ip link set lo up && exec "$@"'
        command = ["unshare", "--map-root-user", "--net", "sh", "-c", inside, "sh", *command]
        if subprocess.run([*command[:3], "true"], capture_output=True, check=False).returncode:
            pytest.skip("this system lets nobody make a network namespace")
    environment = {**processes.environment(), "PYTHONPATH": os.pathsep.join([str(processes.ROOT), *sys.path])}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 0, done.stderr
    rows: list[list[Any]] = json.loads(done.stdout.splitlines()[-1])
    return rows


@pytest.mark.nightly
def test_calls_without_local_port_are_open_and_others_unchanged() -> None:
    program = _IN_A_NETWORK.format(last=40_000 + PORTS - 1, callers=CALLERS)
    turns = turns_of(program, network=True)
    prevented = [turn for turn in turns if turn[1] == "invalid"]
    assert len(turns) == CALLERS
    assert CALLERS - PORTS <= len(prevented) < CALLERS  # the kernel need not find the last port of a range
    for turn in prevented:
        assert turn[:7] == [0, "invalid", "error", ["out of local ports"], "generator", "EADDRNOTAVAIL", True]
        assert f"no local port left of the {PORTS} in net.ipv4.ip_local_port_range" in turn[7]
        assert "widen the range (sysctl net.ipv4.ip_local_port_range)" in turn[7]
    assert {turn[4] for turn in turns if turn[1] != "invalid"} == {None}


def test_calls_without_open_file_are_open_and_leave_some() -> None:
    turns = turns_of(_WITH_FEW_FILES.format(callers=40), network=False)
    prevented = [turn for turn in turns if turn[1] == "invalid"]
    assert len(turns) == 40
    assert 10 <= len(prevented) < 40
    for turn in prevented:
        assert turn[:7] == [0, "invalid", "error", ["out of open files"], "generator", "EMFILE", True]
        assert "the 50 files it may open; raise the limit (ulimit -n)" in turn[7]


def test_callers_needing_too_many_files_are_refused_before_calls(tmp_path: Path) -> None:
    limited = ["sh", "-c", 'ulimit -n 100; exec "$@"', "sh", sys.executable, "-m", "loadtest.cli.main"]
    done = subprocess.run(
        [*limited, "run", "ws://127.0.0.1:9/v1/realtime", "--users", "90", "--run-time", "5s"],
        env=processes.environment(),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert "voiceprobe: 90 calls at the same time need about 126 open files, and a process may open 100" in done.stderr
    assert "use fewer callers, --processes 2 or more machines" in done.stderr
    assert not (tmp_path / "runs").exists(), "nothing was started"
