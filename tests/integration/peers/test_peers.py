"""The mechanism under the tests against real servers: their environments, their processes, and what is said of them."""

import sys
from pathlib import Path

import httpx
import psutil
import pytest

from tests.integration.peers import processes

ANSWER = """
import http.server, sys
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), http.server.SimpleHTTPRequestHandler).serve_forever()
"""


def test_a_missing_environment_skips_the_test_with_the_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv(processes.PLACE_VARIABLE, str(tmp_path))
    monkeypatch.setenv(processes.REASON_VARIABLE, "no index can be reached")
    with pytest.raises(pytest.skip.Exception, match=r"of the peer some-server is missing \(no index can be reached\)"):
        processes.python_of("some-server")


def test_in_continuous_integration_it_fails_the_test(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CI", "true")
    monkeypatch.setenv(processes.PLACE_VARIABLE, str(tmp_path))
    with pytest.raises(pytest.fail.Exception, match="of the peer some-server is missing"):
        processes.python_of("some-server")


def test_an_interrupted_environment_does_not_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv(processes.PLACE_VARIABLE, str(tmp_path))
    python = tmp_path / "some-server" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    with pytest.raises(pytest.skip.Exception):
        processes.python_of("some-server")
    (tmp_path / "some-server" / ".voiceprobe-stamp").touch()
    assert processes.python_of("some-server") == str(python)


def test_a_peer_is_there_until_the_block_ends(tmp_path: Path) -> None:
    port = processes.free_port()
    others = psutil.Process().children()
    with processes.running([sys.executable, "-c", ANSWER, str(port)], port, tmp_path / "log"):
        (child,) = set(psutil.Process().children()) - set(others)
        assert httpx.get(f"http://127.0.0.1:{port}/").status_code == 200
    assert not child.is_running()


def test_a_peer_that_ends_at_once_is_shown_with_its_last_words(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit('no such model')"]
    with (
        pytest.raises(AssertionError, match="no such model"),
        processes.running(command, processes.free_port(), tmp_path / "log"),
    ):
        pass
