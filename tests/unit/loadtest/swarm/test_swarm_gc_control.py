"""No full round of the collector while callers speak, and every round is timed."""

import gc

import pytest

from loadtest.swarm.priority import GcControl


def test_only_young_objects_are_walked_until_it_is_asked_for() -> None:
    before = gc.get_threshold()
    control = GcControl()
    full: list[int] = []
    gc.callbacks.append(lambda phase, info: full.append(info["generation"]) if phase == "stop" else None)
    try:
        control.disable_full_collections()
        full.clear()
        kept = [[number] for number in range(50_000)]
        assert full, "there were rounds"
        assert 2 not in full
        control.collect()
        assert full[-1] == 2
        assert len(kept) == 50_000
    finally:
        gc.callbacks.pop()
        control.close()
        gc.unfreeze()
    assert gc.get_threshold() == before
    assert control._note not in gc.callbacks


@pytest.mark.slow
def test_rings_that_die_young_are_freed_without_a_full_round() -> None:
    control = GcControl()
    try:
        control.disable_full_collections()
        for _ in range(20_000):
            ring: list[object] = []
            ring.append(ring)
        rings = sum(
            type(tracked) is list and len(tracked) == 1 and tracked[0] is tracked for tracked in gc.get_objects()
        )
        assert rings < 2_000
    finally:
        control.close()
        gc.unfreeze()


@pytest.mark.slow
def test_the_longest_round_is_reported_once() -> None:
    control = GcControl()
    try:
        gc.collect()
        assert control.take_worst_ns() > 0
        assert control.take_worst_ns() == 0
        control.collect()
        assert control.take_worst_ns() == 0, "it was made when it held up nobody"
    finally:
        control.close()
