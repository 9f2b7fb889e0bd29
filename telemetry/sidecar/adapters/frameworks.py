"""The voice frameworks whose spans become turns: the table of data/framework-spans.toml, and the role of a span by it.

A row of the table maps an attribute of one kind of span of one framework to a column of a turn. The file is part of the
package; its tests check the names in it.
"""

import tomllib
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from typing import Final, Literal

import msgspec

from telemetry.model import semconv
from telemetry.model.services import service_span_table

FILE: Final = "framework-spans.toml"

# The roles of a framework's spans; see the head of the file.
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
    # Identity and place.
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
    # The course of the turn.
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
    """A column of a turn, and the attributes that hold it on one kind of span, the newest name first. Only a latency
    has a unit."""

    column: Column
    span: Role
    attributes: list[str]
    unit: Unit | None = None


class Framework(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One framework: the roles of its spans, and the columns read from them. The head of the file explains the keys."""

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
    """The frameworks of the table; a span belongs to the first whose scope and span names match."""
    text = (files("telemetry") / "data" / FILE).read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text)["framework"], tuple[Framework, ...])


# Services of one's own report by the table of telemetry.model.services, under any scope.
OWN: Final = "own"
_OWN_ROLES: Final[dict[str, Role]] = {
    semconv.SPAN_CALL: "call",
    semconv.SPAN_TURN: "turn",
    semconv.SPAN_ASR: "asr",
    semconv.SPAN_LLM: "llm",
    semconv.SPAN_TTS: "tts",
}
# Names of scopes and spans come from outside: as many of them as a large installation has are remembered.
_NAMES_MAX: Final = 8192


@dataclass(frozen=True, slots=True)
class SpanRole:
    """The role of a span; a `framework` of None means a custom service."""

    role: Role
    framework: Framework | None

    @property
    def family(self) -> str:
        """A name for its framework."""
        return OWN if self.framework is None else self.framework.name

    @property
    def layout(self) -> Layout:
        """The layout of turns in the spans of its framework."""
        return "nested" if self.framework is None else self.framework.turns


@lru_cache(maxsize=_NAMES_MAX)
def span_role(scope_name: str, span_name: str) -> SpanRole | None:
    """Return the role of the span; None if no adapter knows it."""
    if scope_name != semconv.SCOPE and span_name in _OWN_NAMES:
        return SpanRole(_OWN_ROLES.get(span_name, "part"), None)
    for framework in frameworks():
        if any(_matches(pattern, scope_name) for pattern in framework.scopes):
            for pattern, role in framework.spans.items():
                if _matches(pattern, span_name):
                    return SpanRole(role, framework)
            if any(_matches(pattern, span_name) for pattern in framework.parts):
                return SpanRole("part", framework)
    return None


def is_foreign(scope_name: str, span_name: str) -> bool:
    """Return whether an adapter may use the span: a cheap test that is true for more spans than those that become part
    of a turn."""
    return span_role(scope_name, span_name) is not None


def _matches(pattern: str, name: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


_OWN_NAMES: Final = frozenset({semconv.SPAN_CALL, *(span.name for span in service_span_table().span)})
