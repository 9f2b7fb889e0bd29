"""What truly happened in one turn: when each event was sent and when the speech came in. Pure.

Both processes are on one host, so their monotonic clocks are one clock, and moments of the endpoint may be held against
moments of the callers. This is the only place of the project where that is allowed.

A moment of sending is an interval, from just before the system call until just after it; its beginning counts as the
truth, which is never in the instrument's favor: what the kernel does before the data is on its way counts as error. An
interval of more than half a millisecond (the endpoint was interrupted in it) is no truth, and is left out and counted.
"""

from dataclasses import dataclass, field
from typing import Any, Final

from loadtest.targets.ground_truth.plan import TurnPlan
from loadtest.targets.ground_truth.speech import FRAME_SAMPLES, RATE_HZ

SECOND_NS: Final = 1_000_000_000
FRAME_NS: Final = FRAME_SAMPLES * SECOND_NS // RATE_HZ
WIDEST_NS: Final = 500_000


@dataclass(slots=True)
class Player:
    """A real-time player fed by the chunks at the moments at which they were sent: kept apart from the callers' own."""

    until_perf_ns: int = 0


@dataclass(slots=True)
class KnownTurn:
    """One turn, filled in while it goes on."""

    response_id: str
    connection: int
    number: int
    behavior: str
    plan: TurnPlan
    player: Player
    speech_start_perf_ns: int | None = None
    speech_end_perf_ns: int | None = None
    # When each speech frame was received; None where a later one came in the same read, whose stamp hides its own.
    frames_perf_ns: list[int | None] = field(default_factory=list[int | None])
    sent: dict[str, int] = field(default_factory=dict[str, int])
    unsure: list[str] = field(default_factory=list[str])
    lags_ns: list[int] = field(default_factory=list[int])
    underruns_ns: list[int] = field(default_factory=list[int])
    heard_samples: int = 0
    sure_of_audio: bool = True
    begun_perf_ns: int | None = None  # the player begins with the first chunk
    first_audio_perf_ns: int | None = None
    reply_end_perf_ns: int | None = None

    def note_sent(self, mark: str, before_perf_ns: int, after_perf_ns: int | None, due_perf_ns: int) -> None:
        """An event went out in an interval; `after` is None when the socket did not take it whole."""
        self.lags_ns.append(before_perf_ns - due_perf_ns)
        self.sent.setdefault(mark, before_perf_ns)
        if not certain(before_perf_ns, after_perf_ns):
            self.unsure.append(mark)

    def note_chunk(self, samples: int, sent_perf_ns: int, after_perf_ns: int | None) -> None:
        """A chunk was sent in an interval: it plays now, or behind what is playing."""
        self.sure_of_audio = self.sure_of_audio and certain(sent_perf_ns, after_perf_ns)
        first, until = self.heard_samples, self.player.until_perf_ns
        leading_samples = self.plan.leading_silence_ns * RATE_HZ // SECOND_NS
        if self.begun_perf_ns is not None and sent_perf_ns > until:
            self.underruns_ns.append(sent_perf_ns - until)
        start = max(sent_perf_ns, until)
        if self.begun_perf_ns is None:
            self.begun_perf_ns = start
        self.heard_samples = first + samples
        self.player.until_perf_ns = start + samples * SECOND_NS // RATE_HZ
        if first <= leading_samples < self.heard_samples:
            self.first_audio_perf_ns = start + (leading_samples - first) * SECOND_NS // RATE_HZ
            if not self.sure_of_audio:
                self.unsure.append("first_audio")
        self.reply_end_perf_ns = start + (samples - 1) * SECOND_NS // RATE_HZ

    def lateness_ns(self) -> list[int]:
        """How late each speech frame came, as the endpoint sees it: against the most punctual frame of the turn."""
        early = [stamp - index * FRAME_NS for index, stamp in enumerate(self.frames_perf_ns) if stamp is not None]
        return [moment - min(early) for moment in early]

    def row(self) -> dict[str, Any]:
        """The turn for the truth log."""
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
            "unsure": self.unsure if self.sure_of_audio else [*self.unsure, "reply_end"],
            "first_audio_perf_ns": first,
            "reply_end_perf_ns": self.reply_end_perf_ns,
            "leading_silence_ns": None if first is None or begun is None else first - begun,
            "underrun_total_ns": sum(self.underruns_ns),
            "lags_ns": self.lags_ns,
            "lateness_ns": self.lateness_ns(),
        }


def certain(before_perf_ns: int, after_perf_ns: int | None) -> bool:
    """Whether an interval of sending is narrow enough to be the truth; `after` is None for data that had to wait."""
    return after_perf_ns is not None and after_perf_ns - before_perf_ns <= WIDEST_NS


def spoken_at(sample: int, received_perf_ns: int) -> int:
    """When a sample left the caller's mouth, given when its frame came in: a frame is sent with its last sample."""
    return received_perf_ns - (FRAME_SAMPLES - sample) * SECOND_NS // RATE_HZ
