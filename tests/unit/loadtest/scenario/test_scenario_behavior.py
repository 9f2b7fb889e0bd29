"""The behavior of callers: its settings, what the planner draws from them, and the scripts that are replayed."""

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpora.manifest.conversations import ConversationTurn, ScriptedConversation
from corpora.rendering.profiles.profile import Profile
from loadtest.conversation.plan import CallPlan, Limits, PlannedTurn, ReplyPoint
from loadtest.conversation.prepared_clip import PreparedClip
from loadtest.distributions import parse_delay
from loadtest.errors import UsageError
from loadtest.scenario.arrivals import WHOLE, Share
from loadtest.scenario.behavior import BargeIn, CallerBehavior, parse_patience, parse_point, parse_think
from loadtest.speech.preparation import PreparedLine
from loadtest.swarm.planner import CallPlanner
from tests.unit.loadtest.conversation.world import MS, make_clip


def _clip(name: str, speech_ms: int = 1_000) -> PreparedClip:
    clip = make_clip(speech_ms=speech_ms, text=name)
    utterance = replace(clip.rendered.utterance, id=name)
    return replace(clip, rendered=replace(clip.rendered, utterance=utterance))


CLIPS = [_clip(f"u{index}") for index in range(7)] + [_clip("mhm", 300)]
SCRIPTS = (
    ScriptedConversation(
        "order", (ConversationTurn("u1", 0.0, "booking"), ConversationTurn("u2", barge_in_after_s=1.5))
    ),
    ScriptedConversation("talk", tuple(ConversationTurn(f"u{index}", intent="time") for index in (3, 3, 5, 0))),
)
EVERYTHING = CallerBehavior(
    turns=4,
    patience=parse_patience(2),
    barge_in=[BargeIn(share=0.3, after=parse_point("1.2s")), BargeIn(share=0.2, after=parse_point("50%"))],
    talk_over=0.4,
    silence=0.2,
)


def _planner(behavior: CallerBehavior, *, seed: int = 1, share: Share = WHOLE, **changes: Any) -> CallPlanner:
    limits = Limits()
    line = PreparedLine(Profile(), 1.0, tuple(CLIPS), (b"-",))
    return CallPlanner([line], behavior=behavior, limits=limits, manual_turns=False, seed=seed, share=share, **changes)


def _plans(behavior: CallerBehavior, count: int = 200, **changes: Any) -> list[CallPlan]:
    planner = _planner(behavior, **changes)
    return [planner.plan(f"call-{index}") for index in range(count)]


def _turns(behavior: CallerBehavior, **changes: Any) -> list[PlannedTurn]:
    return [turn for plan in _plans(behavior, **changes) for turn in plan.turns]


def _words(plans: list[CallPlan]) -> list[str | None]:
    return [None if t.clip is None else t.clip.rendered.utterance.id for plan in plans for t in plan.turns]


@pytest.mark.parametrize(
    ("text", "shown"),
    [(1.0, "uniform:500ms:1.5s"), ("2", "uniform:1s:3s"), (0, "uniform:0ns:0ns"), ("constant:3s", "constant:3s")],
)
def test_seconds_of_thinking_are_their_mean(text: float | str, shown: str) -> None:
    assert str(parse_think(text)) == shown


def test_seconds_of_patience_are_their_median() -> None:
    assert parse_patience(2) == parse_patience("2") == parse_delay("lognormal:2s:0.5")
    assert parse_patience("normal:3s:500ms") == parse_delay("normal:3s:500ms")


@pytest.mark.parametrize("value", [0, -1, "nan", "inf", "4000", "soon", "none", "lognormal:2s"])
def test_patience_that_cannot_be_used_gets_one_sentence(value: float | str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_patience(value)
    assert "\n" not in str(caught.value)


def test_points_of_a_reply_are_times_shares_or_random() -> None:
    source = random.Random(1)
    assert parse_point("1.2s").draw(source) == ReplyPoint(after_ns=1_200 * MS)
    assert parse_point("40%").draw(source) == ReplyPoint(share=0.4)
    times = [parse_point("uniform:300ms:2s").draw(source).after_ns or 0 for _ in range(200)]
    assert 300 * MS <= min(times) < max(times) <= 2_000 * MS
    shares = [parse_point("random").draw(source).share or 0.0 for _ in range(400)]
    assert min(shares) < 0.05
    assert max(shares) > 0.95
    for bad in ("", "120%", "half", "1.2", "constant:1"):
        with pytest.raises(UsageError, match="point of a reply"):
            parse_point(bad)


def test_shares_are_kept_over_many_turns() -> None:
    turns = _turns(EVERYTHING, count=1500)
    silent = [turn for turn in turns if turn.clip is None]
    assert len(silent) / len(turns) == pytest.approx(0.2, abs=0.02)
    assert {turn.silence_ns for turn in silent} == {5_000 * MS}
    assert {turn.patience_ns for turn in silent} == {None}
    # One turn in four is a call's first, and one in five comes after a silence: these have no reply to interrupt.
    points = [turn.barge_in for turn in turns if turn.barge_in is not None]
    assert len(points) / len(turns) == pytest.approx(0.75 * 0.8 * 0.8 * 0.5, abs=0.02)
    assert points.count(ReplyPoint(after_ns=1_200 * MS)) / len(points) == pytest.approx(0.6, abs=0.04)
    assert set(points) == {ReplyPoint(after_ns=1_200 * MS), ReplyPoint(share=0.5)}


def test_barge_in_neither_begins_call_nor_follows_backchannel() -> None:
    for plan in _plans(EVERYTHING):
        assert plan.turns[0].barge_in is None
        for turn, following in zip(plan.turns, plan.turns[1:], strict=False):
            assert turn.backchannel is None or following.barge_in is None


def test_backchannel_is_a_short_clip_or_absent_if_all_are_long() -> None:
    output = [turn.backchannel for turn in _turns(EVERYTHING) if turn.backchannel is not None]
    assert output
    assert {backchannel.clip.duration_ns <= 1_500 * MS for backchannel in output} == {True}
    line = PreparedLine(Profile(), 1.0, (_clip("long", 6_000),), (b"-",))
    planner = CallPlanner([line], behavior=EVERYTHING, limits=Limits(), manual_turns=False, seed=1)
    assert all(turn.backchannel is None for _ in range(50) for turn in planner.plan("call").turns)


def test_behaviors_leave_words_and_pauses_of_callers_unchanged() -> None:
    plain = CallerBehavior(turns=4, patience=EVERYTHING.patience)
    for ours, theirs in zip(_turns(EVERYTHING), _turns(plain), strict=True):
        assert ours.think_ns == theirs.think_ns
        assert ours.clip is None or (ours.clip, ours.patience_ns) == (theirs.clip, theirs.patience_ns)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 7), st.booleans(), st.lists(st.integers(0, 3), max_size=12))
def test_same_seed_plans_same_calls_for_any_processes_and_order(
    seed: int, processes: int, scripted: bool, order: list[int]
) -> None:
    behavior = EVERYTHING.model_copy(update={"conversations": scripted})
    alone = _plans(behavior, 12, seed=seed, conversations=SCRIPTS)
    planners = [
        _planner(behavior, seed=seed, share=Share(index, processes), conversations=SCRIPTS)
        for index in range(processes)
    ]
    asked = [0] * processes
    for turn in (*order, *range(processes)):
        index = turn % processes
        number = asked[index] * processes + index
        asked[index] += 1
        if number < len(alone):
            assert planners[index].plan("call").turns == alone[number].turns


def test_another_seed_plans_otherwise() -> None:
    assert _plans(EVERYTHING) == _plans(EVERYTHING)
    assert _words(_plans(EVERYTHING)) != _words(_plans(EVERYTHING, seed=2))


def test_conversations_keep_their_order_pauses_and_intents() -> None:
    plans = _plans(CallerBehavior(turns=2, conversations=True), conversations=SCRIPTS)
    assert {plan.turns[0].conversation for plan in plans} == {"order", "talk"}
    for plan in plans:
        words = _words([plan])
        if plan.turns[0].conversation == "order":
            assert words == ["u1", "u2"]
            assert plan.turns[0].think_ns == 0
            assert plan.turns[1].barge_in == ReplyPoint(after_ns=1_500 * MS)
            assert [turn.expected_intent for turn in plan.turns] == ["booking", None]
        else:
            assert words == ["u3", "u3", "u5", "u0"]
            assert {turn.expected_intent for turn in plan.turns} == {"time"}
            assert all(500 * MS <= turn.think_ns <= 1_500 * MS for turn in plan.turns)


def test_conversations_are_left_alone_unless_asked_for() -> None:
    assert {turn.conversation for turn in _turns(EVERYTHING, conversations=SCRIPTS)} == {None}
