"""The turns of a plan, in their order, and whether another one may begin. Pure."""

from loadtest.conversation.plan import PlannedTurn
from loadtest.conversation.state import PLAN_TRANSITIONS, PlanInput, PlanState, next_state


class TurnQueue:
    """The part of a plan that is still to come."""

    __slots__ = ("_next", "_turns", "state")

    def __init__(self, turns: tuple[PlannedTurn, ...]) -> None:
        self._turns = turns
        self._next = 0
        self.state = PlanState.TURNS_LEFT if turns else PlanState.ALL_BEGUN

    @property
    def may_begin(self) -> bool:
        """Whether a further turn may begin."""
        return self.state is PlanState.TURNS_LEFT

    @property
    def following(self) -> PlannedTurn | None:
        """The turn that is next in the plan, whether or not it may begin; None after the last one."""
        return self._turns[self._next] if self._next < len(self._turns) else None

    def begin(self) -> tuple[int, PlannedTurn]:
        """Take the next turn: its index and itself. Raises IndexError after the last one."""
        index = self._next
        planned = self._turns[index]
        self._next += 1
        self._move(PlanInput.LAST_TURN_BEGAN if self._next == len(self._turns) else PlanInput.TURN_BEGAN)
        return index, planned

    def wind_down(self) -> None:
        """Let no further turn begin."""
        self._move(PlanInput.WIND_DOWN)

    def _move(self, happened: PlanInput) -> None:
        self.state = next_state(PLAN_TRANSITIONS, self.state, happened)
