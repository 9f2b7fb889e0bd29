"""Planned utterances are decided by the seed alone."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from corpora.rendering.profiles.profile import Profile
from loadtest.conversation.plan import CallPlan, Limits
from loadtest.scenario.arrivals import WHOLE, Share, deal
from loadtest.scenario.behavior import CallerBehavior
from loadtest.speech.preparation import PreparedLine
from loadtest.swarm.planner import CallPlanner
from tests.unit.loadtest.conversation.world import MS, make_clip

CLIPS = [make_clip(text=f"clip {index}") for index in range(7)]


LINE = PreparedLine(Profile(), 1.0, tuple(CLIPS), (b"-",))


def _planner(lines: Sequence[PreparedLine] = (LINE,), share: Share = WHOLE, **behavior: Any) -> CallPlanner:
    calls = behavior.pop("calls", None)
    planned = CallerBehavior.model_validate({"turns": 3, **behavior})
    return CallPlanner(lines, behavior=planned, limits=Limits(), manual_turns=False, seed=1, share=share, calls=calls)


def _plans(count: int, share: Share = WHOLE, **behavior: Any) -> list[CallPlan]:
    planner = _planner(share=share, **behavior)
    return [planner.plan(f"call-{index}") for index in range(count)]


def _spoken(plans: list[CallPlan]) -> list[str]:
    return [turn.clip.rendered.utterance.text for plan in plans for turn in plan.turns]


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_a_number_of_calls_is_that_of_all_processes(processes: int) -> None:
    for index in range(processes):
        planner = _planner(share=Share(index, processes), calls=8)
        for _ in range(Share(index, processes).count(8)):
            assert not planner.exhausted
            planner.plan("call")
        assert planner.exhausted
        with pytest.raises(RuntimeError, match="all calls"):
            planner.plan("one more")
    assert sum(Share(index, processes).count(8) for index in range(processes)) == 8


def test_late_process_has_own_calls_and_takes_no_others() -> None:
    late = deal([0, 1], 5)
    assert late.count(8) == 0
    assert _planner(share=late, calls=8).exhausted
    output = _spoken(_plans(20, share=late))
    assert output not in ([], _spoken(_plans(20)), _spoken(_plans(20, share=deal([0, 1], 6))))


def test_positions_follow_the_workers_that_were_there() -> None:
    assert [deal([3, 0, 8], worker) for worker in (0, 3, 8)] == [Share(0, 3), Share(1, 3), Share(2, 3)]


def test_all_clips_are_spoken_before_one_is_repeated() -> None:
    output = _spoken(_plans(7))  # 21 turns over 7 clips
    for dealt in (output[:7], output[7:14], output[14:]):
        assert len(set(dealt)) == 7
    assert set(Counter(output).values()) == {3}


def test_think_time_varies_around_its_mean() -> None:
    thinks = [turn.think_ns / MS for plan in _plans(100) for turn in plan.turns]
    assert 500 <= min(thinks) < 600
    assert 1_400 < max(thinks) <= 1_500
    assert abs(sum(thinks) / len(thinks) - 1_000) < 60


def test_patience_is_a_distribution_around_its_median() -> None:
    drawn = sorted(
        turn.patience_ns / MS
        for plan in _plans(300, patience=2.0)
        for turn in plan.turns
        if turn.patience_ns is not None
    )
    assert len(drawn) == 900
    assert 1_850 < drawn[450] < 2_150
    assert drawn[90] < 1_200
    assert drawn[810] > 3_500
    assert all(turn.patience_ns is None for plan in _plans(3) for turn in plan.turns)


def test_each_call_keeps_to_one_line_and_lines_have_their_shares() -> None:
    lines = [
        PreparedLine(Profile(), 0.7, tuple(CLIPS), (b"quiet",)),
        PreparedLine(
            Profile("white", 5.0), 0.3, tuple(make_clip(text=f"hiss {index}") for index in range(7)), (b"hiss",)
        ),
    ]

    def planned(share: Share = WHOLE) -> list[CallPlan]:
        planner = _planner(lines, share)
        return [planner.plan(f"call-{index}") for index in range(share.count(200))]

    plans = planned()
    for hundred in (plans[:100], plans[100:]):
        assert Counter(plan.background for plan in hundred) == {(b"quiet",): 70, (b"hiss",): 30}
    for plan in plans:
        begins = "hiss" if plan.background == (b"hiss",) else "clip"
        assert all(str(text).startswith(begins) for text in _spoken([plan]))
    # And it does not matter how many processes share the calls.
    halves = [planned(Share(index, 2)) for index in range(2)]
    assert [plan.background for pair in zip(*halves, strict=True) for plan in pair] == [
        plan.background for plan in plans
    ]


def test_plan_names_its_line_and_start_of_background() -> None:
    frames = tuple(bytes([number]) for number in range(50))
    lines = [
        PreparedLine(Profile(), 0.5, tuple(CLIPS), frames),
        PreparedLine(Profile(), 0.5, tuple(CLIPS), frames[::-1]),
    ]
    planner = _planner(lines, turns=1)
    plans = [planner.plan(f"call-{number}") for number in range(100)]
    assert Counter(plan.line for plan in plans) == {0: 50, 1: 50}
    for plan in plans:
        loop, first = lines[plan.line].background, plan.background_first
        assert plan.background == loop[first:] + loop[:first]


def test_the_pause_between_two_calls_is_drawn_from_the_seed() -> None:
    planner = _planner(call_pause="uniform:1s:3s")
    pauses = [planner.plan(f"call-{index}").pause_after_ns for index in range(50)]
    assert all(1_000 * MS <= pause <= 3_000 * MS for pause in pauses)
    assert len(set(pauses)) > 40
    second = _planner(share=Share(1, 2), call_pause="uniform:1s:3s")
    assert [second.plan("x").pause_after_ns for _ in range(25)] == pauses[1::2]
    assert _planner().plan("x").pause_after_ns == 0
    with_pause, without = _planner(call_pause="constant:2s"), _planner()
    assert with_pause.plan("x").turns == without.plan("x").turns, "it changes nothing of what is said"
