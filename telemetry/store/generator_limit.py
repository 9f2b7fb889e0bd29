"""When a run says nothing about the service: too many of its turns are invalid."""

from typing import Final

# With more than this share of invalid turns, and more than so many of them, a run says nothing about the service. In a
# short run one pause of a busy machine is more than 1 % already.
INVALID_SHARE_LIMIT: Final = 0.01
INVALID_TURNS_LIMIT: Final = 2
# Why no objective is judged then.
GENERATOR_LIMITED: Final = "the load generator was the limit, not the service"


def too_many_invalid(invalid: int, total: int) -> bool:
    """Whether so many of `total` turns are invalid that the instrument, not the endpoint, was the limit."""
    return invalid > INVALID_TURNS_LIMIT and invalid > INVALID_SHARE_LIMIT * total
