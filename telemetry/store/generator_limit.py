"""When a run says nothing about the service: its load generator was the limit."""

from dataclasses import dataclass
from typing import Final

# Up to this share of the calls that were due may not have begun, and of the turns the service may have kept its caller.
SHARE_LIMIT: Final = 0.01
# Why no objective is judged then.
GENERATOR_LIMITED: Final = "the load generator was the limit, not the service"


@dataclass(frozen=True, slots=True)
class GeneratorLimit:
    """Why figures say nothing about the service, as half a sentence.

    `unless_missed`: calls that were due did not begin. An objective that is missed under less load than was asked for
    is missed, so that limit holds only where none is.
    """

    reason: str
    unless_missed: bool = False
