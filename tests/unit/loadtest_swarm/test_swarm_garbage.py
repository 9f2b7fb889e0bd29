"""No full round of the collector while callers speak, and every round is timed."""

import gc

from loadtest.swarm.garbage import Garbage


def test_only_young_objects_are_walked_until_it_is_asked_for() -> None:
    before = gc.get_threshold()
    garbage = Garbage()
    full: list[int] = []
    gc.callbacks.append(lambda phase, info: full.append(info["generation"]) if phase == "stop" else None)
    try:
        garbage.tame()
        full.clear()
        kept = [[number] for number in range(50_000)]
        assert full, "there were rounds"
        assert 2 not in full
        garbage.collect()
        assert full[-1] == 2
        assert len(kept) == 50_000
    finally:
        gc.callbacks.pop()
        garbage.close()
        gc.unfreeze()
    assert gc.get_threshold() == before
    assert garbage._note not in gc.callbacks


def test_rings_that_die_young_are_freed_without_a_full_round() -> None:
    garbage = Garbage()
    try:
        garbage.tame()
        for _ in range(20_000):
            ring: list[object] = []
            ring.append(ring)
        rings = sum(type(each) is list and len(each) == 1 and each[0] is each for each in gc.get_objects())
        assert rings < 2_000
    finally:
        garbage.close()
        gc.unfreeze()


def test_the_longest_round_is_told_once() -> None:
    garbage = Garbage()
    try:
        gc.collect()
        assert garbage.take_worst_ns() > 0
        assert garbage.take_worst_ns() == 0
        garbage.collect()
        assert garbage.take_worst_ns() == 0, "it was made when it held up nobody"
    finally:
        garbage.close()
