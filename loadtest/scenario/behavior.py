"""Callers' behavior as people write it: distributions, shares and points of a reply. Pure.

A duration stands for a distribution too: `think = "1s"` is uniform between half and one and a half seconds,
`patience = "2s"` is lognormal around a median of two. A bare number is a duration in seconds.
"""

import math
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from loadtest.conversation.plan import SECOND_NS, ReplyPoint
from loadtest.distributions import HELP, Delay, parse_delay
from loadtest.errors import UsageError
from telemetry.model.durations import Duration, DurationError

# Patience is lognormal around its median; this sigma puts one caller in ten below 0.53 and above 1.9 medians.
PATIENCE_SIGMA: Final = 0.5
LONGEST_S: Final = 3600
POINT_HELP: Final = "1.2s after its first sound, uniform:300ms:2s, 40% of its way, or random"
_SHARE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*%")
Read = TypeVar("Read")


@dataclass(frozen=True, slots=True)
class PointDraw:
    """The place in a reply at which a caller speaks: a time after its first audible sample, or a share of its way."""

    delay: Delay | None = None
    shares: tuple[float, float] = (0.0, 1.0)

    def draw(self, source: random.Random) -> ReplyPoint:
        """One point."""
        if self.delay is not None:
            return ReplyPoint(after_ns=self.delay.draw_ns(source))
        return ReplyPoint(share=source.uniform(*self.shares))


INTO_REPLY: Final = PointDraw(Delay("uniform", 0.3 * SECOND_NS, 2.0 * SECOND_NS))
SILENCE: Final = Delay("constant", 5.0 * SECOND_NS)


@dataclass(frozen=True, slots=True)
class BargeIn:
    """A share of the turns that do not wait for the reply before them to end."""

    share: float
    after: PointDraw = INTO_REPLY


@dataclass(frozen=True, slots=True)
class CallerBehavior:
    """The distributions that the planner draws from. Shares are of turns; `talk_over` of those that nobody
    interrupts."""

    turns: int = 4
    think: Delay = Delay("uniform", 0.5 * SECOND_NS, 1.5 * SECOND_NS)  # noqa: RUF009 - immutable
    patience: Delay | None = None
    barge_ins: tuple[BargeIn, ...] = ()
    talk_over: float = 0.0
    silence: float = 0.0
    silence_for: Delay = SILENCE
    conversations: bool = False
    call_pause: Delay | None = None  # between two calls of a caller; None: it calls again at once


def parse_think(value: float | str) -> Delay:
    """The pause before a turn: seconds stand for their mean. Raises UsageError."""
    seconds = _seconds(value, zero=True)
    if seconds is None:
        return parse_delay(str(value))
    return Delay("uniform", 0.5 * seconds * SECOND_NS, 1.5 * seconds * SECOND_NS)


def parse_call_pause(value: float | str) -> Delay:
    """The pause between two calls of a caller: seconds stand for its mean. Raises UsageError."""
    return parse_think(value)


def parse_patience(value: float | str) -> Delay:
    """Return how long callers bear silence: seconds stand for the median. Raises UsageError."""
    seconds = _seconds(value, zero=False)
    if seconds is not None:
        return Delay("lognormal", seconds * SECOND_NS, PATIENCE_SIGMA)
    drawn = parse_delay(str(value))
    if drawn.kind == "none":
        raise UsageError("'none' is not supported for patience: leave it out for callers who never hang up")
    return drawn


def parse_point(text: str) -> PointDraw:
    """A point of a reply. Raises UsageError."""
    text = text.strip()
    if text == "random":
        return PointDraw()
    if found := _SHARE.fullmatch(text):
        share = float(found[1]) / 100
        if share > 1:
            raise UsageError(f"'{text}' is not a point of a reply, which ends at 100%")
        return PointDraw(shares=(share, share))
    try:
        return PointDraw(Delay("constant", Duration.parse(text, bare=False).ns))
    except DurationError:
        pass
    try:
        return PointDraw(parse_delay(text))
    except UsageError:
        raise UsageError(f"'{text}' is not a point of a reply: write, for example, {POINT_HELP}") from None


def share_faults(flag: str, value: float) -> list[str]:
    """Return what is wrong with a share of turns, if anything."""
    if math.isfinite(value) and 0 <= value <= 1:
        return []
    return [f"{flag} {value:g} is out of range: give a share of the turns, from 0 to 1"]


def parse_faults(flag: str, read: Callable[[], Read]) -> list[str]:
    """Return what is wrong with a text, if anything, beginning with its flag."""
    try:
        read()
    except UsageError as error:
        return [f"{flag} {error}"]
    return []


def _seconds(value: float | str, *, zero: bool) -> float | None:
    """A duration in seconds, None for a text that is not one. Raises UsageError for one that cannot be used."""
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = Duration.parse(str(value)).seconds
        except DurationError:
            return None
    if math.isfinite(seconds) and (seconds > 0 or (zero and seconds == 0)) and seconds <= LONGEST_S:
        return seconds
    least = "0 or more" if zero else "more than 0"
    raise UsageError(
        f"{value} is out of range: give a duration such as 2s, {least} and at most {Duration.of_s(LONGEST_S)}, "
        f"or a distribution such as {HELP}"
    )
