"""The settings of a swarm as one JSON document: how a command hands them to Locust, and a master to its workers.

It holds no secret: tokens and the values of headers stay in the environment, and the address is without credentials.
"""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import msgspec

from loadtest.errors import UsageError
from loadtest.protocols.address import public_target
from loadtest.scenario.file import Scenario
from loadtest.scenario.settings import SwarmSettings

# Where Locust finds the document of the command that started it.
SETTINGS_VARIABLE: Final = "VOICEPROBE_SETTINGS"
# The file that Locust makes for the command that started it when every process has prepared its speech.
BEGUN_VARIABLE: Final = "VOICEPROBE_BEGUN"
Decoded = TypeVar("Decoded", SwarmSettings, Scenario)


def encode_settings(settings: SwarmSettings) -> str:
    """The document of settings. Whoever reads it gets the whole address, with its credentials, from the environment."""
    return _encode(replace(settings, host=public_target(settings.host)))


def decode_settings(text: str, where: str = "the settings") -> SwarmSettings:
    """The settings of a document. Raises UsageError for one that is damaged or has a key that is not a setting."""
    return _decode(text, where, SwarmSettings)


def encode_scenario(scenario: Scenario) -> str:
    """A scenario as JSON."""
    return _encode(scenario)


def decode_scenario(text: str) -> Scenario:
    """The scenario of a JSON text. Raises UsageError."""
    return _decode(text, "the scenario", Scenario)


def write_settings(settings: SwarmSettings, file: Path) -> None:
    """Write the document to a file that only its owner may read."""
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as document:
        os.fchmod(descriptor, 0o600)  # also where the file was there before
        document.write(encode_settings(settings))


def read_settings(file: Path) -> SwarmSettings:
    """The settings of a document in a file. Raises UsageError."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"{SETTINGS_VARIABLE} {file} cannot be read: {reason}; unset it to use flags") from None
    return decode_settings(text, str(file))


def _encode(value: SwarmSettings | Scenario) -> str:
    # Escaped to ASCII: a path may hold bytes that are not UTF-8.
    return json.dumps(msgspec.to_builtins(value))


def _decode(text: str, where: str, kind: type[Decoded]) -> Decoded:
    try:
        given = json.loads(text)
        found = msgspec.convert(given, kind)
    except ValueError as error:
        raise UsageError(f"{where}: cannot be read: {error}; it is written by voiceprobe of the same version") from None
    if unknown := list(_unknown(given, msgspec.to_builtins(found), "")):
        raise UsageError("\n".join(f"{where}: the key {key} is unknown; leave it out" for key in unknown))
    return found


def _unknown(given: Any, known: Any, place: str) -> Iterator[str]:
    """The keys that are given and not known, at any depth."""
    if isinstance(given, Mapping) and isinstance(known, Mapping):
        table, names = cast("Mapping[str, Any]", given), cast("Mapping[str, Any]", known)
        for key, value in table.items():
            if key in names:
                yield from _unknown(value, names[key], f"{place}{key}.")
            else:
                yield f"{place}{key}"
    elif isinstance(given, list) and isinstance(known, list | tuple):
        for number, (one, other) in enumerate(zip(cast("list[Any]", given), cast("list[Any]", known), strict=False)):
            yield from _unknown(one, other, f"{place}{number}.")
