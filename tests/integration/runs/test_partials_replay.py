"""Transcripts of a run are replayed into a language model alone, from the command line to the requests it gets."""

import json
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.integration.calling import CORPUS, assistant
from tests.integration.commands import completed
from tests.integration.peers import processes

SERVER = Path(__file__).parents[1] / "servers" / "stage_server.py"


def voiceprobe(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return completed(*map(str, arguments))


@pytest.mark.nightly
def test_partials_of_a_run_become_requests_at_their_times(tmp_path: Path) -> None:
    speech = ["--corpus", CORPUS, "--length", "short", "--clips", "2", "--think", "0.1", "--calls", "1", "--turns", "2"]
    with assistant(tmp_path) as url:
        run = voiceprobe("run", url, *speech, "--run-time", "1m", "--keep-transcripts", "--out", tmp_path / "first")
    file = tmp_path / "partials.jsonl"
    done = voiceprobe("protocol", "partials", "--store", tmp_path / "first" / "store", "--out", file)
    assert done.returncode == 0, (run.stdout, run.stderr, done.stderr)
    recorded = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(recorded) == 2
    assert all(line["partials"] for line in recorded), "the assistant sends partial transcripts while it listens"

    port = processes.free_port()
    with processes.running([sys.executable, str(SERVER), str(port)], port, tmp_path / "server.log"):
        address = f"http://127.0.0.1:{port}"
        option = ["--protocol", "llm", "--protocol-option", f"partials={file}"]
        run = voiceprobe("run", f"{address}/v1", *speech, *option, "--run-time", "1m", "--out", tmp_path / "second")
        sent = httpx.get(f"{address}/sent").json()
    asked = [entry["messages"][-1]["content"] for entry in sent if "messages" in entry]
    finals = [line["final"][1] for line in recorded]
    assert sorted(set(asked) & set(finals)) == sorted(finals), (asked, run.stdout, run.stderr)
    assert "2 ok" in run.stdout or "2 turns" in run.stdout, run.stdout
