"""Callers' behavior: its settings, as people write them and as the planner draws from them. Pure.

A duration is also read as a distribution: `think = "1s"` is uniform between half and one and a half seconds,
`patience = "2s"` is lognormal around a median of two. A bare number is a duration in seconds.
"""

import math
import random
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, cast

from pydantic import Field

from loadtest.conversation.plan import SECOND_NS, ReplyPoint
from loadtest.distributions import HELP, Delay, parse_delay
from loadtest.errors import UsageError
from loadtest.scenario import fields
from loadtest.scenario.fields import AS_TEXT, LONGEST_WAIT, Meaning, Option, TomlTable, duration_up_to, read_as
from telemetry.model.durations import Duration, DurationError
from telemetry.model.file_faults import Path
from telemetry.model.formatting import declared_percent

# Patience is lognormal around its median; this sigma puts one caller in ten below 0.53 and above 1.9 medians.
PATIENCE_SIGMA: Final = 0.5
LONGEST_S: Final = 3600
POINT_HELP: Final = "1.2s after its first sound, uniform:300ms:2s, 40% of its way, or random"
_SHARE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*%")
_FORMS: Final = "a distribution such as lognormal:3s:0.5"
Wait = Annotated[Duration, duration_up_to(LONGEST_WAIT), AS_TEXT]


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

    def __str__(self) -> str:
        if self.delay is not None:
            return str(self.delay)
        return "random" if self.shares == (0.0, 1.0) else declared_percent(self.shares[0])


INTO_REPLY: Final = PointDraw(Delay("uniform", 0.3 * SECOND_NS, 2.0 * SECOND_NS))
SILENCE: Final = Delay("constant", 5.0 * SECOND_NS)


def parse_think(value: float | str) -> Delay:
    """The pause before a turn, or between two calls: seconds give their mean. Raises UsageError."""
    seconds = _seconds(value, zero=True)
    if seconds is None:
        return parse_delay(str(value))
    return Delay("uniform", round(0.5 * seconds * SECOND_NS), round(1.5 * seconds * SECOND_NS))


def parse_patience(value: float | str) -> Delay:
    """Parse the longest silence that callers accept: seconds give the median. Raises UsageError."""
    seconds = _seconds(value, zero=False)
    if seconds is not None:
        return Delay("lognormal", round(seconds * SECOND_NS), PATIENCE_SIGMA)
    drawn = parse_delay(str(value))
    if drawn.kind == "none":
        raise UsageError("'none' is not supported for patience: leave it out for callers who never hang up")
    return drawn


def parse_point(text: str) -> PointDraw:
    """A point of a reply. Raises UsageError."""
    text = text.strip()
    if text == "random":
        return PointDraw()
    if match := _SHARE.fullmatch(text):
        share = float(match[1]) / 100
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


Point = Annotated[PointDraw, read_as(PointDraw, parse_point), AS_TEXT]


class CallersSection(TomlTable):
    """The behavior of callers. Shares are of turns; `talk_over` is of those without an interruption."""

    turns: Annotated[int, Option("turns per call", declared="turns_per_call")] = fields.whole(4, 1, 1000)
    think: Annotated[
        Delay,
        fields.seconds_or_distribution(parse_think),
        AS_TEXT,
        Option(f"pause before a turn: its mean, e.g. 2s, or {_FORMS}", declared="think"),
    ] = fields.duration("1s")
    call_pause: Annotated[
        Delay | None,
        fields.seconds_or_distribution(parse_think),
        AS_TEXT,
        Option(
            f"pause of a caller between two calls: its mean, e.g. 2s, or {_FORMS} (default: none)",
            declared="call_pause",
        ),
    ] = fields.duration()
    patience: Annotated[
        Delay | None,
        fields.seconds_or_distribution(parse_patience),
        AS_TEXT,
        Option(f"silence after which a caller hangs up: its median, e.g. 5s, or {_FORMS}", declared="patience"),
    ] = fields.duration()
    reply_timeout: Annotated[
        Wait, Option("how long to wait for a reply to begin, and between two parts of it, e.g. 8s")
    ] = fields.duration("10s")
    reply_silence: Annotated[
        Wait, Option("silence after which a reply has ended, if the protocol has no message for it")
    ] = fields.duration("1s")
    longest_reply: Annotated[Wait, Option("length of a reply after which the caller hangs up, e.g. 1m")] = (
        fields.duration("2m")
    )
    manual_turns: Annotated[
        bool, Option("the caller announces the end of its turns, instead of the endpoint's detector")
    ] = fields.flag(False)
    talk_over: Annotated[
        float, Option('share of replies during which the caller says a backchannel ("mhm")', declared="talk_over_share")
    ] = fields.number(0.0, 0, 1)
    silence: Annotated[float, Option("share of turns in which the caller says nothing", declared="silence_share")] = (
        fields.number(0.0, 0, 1)
    )
    conversations: Annotated[
        bool, Option("replay the dialogues of the corpus, in their order", declared="conversations")
    ] = fields.flag(False)


class BargeIn(TomlTable):
    """Turns that do not wait for the reply before them to end."""

    share: Annotated[float, Meaning("share of turns that interrupt in this way")] = fields.number(..., 0, 1)
    after: Annotated[Point, Meaning("when they interrupt, like the flag --barge-in-after")] = Field(
        default=INTO_REPLY, title="text"
    )


class CallerBehavior(CallersSection):
    """The behavior of callers, from which the planner draws: the table `callers` of a scenario file."""

    silence_for: Annotated[
        Delay,
        read_as(Delay, parse_delay),
        AS_TEXT,
        Meaning("how long a caller stays silent in a silent turn, as a distribution"),
    ] = Field(default=SILENCE, title="text", description="text in quotes is expected")
    barge_in: list[BargeIn] = fields.tables("callers.barge_in")

    @classmethod
    def rules(cls, table: Mapping[str, Any], faulty: Collection[str]) -> Iterator[tuple[Path, str]]:
        """Interruptions exclude one another."""
        del faulty
        entries = table.get("barge_in")
        tables = cast("list[Any]", entries) if isinstance(entries, list) else []
        shares: list[Any] = [cast("dict[str, Any]", entry).get("share") for entry in tables if isinstance(entry, dict)]
        if sum(share for share in shares if fields.is_number(share) and 0 <= share <= 1) > 1 + 1e-9:
            yield ("barge_in",), "the shares add up to more than 1; lower them"
