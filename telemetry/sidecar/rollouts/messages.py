"""Messages between the front and the process that evaluates rollouts, in the frames of `sidecar.messages`."""

from typing import Final

import msgspec

from telemetry.rollout.checks import BeyondShares
from telemetry.rollout.history import Decision
from telemetry.sidecar.rollouts.settings import RolloutSetting

# Answers of HTTP to whoever moves the share.
BEGUN: Final = 200
UNKNOWN: Final = 404
REFUSED: Final = 409
UNAVAILABLE: Final = 503
# A promotion is acted upon while it is at most so many intervals old.
FRESH_INTERVALS: Final = 3
FRESH_GRACE_S: Final = 30.0


class RolloutOptions(msgspec.Struct, frozen=True, tag="options"):
    """To the process, first: the store, what is evaluated, the file of objectives, and how often."""

    store: str
    rollouts: tuple[RolloutSetting, ...]
    slo: str | None
    every_s: float


class StageAsked(msgspec.Struct, frozen=True, tag="ask"):
    """To the process: may this stage begin? None: the next one. If it may, it has begun with the answer.

    `is_settled`: the stage has begun, and its share is in effect only now; turns from now on are judged.
    """

    number: int
    rollout: str
    stage: str | None
    is_settled: bool = False


class StageAnswered(msgspec.Struct, frozen=True, tag="stage"):
    """From the process: the status of the HTTP answer, a sentence, and the stage at which the rollout is."""

    number: int
    status: int
    sentence: str
    stage: str


class PrimaryFigures(msgspec.Struct, frozen=True):
    """The primary check: the shares of turns that decide it, and the difference of the quantiles with its interval of
    one look, in seconds; None where it is not known."""

    margin_s: float
    lower_s: float | None = None
    estimate_s: float | None = None
    upper_s: float | None = None
    shares: BeyondShares | None = None


class RolloutState(msgspec.Struct, frozen=True, tag="state"):
    """From the process after each look: what is answered until the next one.

    `body` is the verdict as a JSON object. `kept_unix_ns` is when the log last took a verdict, and `is_kept` whether it
    took this one; others only hold. `promoted` are the stages before this one whose promotion still holds.
    """

    rollout: str
    decision: Decision
    sentence: str
    stage: str
    stages: tuple[str, ...]
    share: float
    turns_needed: int | None
    is_kept: bool
    at_unix_ns: int
    kept_unix_ns: int | None
    body: bytes
    promoted: tuple[str, ...] = ()
    primary: PrimaryFigures | None = None


ToRollouts = RolloutOptions | StageAsked
FromRollouts = RolloutState | StageAnswered
