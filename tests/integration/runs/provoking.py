"""Runs in which something is done to the generator on purpose, and what became of the turns."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import gevent

from loadtest.conversation.evidence import ValidityLimits
from loadtest.conversation.state import State
from loadtest.engine.call import Call
from loadtest.engine.engine import Engine
from loadtest.speech.preparation import PreparedCorpus
from telemetry.model.turns import Turn
from tests.integration.calling import Callers

MS = 1_000_000
# A busy machine pauses a process for 40 ms now and then. These limits are beyond that, and what is provoked is far
# beyond them: which turns are invalid is then decided by what was done, and the default limits have tests of their own.
TOLERANT = ValidityLimits(frame_lateness_ns=90 * MS, drift_ns=90 * MS, blocked_ns=90 * MS)
PROVOKED_S = 0.3
SHOWN_NS = 200 * MS  # what of it the evidence must show at the least
# What the probe calls a pause of the machine: much less already may add up to an invalid turn.
PAUSE_NS = 30 * MS
TRIES = 5


@dataclass
class ShortSpeech(Callers):
    """Callers who say the shortest clip there is, and themselves say when they have finished."""

    def prepared(self) -> PreparedCorpus:
        """One clip."""
        whole = super().prepared()
        shortest = min(whole.clips, key=lambda clip: len(clip.frames))
        return replace(whole, lines=(replace(whole.lines[0], clips=(shortest,)),))


def callers(url: str, count: int, turns: int, meanwhile: Callable[[Engine], None]) -> ShortSpeech:
    """Some of them."""
    return ShortSpeech(
        url,
        count,
        turns_per_call=turns,
        clips=12,
        manual_turns=True,
        think_s=0.05,
        reply_s=6.0,
        limits=TOLERANT,
        meanwhile=meanwhile,
    )


class MissedMomentError(Exception):
    """The machine paused over the moment that was waited for."""


def in_mid_speech(engine: Engine, call_id: str, turn: int) -> Call:
    """Wait until a caller is in the middle of saying a turn's words."""
    given_up_at = time.monotonic() + 120
    has_begun = False
    while time.monotonic() < given_up_at:
        call = next((running for running in engine._calls if running.plan.call_id == call_id), None)
        exchange = None if call is None else call.conversation.exchange
        if (has_begun and call is None) or (exchange is not None and exchange.index > turn):
            break
        has_begun = call is not None
        if call is not None and exchange is not None and exchange.index == turn:
            began_perf_ns, clip = exchange.timeline.speech_start_perf_ns, exchange.planned.clip
            speaking = call.conversation.state is State.SPEAKING and call.track.in_speech
            if speaking and began_perf_ns is not None and clip is not None:
                half_ns = (clip.speech_end_frame - clip.speech_start_frame) * 10 * MS
                if time.perf_counter_ns() > began_perf_ns + half_ns:
                    return call
        gevent.sleep(0.003)
    raise MissedMomentError(f"{call_id} was not seen to speak in turn {turn}")


@dataclass
class Window:
    """When something was done, on the monotonic clock."""

    began_perf_ns: int = field(default_factory=time.perf_counter_ns)
    ended_perf_ns: int = 0

    def end(self) -> None:
        """End the provocation."""
        self.ended_perf_ns = time.perf_counter_ns()

    def touches(self, turn: Turn) -> bool:
        """Whether any of it lies between the beginning of a turn and the end of its reply."""
        end = turn.reply_end_perf_ns or turn.hangup_perf_ns or turn.started_perf_ns + 10_000 * MS
        return self.began_perf_ns <= end and turn.started_perf_ns <= self.ended_perf_ns

    def within_speech(self, turn: Turn) -> bool:
        """Whether all of it lies in the time in which every frame of a turn counts."""
        start, end = turn.speech_start_perf_ns, turn.first_audio_perf_ns
        return start is not None and end is not None and start < self.began_perf_ns and self.ended_perf_ns < end


class MachineProbe:
    """A thread that sees the machine pause: it wakes each 5 ms, and notes when it could not."""

    def __init__(self) -> None:
        self._pauses: list[Window] = []
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "MachineProbe":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            window = Window()
            if self._done.wait(0.005):
                return
            window.end()
            if window.ended_perf_ns - window.began_perf_ns > PAUSE_NS:
                self._pauses.append(window)

    def saw_a_pause_in(self, turn: Turn, provoked: list[Window]) -> bool:
        """Whether the machine paused in a turn, before or after the provoked pause, or during it."""
        return any(
            pause.touches(turn) and not any(_is_within(pause, window) for window in provoked) for pause in self._pauses
        )


def _is_within(pause: Window, provoked: Window) -> bool:
    """Whether a pause is one that was provoked, give or take what is no pause."""
    begins, ends = provoked.began_perf_ns - PAUSE_NS, provoked.ended_perf_ns + PAUSE_NS
    return begins <= pause.began_perf_ns and pause.ended_perf_ns <= ends


def stall_the_loop() -> None:
    """A step that gives the hub away only after a third of a second, as a careless task does."""
    time.sleep(PROVOKED_S)


def hog_the_interpreter() -> None:
    """A thread of this process gives the interpreter away only after a third of a second."""
    usual = sys.getswitchinterval()
    end = time.perf_counter() + 1.5 * PROVOKED_S

    def burn() -> None:
        while time.perf_counter() < end:
            pass

    thread = threading.Thread(target=burn)
    sys.setswitchinterval(PROVOKED_S)
    try:
        thread.start()
        while thread.is_alive():
            gevent.sleep(0.003)
    finally:
        sys.setswitchinterval(usual)


# A process that takes one core for itself, before everything else that wants it.
_HOG = """
import os, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
end = time.perf_counter() + float(sys.argv[2])
while time.perf_counter() < end:
    pass
"""


def may_hog_a_core() -> bool:
    """Whether a process of ours may take a core away from another one."""
    if not hasattr(os, "sched_setscheduler"):
        return False
    command = [sys.executable, "-c", _HOG, str(min(os.sched_getaffinity(0))), "0"]
    tried = subprocess.run(command, check=False, capture_output=True)
    return tried.returncode == 0


def hog_the_core() -> None:
    """Another process takes the core that this thread may run on."""
    allowed = os.sched_getaffinity(0)
    core = min(allowed)
    os.sched_setaffinity(0, {core})
    try:
        with subprocess.Popen([sys.executable, "-c", _HOG, str(core), str(PROVOKED_S)]) as hog:
            while hog.poll() is None:
                gevent.sleep(0.003)
    finally:
        os.sched_setaffinity(0, allowed)
