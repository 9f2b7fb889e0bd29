"""What each call says, decided by the seed alone: a run can be repeated, and two cohorts can hear the same audio."""

import math
import random
from collections.abc import Sequence

from loadtest.caller.line import PreparedClip
from loadtest.caller.plan import SECOND_NS, CallPlan, Limits, PlannedTurn

# Patience is lognormal around its median; this sigma puts one caller in ten below 0.53 and above 1.9 medians.
PATIENCE_SIGMA = 0.5


class Planner:
    """Plans calls one after the other. Clips are dealt like cards: all are said before one is said again."""

    def __init__(
        self,
        clips: Sequence[PreparedClip],
        background: tuple[bytes, ...],
        *,
        turns_per_call: int,
        think_s: float,
        patience_s: float | None,
        limits: Limits,
        manual_turns: bool,
        seed: int,
        process: str = "",
    ) -> None:
        """`process` tells the processes of one swarm apart, so that they do not all say the same."""
        self._clips = tuple(clips)
        self._background = background
        self._turns_per_call = turns_per_call
        self._think_s = think_s
        self._patience_s = patience_s
        self._limits = limits
        self._manual_turns = manual_turns
        self._random = random.Random(f"{seed}/{process}")  # noqa: S311 - a plan, not a secret
        self._deck: list[PreparedClip] = []

    def plan(self, call_id: str) -> CallPlan:
        """The next call."""
        turns = tuple(self._turn() for _ in range(self._turns_per_call))
        return CallPlan(call_id, turns, self._background, self._limits, self._manual_turns)

    def _turn(self) -> PlannedTurn:
        if not self._deck:
            self._deck = list(self._clips)
            self._random.shuffle(self._deck)
        clip = self._deck.pop()
        think_ns = round(self._random.uniform(0.5, 1.5) * self._think_s * SECOND_NS)
        patience_ns = None
        if self._patience_s is not None:
            drawn = self._random.lognormvariate(math.log(self._patience_s), PATIENCE_SIGMA)
            patience_ns = round(drawn * SECOND_NS)
        return PlannedTurn(clip, think_ns, patience_ns)
