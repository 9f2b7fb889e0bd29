"""What is remembered of a rollout between two looks: passed into the gate, and given back by it. Pure.

The bounds need no memory: they hold at every moment. What happened before still counts: a plan that was edited, a clock
that went back and turns that vanished would each let somebody look until the verdict suits.
"""

from typing import Literal

import msgspec

from telemetry.model.errors import ConfigError

Decision = Literal["promote", "hold", "roll_back"]


class Look(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One look at a stage: when, over how many eligible turns of each cohort, and what the verdict was."""

    at_unix_ns: int
    stage: str
    candidate_turns: int
    control_turns: int
    verdict: Decision


class RolloutHistory(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a rollout is, and every look that was taken at it. `fingerprint` is the plan's."""

    plan: str
    fingerprint: str
    stage: str
    stage_since_unix_ns: int | None = None  # None: with the first turn
    looks: tuple[Look, ...] = ()

    @property
    def last_look(self) -> Look | None:
        """The newest look; None before the first."""
        return self.looks[-1] if self.looks else None

    @property
    def is_rolled_back(self) -> bool:
        """Whether any look ended so: more looks do not undo it."""
        return any(look.verdict == "roll_back" for look in self.looks)

    def with_look(self, look: Look) -> "RolloutHistory":
        """The history after one more look."""
        return msgspec.structs.replace(self, looks=(*self.looks, look))

    def at_stage(self, stage: str, since_unix_ns: int | None) -> "RolloutHistory":
        """The history at another stage, which is judged by its own turns: those since then."""
        return msgspec.structs.replace(self, stage=stage, stage_since_unix_ns=since_unix_ns)


def encode_history(history: RolloutHistory) -> bytes:
    """A history as JSON."""
    return msgspec.json.format(msgspec.json.encode(history), indent=2) + b"\n"


def decode_history(content: bytes, where: str) -> RolloutHistory:
    """A history from JSON. Raises ConfigError; `where` names the file."""
    try:
        return msgspec.json.decode(content, type=RolloutHistory)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        sentence = f"does not hold the history of a rollout ({error}); restore it, or begin a rollout of another name"
        raise ConfigError(where, [sentence]) from error
