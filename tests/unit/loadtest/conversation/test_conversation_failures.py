"""Why a turn failed: a cause of its own for each way, found without reading a sentence."""

from collections.abc import Callable

import pytest

from loadtest.conversation.outcome import failure_of
from loadtest.protocols.base import CallerOptions, EventKind
from loadtest.protocols.failure import Failure
from loadtest.protocols.openai_realtime.caller import OpenAIRealtimeCaller
from tests.unit.loadtest.conversation.world import World, audio, event, make_plan, reply, silence, tone

RATE_LIMIT = Failure("endpoint_error", "rate_limit_exceeded", 1_500_000_000)


def _silent(world: World) -> World:
    return world.speak().after(60_000)


def _inaudible(world: World) -> World:
    begun = [event(EventKind.RESPONSE_STARTED, response_id="r1"), audio(silence(300))]
    done = event(EventKind.RESPONSE_DONE, response_id="r1", status="completed")
    return world.speak().hear(*begun, done).after(60_000)


def _stalled(world: World) -> World:
    begun = [event(EventKind.RESPONSE_STARTED, response_id="r1"), event(EventKind.LLM_TEXT, response_id="r1", text="I")]
    return world.speak().hear(*begun).after(60_000)


def _reset(world: World) -> World:
    world.speak()
    world.actions += world.conversation.on_closed("it broke", world.now, Failure("tcp", "ECONNRESET"))
    return world


def _refused(world: World) -> World:
    world.actions += world.conversation.on_closed("refused", world.now, Failure("http_status", "429", 7))
    return world


def _rate_limited(world: World) -> World:
    return world.speak().hear(event(EventKind.ERROR, message="slow down", failure=RATE_LIMIT)).after(60_000)


def _fatal(world: World) -> World:
    expired = Failure("endpoint_error", "session_expired")
    return world.speak().hear(event(EventKind.ERROR, message="expired", fatal=True, failure=expired))


def _fatal_in_between(world: World) -> World:
    expired = Failure("endpoint_error", "session_expired")
    return world.hear(event(EventKind.ERROR, message="expired", fatal=True, failure=expired))


def _failed_reply(world: World) -> World:
    failed = event(EventKind.RESPONSE_DONE, response_id="r1", status="failed", message="slow", failure=RATE_LIMIT)
    return world.speak().hear(event(EventKind.RESPONSE_STARTED, response_id="r1"), failed).after(60_000)


def _failed_without_a_word(world: World) -> World:
    failed = event(EventKind.RESPONSE_DONE, response_id="r1", status="failed")
    return world.speak().hear(event(EventKind.RESPONSE_STARTED, response_id="r1"), failed).after(60_000)


def _error_in_setup(world: World) -> World:
    world.conversation.note_setup_error("no such model", Failure("endpoint_error", "model_not_found"))
    return world.speak().after(60_000)


def _wrong_rate(world: World) -> World:
    text = event(EventKind.LLM_TEXT, response_id="r1", text="a" * 400)
    begun = [event(EventKind.RESPONSE_STARTED, response_id="r1"), text, audio(tone(2_000))]
    done = event(EventKind.RESPONSE_DONE, response_id="r1", status="completed")
    return world.speak().hear(*begun, done).after(60_000)


@pytest.mark.parametrize(
    ("live", "outcome", "failure"),
    [
        (_silent, "no_reply", Failure("no_reply")),
        (_inaudible, "no_reply", Failure("no_reply", "inaudible")),
        (_stalled, "timeout", Failure("timeout", "reply_not_heard")),
        (_reset, "error", Failure("tcp", "ECONNRESET")),
        (_refused, "error", Failure("http_status", "429", 7)),
        (_rate_limited, "error", RATE_LIMIT),
        (_fatal, "error", Failure("endpoint_error", "session_expired")),
        (_fatal_in_between, "error", Failure("endpoint_error", "session_expired")),
        (_failed_reply, "error", RATE_LIMIT),
        (_failed_without_a_word, "error", Failure("endpoint_error", "failed")),
        (_error_in_setup, "error", Failure("endpoint_error", "model_not_found")),
        (_wrong_rate, "error", Failure("bad_audio", "sample_rate")),
    ],
)
def test_each_way_to_fail_has_its_cause(live: Callable[[World], World], outcome: str, failure: Failure) -> None:
    exchange = live(World(make_plan())).last
    assert (exchange.outcome, failure_of(exchange)) == (outcome, failure)


def test_hangup_of_caller_is_a_cause() -> None:
    exchange = World(make_plan(patience_ms=400)).speak().after(60_000).last
    assert (exchange.outcome, failure_of(exchange)) == ("abandoned", Failure("abandoned"))


def test_a_turn_that_ended_well_has_none() -> None:
    exchange = World(make_plan()).speak().hear(*reply()).after(5_000).exchanges[0]
    assert (exchange.outcome, failure_of(exchange)) == ("ok", None)


def test_the_wire_gives_code_and_wait_of_an_error() -> None:
    caller = OpenAIRealtimeCaller(CallerOptions())
    error = '{"type":"error","error":{"type":"requests","code":"rate_limit_exceeded","message":"no","retry_after":1.5}}'
    (received,) = caller.receive(error)
    assert received.failure == RATE_LIMIT
    done = (
        '{"type":"response.done","response":{"id":"r","status":"failed","status_details":{"error":{"code":"quota"}}}}'
    )
    (received,) = caller.receive(done)
    assert received.failure == Failure("endpoint_error", "quota")
    (received,) = caller.receive("not JSON")
    assert received.failure == Failure("protocol_violation", "malformed_message")
    (received,) = caller.receive('{"type":"response.done","response":{"id":"r","status":"completed"}}')
    assert received.failure is None
