"""The settings of one wire, as `--protocol-option NAME=VALUE` gives them. Pure."""

import json
import re
from collections.abc import Sequence
from typing import Any, Final

from loadtest.errors import UsageError
from telemetry.model.foreign_text import one_line

_FLAG: Final = "--protocol-option"
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


def parse_protocol_options(given: Sequence[str]) -> dict[str, Any]:
    """Return the settings by name. What these mean is checked by the protocol.

    Raises UsageError with one line for each entry that cannot be read. No line shows a value: it may be a secret that
    was put there by mistake.
    """
    found: dict[str, Any] = {}
    faults: list[str] = []
    for entry in given:
        name, sign, text = entry.partition("=")
        if not sign or not _NAME.fullmatch(name):
            shown = f"{_FLAG} {one_line(name)}" if sign else _FLAG
            faults.append(f"{shown}: give NAME=VALUE, the name of a setting of the protocol and its value")
        elif name in found:
            faults.append(f"{_FLAG} {name}: the setting is given twice; leave one out")
        else:
            found[name] = _value(text)
    if faults:
        raise UsageError("\n".join(faults))
    return found


def _value(text: str) -> Any:
    """Return what a text stands for: JSON where it is exactly that, else the text itself.

    A number that JSON would write differently ("007", "1e3") stays a text, so that no digit of an id is lost.
    """
    try:
        value = json.loads(text)
    except ValueError:
        return text
    is_plain_number = isinstance(value, int | float) and not isinstance(value, bool)
    return text if is_plain_number and json.dumps(value) != text else value
