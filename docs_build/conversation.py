"""The page about a caller's conversation, with diagrams and tables of the states that the code runs on."""

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

from docs_build.markdown import cell, code, page, table
from loadtest.conversation.state import PLAN_TRANSITIONS, TRANSITIONS, Input, PlanInput, PlanState, State

Table = Mapping[Any, Mapping[Any, Any]]

INTRODUCTION: Final = """
A caller's conversation is a state machine. It decides when the caller speaks, what it says, whether it interrupts a
reply, and when it gives up. This page is made from the table in `loadtest/conversation/state.py` that the code runs
on: the conversation changes its state only by looking a transition up there, and an input that a state has no
transition for ends the call as a fault of the generator, never as one of the service.
"""

READING: Final = """
Each arrow leads from a state to the next one at any of the inputs that it names. From every state the call can be lost
(`SESSION_ENDED`) or cut (`CUT`); nothing leaves `OVER`.
"""

ENDS: Final = """
On most protocols a message says that a reply is complete. On the others a reply ends when nothing of it has arrived or
played for a while (`--reply-silence`, 1 s). Either way its end is dated at the last of its audio, and both kinds of
reply are measured alike: the wait is part of neither its length nor its underruns, and the caller's think time counts
from the end that the caller heard. No reply goes on for longer than `--longest-reply`.

A protocol may not even say which audio is which reply. Then all audio is one reply until it ends; and what comes after
the end of a question during which the earlier reply had fallen silent is another one.

An endpoint may ask the caller to play nothing more of what it has sent (`clear` on telephone wires). This stops
whatever plays, as a cancellation does; with nothing playing it has no effect. An endpoint may also ask to be told when
what it has sent so far has been played (`mark`). The answer goes out when that audio has been played to its end, or
when playback was stopped.
"""

OVERLAP: Final = """
A caller who interrupts (`BARGE_IN_POINT`) begins the next turn while the reply to the one before may still be
arriving. The interrupted exchange is then kept beside the running one: what arrives of its reply is recognized by its
response id and never answers the new turn, and the exchange is recorded when nothing more of that reply comes or
plays. Its outcome is `ok`, because it was answered; how the interruption went is recorded on the turn that
interrupted. An *interrupted* exchange is not a *cut* one: `cut` is the outcome of a turn that the load generator
ended.

A backchannel ("mhm") belongs to the turn whose reply it is sent into. While it is sent the caller still hears the
reply, and the turn does not end before the backchannel does, unless a time limit passes.

What counts as an answer, and which moments are measured, is described in [What is measured](what-is-measured.md). The
outcome of each turn is in the [reference of metrics](../reference/metrics.md).
"""

PLAN: Final = """
A second, smaller table says whether another turn may begin. A caller who is `THINKING` while none may gets the input
`NO_TURN_LEFT`. A call that winds down finishes the turn under way and starts nothing else, not even a backchannel.
"""


def conversation_page() -> str:
    """The states of a caller and of its plan, as pictures and as tables."""
    return page(
        "A caller's conversation",
        INTRODUCTION,
        "## States of the caller",
        _meanings("State", State),
        READING,
        diagram(TRANSITIONS),
        "## The end of a reply",
        ENDS,
        "## Speech that overlaps",
        OVERLAP,
        "## Transitions of the caller",
        _transitions(TRANSITIONS),
        "## Inputs of the caller",
        _meanings("Input", Input),
        "## The plan",
        PLAN,
        _meanings("State", PlanState),
        diagram(PLAN_TRANSITIONS),
        _transitions(PLAN_TRANSITIONS),
        _meanings("Input", PlanInput),
    )


def diagram(of: Table) -> str:
    """Draw a table of states with Mermaid: an arrow for all the inputs that lead from one state to another."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for state, row in of.items():
        for happened, following in row.items():
            arrows.setdefault((state.name, following.name), []).append(happened.name)
    drawn = (f"    {start} --> {end}: {'<br/>'.join(inputs)}" for (start, end), inputs in arrows.items())
    return "\n".join(["```mermaid", "stateDiagram-v2", *drawn, "```"])


def _meanings(head: str, of: type[Enum]) -> str:
    return table((head, "Meaning"), [(code(each.name), cell(_sentence(each))) for each in of])


def _transitions(of: Table) -> str:
    rows = [
        (code(state.name), code(happened.name), code(following.name))
        for state, row in of.items()
        for happened, following in row.items()
    ]
    return table(("State", "Input", "Next state"), rows)


def _sentence(each: Any) -> str:
    return f"{each.value[0].upper()}{each.value[1:]}."
