"""Each limit of validity, provoked in a real run: the turns it touched are invalid, the others are not."""

import time
from collections.abc import Callable, Iterator
from typing import cast

import gevent
import pytest

from loadtest.engine.call import Call
from loadtest.engine.clock import Clocks
from loadtest.engine.engine import Engine
from telemetry.model.turns import Turn
from tests.integration import provoking
from tests.integration.provoking import MS, PROVOKED_S, SHOWN_NS, TOLERANT, TRIES, MachineProbe, Window
from tests.integration.quick_endpoint import QuickEndpoint, quick_endpoint

pytestmark = pytest.mark.slow

Calls = list[list[Turn]]
TICKS_S = 0.05  # some ticks of the loop


def run(
    url: str, count: int, turns: int, meanwhile: Callable[[Engine, list[Window]], None], clocks: Clocks | None = None
) -> tuple[Calls, list[Window]]:
    """A run in which something is provoked, again if the machine itself paused in a turn that was to be left alone."""
    for attempt in range(TRIES):
        provoked: list[Window] = []
        with MachineProbe() as probe:
            callers = provoking.callers(url, count, turns, lambda engine, into=provoked: meanwhile(engine, into))
            callers.clocks = clocks
            calls = callers.call()
        innocent = [turn for call in calls for turn in call if not any(window.touches(turn) for window in provoked)]
        disturbed = [turn for turn in innocent if turn.invalid_reasons and probe.saw_a_pause_in(turn, provoked)]
        if not disturbed or attempt == TRIES - 1:
            break
    return calls, provoked


def assert_only_touched_turns_are_invalid(calls: Calls, provoked: list[Window], at_least: int) -> None:
    """A turn whose words are hit is invalid; one that is not touched at all is valid. Those between may be either."""
    hit = [turn for call in calls for turn in call if any(window.within_speech(turn) for window in provoked)]
    assert len(hit) >= at_least, (hit, provoked)
    for turn in hit:
        assert turn.outcome == "invalid", turn
    untouched = [turn for call in calls for turn in call if not any(window.touches(turn) for window in provoked)]
    assert untouched
    for turn in untouched:
        assert (turn.outcome, turn.invalid_reasons) == ("ok", ()), turn


@pytest.fixture(scope="module")
def endpoint() -> Iterator[QuickEndpoint]:
    with quick_endpoint() as running:
        yield running


def test_a_generator_that_is_held_up_spoils_the_turns_of_that_moment(endpoint: QuickEndpoint) -> None:
    ways = [provoking.stall_the_loop, provoking.hog_the_interpreter]
    if provoking.may_hog_a_core():
        ways.append(provoking.hog_the_core)

    def meanwhile(engine: Engine, provoked: list[Window]) -> None:
        for turn, provoke in enumerate(ways, start=1):
            provoking.in_mid_speech(engine, "call-0", turn)
            window = Window()
            provoke()
            window.end()
            provoked.append(window)

    calls, provoked = run(endpoint.url, 2, len(ways) + 2, meanwhile)
    assert_only_touched_turns_are_invalid(calls, provoked, at_least=len(ways))
    assert [turn.outcome for turn in calls[0]] == ["ok", *["invalid"] * len(ways), "ok"]
    for spoiled in calls[0][1:-1]:
        assert "frame lateness" in spoiled.invalid_reasons
        assert (spoiled.frame_lateness_worst_ns or 0) > SHOWN_NS
        assert (spoiled.loop_lag_worst_ns or 0) > SHOWN_NS
        assert spoiled.outcome_observed == "ok", "the endpoint answered, and is not blamed"


def test_a_socket_that_nobody_reads_makes_the_turn_of_its_caller_long_and_no_turn_invalid() -> None:
    with quick_endpoint(receive_buffer=4096) as endpoint:

        def meanwhile(engine: Engine, provoked: list[Window]) -> None:
            call = provoking.in_mid_speech(engine, "call-0", 1)
            window = Window()
            endpoint.order("stop 1")
            while not call.held or time.perf_counter_ns() - call.held[0].offered_perf_ns < PROVOKED_S * 1e9:
                gevent.sleep(0.003)
            endpoint.order("go 1")
            window.end()
            provoked.append(window)
            provoking.in_mid_speech(engine, "call-1", 2)
            endpoint.order("stop 2")

        calls, provoked = run(endpoint.url, 3, 3, meanwhile)
    held_up, stuck = calls[0][1], calls[1][2]
    assert (held_up.outcome, held_up.invalid_reasons) == ("ok", ()), held_up
    assert held_up.endpoint_did_not_read
    assert (held_up.send_blocked_worst_ns or 0) > SHOWN_NS
    assert held_up.speech_start_perf_ns is not None
    assert held_up.speech_end_perf_ns is not None
    spoken_ns = held_up.speech_end_perf_ns - held_up.speech_start_perf_ns
    assert abs(spoken_ns - (held_up.speech_ns or 0)) < TOLERANT.drift_ns, "timed from when it was said"
    assert (held_up.first_audio_perf_ns or 0) > provoked[0].ended_perf_ns, "the answer came when it was read"
    assert (stuck.outcome, stuck.invalid_reasons) == ("no_reply", ()), "it counts against the endpoint"
    assert stuck.speech_end_perf_ns is not None
    assert stuck.endpoint_did_not_read
    others = [turn for call in calls for turn in call if turn is not held_up and turn is not stuck]
    assert [(turn.outcome, turn.invalid_reasons) for turn in others] == [("ok", ())] * 7
    assert not any(turn.endpoint_did_not_read for turn in others)


def test_a_wall_clock_that_is_set_spoils_the_turns_under_way(endpoint: QuickEndpoint) -> None:
    wall = [0]
    clocks = Clocks(unix_ns=lambda: time.time_ns() + wall[0])

    def meanwhile(engine: Engine, provoked: list[Window]) -> None:
        for turn, step_ns in ((1, -400 * MS), (2, 400 * MS)):
            provoking.in_mid_speech(engine, "call-0", turn)
            window = Window()
            # Measured as the tick does each second. The kernel knows nothing of this clock, so it has to be set back.
            wall[0] = step_ns
            engine.clocks.measure()
            wall[0] = 0
            engine.clocks.measure()
            window.end()
            provoked.append(window)

    calls, provoked = run(endpoint.url, 2, 4, meanwhile, clocks)
    assert_only_touched_turns_are_invalid(calls, provoked, at_least=2)
    assert [turn.invalid_reasons for turn in calls[0]] == [(), ("clock step",), ("clock step",), ()]


def test_a_pause_in_which_nobody_calls_is_no_lag_of_the_generator() -> None:
    def stall() -> None:
        gevent.sleep(2 * TICKS_S)
        time.sleep(PROVOKED_S)
        gevent.sleep(2 * TICKS_S)

    engine = Engine(frame_ns=20 * MS, onset_preset="rms-10ms")
    try:
        stall()
        assert engine.health.take_lag_worst_ns() == 0
        engine._calls.add(cast("Call", object()))  # somebody is there, and says nothing
        stall()
        assert engine.health.take_lag_worst_ns() > SHOWN_NS
    finally:
        engine._calls.clear()
        engine.close()
