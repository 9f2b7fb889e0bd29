"""A scenario file as a whole, as a pydantic model."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import date, time
from typing import Annotated, Any, Final, cast

from pydantic import Field, PlainValidator

from loadtest.distributions import Delay, parse_delay
from loadtest.protocols import registry
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
from loadtest.scenario.file.fields import DurationField, Text, TomlTable
from loadtest.scenario.file.keep import KeptParts
from loadtest.scenario.file.phases import MAX_USERS, Phase
from loadtest.scenario.file.phases_table import PhaseTable, read_levels, rules_between
from loadtest.scenario.file.speech_table import SpeechTable
from telemetry.model.file_faults import Path, shown


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


class KeepTable(TomlTable):
    """What is kept of calls beside the store."""

    audio: bool | None = fields.flag()
    text: bool | None = fields.flag()
    time: DurationField | None = fields.duration()

    def kept(self) -> KeptParts:
        """The section as settings."""
        return KeptParts(self.audio, self.text, self.time)


_NAME: Final = "name"  # of the protocol; every other key of the table is a setting of it


class ScenarioTable(TomlTable):
    """Everything that a file may hold."""

    name: Text | None = fields.text()
    seed: int | None = fields.whole(0, 2**63 - 1)
    max_calls: int | None = fields.whole(1, MAX_USERS)
    protocol: dict[str, Any] | None = fields.free_table("protocol")
    callers: CallersTable | None = fields.table()
    speech: SpeechTable | None = fields.table()
    keep: KeepTable | None = fields.table()
    phases: list[PhaseTable] = fields.tables("phases")

    @classmethod
    def rules(cls, table: Mapping[str, Any], faulty: Collection[str]) -> Iterator[tuple[Path, str]]:
        """What holds between phases, and what the settings of a protocol are made of."""
        protocol = _as_table(table.get("protocol"))
        if protocol is not None and "protocol" not in faulty:
            yield from ((("protocol", *path), sentence) for path, sentence in _protocol_faults(protocol))
        phases = table.get("phases")
        if isinstance(phases, list):
            yield from (
                (("phases", *path), sentence) for path, sentence in rules_between(cast("Sequence[Any]", phases))
            )

    @property
    def protocol_name(self) -> str | None:
        """The protocol that the settings are for, if the file names it."""
        return (self.protocol or {}).get(_NAME)

    @property
    def protocol_settings(self) -> dict[str, Any]:
        """The settings of the protocol, without its name."""
        return {name: value for name, value in (self.protocol or {}).items() if name != _NAME}

    def read_phases(self) -> tuple[Phase, ...]:
        """The phases, each beginning where the one before it ends."""
        found: list[Phase] = []
        begin_s = level = 0.0
        for phase in self.phases:
            levels, _ = read_levels({key: getattr(phase, key) for key in phase.model_fields_set}, level)
            if levels is None:
                raise ValueError(f"the phase {phase.name} has no levels")
            found += phase.phases(begin_s, levels)
            level = levels[1]
            begin_s += phase.duration.seconds
        return tuple(found)


def _as_table(value: object) -> Mapping[str, Any] | None:
    """Return a value that is a table, else None."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else None


def _protocol_faults(table: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    name = table.get(_NAME)
    if name is not None and name not in registry.names():
        yield (_NAME,), f"is {shown(name)}; one of {', '.join(registry.names())} is expected"
    yield from _no_json(table, ())


def _no_json(value: object, path: Path) -> Iterator[tuple[Path, str]]:
    """Find dates and times, which TOML has and no protocol does."""
    if isinstance(value, date | time):
        yield path, f"is {shown(value)}; write a date or a time as a text in quotes"
    elif isinstance(value, Mapping):
        for key, inner in cast("Mapping[str, Any]", value).items():
            yield from _no_json(inner, (*path, key))
    elif isinstance(value, list):
        for number, inner in enumerate(cast("list[Any]", value)):
            yield from _no_json(inner, (*path, number))
