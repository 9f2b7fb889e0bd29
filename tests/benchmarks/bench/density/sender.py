"""One round: the engine carries the calls of each wire for a short window, and those of the raw wire around each.

`python -m ….density.sender PORTS CALLERS WARM_UP_MS WINDOW_MS WIRE…` prints one JSON object with the CPU
time of each window. The engine's schedule is its own with a shorter frame: a row of callers is due every millisecond.
"""

import argparse
import gc
import json
import sys
import time
from dataclasses import asdict
from typing import Final

import gevent
import numpy as np

from loadtest.conversation.plan import SECOND_NS, CallPlan, Limits, PlannedTurn
from loadtest.engine.call import Call
from loadtest.engine.engine import Engine
from loadtest.engine.timing_wheel import TICK_NS
from loadtest.protocols.base import CallerProtocol
from loadtest.speech.frames import Wire
from tests.benchmarks.bench.density.windows import RECEIVED, SENT, Sizes, WindowCost
from tests.benchmarks.bench.density.wires import BY_NAME, RAW, DensityWire
from tests.benchmarks.bench.window import CONNECT_S

FRAME_NS: Final = 2 * TICK_NS
# While replies are received, so few frames are sent that they cost next to nothing.
RARE_FRAME_NS: Final = 200 * TICK_NS
_FOREVER_NS: Final = 3600 * SECOND_NS
_LIMITS: Final = Limits(reply_ns=_FOREVER_NS, longest_reply_ns=_FOREVER_NS, reply_silence_ns=_FOREVER_NS, close_ns=0)
_BACKGROUND_FRAMES: Final = 50


def background(protocol: CallerProtocol) -> tuple[bytes, ...]:
    """Return prepared frames of noise as this protocol carries them."""
    wire = Wire.of(protocol)
    noise = np.random.default_rng(7).normal(0, 800, wire.frame_samples * _BACKGROUND_FRAMES)
    return wire.frames(noise.astype(np.int16), 0)


def measured(wire: DensityWire, direction: str, port: int, sizes: Sizes) -> WindowCost:
    """Connect the callers of a wire, measure one window, and hang up. Raises ConnectionError if they do not connect."""
    engine = Engine(frame_ns=FRAME_NS if direction == SENT else RARE_FRAME_NS, onset_preset="rms-10ms")
    frames = background(wire.caller())
    url = f"{'tcp' if wire.is_tcp else 'ws'}://127.0.0.1:{port}/"

    def call() -> None:
        protocol = wire.caller()
        turn = PlannedTurn(None, 0, None, silence_ns=_FOREVER_NS)
        plan = CallPlan(url, (turn,), frames, _LIMITS, manual_turns=protocol.capabilities.caller_ends_turns)
        for _, exchange in engine.call(plan, protocol, protocol.upgrade(url, None), begun.append):
            if exchange.reason is not None and engine.cut_by not in exchange.reason:
                raise ConnectionError(f"{wire.name}: a call ended: {exchange.outcome}, {exchange.reason}")

    begun = list[Call]()
    calls = [gevent.spawn(call) for _ in range(sizes.callers)]
    try:
        _wait_for_all(engine, calls, wire.name)
        gevent.sleep(sizes.warm_up_s)
        gc.collect()
        health = engine.health
        sent, held_up = health.frames_sent, health.frames_held_up
        began_perf_ns, began_cpu_ns = time.perf_counter_ns(), time.process_time_ns()
        gevent.sleep(sizes.window_s)
        cpu_ns, ended_perf_ns = time.process_time_ns() - began_cpu_ns, time.perf_counter_ns()
        sent, held_up = health.frames_sent - sent, health.frames_held_up - held_up
        _check(calls)
        transport = begun[0].transport
        frame_bytes = 0 if transport is None else transport.frame_bytes
    finally:
        engine.break_off_all()
        gevent.joinall(calls)
        engine.close()
    return WindowCost(wire.name, direction, cpu_ns, sent, held_up, frame_bytes, began_perf_ns, ended_perf_ns)


def _wait_for_all(engine: Engine, calls: "list[gevent.Greenlet[[], None]]", name: str) -> None:
    until = time.monotonic() + CONNECT_S
    while engine.health.calls_connected < len(calls):
        _check(calls)
        if time.monotonic() > until:
            raise ConnectionError(f"{name}: {engine.health.calls_connected} of {len(calls)} callers were connected")
        gevent.sleep(0.005)


def _check(calls: "list[gevent.Greenlet[[], None]]") -> None:
    for call in calls:
        if call.ready():
            call.get()
            raise ConnectionError("a call ended")


def windows(ports: dict[str, list[int]], names: list[str], sizes: Sizes) -> list[WindowCost]:
    """Measure a round: the raw wire before and after each other one, sending; then what it costs each to receive."""
    raw = BY_NAME[RAW]
    found = [measured(raw, SENT, ports[RAW][0], sizes)]
    for name in names:
        found.append(measured(BY_NAME[name], SENT, ports[name][0], sizes))
        found.append(measured(raw, SENT, ports[RAW][0], sizes))
    heard = [name for name in (RAW, *names) if BY_NAME[name].chunk is not None]
    return found + [measured(BY_NAME[name], RECEIVED, ports[name][1], sizes) for name in heard]


def main() -> None:
    """Measure one round and print it."""
    words = argparse.ArgumentParser()
    words.add_argument("ports", type=json.loads)
    words.add_argument("callers", type=int)
    words.add_argument("warm_up_ms", type=int)
    words.add_argument("window_ms", type=int)
    words.add_argument("wires", nargs="+")
    given = words.parse_args()
    sizes = Sizes(given.callers, given.warm_up_ms / 1e3, given.window_ms / 1e3)
    found = windows(given.ports, given.wires, sizes)
    sys.stdout.write(json.dumps({"windows": [asdict(each) for each in found]}) + "\n")


if __name__ == "__main__":
    main()
