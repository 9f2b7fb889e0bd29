"""What is warmed up with is a whole turn, so that nothing is left for the first real one to load."""

import pytest

from loadtest.conversation.warmup import warm_up
from tests.unit.loadtest.conversation.world import MS, make_plan


@pytest.mark.parametrize("manual", [False, True])
@pytest.mark.parametrize("onset", ["rms-10ms", "sustained-50ms"])
def test_a_warmup_turn_goes_all_the_way(manual: bool, onset: str) -> None:
    exchange = warm_up(make_plan(think_ms=0, manual=manual), 1_000 * MS, onset)
    assert exchange.outcome == "ok"
    timeline = exchange.timeline
    assert timeline.answer is not None
    assert timeline.answer.playback is not None
    assert timeline.answer.playback.last_audio_perf_ns is not None
    assert timeline.partials_perf_ns
    assert timeline.finals
