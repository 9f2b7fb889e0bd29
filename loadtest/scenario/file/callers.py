"""The section `[callers]`: how callers behave, and below it `[[callers.barge_in]]`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from loadtest.distributions import Delay, parse_delay
from loadtest.errors import UsageError
from loadtest.scenario.behavior import INTO_REPLY, BargeIn, parse_call_pause, parse_patience, parse_point, parse_think
from loadtest.scenario.file.section import Section
from telemetry.model.durations import Duration

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class Callers:
    """What the file says of callers; None where it says nothing and the flag's default holds.

    `think`, `call_pause` and `patience` are seconds, or a distribution in its text form.
    """

    turns: int | None = None
    think: float | str | None = None
    call_pause: float | str | None = None
    patience: float | str | None = None
    reply_timeout: Duration | None = None
    longest_reply: Duration | None = None
    manual_turns: bool | None = None
    talk_over: float | None = None
    silence: float | None = None
    silence_for: Delay | None = None
    conversations: bool | None = None
    barge_ins: tuple[BargeIn, ...] = ()

    def settings(self) -> dict[str, Any]:
        """What is also a flag, by the names that SwarmSettings gives it; None where the file says nothing."""
        return {
            "turns": self.turns,
            "think": self.think,
            "call_pause": self.call_pause,
            "patience": self.patience,
            "reply_timeout": self.reply_timeout,
            "longest_reply": self.longest_reply,
            "manual_turns": self.manual_turns,
            "talk_over": self.talk_over,
            "silence": self.silence,
            "conversations": self.conversations,
        }


def read_callers(section: Section) -> Callers:
    """Read the section. Faults go to the section."""
    silence_for = section.text("silence_for")
    found = Callers(
        turns=section.integer("turns", 1, 1000),
        think=_seconds_or_distribution(section, "think", parse_think, zero=True),
        call_pause=_seconds_or_distribution(section, "call_pause", parse_call_pause, zero=True),
        patience=_seconds_or_distribution(section, "patience", parse_patience),
        reply_timeout=section.duration("reply_timeout"),
        longest_reply=section.duration("longest_reply"),
        manual_turns=section.flag("manual_turns"),
        talk_over=section.number("talk_over", 0, 1),
        silence=section.number("silence", 0, 1),
        silence_for=None if silence_for is None else _read(section, "silence_for", silence_for, parse_delay),
        conversations=section.flag("conversations"),
        barge_ins=_barge_ins(section),
    )
    section.close()
    return found


def _seconds_or_distribution(
    section: Section, key: str, read: Callable[[float | str], Delay], *, zero: bool = False
) -> float | str | None:
    value = section.get(key)
    if not isinstance(value, str) or ":" not in value:
        duration = section.duration(key, zero=zero)
        return None if duration is None else duration.seconds
    return None if _read(section, key, value, read) is None else value


def _barge_ins(section: Section) -> tuple[BargeIn, ...]:
    found: list[BargeIn] = []
    for table in section.tables("barge_in"):
        share = table.number("share", 0, 1)
        after = table.text("after")
        point = INTO_REPLY if after is None else _read(table, "after", after, parse_point)
        if "share" not in table:
            table.fault("share", "is missing: give the share of turns that interrupt, from 0 to 1")
        table.close()
        if share is not None and point is not None:
            found.append(BargeIn(share, point))
    if sum(each.share for each in found) > 1 + 1e-9:
        section.fault("barge_in", "the shares add up to more than 1")
    return tuple(found)


def _read(section: Section, key: str, value: str, read: Callable[[str], Made]) -> Made | None:
    try:
        return read(value)
    except UsageError as error:
        section.fault(key, str(error))
        return None
