"""The alias table: how the spans of voice frameworks become turns, from data/framework-spans.toml.

A row says which attribute, of which span, of which framework, is which column of a turn. The file is part of the
package; its tests check what it names.
"""

import tomllib
from functools import cache
from importlib.resources import files
from typing import Final, Literal

import msgspec

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


class Read(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A column of a turn, and the attributes that hold it on one kind of span, the newest name first. A latency has a
    unit, and nothing else has one."""

    column: Column
    span: Role
    attributes: list[str]
    unit: Unit | None = None


class Framework(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One framework: which of its spans are what, and what is read of them. The head of the file explains the keys."""

    name: str
    title: str
    versions: str
    recorded: list[str]
    scopes: list[str]
    turns: Layout
    enable: str
    spans: dict[str, Role]
    parts: list[str] = []
    reads: list[Read] = []
    moments: dict[str, list[str]] = {}
    withheld: dict[str, str] = {}
    limits: list[str] = []
    call_end_within_s: float = 0.0
    llm_needs_speech: bool = False
    repeats_latency: bool = False
    same_turn: str | None = None
    user_turn_needs: str | None = None


@cache
def frameworks() -> tuple[Framework, ...]:
    """The frameworks of the table; the first whose scope and span names match takes a span."""
    text = (files("telemetry") / "data" / FILE).read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text)["framework"], tuple[Framework, ...])
