"""The states of one caller's conversation, and the tables by which they change.

The rules
=========

1. Everything that decides the state of a conversation is in this file. `Conversation` and `TurnQueue` look up each
   transition here and change their state in no other way. What the caller does at a transition, and at which moment,
   is next to them.
2. An input says what happened. It never says what to do about it.
3. A transition that a table lacks cannot happen. If it does, this program is at fault: `InvalidTransitionError` ends
   the call, and its turn counts as invalid.
4. Nothing leaves `OVER`. Every other state leads there at `SESSION_ENDED` and at `CUT`.

The machines
============

There are two, for one conversation:

* The caller (`State`, `TRANSITIONS`): does it think, speak, wait, or hear a reply?
* The plan (`PlanState`, `PLAN_TRANSITIONS`): may another turn begin?

One rule couples them. A caller who is `THINKING` while no further turn may begin gets the input `NO_TURN_LEFT`: at once
where a turn has just ended, and at the next deadline where the call begins to wind down during a think time.

What is no state
================

* An exchange exists exactly while the caller is SPEAKING, WAITING, HEARING or BACKCHANNELING. `Exchange` holds what has
  happened in it, and `Timeline` what the endpoint has sent.
* Speech that overlaps. When the caller's next turn interrupts a reply, the caller is SPEAKING again while that reply
  may still be arriving. `InterruptedExchange` is the exchange of that reply, until the turn that interrupted it ends.
* Audio that answers no question, and what is left of replies that were stopped, may arrive in any state.
  `EarlierReplies` accounts for it.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final, TypeVar

from loadtest.errors import InstrumentError


class State(Enum):
    """The caller's activity; each value names it."""

    CONNECTING = "the session is not ready yet"
    THINKING = "the think time before a turn passes, and what still plays is heard to its end"
    SPEAKING = "the clip of a turn is sent, from its lead-in to its last speech sample"
    WAITING = "the caller has spoken, or keeps silent as planned, and no reply is audible yet"
    HEARING = "a reply has become audible and is heard to its end"
    BACKCHANNELING = "a reply is heard, and the caller sends a backchannel into it"
    OVER = "the call has ended"


class Input(Enum):
    """Inputs of the caller; each value names one."""

    READY = "the session is ready"
    SAY = "the think time is over, and the turn has a clip"
    KEEP_SILENT = "the think time is over, and the turn has no clip"
    SPEECH_START = "the first speech sample of a clip was sent"
    SPEECH_END = "the last speech sample of a clip was sent"
    REPLY_AUDIBLE = "the first audible sample of a reply is played"
    BACKCHANNEL_POINT = "the reply reaches the point at which a backchannel begins"
    BARGE_IN_POINT = "the reply reaches the point at which the next turn interrupts it"
    TURN_DONE = "the turn ended well: its reply was heard, or its planned silence is over"
    REPLY_FAILED = "the reply has ended and counts as an error"
    PATIENCE_OVER = "nothing was heard for as long as the caller's patience lasts"
    TIME_OUT = "a time limit passed: nothing came, a reply did not end, or the clip could not be sent"
    SESSION_ENDED = "the connection is gone, or a fatal error ended the session"
    CUT = "the load generator ended the turn"
    NO_TURN_LEFT = "no further turn may begin"


# fmt: off
TRANSITIONS: Final[Mapping[State, Mapping[Input, State]]] = {
    State.CONNECTING: {
        Input.READY: State.THINKING,
        Input.SESSION_ENDED: State.OVER,
        Input.CUT: State.OVER,
    },
    State.THINKING: {
        Input.SAY: State.SPEAKING,
        Input.KEEP_SILENT: State.WAITING,
        Input.NO_TURN_LEFT: State.OVER,
        Input.SESSION_ENDED: State.OVER,
        Input.CUT: State.OVER,
    },
    State.SPEAKING: {
        Input.SPEECH_START: State.SPEAKING,
        Input.SPEECH_END: State.WAITING,
        Input.TIME_OUT: State.OVER,
        Input.SESSION_ENDED: State.OVER,
        Input.CUT: State.OVER,
    },
    State.WAITING: {
        Input.REPLY_AUDIBLE: State.HEARING,
        # A planned silence was kept; or the call is cut when a whole reply has arrived and is not audible yet.
        Input.TURN_DONE: State.THINKING,
        Input.REPLY_FAILED: State.OVER,
        Input.PATIENCE_OVER: State.OVER,
        Input.TIME_OUT: State.OVER,
        Input.SESSION_ENDED: State.OVER,
        Input.CUT: State.OVER,
    },
    State.HEARING: {
        Input.BACKCHANNEL_POINT: State.BACKCHANNELING,
        Input.BARGE_IN_POINT: State.SPEAKING,
        Input.TURN_DONE: State.THINKING,
        Input.REPLY_FAILED: State.OVER,
        Input.TIME_OUT: State.OVER,
        Input.SESSION_ENDED: State.OVER,
        Input.CUT: State.OVER,
    },
    State.BACKCHANNELING: {
        Input.SPEECH_START: State.BACKCHANNELING,
        Input.SPEECH_END: State.HEARING,
        # The reply fell silent without an end, and the wait for more is shorter than the backchannel.
        Input.TURN_DONE: State.THINKING,
        Input.TIME_OUT: State.OVER,
        Input.SESSION_ENDED: State.OVER,
        Input.CUT: State.OVER,
    },
    State.OVER: {},
}
# fmt: on


class PlanState(Enum):
    """Whether another turn may begin; each value says it."""

    TURNS_LEFT = "a further turn may begin"
    ALL_BEGUN = "every turn of the plan has begun; a backchannel may still be sent"
    WINDING_DOWN = "the turn under way is the last, whatever the plan holds; nothing else is begun"


class PlanInput(Enum):
    """Inputs of the plan; each value names one."""

    TURN_BEGAN = "a turn began, and others follow it"
    LAST_TURN_BEGAN = "the last turn of the plan began"
    WIND_DOWN = "the load generator begins no further turn"


PLAN_TRANSITIONS: Final[Mapping[PlanState, Mapping[PlanInput, PlanState]]] = {
    PlanState.TURNS_LEFT: {
        PlanInput.TURN_BEGAN: PlanState.TURNS_LEFT,
        PlanInput.LAST_TURN_BEGAN: PlanState.ALL_BEGUN,
        PlanInput.WIND_DOWN: PlanState.WINDING_DOWN,
    },
    PlanState.ALL_BEGUN: {
        PlanInput.WIND_DOWN: PlanState.WINDING_DOWN,
    },
    PlanState.WINDING_DOWN: {
        PlanInput.WIND_DOWN: PlanState.WINDING_DOWN,
        # A turn that was still to come is opened so that the failure of its call is recorded.
        PlanInput.TURN_BEGAN: PlanState.WINDING_DOWN,
        PlanInput.LAST_TURN_BEGAN: PlanState.WINDING_DOWN,
    },
}


class InvalidTransitionError(InstrumentError):
    """A state machine was given an input that its state has no transition for: a fault of this program."""


S = TypeVar("S", bound=Enum)
I = TypeVar("I", bound=Enum)  # noqa: E741 - the input, in addition to the state


def next_state(table: Mapping[S, Mapping[I, S]], state: S, happened: I) -> S:
    """The state that follows. Raises InvalidTransitionError where the table has none."""
    following = table[state].get(happened)
    if following is None:
        raise InvalidTransitionError(
            f"{happened.name} ({happened.value}) cannot happen in {state.name} ({state.value})"
        )
    return following
