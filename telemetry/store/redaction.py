"""Redaction: what people said is not stored unless asked for. Of attributes that hold text, only those known to hold
none of it.

A list of the names that carry words would be out of date with each release of a framework, and what it misses is stored
for good. So it is the other way round: numbers and flags are kept under any name, text only under a name that is known
to be a label (an id, a model, a state) of the framework that sent it, which its instrumentation scope tells. Anything
else, a service's own attributes among it, is left out. The names are data: telemetry/data/text-labels.toml.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, Final, cast

from telemetry.model import semconv
from telemetry.model.personal_data import is_pseudonym, label_without_personal_data

# What carries words even in a family of labels: `voice.turn.transcript_pii`, `voice.asr.transcript`.
_WORDS: Final = re.compile(
    r"_pii$|(^|\.)pii\.|(^|[._])(transcripts?|text|prompt|instructions|messages?|arguments)(\.|$)"
)
# Figures under these names are personal data themselves: the number of a telephone, an account, a person.
_PERSONAL_FIGURES: Final = re.compile(
    r"(^|[._-])(phone|telephone|mobile|msisdn|caller_?id|(card|account|from|to|caller|callee)[._]?(number|no)|card|iban"
    r"|pan|ssn|tax_?id|birth_?(date|day)|date_of_birth|dob|pin|cvc|cvv|otp|passcode|passport)([._-](number|no))?$",
    re.IGNORECASE,
)
_ID: Final = re.compile(r"(^|[._])(s?ids?|identity)$")
# Texts of our own turns that an endpoint wrote; all the others are ours, or the corpus's.
_BY_ENDPOINT: Final = frozenset(
    semconv.TURN_PREFIX + field
    for field in (
        "cohort",
        "endpoint_header_values",
        "failure_code",
        "intent",
        "model",
        "response_id",
        "unknown_event_names",
    )
)
_REMEMBERED: Final = 50_000
_REMEMBERED_CHARS: Final = 200


class NameKind(IntEnum):
    """The kind of text under a name."""

    TEXT = 0  # may be what somebody said
    LABEL = 1
    ID = 2  # a label that tells one call, session or item from another
    PERSON = 3  # names a person
    OWN = 4  # of our own callers: chosen or made by voiceprobe
    REASON = 5  # a sentence that says why something happened
    PERSONAL = 6  # the name holds personal data, or says that even figures under it are


_NO_LABELS: Final = frozenset([NameKind.TEXT, NameKind.PERSON, NameKind.PERSONAL])


@dataclass(frozen=True, slots=True)
class _Framework:
    name: str
    scopes: tuple[str, ...]
    labels: frozenset[str]


@dataclass(frozen=True, slots=True)
class _TextLabels:
    prefixes: tuple[str, ...]
    labels: frozenset[str]
    persons: frozenset[str]
    reasons: frozenset[str]
    frameworks: tuple[_Framework, ...]


def _text_labels() -> _TextLabels:
    document: dict[str, Any] = tomllib.loads((files("telemetry") / "data" / "text-labels.toml").read_text("utf-8"))
    general = document["general"]
    frameworks = tuple(
        _Framework(each["name"], tuple(each["scopes"]), frozenset(each["labels"])) for each in document["framework"]
    )
    return _TextLabels(
        prefixes=tuple(general["prefixes"]),
        labels=frozenset(general["labels"]),
        persons=frozenset(general["persons"]),
        reasons=frozenset(general["reasons"]),
        frameworks=frameworks,
    )


_LABELS: Final = _text_labels()
LABELS: Final = _LABELS.labels.union(*(framework.labels for framework in _LABELS.frameworks))
_OWN_FRAMEWORK: Final = next(each.name for each in _LABELS.frameworks if semconv.SCOPE in each.scopes)


@lru_cache(_REMEMBERED)
def framework_of(scope: str) -> str:
    """The framework to which an instrumentation scope belongs; empty for any other."""
    for framework in _LABELS.frameworks:
        if any(scope == name or scope.startswith(f"{name}.") for name in framework.scopes):
            return framework.name
    return ""


def kind_of_name(name: str, framework: str = "") -> NameKind:
    """Return what the text under a name is, in what a framework sends."""
    return kinds_of_names(framework)[name]


class _Kinds(dict[str, NameKind]):
    """The kinds of the names that a framework uses, found when they are first asked for; bounded."""

    def __init__(self, framework: str) -> None:
        self._framework = framework

    def __missing__(self, name: str) -> NameKind:
        kind = _kind(name, self._framework)
        if len(name) <= _REMEMBERED_CHARS:
            if len(self) >= _REMEMBERED:
                self.clear()
            self[name] = kind
        return kind


@cache
def kinds_of_names(framework: str) -> Mapping[str, NameKind]:
    """The kind of any name in what a framework, as `framework_of` names it, sends: for what asks of every attribute."""
    return _Kinds(framework)


def is_label(name: str, framework: str = "") -> bool:
    """Return whether text under this name is known to be none of what somebody said, wrote or was answered."""
    return kind_of_name(name, framework) not in _NO_LABELS


def without_text(attributes: Mapping[str, object], framework: str = "") -> dict[str, object]:
    """The attributes that may be stored."""
    return {
        name: value
        for name, value in attributes.items()
        if not _holds_text(value) or is_label(name, framework) or is_person(name, value, framework)
    }


def is_person(name: str, value: object, framework: str = "") -> bool:
    """Return whether an attribute names a person by a pseudonym, and by nothing else."""
    if kind_of_name(name, framework) is not NameKind.PERSON:
        return False
    return isinstance(value, str) and is_pseudonym(value)


def _kind(name: str, framework: str) -> NameKind:
    if label_without_personal_data(name) != name or _PERSONAL_FIGURES.search(name) is not None:
        return NameKind.PERSONAL
    if name in _LABELS.persons:
        return NameKind.PERSON
    if name in _LABELS.reasons:
        return NameKind.REASON
    is_family = name.startswith(_LABELS.prefixes) and _WORDS.search(name) is None
    if not is_family and name not in _LABELS.labels and name not in _labels_of(framework):
        return NameKind.TEXT
    if framework == _OWN_FRAMEWORK and (name.startswith("voice.") or name in _labels_of(framework)):
        return NameKind.LABEL if name in _BY_ENDPOINT else NameKind.OWN
    return NameKind.ID if _ID.search(name) is not None else NameKind.LABEL


@cache
def _labels_of(framework: str) -> frozenset[str]:
    return next((each.labels for each in _LABELS.frameworks if each.name == framework), frozenset())


def _holds_text(value: object) -> bool:
    if isinstance(value, list):
        return any(map(_holds_text, cast("list[object]", value)))
    if isinstance(value, dict):
        return bool(value)  # its keys are text
    return isinstance(value, (str, bytes))
