"""Planned utterances are decided by the seed alone."""

from collections import Counter

import pytest

from corpora.rendering.profiles.profile import Profile
from loadtest.conversation.plan import CallPlan, Limits
from loadtest.scenario.arrivals import WHOLE, Share, deal
from loadtest.scenario.behavior import CallerBehavior, parse_patience, parse_think
from loadtest.speech.preparation import PreparedLine
from loadtest.swarm.planner import CallPlanner
from tests.unit.loadtest.conversation.world import MS, make_clip

CLIPS = [make_clip(text=f"clip {index}") for index in range(7)]


def _plans(
    count: int, *, seed: int = 1, share: Share = WHOLE, calls: int | None = None, patience_s: float | None = None
) -> list[CallPlan]:
    planner = _planner(seed=seed, share=share, calls=calls, patience_s=patience_s)
    return [planner.plan(f"call-{index}") for index in range(count)]


def _planner(
    *, seed: int = 1, share: Share = WHOLE, calls: int | None = None, patience_s: float | None = None
) -> CallPlanner:
    return CallPlanner(
        [PreparedLine(Profile(), 1.0, tuple(CLIPS), (b"-",))],
        behavior=CallerBehavior(turns=3, patience=None if patience_s is None else parse_patience(patience_s)),
        limits=Limits(),
        manual_turns=False,
        seed=seed,
        share=share,
        calls=calls,
    )


def _spoken(plans: list[CallPlan]) -> list[str]:
    return [turn.clip.rendered.utterance.text for plan in plans for turn in plan.turns]


def test_the_same_seed_says_the_same_and_another_does_not() -> None:
    assert _spoken(_plans(20)) == _spoken(_plans(20))
    assert _plans(20) == _plans(20)
    assert _spoken(_plans(20)) != _spoken(_plans(20, seed=2))


@pytest.mark.parametrize("processes", [1, 2, 3, 7])
def test_the_calls_of_all_processes_are_those_of_one(processes: int) -> None:
    alone = _plans(20, patience_s=2.0)
    shared = [
        _plans(len(range(index, 20, processes)), share=Share(index, processes), patience_s=2.0)
        for index in range(processes)
    ]
    for number, plan in enumerate(alone):
        assert shared[number % processes][number // processes].turns == plan.turns


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
        for plan in _plans(300, patience_s=2.0)
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
        behavior = CallerBehavior(turns=3)
        planner = CallPlanner(lines, behavior=behavior, limits=Limits(), manual_turns=False, seed=1, share=share)
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


def _paused(text: str | None, *, seed: int = 1, share: Share = WHOLE) -> CallPlanner:
    behavior = CallerBehavior(turns=3, call_pause=None if text is None else parse_think(text))
    line = PreparedLine(Profile(), 1.0, tuple(CLIPS), (b"-",))
    return CallPlanner([line], behavior=behavior, limits=Limits(), manual_turns=False, seed=seed, share=share)


def test_plan_names_its_line_and_start_of_background() -> None:
    frames = tuple(bytes([number]) for number in range(50))
    lines = [
        PreparedLine(Profile(), 0.5, tuple(CLIPS), frames),
        PreparedLine(Profile(), 0.5, tuple(CLIPS), frames[::-1]),
    ]
    planner = CallPlanner(lines, behavior=CallerBehavior(turns=1), limits=Limits(), manual_turns=False, seed=1)
    plans = [planner.plan(f"call-{number}") for number in range(100)]
    assert Counter(plan.line for plan in plans) == {0: 50, 1: 50}
    for plan in plans:
        loop, first = lines[plan.line].background, plan.background_first
        assert plan.background == loop[first:] + loop[:first]


def test_the_pause_between_two_calls_is_drawn_from_the_seed() -> None:
    planner = _paused("uniform:1s:3s")
    pauses = [planner.plan(f"call-{index}").pause_after_ns for index in range(50)]
    assert all(1_000 * MS <= pause <= 3_000 * MS for pause in pauses)
    assert len(set(pauses)) > 40
    second = _paused("uniform:1s:3s", share=Share(1, 2))
    assert [second.plan("x").pause_after_ns for _ in range(25)] == pauses[1::2]
    assert _paused(None).plan("x").pause_after_ns == 0
    with_pause, without = _paused("constant:2s"), _paused(None)
    assert with_pause.plan("x").turns == without.plan("x").turns, "it changes nothing of what is said"
