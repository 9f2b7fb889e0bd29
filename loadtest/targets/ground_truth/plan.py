"""The plan of a turn, drawn from a seed before the caller has finished, and its ground truth: when each event was sent.

The plan's times are offsets in ns: from the first speech sample for events during the caller's speech, from the last
speech sample for all others.

Endpoint and callers run on one host and share its monotonic clock, so their times can be compared. This is the only
place in the project where that is allowed. A send time is an interval from just before the system call to just after
it. Its beginning is taken as the truth, which is never in the instrument's favor: the kernel's own delay counts as
error. An interval longer than half a millisecond (the endpoint was interrupted) is not exact enough; it is excluded and
counted. Pure.
"""

import random
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

from loadtest.errors import UsageError
from loadtest.targets.ground_truth.speech import FRAME_SAMPLES, RATE_HZ

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


SECOND_NS: Final = 1_000_000_000
FRAME_NS: Final = FRAME_SAMPLES * SECOND_NS // RATE_HZ
WIDEST_NS: Final = 500_000


@dataclass(slots=True)
class Player:
    """A real-time player that gets each chunk when it is sent; independent of the callers' implementation."""

    until_perf_ns: int = 0


@dataclass(slots=True)
class GroundTruthTurn:
    """One turn, filled in while it is in progress."""

    response_id: str
    connection: int
    number: int
    behavior: str
    plan: TurnPlan
    player: Player
    speech_start_perf_ns: int | None = None
    speech_end_perf_ns: int | None = None
    # When each speech frame was received; None if a later one came in the same read, which has only one timestamp.
    frames_perf_ns: list[int | None] = field(default_factory=list[int | None])
    sent: dict[str, int] = field(default_factory=dict[str, int])
    unsure: list[str] = field(default_factory=list[str])
    lags_ns: list[int] = field(default_factory=list[int])
    underruns_ns: list[int] = field(default_factory=list[int])
    sent_samples: int = 0
    audio_is_certain: bool = True
    begun_perf_ns: int | None = None  # the player begins with the first chunk
    first_audio_perf_ns: int | None = None
    first_audio_within_ns: int = 0  # it was sent at most so much later
    reply_end_perf_ns: int | None = None

    def note_sent(self, mark: str, before_perf_ns: int, after_perf_ns: int | None, due_perf_ns: int) -> None:
        """Record the interval in which an event was sent; `after` is None if the socket did not accept all of it."""
        self.lags_ns.append(before_perf_ns - due_perf_ns)
        self.sent.setdefault(mark, before_perf_ns)
        if not certain(before_perf_ns, after_perf_ns):
            self.unsure.append(mark)

    def note_chunk(self, samples: int, sent_perf_ns: int, after_perf_ns: int | None) -> None:
        """Record the interval in which a chunk was sent: it plays now, or after what is playing."""
        self.audio_is_certain = self.audio_is_certain and certain(sent_perf_ns, after_perf_ns)
        first, until = self.sent_samples, self.player.until_perf_ns
        leading_samples = self.plan.leading_silence_ns * RATE_HZ // SECOND_NS
        if self.begun_perf_ns is not None and sent_perf_ns > until:
            self.underruns_ns.append(sent_perf_ns - until)
        start = max(sent_perf_ns, until)
        if self.begun_perf_ns is None:
            self.begun_perf_ns = start
        self.sent_samples = first + samples
        self.player.until_perf_ns = start + samples * SECOND_NS // RATE_HZ
        if first <= leading_samples < self.sent_samples:
            self.first_audio_perf_ns = start + (leading_samples - first) * SECOND_NS // RATE_HZ
            self.first_audio_within_ns = 0 if after_perf_ns is None else after_perf_ns - sent_perf_ns
            if not self.audio_is_certain:
                self.unsure.append("first_audio")
        self.reply_end_perf_ns = start + (samples - 1) * SECOND_NS // RATE_HZ

    def lateness_ns(self) -> list[int]:
        """Return how late each speech frame arrived, relative to the most punctual frame of the turn."""
        early = [stamp - index * FRAME_NS for index, stamp in enumerate(self.frames_perf_ns) if stamp is not None]
        return [moment - min(early) for moment in early]

    def row(self) -> dict[str, Any]:
        """Return the turn's row for the truth file."""
        first, begun = self.first_audio_perf_ns, self.begun_perf_ns
        return {
            "kind": "turn",
            "response_id": self.response_id,
            "connection": self.connection,
            "turn": self.number,
            "behavior": self.behavior,
            "planned": {
                "voice_to_voice_ns": self.plan.voice_to_voice_ns,
                "endpoint_ns": self.plan.endpoint_ns,
                "asr_final_ns": self.plan.final_ns,
                "llm_first_token_ns": self.plan.first_token_ns,
                "tts_first_chunk_ns": self.plan.first_chunk_ns,
                "leading_silence_ns": self.plan.leading_silence_ns,
            },
            "speech_start_perf_ns": self.speech_start_perf_ns,
            "speech_end_perf_ns": self.speech_end_perf_ns,
            "sent": self.sent,
            "unsure": self.unsure if self.audio_is_certain else [*self.unsure, "reply_end"],
            "first_audio_perf_ns": first,
            "first_audio_within_ns": self.first_audio_within_ns,
            "reply_end_perf_ns": self.reply_end_perf_ns,
            "leading_silence_ns": None if first is None or begun is None else first - begun,
            "underrun_total_ns": sum(self.underruns_ns),
            "lags_ns": self.lags_ns,
            "lateness_ns": self.lateness_ns(),
        }


def certain(before_perf_ns: int, after_perf_ns: int | None) -> bool:
    """Return whether a send interval is narrow enough to be exact; `after` is None for data that had to wait."""
    return after_perf_ns is not None and after_perf_ns - before_perf_ns <= WIDEST_NS


def spoken_at(sample: int, received_perf_ns: int) -> int:
    """Return when a sample was spoken, from when its frame arrived: a frame is sent with its last sample."""
    return received_perf_ns - (FRAME_SAMPLES - sample) * SECOND_NS // RATE_HZ
