"""How long to wait before something is tried again. Pure."""

import random
from collections.abc import Callable
from typing import Final

FIRST_S: Final = 1.0
MAX_S: Final = 60.0


class Backoff:
    """Doubles with each failure up to a minute; half of it is random, so that several senders do not come at once.

    `uniform` gives a random number between two others.
    """

    def __init__(self, uniform: Callable[[float, float], float] = random.uniform) -> None:
        self._uniform = uniform
        self._next_s = FIRST_S

    def reset(self) -> None:
        """Begin anew: it went well."""
        self._next_s = FIRST_S

    def next_s(self, at_least_s: float = 0.0) -> float:
        """How long to wait now, in seconds; `at_least_s` is what the other side asks for."""
        wait_s = self._uniform(self._next_s / 2, self._next_s)
        self._next_s = min(2 * self._next_s, MAX_S)
        return max(wait_s, at_least_s)
