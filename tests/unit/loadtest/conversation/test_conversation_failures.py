"""Why a turn failed: a cause of its own for each way, found without reading a sentence."""

from collections.abc import Callable
from functools import partial

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


def _wrong_rate(world: World, kind: EventKind = EventKind.LLM_TEXT) -> World:
    text = event(kind, response_id="r1", text="a" * 25)
    begun = [event(EventKind.RESPONSE_STARTED, response_id="r1"), text, text, text, text, audio(tone(600))]
    done = event(EventKind.RESPONSE_DONE, response_id="r1", status="completed")
    return world.speak().hear(*begun, done).after(60_000)


UNHEARD = "the endpoint began to answer and was not heard within 10 s"
WRONG_RATE = (
    "the reply's audio runs at 167 characters a second when played at the declared 24000 Hz: "
    "the endpoint sends another sample rate than it declared"
)


@pytest.mark.parametrize(
    ("live", "outcome", "reason", "failure"),
    [
        (_silent, "no_reply", "no answer within 10 s", Failure("no_reply")),
        (_inaudible, "no_reply", "the reply holds no audible audio", Failure("no_reply", "inaudible")),
        (_stalled, "timeout", UNHEARD, Failure("timeout", "reply_not_heard")),
        (_reset, "error", "it broke", Failure("tcp", "ECONNRESET")),
        (_refused, "error", "refused", Failure("http_status", "429", 7)),
        (_rate_limited, "error", "slow down", RATE_LIMIT),
        (_fatal, "error", "expired", Failure("endpoint_error", "session_expired")),
        (_fatal_in_between, "error", "expired", Failure("endpoint_error", "session_expired")),
        (_failed_reply, "error", "slow", RATE_LIMIT),
        (
            _failed_without_a_word,
            "error",
            "the endpoint says that its reply failed",
            Failure("endpoint_error", "failed"),
        ),
        (_error_in_setup, "error", "no such model", Failure("endpoint_error", "model_not_found")),
        (_wrong_rate, "error", WRONG_RATE, Failure("bad_audio", "sample_rate")),
        (partial(_wrong_rate, kind=EventKind.SPOKEN_TEXT), "error", WRONG_RATE, Failure("bad_audio", "sample_rate")),
    ],
)
def test_each_way_to_fail_has_its_cause_and_ends_the_call(
    live: Callable[[World], World], outcome: str, reason: str, failure: Failure
) -> None:
    (exchange,) = live(World(make_plan(turns=2))).exchanges
    assert (exchange.outcome, exchange.reason, failure_of(exchange)) == (outcome, reason, failure)


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
