"""Demos that want the same ports: each takes others, and where one is taken in between, a sentence says so."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from loadtest.exit_codes import ExitCode
from loadtest.run import processes

pytestmark = pytest.mark.nightly

BOUND_S = 300
# The demo, while somebody else takes the port of one of its parts between the look and the start.
_RACED = """
import socket, sys
from loadtest.run import demo, processes
chosen, raced, kept = processes.free_port, getattr(demo, sys.argv[1]), []

def free_port(preferred=None):
    port = chosen(None)
    if preferred == raced:
        other = socket.create_server(("127.0.0.1", port))
        kept.append(other)
    return port

processes.free_port = free_port
sys.argv = ["voiceprobe", "demo", "--exit", "--run-time", "3s", "--out", "out"]
from loadtest.cli.main import main
main()
"""
ATTEMPTS = 5
_TAKEN = (
    r"voiceprobe: port \d+ for the {} was free a moment ago and is taken now, by another demo perhaps: start the demo "
    r"again, it takes another port then\s*"
)


def _begun(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    folder.mkdir()
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=folder,
        env={**processes.environment(), "COLUMNS": "1000"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(
    ("port", "name"),
    [("OTLP_HTTP_PORT", "sidecar"), ("OTLP_GRPC_PORT", "sidecar"), ("ASSISTANT_PORT", "assistant")],
)
def test_port_taken_in_between_is_named_in_one_sentence(tmp_path: Path, port: str, name: str) -> None:
    code, err = _ended(_begun(tmp_path / "demo", "-c", _RACED, port))[::2]
    assert code == ExitCode.FAULT
    assert re.fullmatch(_TAKEN.format(name), err), err


def _ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=BOUND_S)
    assert "Traceback" not in err
    return process.returncode, out, err


def test_two_demos_at_once_both_run_or_one_names_its_lost_port(tmp_path: Path) -> None:
    flags = ("-m", "loadtest.cli.main", "demo", "--exit", "--users", "1", "--run-time", "3s", "--out", "out")
    for attempt in range(ATTEMPTS):
        both = [_begun(tmp_path / f"{name}-{attempt}", *flags) for name in ("one", "other")]
        ended = [_ended(demo) for demo in both]
        lost = [err for code, _, err in ended if code == ExitCode.FAULT]
        assert all(re.fullmatch(_TAKEN.format(r"\w+"), err) for err in lost), lost
        if len(lost) < 2:
            break
    else:
        pytest.fail("both lost their port each time, more often than processes of other tests can have taken it")
    for code, out, err in ended:
        if code != ExitCode.FAULT:
            # A few turns decide nothing, and a busy machine may be the limit: it ran its whole way.
            assert code in (ExitCode.OK, ExitCode.OBJECTIVE_MISSED, ExitCode.UNDECIDED, ExitCode.GENERATOR_LIMITED), err
            assert "report: " in out
