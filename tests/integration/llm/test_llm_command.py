"""`voiceprobe llm` as a process of its own against a server over a real socket. No time but the least is judged."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from telemetry.store.answers import Filter
from telemetry.store.reader import StoreReader
from tests.integration.commands import begun, carried_out, ended
from tests.nightly import nightly_after
from tests.run_folders import latency_run, run_folder

SECRET = "sk-0123456789-very-secret"
KEY = {"OPENAI_API_KEY": SECRET}
FIRST_MS, TOKENS = 50, 20  # of an answer for which nothing else is declared


@pytest.fixture(scope="module")
def url() -> Generator[str]:
    command = [sys.executable, str(Path(__file__).with_name("declared_server.py"))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        finally:
            process.terminate()


def test_a_bench_is_measured_written_and_stored_without_its_key(url: str, tmp_path: Path) -> None:
    run_folder(tmp_path / "runs", "monday", latency_run("monday", 10))
    files = ["--json", "llm.json", "--html", "llm.html", "--out", "bench"]
    asked = ["--samples", "10", "--lengths", "20", "--only", "lengths,network,cache", "--from-run", "monday"]
    code, out, err = ended(begun("llm", url, "--model", "small", *asked, *files, cwd=tmp_path, variables=KEY))
    assert (code, err) == (0, ""), out + err
    result: dict[str, Any] = json.loads((tmp_path / "llm.json").read_text())
    assert "one call in ten stalls for" in out
    assert "all but the model of 30 turns of the run monday" in out
    (row,) = result["lengths"]
    assert (row["tokens"], row["n"], row["others"]) == (TOKENS, 10, {})
    assert row["figures"]["first_token_s"]["p50"] >= FIRST_MS / 1000 - 0.0005
    assert result["network"][0]["round_trip_s"]["n"] == 10
    assert result["voice"]["rows"][0]["voice_to_voice_s"]["n"] == 10
    # The server counts no cached token: what was to be warm is not, whatever its time.
    assert {(row["state"], row["as_stated"], row["contrary"]) for row in result["cache"]} == {
        ("cold", 10, 0),
        ("warm", 0, 10),
        ("second turn", 0, 10),
        ("third turn", 0, 10),
    }
    with StoreReader(tmp_path / "bench" / "store") as reader:
        assert reader.summary(Filter(run_id="bench")).turns.ok == 10 + 3 * 4 * 10
    page = (tmp_path / "llm.html").read_text()
    assert "<svg" in page
    assert SECRET not in out
    kept = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert len(kept) > 3
    assert not [file for file in kept if SECRET.encode() in file.read_bytes()]


def test_a_port_where_nothing_listens_is_one_sentence(tmp_path: Path) -> None:
    run_folder(tmp_path / "runs", "monday", latency_run("monday", 4))
    asked = ("--model", "small", "--from-run", "monday")
    done = carried_out("llm", "http://127.0.0.1:1/v1", *asked, cwd=tmp_path)
    assert done.returncode == 5, done.stdout + done.stderr
    assert done.stderr == (
        "voiceprobe: http://127.0.0.1:1/v1 small: 127.0.0.1:1 cannot be reached: connection refused\n"
    )


@pytest.mark.parametrize(
    "load", nightly_after(1, [(["--concurrency", "4"],), (["--rates", "8"],)]), ids=["closed", "open"]
)
def test_an_interrupted_load_level_keeps_what_was_answered(url: str, tmp_path: Path, load: list[str]) -> None:
    def sent() -> int:
        with urllib.request.urlopen(f"{url.removesuffix('/v1')}/log") as response:  # noqa: S310 - the server above
            return len(json.load(response).get("", []))

    before = sent()
    arguments = ["--only", "concurrency", *load, "--level-time", "300s", "--json", "llm.json"]
    process = begun("llm", url, "--model", "small", *arguments, cwd=tmp_path, variables=KEY)
    while sent() < before + 20 * TOKENS and process.poll() is None:
        time.sleep(0.2)
    os.kill(process.pid, signal.SIGINT)
    code, out, err = ended(process)
    assert (code, err) == (130, ""), out + err
    assert "interrupted: these are the figures so far" in out
    (row,) = json.loads((tmp_path / "llm.json").read_text())["load"]
    assert row["sent"] - row["unfinished"] >= 10
    assert row["rate"] is not None
    assert row["faults"] == {}
