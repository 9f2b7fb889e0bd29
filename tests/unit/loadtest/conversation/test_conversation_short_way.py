"""What keeps a piece of audio from the short way: each of these needs the look that `Conversation.on_event` takes."""

from typing import Any

import pytest
from msgspec.structs import replace

from loadtest.conversation.conversation import NO_CHANGE
from loadtest.conversation.state import State
from loadtest.protocols.base import EventKind, VoiceEvent
from tests.unit.loadtest.conversation.test_conversation_barge_in import Caller, after, begun, plan
from tests.unit.loadtest.conversation.test_conversation_silence import piece, quiet
from tests.unit.loadtest.conversation.world import MS, World, audio, event, make_plan, silence, tone


def listening() -> World:
    """A caller who hears a reply, so that more of it takes the short way."""
    world = World(make_plan()).speak().after(300).hear(more()).after(20).hear(more()).after(20)
    assert world.conversation.state is State.HEARING
    return world


def takes_short_way(world: World, what: VoiceEvent) -> bool:
    return world.conversation.hear_more(what, world.now)


def more(**changes: Any) -> VoiceEvent:
    return replace(audio(tone(200)), **changes)


def test_more_of_the_reply_takes_it() -> None:
    assert takes_short_way(listening(), more())
    unnamed = quiet().speak().after(300).hear(piece()).after(20).hear(piece()).after(20)
    assert takes_short_way(unnamed, piece())


@pytest.mark.parametrize(
    "changes",
    [
        {"response_id": "another"},
        {"response_id": None},
        {"audio": None},
        {"rate_hz": None},
        {"metadata": {"voice.cohort": "b"}},
        {"service_ns": {"tts": 5}},
        {"reports_latency": True},
    ],
)
def test_what_is_odd_about_an_event_keeps_it_from_it(changes: dict[str, Any]) -> None:
    assert not takes_short_way(listening(), more(**changes))


@pytest.mark.parametrize("status", ["completed", "cancelled"])
def test_a_reply_that_is_over_or_stopped_has_no_short_way(status: str) -> None:
    world = listening()
    done = event(EventKind.RESPONSE_DONE, response_id=more().response_id, status=status)
    assert not takes_short_way(world.hear(done), more())


def test_what_plays_besides_ends_it() -> None:
    world = listening()
    assert not takes_short_way(world.hear(more(response_id="another")), more())


@pytest.mark.parametrize(("quiet_ms", "is_more"), [(960, True), (1_100, False)])
def test_what_comes_after_the_silence_that_ends_a_reply_is_another_one(quiet_ms: int, is_more: bool) -> None:
    world = quiet().speak().after(300).hear(piece(200)).after(20).hear(piece(200)).after(20)
    assert world.conversation.state is State.HEARING
    playing_until_perf_ns = world.now + 360 * MS
    assert world.conversation.hear_more(piece(), playing_until_perf_ns + quiet_ms * MS) is is_more


def test_a_reply_that_the_caller_s_speech_stopped_has_no_short_way() -> None:
    world = listening().hear(event(EventKind.SPEECH_STARTED, item_id="u9"))
    assert not takes_short_way(world, more())


def test_a_piece_without_a_name_is_only_more_of_the_reply_that_comes() -> None:
    world = quiet().speak().after(300).hear(piece()).after(20).hear(piece()).after(20)
    names = world.conversation._hearing.names
    assert takes_short_way(world, piece())
    assert names.last_perf_ns == world.now, "a question that ends later may end the reply"
    names.note_question_end(world.now + 1)
    assert not takes_short_way(world, piece())
    names.note_question_end(world.now)
    assert takes_short_way(world, piece())
    assert names.current is not None
    names.end(names.current)
    assert not takes_short_way(world, piece())


def test_what_it_accounts_for() -> None:
    world = listening()
    exchange = world.conversation.exchange
    assert exchange is not None
    answer = exchange.timeline.answer
    assert answer is not None
    assert answer.playback is not None
    samples = answer.playback.samples
    assert takes_short_way(world, more(item_id="i2"))
    assert answer.item_id == "i2"
    assert answer.playback.samples == samples + len(tone(200)) // 2
    assert answer.playback.last_arrival_perf_ns == world.conversation._hearing.last_sign_perf_ns == world.now


def test_an_answer_that_is_not_heard_yet_has_one_until_the_deadline() -> None:
    world = World(make_plan()).speak().after(300).hear(audio(silence(100) + tone(200)))
    assert world.conversation.state is State.WAITING
    deadline = world.conversation.deadline_perf_ns
    assert deadline == pytest.approx(world.now + 100 * MS, abs=MS), "when it becomes audible"
    assert not world.conversation.hear_more(more(), deadline)
    assert world.conversation.hear_more(more(), deadline - 1)


def awaiting(**options: Any) -> World:
    """A caller who waits for a reply of which silence has come."""
    world = World(make_plan(**options)).speak().after(300).hear(breath())
    assert world.conversation.state is State.WAITING
    return world


def breath(**changes: Any) -> VoiceEvent:
    return replace(audio(silence(100)), **changes)


def test_more_silence_before_a_reply_is_heard_changes_nothing_but_its_length() -> None:
    world = awaiting().after(20)
    deadline = world.conversation.deadline_perf_ns
    assert world.conversation.on_event(breath(item_id="i2"), world.now) is NO_CHANGE
    exchange = world.conversation.exchange
    assert exchange is not None
    (reply,) = exchange.timeline.replies.values()
    assert reply.playback is not None
    assert (reply.item_id, reply.playback.audio_ns, reply.playback.last_arrival_perf_ns) == (
        "i2",
        200 * MS,
        world.now,
    )
    assert (world.conversation.deadline_perf_ns, world.playout.playing_until_perf_ns) == (
        deadline,
        world.now + 180 * MS,
    )
    world.after(20).hear(more())
    assert world.conversation.deadline_perf_ns == pytest.approx(world.now + 160 * MS, abs=MS), "when it is heard"


@pytest.mark.parametrize("changes", [{"metadata": {"voice.cohort": "b"}}, {"service_ns": {"tts": 5}}])
def test_what_an_odd_piece_of_silence_says_is_kept(changes: dict[str, Any]) -> None:
    world = awaiting().after(20).hear(breath(**changes))
    exchange = world.conversation.exchange
    assert exchange is not None
    (reply,) = exchange.timeline.replies.values()
    assert {**reply.metadata, **exchange.service.latencies_ns} == {
        **changes.get("metadata", {}),
        **changes.get("service_ns", {}),
    }


def test_silence_after_the_deadline_does_not_keep_the_caller_waiting() -> None:
    world = awaiting(patience_ms=400)
    late = world.conversation.deadline_perf_ns
    world.do(world.conversation.on_event(breath(), late))
    assert world.last.outcome == "abandoned"


def test_more_of_a_reply_that_had_failed_opens_it_again() -> None:
    world = awaiting().hear(event(EventKind.RESPONSE_DONE, response_id="r1", status="failed"))
    deadline = world.conversation.deadline_perf_ns
    world.hear(breath())
    assert world.conversation.deadline_perf_ns > deadline + 5_000 * MS, "the wait for a second attempt is shorter"


def test_silence_beside_a_reply_that_was_interrupted_takes_the_long_way() -> None:
    caller = Caller(plan({}, after(300))).asked(*begun(3_000)).interrupted(300).end()
    caller.hear(breath(response_id="r2"))
    assert caller.conversation.state is State.WAITING
    assert caller.conversation.on_event(breath(response_id="r2"), caller.now) is not NO_CHANGE
