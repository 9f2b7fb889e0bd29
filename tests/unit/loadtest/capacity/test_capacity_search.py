"""The search for a capacity, without an endpoint: where it looks next, and where it stops."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.capacity.search import CallerRange, bounds, next_step


def _search(serves: int, *, first: int, most: int, resolution: float) -> dict[int, bool]:
    judged: dict[int, bool] = {}
    while (callers := next_step(judged, first=first, most=most, resolution=resolution)) is not None:
        assert callers not in judged, "no step is measured twice"
        judged[callers] = callers <= serves
    return judged


@given(
    serves=st.integers(0, 5000),
    first=st.integers(1, 300),
    more=st.integers(0, 5000),
    resolution=st.floats(0.01, 1.0),
)
def test_it_closes_in_on_whatever_the_endpoint_serves(serves: int, first: int, more: int, resolution: float) -> None:
    most = first + more
    judged = _search(serves, first=first, most=most, resolution=resolution)
    found = bounds(judged)
    assert len(judged) <= 40
    assert max(judged) <= most
    if serves == 0:
        assert found == CallerRange(None, 1)
    elif serves >= most:
        assert found == CallerRange(most, None)
    else:
        assert found.met is not None
        assert found.missed is not None
        assert found.met <= serves < found.missed
        assert found.missed - found.met <= max(1, resolution * found.met)


def test_it_doubles_then_halves() -> None:
    assert list(_search(11, first=4, most=64, resolution=0.1)) == [4, 8, 16, 12, 10, 11]
    assert list(_search(3, first=8, most=64, resolution=0.1)) == [8, 4, 2, 3]


def test_a_step_met_above_a_missed_one_does_not_count() -> None:
    assert bounds({4: True, 8: False, 16: True}) == CallerRange(4, 8)
    assert next_step({4: True, 8: False, 16: True}, first=4, most=64, resolution=0.1) == 6


@pytest.mark.parametrize(("first", "most", "resolution"), [(0, 4, 0.1), (5, 4, 0.1), (1, 4, 0.0)])
def test_what_cannot_be_searched_is_refused(first: int, most: int, resolution: float) -> None:
    with pytest.raises(ValueError, match="no search"):
        next_step({}, first=first, most=most, resolution=resolution)
