"""What a process asks of the scheduler, it gets from the real one, or it is told that there is no such thing."""

import os
import platform
import subprocess
import sys

import pytest

from loadtest.swarm import priority
from loadtest.swarm.priority import WANTED_SLICE_NS, ask_for_short_slices

ASK = """
import os
from loadtest.swarm.priority import ask_for_short_slices
before = os.getpriority(os.PRIO_PROCESS, 0)
print(ask_for_short_slices(), os.getpriority(os.PRIO_PROCESS, 0) == before, os.sched_getscheduler(0) == os.SCHED_OTHER)
"""


def _kernel() -> tuple[int, int]:
    major, minor = platform.release().split(".")[:2]
    return int(major), int("".join(digit for digit in minor if digit.isdigit()))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the system has no such thing")
def test_short_slices_are_had_from_linux_6_12_on_and_nothing_else_changes() -> None:
    said = subprocess.run([sys.executable, "-c", ASK], check=True, capture_output=True, text=True).stdout.split()
    assert said[1:] == ["True", "True"]
    if _kernel() >= (6, 12) and platform.machine() in priority._SCHED_SETATTR:
        assert said[0] == str(WANTED_SLICE_NS)


def test_elsewhere_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert ask_for_short_slices(os.getpid()) is None


def test_nor_on_a_machine_whose_numbers_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "a relay computer")
    assert ask_for_short_slices(os.getpid()) is None


def test_a_process_that_is_gone_has_none() -> None:
    over = subprocess.Popen([sys.executable, "-c", ""])
    over.wait()
    assert ask_for_short_slices(over.pid) is None
