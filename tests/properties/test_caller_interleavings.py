"""However the responses of a turn are interleaved, it ends once, and the first audible uncancelled one answers it."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtest.conversation.state import State
from loadtest.protocols.base import SUPERSEDED, EventKind, VoiceEvent
from tests.unit.loadtest.conversation.world import MS, World, audio, event, make_plan, silence, tone

pytestmark = pytest.mark.slow

PIECES = st.lists(st.sampled_from(["text", "tone", "silence", "audio_done"]), max_size=4)
ENDS = st.sampled_from([None, "completed", "cancelled", "failed", "incomplete", SUPERSEDED, "tool_call"])
RESPONSES = st.lists(st.tuples(st.booleans(), PIECES, ENDS), min_size=1, max_size=4)


def events_of(response_id: str, announced: bool, pieces: list[str], end: str | None) -> list[VoiceEvent]:
    made = {
        "text": event(EventKind.LLM_TEXT, response_id=response_id, text="Yes."),
        "tone": audio(tone(150), response_id),
        "silence": audio(silence(150), response_id),
        "audio_done": event(EventKind.AUDIO_DONE, response_id=response_id),
    }
    events = [event(EventKind.RESPONSE_STARTED, response_id=response_id)] if announced else []
    events += [made[piece] for piece in pieces]
    if end == "tool_call":
        events.append(event(EventKind.RESPONSE_DONE, response_id=response_id, status="completed", owes_response=True))
    elif end is not None:
        events.append(event(EventKind.RESPONSE_DONE, response_id=response_id, status=end))
    return events


@st.composite
def interleaved(draw: st.DrawFn) -> list[tuple[int, VoiceEvent]]:
    """Events of several responses, each in its own order, with what passes before each, ms."""
    waiting = [events_of(f"r{number}", *drawn) for number, drawn in enumerate(draw(RESPONSES))]
    order: list[tuple[int, VoiceEvent]] = []
    while any(waiting):
        mine = draw(st.sampled_from([events for events in waiting if events]))
        order.append((draw(st.sampled_from([0, 0, 20, 400, 1_500, 5_000])), mine.pop(0)))
    return order


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(interleaved())
def test_a_turn_has_one_outcome_and_the_first_audible_uncancelled_response_answers_it(
    order: list[tuple[int, VoiceEvent]],
) -> None:
    plan = make_plan(reply_ms=4_000)
    world = World(replace(plan, limits=replace(plan.limits, longest_reply_ns=20_000 * MS))).speak()
    heard: list[str] = []
    cancelled: set[str] = set()
    for passes_ms, one in order:
        world.after(passes_ms)
        if world.conversation.state is State.OVER:
            break
        response_id = one.response_id or ""
        known = world.conversation.exchange is not None and response_id in world.conversation.exchange.timeline.replies
        if one.kind is EventKind.AUDIO and one.audio == tone(150) and response_id not in cancelled:
            heard.append(response_id)
        # An end that comes before anything else of its response says nothing: it belongs to an earlier one.
        if one.kind is EventKind.RESPONSE_DONE and one.status == "cancelled" and known:
            cancelled.add(response_id)
        if one.kind is EventKind.RESPONSE_DONE and not known:
            cancelled.add(response_id)
        world.hear(one)
    world.after(30_000)
    assert world.conversation.state is State.OVER, "it comes to an end, whatever the endpoint does"
    assert len(world.exchanges) == 1
    exchange = world.last
    answer = exchange.timeline.answer
    audible = [response_id for response_id in heard if response_id not in cancelled]
    assert (None if answer is None else answer.response_id) == (audible[0] if audible else None)
    if exchange.outcome == "ok":
        assert answer is not None
    if answer is not None:
        assert exchange.outcome in ("ok", "error", "timeout")
