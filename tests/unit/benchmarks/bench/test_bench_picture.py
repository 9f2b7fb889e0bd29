"""The picture of a benchmark: one for each wire, readable at any size of the figures."""

from pathlib import Path

import pytest

from tests.benchmarks.bench.cases import Case
from tests.benchmarks.bench.compared import rows
from tests.benchmarks.bench.picture import draw
from tests.benchmarks.bench.senders import Trial
from tests.unit.benchmarks.bench.test_bench_figures import made

pytestmark = pytest.mark.slow


@pytest.mark.slow
def test_a_picture_for_each_wire_names_its_senders_and_sizes(tmp_path: Path) -> None:
    trials = [
        Trial(Case(callers, "one-way", wire), 0, sender, made(cpu_ms=30, sent=1000, lateness_ns=[10**6] * 1000))
        for callers in (100, 500)
        for wire, senders in (("ws", ("control", "ours", "naive")), ("wss", ("ours", "naive")))
        for sender in senders
    ]
    trials.append(Trial(Case(500, "duplex", "wss"), 0, "ours", None, "it did not start"))
    files = draw(rows(trials), tmp_path / "pictures", "a machine")
    assert [file.name for file in files] == ["senders-ws.svg", "senders-ws.png", "senders-wss.svg", "senders-wss.png"]
    for file in files[::2]:
        svg = file.read_text()
        for text in ("voiceprobe", "naive locustfile", "a machine", "100", "500", "target 1 ms"):
            assert f"<!-- {text} -->" in svg
    assert "<!-- C, epoll + timerfd -->" not in files[2].read_text()
