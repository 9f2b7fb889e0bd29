"""The section `[callers]`: how callers behave, and below it `[[callers.barge_in]]`."""

from dataclasses import dataclass
from typing import Any

from loadtest.distributions import Delay
from loadtest.scenario.behavior import BargeIn
from telemetry.model.durations import Duration


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
    reply_silence: Duration | None = None
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
            "reply_silence": self.reply_silence,
            "longest_reply": self.longest_reply,
            "manual_turns": self.manual_turns,
            "talk_over": self.talk_over,
            "silence": self.silence,
            "conversations": self.conversations,
        }
