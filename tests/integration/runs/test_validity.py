"""Each limit of validity, provoked in a real run: the turns it touched are invalid, the others are not."""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import cast

import gevent
import pytest

from loadtest.engine.call import Call
from loadtest.engine.clock import Clocks
from loadtest.engine.engine import Engine
from telemetry.model.turns import Turn
from tests.integration.quick_endpoint import QuickEndpoint, quick_endpoint
from tests.integration.runs import provoking
from tests.integration.runs.provoking import (
    MS,
    PROVOKED_S,
    SHOWN_NS,
    TOLERANT,
    TRIES,
    MachineProbe,
    MissedMomentError,
    Window,
)

Calls = list[list[Turn]]
# What a machine that pauses makes of a turn by itself.
OF_A_PAUSE = {"frame lateness", "drift"}
TICKS_S = 0.05  # some ticks of the loop


@dataclass(frozen=True)
class Provoked:
    """The calls of a run with a provoked disturbance, and the pauses of the machine itself."""

    calls: Calls
    windows: list[Window]
    probe: MachineProbe

    def hit(self) -> list[Turn]:
        """The turns whose words were hit."""
        return [turn for turn in self.turns() if any(window.within_speech(turn) for window in self.windows)]

    def untouched(self) -> list[Turn]:
        """The turns that were to be left alone."""
        return [turn for turn in self.turns() if not any(window.touches(turn) for window in self.windows)]

    def turns(self) -> list[Turn]:
        """All of them."""
        return [turn for call in self.calls for turn in call]

    def is_disturbed(self, turn: Turn) -> bool:
        """Whether the machine paused in it by itself, which may have made it invalid besides."""
        return bool(turn.invalid_reasons) and self.probe.saw_a_pause_in(turn, self.windows)

    def was_disturbed(self) -> bool:
        """Whether something else may have made turns invalid: a pause that was seen, or one of this thread alone. A
        generator that blames what was not touched does so in every run."""
        alone = any(OF_A_PAUSE.intersection(turn.invalid_reasons) for turn in self.untouched())
        return alone or any(map(self.is_disturbed, self.turns()))

    def reasons(self, turn: Turn) -> set[str]:
        """Why it is invalid, without what a pause of the machine itself explains."""
        return set(turn.invalid_reasons) - (OF_A_PAUSE if self.is_disturbed(turn) else set())


def run(
    url: str,
    count: int,
    turns: int,
    meanwhile: Callable[[Engine, list[Window]], None],
    at_least: int,
    clocks: Clocks | None = None,
    *,
    has_pacer: bool = True,
) -> Provoked:
    """A run in which the words of so many turns are hit, again if the machine itself paused in a turn, or hit none."""
    provoked: Provoked | None = None
    for _ in range(TRIES):
        windows: list[Window] = []
        with MachineProbe() as probe, contextlib.suppress(MissedMomentError):
            callers = provoking.callers(url, count, turns, lambda engine, into=windows: meanwhile(engine, into))
            callers.clocks, callers.has_pacer = clocks, has_pacer
            provoked = Provoked(callers.call(), windows, probe)
            if len(provoked.hit()) >= at_least and not provoked.was_disturbed():
                break
    assert provoked is not None, "the machine paused over the moment in every run"
    return provoked


def assert_only_touched_turns_are_invalid(outcome: Provoked, at_least: int) -> None:
    """A turn whose words are hit is invalid; one that is not touched at all is valid. Those between may be either."""
    assert len(outcome.hit()) >= at_least, outcome
    for turn in outcome.hit():
        assert turn.outcome == "invalid", turn
    assert outcome.untouched()
    for turn in outcome.untouched():
        assert outcome.reasons(turn) == set(), turn
        assert turn.outcome == ("invalid" if turn.invalid_reasons else "ok"), turn


@pytest.fixture(scope="module")
def endpoint() -> Iterator[QuickEndpoint]:
    with quick_endpoint() as running:
        yield running


def test_delayed_generator_invalidates_turns_of_that_time(endpoint: QuickEndpoint) -> None:
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

    result = run(endpoint.url, 2, len(ways) + 2, meanwhile, len(ways), has_pacer=False)
    assert_only_touched_turns_are_invalid(result, len(ways))
    first, *provoked, last = result.calls[0]
    assert result.reasons(first) == result.reasons(last) == set()
    assert [turn.outcome for turn in provoked] == ["invalid"] * len(ways)
    for spoiled in provoked:
        assert "frame lateness" in spoiled.invalid_reasons
        assert (spoiled.frame_lateness_worst_ns or 0) > SHOWN_NS
        assert (spoiled.loop_lag_worst_ns or 0) > SHOWN_NS
        assert spoiled.outcome_observed == "ok", "the endpoint answered, and is not blamed"


def test_delayed_python_invalidates_nothing_with_pacer_thread(endpoint: QuickEndpoint) -> None:
    ways = [provoking.stall_the_loop, provoking.hog_the_interpreter]

    def meanwhile(engine: Engine, provoked: list[Window]) -> None:
        for turn, provoke in enumerate(ways, start=1):
            provoking.in_mid_speech(engine, "call-0", turn)
            window = Window()
            provoke()
            window.end()
            provoked.append(window)

    result = run(endpoint.url, 2, len(ways) + 2, meanwhile, 0)
    assert [turn.outcome for turn in result.turns() if not result.is_disturbed(turn)].count("ok") >= len(ways)
    for turn in result.turns():
        assert result.reasons(turn) == set(), turn
    for held_up in result.calls[0][1 : 1 + len(ways)]:
        assert (held_up.loop_lag_worst_ns or 0) > SHOWN_NS
        assert held_up.pacer == "thread"
        assert (held_up.frame_lateness_worst_ns or 0) < SHOWN_NS or result.is_disturbed(held_up)
        assert held_up.speech_start_perf_ns is not None
        assert held_up.speech_end_perf_ns is not None
        spoken_ns = held_up.speech_end_perf_ns - held_up.speech_start_perf_ns
        assert abs(spoken_ns - (held_up.speech_ns or 0)) < TOLERANT.drift_ns, "said as recorded"


def test_unread_socket_makes_turn_long_and_no_turn_invalid() -> None:
    with quick_endpoint(receive_buffer=4096) as endpoint:

        def meanwhile(engine: Engine, provoked: list[Window]) -> None:
            for number in (1, 2):  # another run may have been before
                endpoint.order(f"go {number}")
            call = provoking.in_mid_speech(engine, "call-0", 1)
            window = Window()
            endpoint.order("stop 1")
            while time.perf_counter_ns() - (call.waiting_since_perf_ns or time.perf_counter_ns()) < PROVOKED_S * 1e9:
                gevent.sleep(0.003)
            endpoint.order("go 1")
            window.end()
            provoked.append(window)
            provoking.in_mid_speech(engine, "call-1", 2)
            endpoint.order("stop 2")

        result = run(endpoint.url, 3, 3, meanwhile, 0)
    held_up, stuck = result.calls[0][1], result.calls[1][2]
    assert (held_up.outcome_observed or held_up.outcome, result.reasons(held_up)) == ("ok", set()), held_up
    assert held_up.endpoint_did_not_read
    assert (held_up.send_blocked_worst_ns or 0) > SHOWN_NS
    assert held_up.speech_start_perf_ns is not None
    assert held_up.speech_end_perf_ns is not None
    spoken_ns = held_up.speech_end_perf_ns - held_up.speech_start_perf_ns
    late_ns = TOLERANT.drift_ns + (held_up.frame_lateness_worst_ns or 0)
    assert abs(spoken_ns - (held_up.speech_ns or 0)) < late_ns, "timed from when it was said"
    assert (held_up.first_audio_perf_ns or 0) > result.windows[0].ended_perf_ns, "the answer came when it was read"
    assert stuck.outcome_observed == "no_reply"
    assert result.reasons(stuck) == set(), "it counts against the endpoint"
    assert stuck.speech_end_perf_ns is not None
    assert stuck.endpoint_did_not_read
    others = [turn for turn in result.turns() if turn is not held_up and turn is not stuck]
    assert [(turn.outcome_observed or turn.outcome, result.reasons(turn)) for turn in others] == [("ok", set())] * 7
    assert not any(turn.endpoint_did_not_read for turn in others)


@pytest.mark.nightly
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

    result = run(endpoint.url, 2, 4, meanwhile, 2, clocks)
    assert_only_touched_turns_are_invalid(result, 2)
    assert [result.reasons(turn) for turn in result.calls[0]] == [set(), {"clock step"}, {"clock step"}, set()]


@pytest.mark.nightly
def test_pause_without_calls_is_no_lag_of_generator() -> None:
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
