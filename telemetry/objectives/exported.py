"""What the exports of objectives to other programs share: their names, their series and their YAML. Pure."""

import hashlib
import json
import re
from fractions import Fraction
from typing import Any, Final

import yaml

from telemetry.objectives.objective import Objective

# Callers heard them. What services report of themselves counts the same turns once more.
SOURCE: Final = "client"
_LINE_CHARS: Final = 116
# Names of Kubernetes, and of Sloth, have no other characters.
_OTHERS: Final = re.compile(r"[^a-z0-9]+")
_NAME_CHARS_MAX: Final = 63


class PlainDumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks, and nothing as a reference to something above."""

    def ignore_aliases(self, data: Any) -> bool:
        """Never."""
        del data
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


PlainDumper.add_representer(str, _text)


def yaml_text(document: object) -> str:
    """A document as YAML, its keys in their order."""
    return yaml.dump(document, Dumper=PlainDumper, sort_keys=False, width=_LINE_CHARS, allow_unicode=True)


def quoted(text: str) -> str:
    """A text as PromQL writes it between quotes: with the escapes of JSON, which are among those of Go."""
    return json.dumps(text, ensure_ascii=False)


def template(text: str) -> str:
    """A text as it stands in a template of Go."""
    return text.replace("{{", '{{ "{{" }}')


def chosen(objective: Objective) -> str:
    """The labels of an objective's series over the turns that callers heard."""
    return f'{{objective={quoted(objective.name)},source="{SOURCE}"}}'


def percentage(objective: Objective) -> float:
    """The target in percent."""
    return float(Fraction(str(objective.target)) * 100)


def identifier(name: str) -> str:
    """A name of small letters, digits and `-`; names that differ stay different."""
    plain = _OTHERS.sub("-", name.lower()).strip("-")
    if plain and plain == name and len(plain) <= _NAME_CHARS_MAX:
        return plain
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{plain[: _NAME_CHARS_MAX - 11].strip('-') or 'o'}-{digest}"
