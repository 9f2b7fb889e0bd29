"""Stages of the engine: every name is there, the innermost frame decides, and other threads count apart."""

import io
import sys
import sysconfig
from pathlib import Path
from types import FrameType
from typing import cast

import pytest
from rich.console import Console

from tests.benchmarks.bench.stages import (
    OTHER,
    ROOT,
    STAGE_OF,
    THREADS,
    CpuProfile,
    StageSampler,
    profile_from,
    stage_of,
)
from tests.benchmarks.bench.tables import print_profile

PACKAGES = Path(sysconfig.get_paths()["purelib"])


class FakeCode:
    def __init__(self, file: str, name: str) -> None:
        self.co_filename, self.co_qualname = file, name


class FakeFrame:
    def __init__(self, file: str, name: str, back: "FakeFrame | None" = None) -> None:
        self.f_code, self.f_back = FakeCode(file, name), back


def frame(file: str, name: str = "f", back: FrameType | None = None) -> FrameType:
    return cast(FrameType, FakeFrame(file, name, cast("FakeFrame | None", back)))


def of_ours(name: str, back: FrameType | None = None) -> FrameType:
    return frame(str(ROOT / name), "f", back)


@pytest.mark.parametrize("name", STAGE_OF)
def test_every_file_of_a_stage_is_there(name: str) -> None:
    assert (ROOT / name).exists() or (PACKAGES / name).exists()


@pytest.mark.parametrize(
    ("file", "stage"),
    [
        (ROOT / "loadtest/engine/engine.py", "send"),
        (ROOT / "loadtest/engine/transports/stream.py", "read"),
        (ROOT / "loadtest/engine/connection.py", "read"),
        (ROOT / "loadtest/protocols/openai_realtime/caller.py", "decode"),
        (ROOT / "loadtest/protocols/transports/websocket.py", "read"),
        (ROOT / "loadtest/audio/onset.py", "onset"),
        (ROOT / "loadtest/conversation/timeline.py", "timeline"),
        (ROOT / "loadtest/conversation/record.py", "telemetry"),
        (ROOT / "telemetry/export/sdk.py", "telemetry"),
        (ROOT / "tests/benchmarks/bench/window.py", None),
        (PACKAGES / "gevent/hub.py", "event loop"),
        (PACKAGES / "numpy/core.py", None),
        (Path("/usr/lib/python3.11/json/decoder.py"), None),
    ],
)
def test_the_longest_name_that_fits_decides(file: Path, stage: str | None) -> None:
    assert stage_of(str(file)) == stage


def test_what_belongs_to_nobody_counts_for_whoever_called_it() -> None:
    sampler = StageSampler()
    sampler.count(frame("/usr/lib/python3.11/json/decoder.py", back=of_ours("loadtest/protocols/base.py")), 30, 0)
    sampler.count(of_ours("loadtest/audio/onset.py", back=of_ours("loadtest/conversation/timeline.py")), 20, 40)
    sampler.count(frame("/somewhere/else.py"), 10, -1)
    found = sampler.stop()
    assert found.samples == 3
    assert found.stages == {THREADS: 0.4, "decode": 0.3, "onset": 0.2, OTHER: 0.1}
    assert found.functions == {"base.py: f": 0.3, "onset.py: f": 0.2}


def test_a_sampler_counts_the_time_of_the_process() -> None:
    sampler = StageSampler()
    sampler.start()
    sampler.take(0, sys._getframe())  # pyright: ignore[reportPrivateUsage] - as the kernel's signal would
    found = sampler.stop()
    assert found.samples >= 1
    assert sum(found.stages.values()) == pytest.approx(1)


def test_a_profile_is_shown_with_its_functions() -> None:
    profile = profile_from({"samples": 1200, "stages": {"send": 0.6, "read": 0.4}, "functions": {"engine.py: f": 0.5}})
    assert profile == CpuProfile(1200, {"send": 0.6, "read": 0.4}, {"engine.py: f": 0.5})
    console = Console(width=120, file=io.StringIO(), record=True)
    print_profile(console, "800 conversations", profile)
    text = console.export_text()
    for part in ("800 conversations: 1,200 samples", "send", "60 %", "engine.py: f", "50 %", "read", "40 %"):
        assert part in text
