"""When a run says nothing about the service: its load generator was the limit."""

from dataclasses import dataclass
from typing import Final

# With more than this share of invalid turns, and more than so many of them, a run says nothing about the service. In a
# short run one pause of a busy machine is more than 1 % already.
INVALID_SHARE_LIMIT: Final = 0.01
INVALID_TURNS_LIMIT: Final = 2
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


def too_many_invalid(invalid: int, total: int) -> bool:
    """Whether so many of `total` turns are invalid that the instrument, not the endpoint, was the limit."""
    return invalid > INVALID_TURNS_LIMIT and invalid > INVALID_SHARE_LIMIT * total
