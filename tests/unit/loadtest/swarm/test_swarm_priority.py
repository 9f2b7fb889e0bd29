"""Scheduling requests of a process: granted by the real scheduler, or reported as not supported."""

import os
import subprocess
import sys

import pytest

from loadtest.errors import UsageError
from loadtest.swarm import priority


@pytest.fixture(autouse=True)
def as_a_user_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(priority.VARIABLE, raising=False)


ASK = """
import os
from loadtest.swarm.priority import ask_for_priority
had = ask_for_priority()
child = os.fork()
if child == 0:
    os._exit(os.sched_getscheduler(0))
print(had.realtime, os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK == os.SCHED_RR)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == os.SCHED_OTHER, had.niceness)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the system has no such thing")
def test_real_time_priority_is_used_if_allowed_but_not_inherited() -> None:
    output = subprocess.run([sys.executable, "-c", ASK], check=True, capture_output=True, text=True).stdout.split()
    realtime, is_so, child_is_as_others, _ = output
    assert realtime == is_so
    assert child_is_as_others == "True"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the system has no such thing")
def test_asking_whether_real_time_is_allowed_changes_nothing() -> None:
    before = os.sched_getscheduler(0), os.sched_getparam(0).sched_priority, os.getpriority(os.PRIO_PROCESS, 0)
    allowed = priority.may_be_realtime()
    assert (os.sched_getscheduler(0), os.sched_getparam(0).sched_priority, os.getpriority(os.PRIO_PROCESS, 0)) == before
    done = subprocess.run([sys.executable, "-c", ASK], check=True, capture_output=True, text=True)
    assert done.stdout.split()[0] == str(allowed)


def test_niceness_is_requested_if_real_time_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def refuse(pid: int, policy: int, param: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    monkeypatch.setattr(priority, "_ask_for_niceness", lambda pid: asked.append(pid) or 5)
    assert priority.ask_for_priority() == priority.Priority(realtime=False, niceness=5)
    assert asked == [0]


def test_normal_priority_is_kept_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(priority.VARIABLE, "normal")
    done = subprocess.run([sys.executable, "-c", ASK], check=True, capture_output=True, text=True)
    assert done.stdout.split()[0] == "False"
    assert not priority.may_be_realtime()


def test_a_priority_that_there_is_not_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(priority.VARIABLE, "highest")
    for ask in (priority.ask_for_priority, priority.may_be_realtime):
        with pytest.raises(UsageError, match=r"VOICEPROBE_PRIORITY=highest: .* set real-time or normal"):
            ask()
