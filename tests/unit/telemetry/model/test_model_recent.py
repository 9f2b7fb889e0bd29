"""A mapping that keeps what was set last."""

from telemetry.model.recent import RecentDict


def test_the_key_set_longest_ago_is_forgotten_first() -> None:
    recent = RecentDict[str, int](2)
    recent["a"], recent["b"] = 1, 2
    recent["a"] = 3
    recent["c"] = 4
    assert list(recent.items()) == [("a", 3), ("c", 4)]
