"""Specifications that are made once."""

from collections.abc import Sequence
from typing import Any

from dashboard.kept_specs import kept_spec


def test_a_specification_is_made_once_for_what_it_is_made_of() -> None:
    made: list[tuple[Any, ...]] = []

    @kept_spec
    def spec(names: Sequence[str], height: int, *, is_dark: bool) -> dict[str, Any]:
        """A picture."""
        made.append((names, height, is_dark))
        return {"names": list(names), "height": height, "is_dark": is_dark}

    first = spec(["a", "b"], 100, is_dark=False)
    first["names"].append("the caller's own")
    assert spec(("a", "b"), 100, is_dark=False) == {"names": ["a", "b"], "height": 100, "is_dark": False}
    assert len(made) == 1
    for changed in ((["a"], 100, False), (["a", "b"], 90, False), (["a", "b"], 100, True)):
        names, height, is_dark = changed
        assert spec(names, height, is_dark=is_dark) == {"names": names, "height": height, "is_dark": is_dark}
    assert len(made) == 4
    assert spec.__doc__ == "A picture."
