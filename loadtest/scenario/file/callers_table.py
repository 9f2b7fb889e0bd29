"""The section `[callers]` and below it `[[callers.barge_in]]`, as pydantic models."""

from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any, cast

from pydantic import Field, PlainValidator

from loadtest.distributions import Delay, parse_delay
from loadtest.scenario.behavior import (
    INTO_REPLY,
    BargeIn,
    PointDraw,
    parse_call_pause,
    parse_patience,
    parse_point,
    parse_think,
)
from loadtest.scenario.file import fields
from loadtest.scenario.file.callers import Callers
from loadtest.scenario.file.fields import DurationField, TomlTable
from telemetry.model.fault_sentences import Path


def _delay(value: object) -> Delay:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("not text")
    return fields.parsed(value, parse_delay)


def _point(value: object) -> PointDraw:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("not text")
    return fields.parsed(value, parse_point)


class BargeInTable(TomlTable):
    """A kind of interruption."""

    share: float = Field(ge=0, le=1, title="number from 0 to 1", description="a number from 0 to 1 is expected")
    after: Annotated[PointDraw, PlainValidator(_point)] = fields.text(default=INTO_REPLY)


class CallersTable(TomlTable):
    """How callers behave."""

    turns: int | None = fields.whole(1, 1000)
    think: Annotated[float | str | None, fields.seconds_or_distribution(parse_think, zero=True)] = fields.duration()
    call_pause: Annotated[float | str | None, fields.seconds_or_distribution(parse_call_pause, zero=True)] = (
        fields.duration()
    )
    patience: Annotated[float | str | None, fields.seconds_or_distribution(parse_patience)] = fields.duration()
    reply_timeout: DurationField | None = fields.duration()
    reply_silence: DurationField | None = fields.duration()
    longest_reply: DurationField | None = fields.duration()
    manual_turns: bool | None = fields.flag()
    talk_over: float | None = fields.number(0, 1)
    silence: float | None = fields.number(0, 1)
    silence_for: Annotated[Delay | None, PlainValidator(_delay)] = fields.text()
    conversations: bool | None = fields.flag()
    barge_in: list[BargeInTable] = fields.tables("callers.barge_in")

    @classmethod
    def rules(cls, table: Mapping[str, Any], faulty: Collection[str]) -> Iterator[tuple[Path, str]]:
        """Interruptions exclude one another."""
        del faulty
        entries = table.get("barge_in")
        tables = cast("list[Any]", entries) if isinstance(entries, list) else []
        shares: list[Any] = [cast("dict[str, Any]", each).get("share") for each in tables if isinstance(each, dict)]
        if sum(share for share in shares if fields.is_number(share) and 0 <= share <= 1) > 1 + 1e-9:
            yield ("barge_in",), "the shares add up to more than 1; lower them"

    def callers(self) -> Callers:
        """What the file says of callers."""
        return Callers(
            turns=self.turns,
            think=self.think,
            call_pause=self.call_pause,
            patience=self.patience,
            reply_timeout=self.reply_timeout,
            reply_silence=self.reply_silence,
            longest_reply=self.longest_reply,
            manual_turns=self.manual_turns,
            talk_over=self.talk_over,
            silence=self.silence,
            silence_for=self.silence_for,
            conversations=self.conversations,
            barge_ins=tuple(BargeIn(each.share, each.after) for each in self.barge_in),
        )
