"""The alias table: how the spans of voice frameworks become turns, from data/framework-spans.toml.

A row says which attribute, of which span, of which framework, is which column of a turn. The file is checked when it is
read, all faults at once.
"""

import tomllib
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final, Literal

from pydantic import Field

from telemetry.model.errors import ConfigError
from telemetry.model.file_faults import Path, nearest, path_text, shown
from telemetry.model.metrics import METRICS, TIMESTAMPS
from telemetry.model.validation import CheckedTable, validated

FILE: Final = "framework-spans.toml"

# What a span of a framework is; see the head of the file.
Role = Literal[
    "call",
    "call_end",
    "turn",
    "user_turn",
    "speech",
    "asr",
    "llm",
    "attempt",
    "tts",
    "speaking",
    "fallback",
    "tool",
    "part",
]
Column = Literal[
    # Who and where.
    "call_id",
    "turn_number",  # from 1
    # Latencies that a framework states of itself. From the end of the caller's speech:
    "voice_to_voice",
    "endpointing",
    "asr_final_latency",
    # ... and from the beginning of the stage's span:
    "asr_final",
    "llm_first_token",
    "tts_first_chunk",
    # How the turn went.
    "interrupted",
    "call_ended",
    "transcript_events",  # JSON: a list of {type, received_at in s of the wall clock}
    "fallback_index",
    "cache_read_tokens",
    "llm_input_tokens",
    "model",
    "llm_tokens",
]
Unit = Literal["s", "ms", "ns"]
Layout = Literal["nested", "paired", "outermost"]
LATENCIES: Final[frozenset[str]] = frozenset(
    {"voice_to_voice", "endpointing", "asr_final_latency", "asr_final", "llm_first_token", "tts_first_chunk"}
)
_ROLES: Final[tuple[str, ...]] = Role.__args__
_PLACES: Final = tuple(f"{role}.{end}" for role in _ROLES for end in ("start", "end"))


class Read(CheckedTable):
    """A column of a turn, and the attributes that hold it on one kind of span, the newest name first."""

    column: Column = Field(description="a column of a turn is expected, such as voice_to_voice")
    span: Role = Field(description="a kind of span is expected, such as turn or llm")
    attributes: list[str] = Field(min_length=1, description="a list of names of attributes is expected")
    unit: Unit | None = Field(default=None, description="s, ms or ns is expected")

    @classmethod
    def rules(cls, table: Mapping[str, Any], faulty: Collection[str]) -> Iterable[tuple[Path, str]]:
        """A latency has a unit, and nothing else has one."""
        if not {"column", "unit"}.isdisjoint(faulty):
            return
        is_latency = table.get("column") in LATENCIES
        if is_latency and table.get("unit") is None:
            yield ("unit",), "is missing; a latency has the unit s, ms or ns"
        elif not is_latency and table.get("unit") is not None:
            yield ("unit",), f"is {shown(table['unit'])}, but {table.get('column')} is no latency; leave it out"


class Framework(CheckedTable):
    """One framework: which of its spans are what, and what is read of them."""

    name: str = Field(min_length=1, description="a short name is expected")
    title: str = Field(min_length=1, description="a name for people is expected")
    versions: str = Field(min_length=1, description="the range of versions is expected")
    recorded: list[str] = Field(description="a list of folders of recorded spans is expected")
    scopes: list[str] = Field(min_length=1, description="a list of names of instrumentation scopes is expected")
    turns: Layout = Field(description="nested, paired or outermost is expected")
    enable: str = Field(min_length=1, description="what must be switched on is expected, in words")
    spans: dict[str, Role] = Field(min_length=1, description="a table of span names and what they are is expected")
    parts: list[str] = Field(default=[], description="a list of span names is expected")
    reads: list[Read] = Field(default=[], description="a list of reads is expected")
    moments: dict[str, list[str]] = Field(default={}, description="a table of timestamps is expected")
    withheld: dict[str, str] = Field(default={}, description="a table of metrics and reasons is expected")
    limits: list[str] = Field(default=[], description="a list of sentences is expected")
    call_end_within_s: float = Field(default=0.0, ge=0, description="a number of seconds, at least 0, is expected")
    llm_needs_speech: bool = Field(default=False, description="true or false is expected")
    repeats_latency: bool = Field(default=False, description="true or false is expected")
    same_turn: str | None = Field(default=None, description="the name of an attribute is expected")
    user_turn_needs: str | None = Field(default=None, description="the name of an attribute is expected")

    @classmethod
    def rules(cls, table: Mapping[str, Any], faulty: Collection[str]) -> Iterable[tuple[Path, str]]:
        """Names of timestamps, places and metrics are known, and what is read is of a span that there is."""
        if "moments" not in faulty:
            for name, places in table.get("moments", {}).items():
                if name not in TIMESTAMPS:
                    yield ("moments", name), f"is no timestamp of a turn{nearest(name, tuple(TIMESTAMPS))}"
                for place in places:
                    if place not in _PLACES:
                        yield ("moments", name), f"holds {shown(place)}{nearest(place, _PLACES)}"
        if "withheld" not in faulty:
            for name in table.get("withheld", {}):
                if name not in METRICS:
                    yield ("withheld", name), f"is no metric{nearest(name, tuple(METRICS))}"
        if {"spans", "reads"}.isdisjoint(faulty):
            roles = set(table.get("spans", {}).values())
            for place, read in enumerate(table.get("reads", [])):
                if read.get("span") not in roles:
                    yield ("reads", place, "span"), f"is {shown(read.get('span'))}, but spans has none of these"


class AliasTable(CheckedTable):
    """All frameworks; the first whose scope and span names match takes a span."""

    framework: list[Framework] = Field(min_length=1, description="a list of frameworks is expected")

    @classmethod
    def rules(cls, table: Mapping[str, Any], faulty: Collection[str]) -> Iterable[tuple[Path, str]]:
        """No two frameworks have one name."""
        if faulty:
            return
        names = [each.get("name") for each in table.get("framework", [])]
        for place, name in enumerate(names):
            if name in names[:place]:
                yield ("framework", place, "name"), f"is {shown(name)}, as of another framework; give it its own"


def parse_alias_table(text: str, where: str) -> tuple[Framework, ...]:
    """The frameworks of a table in TOML. Raises ConfigError with every fault; `where` names the file."""
    try:
        read = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(where, [f"is not TOML: {error}"]) from error
    table, faults = validated(AliasTable, read)
    if table is None:
        raise ConfigError(where, [f"{path_text(fault.path)} {fault.sentence}" for fault in faults])
    return tuple(table.framework)


@cache
def frameworks() -> tuple[Framework, ...]:
    """The frameworks of the table that belongs to this version."""
    return parse_alias_table((files("telemetry") / "data" / FILE).read_text(encoding="utf-8"), FILE)
