"""What is measured in one window, and what it cost. Pure."""

from dataclasses import dataclass
from typing import Final

SENT: Final = "sent"
RECEIVED: Final = "received"


@dataclass(frozen=True, slots=True)
class WindowCost:
    """What one window cost: CPU time, and the frames that were sent in it."""

    wire: str
    direction: str
    cpu_ns: int
    frames: int
    held_up: int  # frames that the sink did not take at once
    frame_bytes: int  # of one frame that was sent, as it goes on the wire
    began_perf_ns: int
    ended_perf_ns: int


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many callers, and how long they are not measured and measured."""

    callers: int
    warm_up_s: float
    window_s: float
