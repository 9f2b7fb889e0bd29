"""What is compared: the senders, the modes and wires they send in, and the sizes."""

from dataclasses import dataclass
from typing import Final

from loadtest.targets.ground_truth.plan import Behavior

# The parts of a benchmark, in the order in which they run.
PARTS: Final = ("senders", "conversations", "telemetry", "stamps")
CONTROL: Final = "control"
OURS: Final = "ours"
NAIVE: Final = "naive"
SENDERS: Final = (CONTROL, OURS, NAIVE)
ONE_WAY: Final = "one-way"
DUPLEX: Final = "duplex"
BARE: Final = "duplex-bare"
MODES: Final = (ONE_WAY, DUPLEX, BARE)
DEFAULT_MODES: Final = (ONE_WAY, DUPLEX)
WIRES: Final = ("ws", "wss")
# How the endpoint of conversations speaks: as the ground-truth endpoint behaves that is asked for this.
REPLIES: Final[tuple[Behavior, ...]] = ("plain", "drip", "long")


@dataclass(frozen=True, slots=True)
class Case:
    """What a round compares the senders at."""

    callers: int
    mode: str
    wire: str
