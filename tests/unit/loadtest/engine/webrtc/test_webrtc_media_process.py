"""The engine's WebRTC process: started when it is needed, replaced when it is gone, ended with the engine."""

import importlib.util
import os
import shlex
import signal
import subprocess
import sys
import tomllib
from collections.abc import Generator
from pathlib import Path
from typing import Any

import gevent
import psutil
import pytest

from loadtest.engine.clock import Clocks
from loadtest.engine.connection import ConnectionParts
from loadtest.engine.engine import Engine
from loadtest.engine.watch import SocketWatch
from loadtest.engine.webrtc.media_process import LIVEKIT, WEBRTC, MediaProcess, ProcessKind
from loadtest.engine.webrtc.messages import LinkKind
from loadtest.errors import InstrumentError, UsageError
from loadtest.protocols import registry
from loadtest.protocols.base import CallerOptions, Message
from loadtest.protocols.failure import Failure
from loadtest.protocols.webrtc_items import LocalOffer, WebRtcItem
from tests.unit.loadtest.conversation.world import make_plan

ROOT = Path(__file__).parents[5]
WITHIN_S = 120.0
MAKE_OFFER = b"{}"


class Owner:
    """A call's transport that keeps what it gets."""

    def __init__(self) -> None:
        self.items: list[WebRtcItem | Message] = []
        self.faults: list[str] = []
        self.is_closed = False

    def arrived(self, stamp_perf_ns: int, lag_bound_ns: int, items: Any) -> None:
        assert stamp_perf_ns > 0
        assert lag_bound_ns >= 0
        self.items += items

    def state(self, word: str) -> None:
        assert word

    def sent_late(self, late_ns: int) -> None:
        assert late_ns > 0

    def lost(self, reason: str, failure: Failure) -> None:
        self.faults.append(f"{failure.kind} {failure.code}: {reason}")

    def broken(self, error: Exception) -> None:
        self.faults.append(f"{type(error).__name__}: {error}")

    def ended(self) -> None:
        self.is_closed = True


@pytest.fixture
def media() -> Generator[MediaProcess]:
    clocks = Clocks()
    loop = gevent.get_hub().loop
    watch = SocketWatch(loop, clocks.perf_ns)
    process = MediaProcess(ConnectionParts(loop, watch, clocks))
    yield process
    process.close()
    watch.close()


def wait_until(true: Any) -> None:
    with gevent.Timeout(WITHIN_S):
        while not true():
            gevent.sleep(0.005)


@pytest.mark.parametrize(("kind", "extra"), [(WEBRTC, "webrtc"), (LIVEKIT, "livekit")])
def test_the_command_installs_what_the_extra_has(kind: ProcessKind, extra: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert list(kind.requirements) == project["optional-dependencies"][extra]
    command = shlex.split(kind.missing.partition("install it with: ")[2])
    assert command[1:] == ["-m", "pip", "install", *kind.requirements]
    assert Path(command[0]).absolute() == Path(sys.executable), (
        "the interpreter that runs this, from the folder it is in"
    )
    assert not command[0].startswith("/") or not Path(sys.executable).is_relative_to(Path.cwd())


def test_without_aiortc_the_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "aiortc" else find(name))
    engine = Engine(frame_ns=20_000_000, onset_preset="rms-10ms")
    try:
        protocol = registry.make_caller("smallwebrtc", CallerOptions())
        with pytest.raises(UsageError, match=r"python\S* -m pip install 'aiortc>=1.13'$"):
            engine.new_call(make_plan(), protocol, protocol.upgrade("http://127.0.0.1:1/api/offer", None))
    finally:
        engine.close()


@pytest.mark.slow
def test_offers_come_from_one_process_that_ends_with_engine(media: MediaProcess) -> None:
    media.start()
    first = media.pid
    assert first is not None
    process = psutil.Process(first)
    media.start()
    assert media.pid == first
    owners = [Owner(), Owner()]
    calls = [media.register(owner) for owner in owners]
    for call in calls:
        media.send(LinkKind.MAKE_OFFER, call, MAKE_OFFER)
    wait_until(lambda: all(owner.items for owner in owners))
    for owner in owners:
        (offer,) = owner.items
        assert isinstance(offer, LocalOffer)
        assert "opus/48000/2" in offer.sdp
        assert "PCMU" not in offer.sdp
        assert "a=candidate" in offer.sdp, "no candidate comes later"
        assert "m=application" in offer.sdp
    media.send(LinkKind.ANSWER, calls[0], b"v=0\r\nm=audio nonsense")
    wait_until(lambda: owners[0].faults)
    assert owners[0].faults[0].startswith("protocol_violation bad_sdp: the endpoint's answer is no SDP")
    for call in calls:
        media.send(LinkKind.CLOSE, call)
    wait_until(lambda: all(owner.is_closed for owner in owners))
    media.close()
    assert not process.is_running()


@pytest.mark.slow
def test_media_process_has_real_time_priority_of_engine(media: MediaProcess) -> None:
    before, param = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except OSError:
        pytest.skip("this user may not have real-time priority")
    try:
        media.start()
        assert media.pid is not None
        assert os.sched_getscheduler(media.pid) == os.SCHED_RR | os.SCHED_RESET_ON_FORK
        assert os.sched_getparam(media.pid).sched_priority == 1
    finally:
        os.sched_setscheduler(0, before, param)


@pytest.mark.slow
def test_killed_media_process_breaks_its_calls_and_is_replaced(media: MediaProcess) -> None:
    media.start()
    first = media.pid
    assert first is not None
    owner = Owner()
    media.register(owner)
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: owner.faults)
    assert owner.faults[0].startswith(f"{InstrumentError.__name__}: the process for calls over WebRTC is gone")
    media.start()
    assert media.pid not in (None, first)


@pytest.mark.slow
def test_messages_to_stopped_process_wait_and_are_read_later(media: MediaProcess) -> None:
    media.start()
    assert media.pid is not None
    process = psutil.Process(media.pid)
    process.suspend()
    owner = Owner()
    call = media.register(owner)
    for _ in range(4_000):  # 8 MB: more than a socket holds
        media.send_frame(call, bytes(1920))
    media.send(LinkKind.MAKE_OFFER, call, MAKE_OFFER)
    process.resume()
    wait_until(lambda: owner.items)
    assert isinstance(owner.items[0], LocalOffer), "the last of all messages came through"


START = """
import os, signal
import gevent
from loadtest.engine.clock import Clocks
from loadtest.engine.connection import ConnectionParts
from loadtest.engine.watch import SocketWatch
from loadtest.engine.webrtc.media_process import MediaProcess

loop, clocks = gevent.get_hub().loop, Clocks()
media = MediaProcess(ConnectionParts(loop, SocketWatch(loop, clocks.perf_ns), clocks))
media.start()
print(media.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_media_process_ends_when_engine_is_killed() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", START], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    pid = int(done.stdout)
    wait_until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
