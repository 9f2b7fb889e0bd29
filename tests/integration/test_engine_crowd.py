"""Two thousand callers in one small process, and hundreds of calls that leave nothing behind."""

import contextlib
import gc
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

import gevent
import numpy as np
import psutil
import pytest
from websockets.client import ClientProtocol

from loadtest.conversation.conversation import Conversation
from loadtest.conversation.exchange import Exchange
from loadtest.conversation.plan import SECOND_NS, CallPlan, Limits, PlannedTurn
from loadtest.conversation.playout import Playback
from loadtest.conversation.prepared_clip import PreparedClip
from loadtest.engine.call import Call
from loadtest.engine.connection import Connection
from loadtest.engine.engine import Engine
from loadtest.protocols import registry
from loadtest.protocols.base import CallerOptions
from loadtest.protocols.openai_realtime.caller import OpenAIRealtimeCaller
from loadtest.protocols.websocket import FramePreparer, WebSocketClient
from tests.integration.calling import CORPUS
from tests.integration.quick_endpoint import quick_endpoint
from tests.unit.loadtest.conversation.world import FRAME_SAMPLES, make_clip

pytestmark = pytest.mark.slow

MEGABYTE = 2**20
CALLERS = 30
WARM_UP_CALLS, CALLS = 150, 300
# What the process may have grown by after so many more calls; a leak of one read buffer a call would be 19 MB.
GROWTH_BYTES = 6 * MEGABYTE


def test_two_thousand_callers_on_one_set_of_clips_stay_under_300_mb() -> None:
    with quick_endpoint(round_s=0.1, deaf=True) as endpoint:
        command = [sys.executable, "-m", "tests.integration.crowd", endpoint.url, "--count", "2000", "--corpus", CORPUS]
        output = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    assert (output["callers"], output["failed"]) == (2000, 0), output
    assert output["frames"] >= 50_000, output
    assert output["rss_mb"] < 300, output


OF_A_CALL = (Call, Connection, OpenAIRealtimeCaller, Conversation, WebSocketClient, ClientProtocol, Exchange, Playback)


@dataclass(frozen=True)
class Held:
    """What a process holds on to."""

    rss_bytes: int
    descriptors: int
    greenlets: int

    @classmethod
    def now(cls) -> "Held":
        """Look."""
        gc.collect()
        process = psutil.Process()
        # By its type: some objects are asked for their class by importing half a library.
        greenlets = sum(issubclass(type(each), gevent.Greenlet) for each in gc.get_objects())
        return cls(process.memory_info().rss, process.num_fds(), greenlets)


@contextlib.contextmanager
def without_the_collector() -> Iterator[None]:
    """Only what nobody refers to any more is freed."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _kinds() -> Counter[str]:
    """What the collector knows of, by type."""
    return Counter(str(type(each)) for each in gc.get_objects())


def _word() -> tuple[PreparedClip, tuple[bytes, ...]]:
    """60 ms of speech, and a background, as they go on the wire."""
    protocol = registry.make_caller("openai-realtime", CallerOptions())
    frame = FramePreparer().frame(protocol.audio_message(np.zeros(FRAME_SAMPLES, np.int16)), text=True)
    clip = make_clip(speech_ms=60, lead_ms=0, tail_ms=0)
    return replace(clip, frames=(frame,) * len(clip.frames)), (frame,)


def test_hundreds_of_calls_leave_nothing_behind() -> None:
    clip, background = _word()
    plan = CallPlan("soak", (PlannedTurn(clip, 0, None),), background, Limits(reply_ns=20 * SECOND_NS), True)
    outcomes: list[str | None] = []
    with quick_endpoint() as endpoint:
        engine = Engine(frame_ns=20_000_000, onset_preset="rms-10ms")

        def calls(count: int) -> None:
            for _ in range(count):
                protocol = registry.make_caller("openai-realtime", CallerOptions(turn_control="manual"))
                for _call, exchange in engine.call(plan, protocol, protocol.upgrade(endpoint.url, None)):
                    outcomes.append(exchange.outcome)

        def soak(total: int) -> None:
            gevent.joinall([gevent.spawn(calls, total // CALLERS) for _ in range(CALLERS)], raise_error=True)

        try:
            soak(WARM_UP_CALLS)
            before = Held.now()
            with without_the_collector():
                kinds = _kinds()
                soak(CALLS)
                lags = len(engine.health._lags)
                engine.health._lags.clear()  # they are bounded, and no call's
                grown = {kind: count for kind, count in (_kinds() - kinds).items() if count > CALLS // 10}
                survivors = [type(each).__name__ for each in gc.get_objects() if type(each) in OF_A_CALL]
            after = Held.now()
            assert engine.calls_in_flight == 0
            assert (len(engine._wheel), len(engine._wheel._behind), len(engine._watch._readers)) == (0, 0, 0)
            assert lags <= (engine.health._lags.maxlen or 0)
        finally:
            engine.close()
    assert outcomes == ["ok"] * (WARM_UP_CALLS + CALLS)
    assert (survivors, grown) == ([], {}), "what is over is freed at once, and waits for no round"
    assert (after.descriptors, after.greenlets) == (before.descriptors, before.greenlets)
    assert after.rss_bytes - before.rss_bytes < GROWTH_BYTES
    assert engine.health.frames_sent > CALLS
