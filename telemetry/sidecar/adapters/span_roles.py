"""The framework of a span, and its role there, by the names of its scope and of itself."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from telemetry.model import semconv
from telemetry.model.services import service_span_table
from telemetry.sidecar.adapters.alias_table import Framework, Layout, Role, frameworks

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
    """The role of a span; `framework` None means a service of one's own."""

    role: Role
    framework: Framework | None

    @property
    def family(self) -> str:
        """A name for its framework."""
        return OWN if self.framework is None else self.framework.name

    @property
    def layout(self) -> Layout:
        """How turns lie in the spans of its framework."""
        return "nested" if self.framework is None else self.framework.turns


@lru_cache(maxsize=_NAMES_MAX)
def span_role(scope_name: str, span_name: str) -> SpanRole | None:
    """Return what the span is; None for one that no adapter knows."""
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
    """Return whether an adapter may want the span: cheap, and true for more spans than those that become part of a
    turn."""
    found = span_role(scope_name, span_name)
    return found is not None


def _matches(pattern: str, name: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


_OWN_NAMES: Final = frozenset({semconv.SPAN_CALL, *(span.name for span in service_span_table().span)})
