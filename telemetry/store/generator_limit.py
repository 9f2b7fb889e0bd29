"""When a run says nothing about the service: a part of its load generator was lost."""

from dataclasses import dataclass
from typing import Final

# Of so many turns the service may have kept its caller, and is still not what kept other calls from beginning.
SHARE_LIMIT: Final = 0.01
# Why no objective is judged then.
GENERATOR_LIMITED: Final = "the load generator was the limit, not the service"


@dataclass(frozen=True, slots=True)
class GeneratorLimit:
    """Why figures say nothing about the service, as half a sentence."""

    reason: str
