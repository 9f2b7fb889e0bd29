"""Recognition of a declared wire's messages: the rules of its spec, prepared for many messages. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from loadtest.protocols.base import EventKind
from loadtest.protocols.declared.spec import EventRule, Exists, Meaning, Spec
from loadtest.protocols.declared.templates import JsonPath, parse_path
from loadtest.protocols.wire_settings import OF_PARTIALS, OF_SPEECH, OF_TEXT, OF_TRANSCRIPTS

KINDS: Final[Mapping[Meaning, EventKind]] = {
    "ready": EventKind.READY,
    "speech_started": EventKind.SPEECH_STARTED,
    "speech_stopped": EventKind.SPEECH_STOPPED,
    "partial": EventKind.ASR_PARTIAL,
    "final": EventKind.ASR_FINAL,
    "asr_failed": EventKind.ASR_FAILED,
    "reply_started": EventKind.RESPONSE_STARTED,
    "text": EventKind.LLM_TEXT,
    "reasoning": EventKind.REASONING_TEXT,
    "synthesis_started": EventKind.SPEECH_SYNTHESIS_STARTED,
    "audio": EventKind.AUDIO,
    "audio_done": EventKind.AUDIO_DONE,
    "reply_done": EventKind.RESPONSE_DONE,
    "clear": EventKind.CLEAR,
    "mark": EventKind.MARK,
    "report": EventKind.SERVICE_REPORT,
    "error": EventKind.ERROR,
    "ignored": EventKind.OTHER,
}
# What a metric needs, and why a spec that names no such message cannot show it.
_NEEDS: Final[tuple[tuple[Meaning, tuple[str, ...]], ...]] = (
    ("partial", OF_PARTIALS),
    ("speech_stopped", ("endpointing",)),
    ("final", OF_TRANSCRIPTS),
    ("text", OF_TEXT),
)


class RuleCondition(msgspec.Struct, frozen=True):
    """One path of a rule and the values that match."""

    path: JsonPath
    values: tuple[object, ...]
    exists: bool | None

    def holds(self, message: object) -> bool:
        """Return whether the message has such a value."""
        contents = self.path.all(message)
        if self.exists is not None:
            return bool(contents) is self.exists
        return any(_same(content, value) for content in contents for value in self.values)


PreparedRule = tuple[EventRule, list[RuleCondition]]


class Recognition:
    """The rules of a spec. All that match a message apply, in their order.

    Most rules are for messages of one name, so those that a message's name excludes are not tried.
    """

    def __init__(self, spec: Spec) -> None:
        self._type = spec.type
        self._rules: list[PreparedRule] = [
            (rule, [_prepared(path, wanted) for path, wanted in rule.when.items()]) for rule in spec.events
        ]
        named = (
            value for _, conditions in self._rules for condition in conditions for value in self._names_in(condition)
        )
        self._by_name = {name: self._rules_of_name(name) for name in named if isinstance(name, str)}
        self._unnamed_rules = self._rules_of_name(None)

    def rules_of(self, name: object, message: object) -> list[EventRule]:
        """Return the rules that match a decoded message, whose name is at the spec's `type`; none if it is unknown."""
        rules = self._by_name.get(name, self._unnamed_rules) if isinstance(name, str) else self._rules
        return [rule for rule, conditions in rules if all(condition.holds(message) for condition in conditions)]

    def _names_in(self, condition: RuleCondition) -> Sequence[object]:
        """Return the values of a condition on the message's name, nothing for a condition on anything else."""
        return condition.values if condition.path.steps == self._type.steps and self._type.is_single else ()

    def _rules_of_name(self, name: str | None) -> list[PreparedRule]:
        """Return the rules for messages of a name, without the conditions on it; None is a name that no rule has."""
        rules: list[PreparedRule] = []
        for rule, conditions in self._rules:
            on_name = [condition for condition in conditions if self._names_in(condition)]
            if all(name is not None and name in condition.values for condition in on_name):
                rules.append((rule, [condition for condition in conditions if condition not in on_name]))
        return rules


def not_observable(spec: Spec) -> dict[str, str]:
    """Return the metrics that a wire cannot show because its spec names no message for them, each with the reason."""
    meanings = {rule.is_ for rule in spec.events}
    reasons: dict[str, str] = {}
    for meaning, metrics in _NEEDS:
        if meaning not in meanings:
            reasons |= {
                name: f"the spec names no message that means {meaning}" for name in metrics if name not in reasons
            }
    if spec.reply.audio == "none":
        reasons |= {name: "the spec says that replies have no audio" for name in OF_SPEECH if name not in reasons}
    return reasons


def shows_cuts(spec: Spec) -> bool:
    """Return whether a wire has a message that means that a reply is broken off: it asks to clear it, or states its
    status."""
    return any(rule.is_ == "clear" or (rule.is_ == "reply_done" and rule.status is not None) for rule in spec.events)


def _prepared(path: str, wanted: Any) -> RuleCondition:
    if isinstance(wanted, Exists):
        return RuleCondition(parse_path(path), (), wanted.exists)
    return RuleCondition(parse_path(path), tuple(wanted) if isinstance(wanted, list) else (wanted,), None)  # pyright: ignore[reportUnknownArgumentType]


def _same(content: object, wanted: object) -> bool:
    """Return whether two JSON values are equal; true is not 1."""
    return content == wanted and isinstance(content, bool) is isinstance(wanted, bool)
