"""The plan of one caller, made before the call: pure data."""

from dataclasses import dataclass

from loadtest.conversation.prepared_clip import PreparedClip
from loadtest.conversation.state import PLAN_TRANSITIONS, PlanInput, PlanState, next_state

SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class ReplyPoint:
    """A point of a reply, for a caller who speaks into it.

    Either a time after its first audible sample, or a share of the way from its first to its last audible sample. The
    length of a reply is known when the endpoint has sent all of it: where it sends no faster than it speaks, a share
    can only be met late.
    """

    after_ns: int | None = None
    share: float | None = None

    def __post_init__(self) -> None:
        if (self.after_ns is None) == (self.share is None):
            raise ValueError("a point of a reply is a time or a share")


@dataclass(frozen=True, slots=True)
class Backchannel:
    """A short sign of attention ("mhm") during a reply, which is not meant to stop it."""

    clip: PreparedClip
    point: ReplyPoint


@dataclass(frozen=True, slots=True)
class PlannedTurn:
    """One turn: think first, then say the clip, or keep silent.

    `patience_ns` is how long the caller waits in silence after speaking, None for a caller who never hangs up. With
    `barge_in` the turn does not wait for the reply before it to end: its first speech sample falls on that point of the
    reply. `backchannel` is sent into the reply to this turn. Without a clip the caller is silent for `silence_ns`.
    `conversation` and `expected_intent` are those of the script that the turn comes from.
    """

    clip: PreparedClip | None
    think_ns: int
    patience_ns: int | None
    silence_ns: int = 0
    barge_in: ReplyPoint | None = None
    backchannel: Backchannel | None = None
    conversation: str | None = None
    expected_intent: str | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """Time limits of a caller, in ns: after each, a step counts as failed.

    Patience counts from the end of the caller's speech only: connecting and opening the session have limits of their
    own.
    """

    connect_ns: int = 10 * SECOND_NS
    ready_ns: int = 10 * SECOND_NS
    # From speech_end to the first audible sample (on a wire without audio: to the first text), and between two signs of
    # life.
    reply_ns: int = 10 * SECOND_NS
    reply_silence_ns: int = SECOND_NS  # ends a reply where the wire does not say when it ends
    longest_reply_ns: int = 120 * SECOND_NS  # from that beginning of a turn's replies to the end of them all
    close_ns: int = SECOND_NS
    hears_out: bool = True  # else the caller goes on once a reply is audible and has arrived whole

    @property
    def silence_ns(self) -> int:
        """The silence that ends a reply: a caller waits for more of it no longer than for its beginning."""
        return min(self.reply_silence_ns, self.reply_ns)

    @property
    def unread_ns(self) -> int:
        """The longest time that the endpoint may leave the caller's audio unread, whatever it answers meanwhile.

        A turn without an answer ends earlier, by `reply_ns`.
        """
        return max(60 * SECOND_NS, 2 * self.reply_ns)


@dataclass(frozen=True, slots=True)
class CallPlan:
    """A whole call."""

    call_id: str
    turns: tuple[PlannedTurn, ...]
    background: tuple[bytes, ...]  # ready-made frames for the time between utterances
    limits: Limits
    manual_turns: bool = False  # the caller says when it has finished, instead of the endpoint's detector
    intended_start_perf_ns: int | None = None
    pause_after_ns: int = 0  # before the same caller calls again
    retry_wait_ns: int | None = None  # how long the caller had waited because the endpoint asked for it
    line: int = 0  # which of the prepared lines the caller speaks over
    background_first: int = 0  # the frame of that line's background with which the call's begins


class TurnQueue:
    """The part of a plan that is still to come."""

    __slots__ = ("_next", "_turns", "state")

    def __init__(self, turns: tuple[PlannedTurn, ...]) -> None:
        self._turns = turns
        self._next = 0
        self.state = PlanState.TURNS_LEFT if turns else PlanState.ALL_BEGUN

    @property
    def may_begin(self) -> bool:
        """Whether a further turn may begin."""
        return self.state is PlanState.TURNS_LEFT

    @property
    def following(self) -> PlannedTurn | None:
        """The turn that is next in the plan, whether or not it may begin; None after the last one."""
        return self._turns[self._next] if self._next < len(self._turns) else None

    def begin(self) -> tuple[int, PlannedTurn]:
        """Take the next turn: its index and itself. Raises IndexError after the last one."""
        index = self._next
        planned = self._turns[index]
        self._next += 1
        self._move(PlanInput.LAST_TURN_BEGAN if self._next == len(self._turns) else PlanInput.TURN_BEGAN)
        return index, planned

    def wind_down(self) -> None:
        """Begin no further turn."""
        self._move(PlanInput.WIND_DOWN)

    def _move(self, happened: PlanInput) -> None:
        self.state = next_state(PLAN_TRANSITIONS, self.state, happened)
