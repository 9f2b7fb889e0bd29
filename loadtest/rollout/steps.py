"""What a rollout does next, from what is kept of it: its plan, the log of its verdicts, and the last change of shares.
Pure.

A stage begins after the verdict `promote` on the one before it, and in no other way. A change of shares is written down
before it is made (`asked`) and after it (`made`), so that whoever continues a rollout that was ended in between makes
the same change again; making it twice does no harm. A change that failed needs a new look before it is tried again.
"""

from dataclasses import dataclass
from typing import Literal

import msgspec

from telemetry.rollout.plan import RolloutHistory, RolloutPlan, Stage

ChangeState = Literal["asked", "made", "failed"]


class KeptChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The last change of shares. `stage` None takes the candidate back. `after_looks` is how many looks there were."""

    stage: str | None
    share: float
    state: ChangeState
    at_unix_ns: int
    after_looks: int


@dataclass(frozen=True, slots=True)
class ChangeShare:
    """Split callers by the shares of a stage, which then begins; or take the candidate back at this stage."""

    stage: Stage
    is_back: bool = False

    @property
    def share(self) -> float:
        """The candidate's share of all callers."""
        return 0.0 if self.is_back else self.stage.share

    @property
    def control_share(self) -> float:
        """The control's: what the candidate gives back, its control gets."""
        return self.stage.control_share + (self.stage.share if self.is_back else 0.0)


@dataclass(frozen=True, slots=True)
class LookAtStage:
    """Judge the stage by its turns."""


@dataclass(frozen=True, slots=True)
class RolloutEnded:
    """Nothing is left to do."""

    state: Literal["complete", "rolled_back"]


Step = ChangeShare | LookAtStage | RolloutEnded


@dataclass(frozen=True, slots=True)
class KeptRollout:
    """What is kept of a rollout. `moves` is how many stages are known to have begun."""

    history: RolloutHistory
    moves: int
    change: KeptChange | None = None


def next_step(plan: RolloutPlan, kept: KeptRollout, now_unix_ns: int, fresh_ns: int) -> Step:
    """The next step. A promotion older than `fresh_ns` is looked at again before it is acted upon.

    Raises ConfigError where the plan has no stage at which the rollout is.
    """
    history, change = kept.history, kept.change
    stage = plan.stage(history.stage)
    if history.fingerprint != plan.fingerprint:
        return LookAtStage()  # which says that the plan was edited, and can only hold
    if history.is_rolled_back:
        is_back = change is not None and change.stage is None and change.state == "made"
        return RolloutEnded("rolled_back") if is_back else ChangeShare(stage, is_back=True)
    if not kept.moves:
        begins = plan.begins_unix_ns
        return LookAtStage() if begins is not None and now_unix_ns < begins else ChangeShare(stage)
    if not stage.has_control:
        return RolloutEnded("complete")
    last = history.last_look
    if last is None or last.stage != stage.name or last.verdict != "promote":
        return LookAtStage()
    after = plan.stage_after(stage.name)
    if after is None:
        return RolloutEnded("complete")
    tried = change if change is not None and change.stage == after.name else None
    if tried is not None and tried.state != "failed":
        return ChangeShare(after)  # it was ended between asking for this change and the beginning of the stage
    is_spent = tried is not None and tried.after_looks == len(history.looks)
    is_fresh = 0 <= now_unix_ns - last.at_unix_ns <= fresh_ns
    return ChangeShare(after) if is_fresh and not is_spent else LookAtStage()
