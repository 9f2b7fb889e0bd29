"""What is compared: the senders, the modes and wires they send in, and the sizes."""

from dataclasses import dataclass
from typing import Final

# The parts of a benchmark, in the order in which they run.
PARTS: Final = ("protocols", "senders", "telemetry", "stamps")
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


@dataclass(frozen=True, slots=True)
class Case:
    """What a round compares the senders at."""

    callers: int
    mode: str
    wire: str
