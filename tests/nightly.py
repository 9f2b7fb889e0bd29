"""The cases of a test that run every day, and those that run at night."""

from collections.abc import Iterable
from typing import Any

import pytest


def nightly_after(count: int, cases: Iterable[Any]) -> list[Any]:
    """Mark all cases of a parametrization but the first ones as nightly; a tuple is a case of several parameters."""
    values = [case if isinstance(case, tuple) else (case,) for case in cases]
    return [pytest.param(*value, marks=pytest.mark.nightly if at >= count else ()) for at, value in enumerate(values)]
