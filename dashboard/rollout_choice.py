"""What a viewer chose to see of rollouts, and its one form in a link: `?rollout=…&looks=…&at_stage=…&decision=…`. Pure.

Only the looks of the past are narrowed: what the newest one says of the rollout stands whatever is chosen.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Final, get_args

from dashboard.filters import read_link
from telemetry.model.formatting import NS_PER_S
from telemetry.rollout.history import Decision
from telemetry.rollout.progress import FunnelPoint, LoggedVerdict, RolloutProgress

LOOKS_S: Final[dict[str, int]] = {"1h": 3600, "1d": 86_400, "7d": 7 * 86_400}
LOOKS_LABELS: Final[dict[str, str]] = {"1h": "last hour", "1d": "last day", "7d": "last 7 days"}
_ALLOWED: Final = {"looks": tuple(LOOKS_S), "decision": get_args(Decision)}


@dataclass(frozen=True, slots=True)
class RolloutChoice:
    """None means any; a rollout of None is the one with the newest entry. The time of `looks` ends with the newest."""

    rollout: str | None = None
    looks: str | None = None
    at_stage: str | None = None
    decision: str | None = None

    @property
    def narrows(self) -> bool:
        """Whether it leaves out looks of the rollout."""
        return any((self.looks, self.at_stage, self.decision))

    def narrowed(self, progress: RolloutProgress) -> RolloutProgress:
        """The progress with the looks that are meant."""
        since_unix_ns = 0 if self.looks is None else progress.newest.at_unix_ns - LOOKS_S[self.looks] * NS_PER_S
        is_meant = self._meaning(since_unix_ns)
        return replace(
            progress,
            funnel=replace(progress.funnel, points=tuple(each for each in progress.funnel.points if is_meant(each))),
            changes=tuple(each for each in progress.changes if is_meant(each)),
        )

    def _meaning(self, since_unix_ns: int) -> Callable[[FunnelPoint | LoggedVerdict], bool]:
        def is_meant(look: FunnelPoint | LoggedVerdict) -> bool:
            return (
                look.at_unix_ns >= since_unix_ns
                and self.at_stage in (None, look.stage)
                and self.decision in (None, look.decision)
            )

        return is_meant


def rollout_choice_of(query: Mapping[str, str]) -> tuple[RolloutChoice, list[str]]:
    """Read a link. A value that cannot be meant is left out, with a sentence that says so."""
    chosen, faults = read_link(query, [each.name for each in fields(RolloutChoice)], _ALLOWED)
    return RolloutChoice(**chosen), faults
