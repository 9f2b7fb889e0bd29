"""What a wire brings beside the conversations: counted, so that nobody has to look for it."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Beside:
    """What arrived beside the conversations of the client turns: events of types that the protocol does not know (the
    names of the first few), events that the endpoint sent twice, and turns on which the service stated latencies of its
    own."""

    unknown: int = 0
    duplicates: int = 0
    turns_with_service_latency: int = 0
    unknown_names: tuple[str, ...] = ()


NOTHING_BESIDE: Final = Beside()
