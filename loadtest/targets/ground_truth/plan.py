"""Plans what the endpoint does in each turn, drawn from a seed before the caller has finished. Pure.

All times are offsets in ns: from the first speech sample for events during the caller's speech, from the last speech
sample for all others.
"""

import random
from dataclasses import dataclass
from typing import Final, Literal, get_args

from loadtest.errors import UsageError

MS: Final = 1_000_000
# The frame with the last sample is sent up to 20 ms after that sample, so no answer can come earlier.
EARLIEST_NS: Final = 24 * MS
LEADING_NS: Final = (0, 5 * MS, 30 * MS, 120 * MS)
PARTIAL_AFTER_NS: Final = 150 * MS
TOKENS: Final = 3
TOKEN_GAP_NS: Final = 4 * MS

Behavior = Literal["plain", "burst", "drip", "jitter", "silence", "long", "coalesced", "bytewise", "stall"]
BEHAVIORS: Final[dict[Behavior, str]] = {
    "plain": "chunks of 100 ms, on time",
    "burst": "all chunks at once",
    "drip": "chunks of 20 ms, every 20 ms",
    "jitter": "late chunks, which make the player run dry",
    "silence": "300 ms of leading silence",
    "long": "a reply of 4 s",
    "coalesced": "the whole answer in one segment",
    "bytewise": "bytes of an event one at a time",
    "stall": "stops reading (other connections continue)",
}


@dataclass(frozen=True, slots=True)
class ChunkPlan:
    """One chunk of reply audio: its delay after the first one, and its duration."""

    after_ns: int
    audio_ns: int


@dataclass(frozen=True, slots=True)
class TurnPlan:
    """One turn's delays: `partial_ns` counts from the first speech sample, all others from the last one."""

    voice_to_voice_ns: int
    partial_ns: int
    endpoint_ns: int
    final_ns: int
    first_token_ns: int
    first_chunk_ns: int
    leading_silence_ns: int
    chunks: tuple[ChunkPlan, ...]


def check_behavior(name: str) -> Behavior:
    """Return the behavior with this name. Raises UsageError for an unknown one."""
    for known in get_args(Behavior):
        if name == known:
            return known
    raise UsageError(f"the behavior {name!r} is unknown: use one of {', '.join(BEHAVIORS)}")


class ReplyPlanner:
    """Plans the turns of one connection; the same seed and connection number give the same turns."""

    def __init__(self, delays_ns: tuple[int, ...], behavior: Behavior, seed: int, connection: int) -> None:
        self._delays_ns = delays_ns
        self._behavior: Behavior = behavior
        self._random = random.Random(f"{seed}/{connection}")  # noqa: S311 - a plan, not a secret
        self._deck: list[int] = []

    def turn(self) -> TurnPlan:
        """Plan the next turn. Delays are drawn from a shuffled deck, so that each occurs equally often."""
        if not self._deck:
            self._deck = list(self._delays_ns)
            self._random.shuffle(self._deck)
        total = self._deck.pop()
        # Whole milliseconds of silence are a whole number of samples.
        leading = min(self._random.choice(LEADING_NS), (total - EARLIEST_NS) // 4 // MS * MS)
        first_chunk = total - leading
        if self._behavior == "silence":
            first_chunk, leading = total, 300 * MS
        # The stages fall at random between the earliest time and the first chunk.
        cuts = sorted(self._random.uniform(0.05, 0.95) for _ in range(3))
        stages = [EARLIEST_NS + round((first_chunk - EARLIEST_NS) * cut) for cut in cuts]
        if self._behavior == "coalesced":
            stages = [first_chunk] * 3
        return TurnPlan(
            voice_to_voice_ns=first_chunk + leading,
            partial_ns=PARTIAL_AFTER_NS + round(self._random.uniform(0, 100) * MS),
            endpoint_ns=stages[0],
            final_ns=stages[1],
            first_token_ns=stages[2],
            first_chunk_ns=first_chunk,
            leading_silence_ns=leading,
            chunks=self._chunks(),
        )

    def _chunks(self) -> tuple[ChunkPlan, ...]:
        chunk = 100 * MS
        match self._behavior:
            case "burst":
                return tuple(ChunkPlan(0, chunk) for _ in range(5))
            case "drip":
                return tuple(ChunkPlan(index * 20 * MS, 20 * MS) for index in range(25))
            case "jitter":
                late = [0, *(round(self._random.uniform(0, 120) * MS) for _ in range(5))]
                moments = [index * chunk + lateness for index, lateness in enumerate(late)]
                return tuple(ChunkPlan(max(moments[: index + 1]), chunk) for index in range(len(moments)))
            case "coalesced" | "bytewise":
                return (ChunkPlan(0, chunk), ChunkPlan(0, chunk))
            case "long":
                return tuple(ChunkPlan(index * 60 * MS, chunk) for index in range(40))
            case "silence":
                return tuple(ChunkPlan(index * 50 * MS, chunk) for index in range(6))
            case _:
                return tuple(ChunkPlan(index * 50 * MS, chunk) for index in range(4))
