"""`python -m tests.benchmarks.bench store` really measures a store; how fast that is decides nothing here."""

import json
import subprocess
import sys
from typing import Any

import pytest

from loadtest.run.processes import ROOT

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("bench-store")
    command = [sys.executable, "-m", "tests.benchmarks.bench", "store", "--short", "--markdown"]
    done = subprocess.run(
        [*command, "--json", str(folder / "store.json"), "--folder", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        print(f"\n{done.stderr}")  # shown, and no figure in it decides a test
    left = [path.name for path in folder.iterdir()]
    return {**json.loads((folder / "store.json").read_text()), "output": done.stdout, "left": left}


def test_every_figure_of_a_store_is_there(short: dict[str, Any]) -> None:
    (store,) = short["stores"]
    assert store["turns"] == 3_000
    assert store["spans"] > 4 * store["turns"]
    assert store["size_bytes"] > 0
    assert store["start_s"] > 0
    for name in ("page", "lookup", "summary", "fresh"):
        assert 0 < store[name]["repeated_s"] <= store[name]["worst_s"]
        assert store[name]["peak_rss_bytes"] > 10_000_000
    for name in ("fastest", "paced"):
        assert store[name]["spans"] > 0
        assert store[name]["cpu_us_per_span"] > 0
        assert store[name]["ack_p50_s"] <= store[name]["ack_p99_s"]
    assert store["paced"]["spans_per_s"] <= 11_000


def test_it_prints_a_table_and_leaves_nothing_behind(short: dict[str, Any]) -> None:
    lines = short["output"].splitlines()
    assert "| Turns in the store | 3,000 |" in lines
    assert sum(line.startswith("| ") for line in lines) == 17
    assert "1 turn with" in lines[-1]
    assert short["left"] == ["store.json"]
