"""The cases and examples of a test that run every day, and those that run at night."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings

# The profiles of Hypothesis of the two suites; with any other one, as with `explore`, there are as many as at night.
DAY = "voiceprobe"
NIGHT = "night"


def nightly_after(count: int, cases: Iterable[Any]) -> list[Any]:
    """Mark all cases of a parametrization but the first ones as nightly; a tuple is a case of several parameters."""
    values = [case if isinstance(case, tuple) else (case,) for case in cases]
    return [pytest.param(*value, marks=pytest.mark.nightly if at >= count else ()) for at, value in enumerate(values)]


def examples(by_day: int, at_night: int) -> int:
    """Return how many examples a costly property has in the suite that runs."""
    return by_day if settings.get_current_profile_name() == DAY else at_night
