"""What one caller is going to do, decided before the call: pure data."""

from dataclasses import dataclass

from loadtest.caller.line import PreparedClip

SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class PlannedTurn:
    """One utterance: think first, then say it. `patience_ns` is how long the caller bears silence after speaking, None
    for a caller who never hangs up."""

    clip: PreparedClip
    think_ns: int
    patience_ns: int | None


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a caller waits for the endpoint before a step counts as failed, in ns."""

    connect_ns: int = 10 * SECOND_NS
    ready_ns: int = 10 * SECOND_NS
    reply_ns: int = 10 * SECOND_NS  # from speech_end to the first audible sample, and between two signs of life
    close_ns: int = SECOND_NS


@dataclass(frozen=True, slots=True)
class CallPlan:
    """A whole call."""

    call_id: str
    turns: tuple[PlannedTurn, ...]
    background: tuple[bytes, ...]  # ready-made frames for the time between utterances
    limits: Limits
    manual_turns: bool = False  # the caller says when it has finished, instead of the endpoint's detector
    intended_start_perf_ns: int | None = None
