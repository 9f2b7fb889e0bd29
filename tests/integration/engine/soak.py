"""Hundreds of calls in a process of their own, where no other test's objects are; prints what is left of them as JSON.

python -m tests.integration.engine.soak ws://127.0.0.1:PORT/v1/realtime
"""

import contextlib
import gc
import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

import gevent
import numpy as np
import psutil
from websockets.client import ClientProtocol

from loadtest.conversation.conversation import Conversation
from loadtest.conversation.exchange import Exchange
from loadtest.conversation.plan import SECOND_NS, CallPlan, Limits, PlannedTurn
from loadtest.conversation.playout import Playback
from loadtest.conversation.prepared_clip import PreparedClip
from loadtest.engine import health
from loadtest.engine.call import Call
from loadtest.engine.connection import Connection
from loadtest.engine.engine import Engine
from loadtest.engine.pacer import open_pacer
from loadtest.engine.transports.stream import StreamTransport
from loadtest.protocols import registry
from loadtest.protocols.base import CallerOptions
from loadtest.protocols.openai_realtime.caller import OpenAIRealtimeCaller
from loadtest.protocols.transports.masked_frames import FramePreparer
from loadtest.protocols.transports.websocket import WebSocketClient
from tests.unit.loadtest.conversation.world import FRAME_SAMPLES, make_clip

CALLERS = 30
WARM_UP_CALLS, CALLS = 150, 300
OF_A_CALL = (
    Call,
    Connection,
    StreamTransport,
    OpenAIRealtimeCaller,
    Conversation,
    WebSocketClient,
    ClientProtocol,
    Exchange,
    Playback,
)


@dataclass(frozen=True)
class Held:
    """The resources that a process holds."""

    rss_bytes: int
    descriptors: int
    greenlets: int

    @classmethod
    def now(cls) -> "Held":
        """Look."""
        gc.collect()
        process = psutil.Process()
        # By its type: some objects are asked for their class by importing half a library.
        greenlets = sum(issubclass(type(member), gevent.Greenlet) for member in gc.get_objects())
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
    """Count the objects that the garbage collector tracks, by type."""
    return Counter(str(type(member)) for member in gc.get_objects())


def _word() -> tuple[PreparedClip, tuple[bytes, ...]]:
    """60 ms of speech, and a background, as they go on the wire."""
    protocol = registry.make_caller("openai-realtime", CallerOptions())
    frame = FramePreparer().frame(protocol.audio_message(np.zeros(FRAME_SAMPLES, np.int16)), text=True)
    clip = make_clip(speech_ms=60, lead_ms=0, tail_ms=0)
    return replace(clip, frames=(frame,) * len(clip.frames)), (frame,)


def main(url: str) -> None:
    """Call, and print what is left."""
    clip, background = _word()
    plan = CallPlan("soak", (PlannedTurn(clip, 0, None),), background, Limits(reply_ns=20 * SECOND_NS), True)
    outcomes: Counter[str] = Counter()
    engine = Engine(frame_ns=20_000_000, onset_preset="rms-10ms", pacer=open_pacer()[0])

    def calls(count: int) -> None:
        for _ in range(count):
            protocol = registry.make_caller("openai-realtime", CallerOptions(turn_control="manual"))
            for _call, exchange in engine.call(plan, protocol, protocol.upgrade(url, None)):
                outcomes[str(exchange.outcome)] += 1

    def soak(total: int) -> None:
        gevent.joinall([gevent.spawn(calls, total // CALLERS) for _ in range(CALLERS)], raise_error=True)

    try:
        soak(WARM_UP_CALLS)
        before = Held.now()
        with without_the_collector():
            kinds = _kinds()
            soak(CALLS)
            grown = {kind: count for kind, count in (_kinds() - kinds).items() if count > CALLS // 10}
            survivors = [type(member).__name__ for member in gc.get_objects() if type(member) in OF_A_CALL]
        after = Held.now()
        left = {
            "calls_in_flight": engine.calls_in_flight,
            "streams": len(engine._sending),
            "streams_of_the_hub": engine._hub.streams,
            "readers": len(engine._watch._readers),
        }
        bounded = len(engine.health._lags_ns) <= health._MOST_LAGS_KEPT
        frames_sent = engine.health.frames_sent
    finally:
        engine.close()
    result = {"outcomes": outcomes, "survivors": survivors, "grown": grown, "left": left, "lags_are_bounded": bounded}
    result |= {"before": asdict(before), "after": asdict(after), "frames_sent": frames_sent}
    sys.stdout.write(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1])
