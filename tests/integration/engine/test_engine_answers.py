"""Real callers against an endpoint process that spreads its answers over responses, or does not end them."""

import gevent
import pytest

from loadtest.engine.engine import Engine
from loadtest.protocols import registry
from loadtest.protocols.base import CallerOptions
from tests.integration.calling import Callers
from tests.integration.quick_endpoint import quick_endpoint


@pytest.mark.nightly
def test_the_answer_is_found_in_whichever_response_it_comes() -> None:
    kinds = ("tool-call", "text", "superseded", "plain", "twice", "unclosed")
    with quick_endpoint(replies=",".join(kinds)) as endpoint:
        callers = Callers(endpoint.url, 2, turns_per_call=len(kinds), manual_turns=True, reply_s=6.0)
        calls = callers.call()
        assert endpoint.questions == 2 * len(kinds)
    for turns in calls:
        assert [turn.outcome for turn in turns] == ["ok"] * len(kinds)
        assert [turn.response_id for turn in turns] == [f"r{number}" for number in range(len(kinds))]
        assert all(turn.first_audio_perf_ns is not None for turn in turns)
        assert all(turn.llm_first_token_perf_ns is None for turn in turns), "the text was another response's"
        by_kind = dict(zip(kinds, turns, strict=True))
        unclosed, twice = by_kind["unclosed"], by_kind["twice"]
        assert "never closed" in (unclosed.outcome_reason or "")
        assert [turn.outcome_reason for turn in turns if turn is not unclosed] == [None] * (len(kinds) - 1)
        assert (twice.duplicate_events, twice.unknown_event_names) == (1, ("vendor.hello",))
        assert twice.service_latency_reports == 1
        assert twice.reply_audio_ns == 100_000_000, "the piece that came twice is played once"


def test_endless_reply_is_recorded_after_longest_reply_time() -> None:
    with quick_endpoint(replies="endless") as endpoint:
        callers = Callers(endpoint.url, 2, manual_turns=True, longest_reply_s=1.5)
        calls = callers.call()
    for (turn,) in calls:
        assert turn.outcome == "timeout"
        assert turn.outcome_reason == "the reply had not ended 1.5 s after it began: the caller hung up"
        assert turn.first_audio_perf_ns is not None


def test_stopped_caller_leaves_its_current_turn_recorded() -> None:
    with quick_endpoint(replies="silent") as endpoint:
        callers = Callers(endpoint.url, 1, manual_turns=True)
        plan = callers.planner(callers.prepared()).plan("call-1")
        engine = Engine(frame_ns=20_000_000, onset_preset="rms-10ms")
        protocol = registry.make_caller("openai-realtime", CallerOptions("manual"))
        calls = []

        def one() -> None:
            for _ in engine.call(plan, protocol, protocol.upgrade(endpoint.url, None), calls.append):
                raise AssertionError("nothing answers")

        try:
            caller = gevent.spawn(one)
            with gevent.Timeout(120):
                while endpoint.questions == 0:
                    gevent.sleep(0.05)
            engine.cut_by = "the test"
            caller.kill()
            (call,) = calls
            exchange = call.exchanges.get_nowait()
        finally:
            engine.close()
    assert exchange is not None
    assert (exchange.outcome, exchange.cut_by) == ("cut", "the test")
    assert exchange.timeline.speech_end_perf_ns is not None
    assert exchange.hangup_perf_ns == exchange.ended_perf_ns
    assert call.exchanges.get_nowait() is None
