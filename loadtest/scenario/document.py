"""The settings of a swarm as one JSON document: how a command hands them to Locust, and a master to its workers.

It holds no secret: tokens and the values of headers stay in the environment, and the address is without credentials.
"""

import json
import os
from pathlib import Path
from typing import Final, TypeVar

from loadtest.errors import UsageError
from loadtest.protocols.address import public_target
from loadtest.scenario.file import Scenario
from loadtest.scenario.settings import SwarmSettings
from telemetry.model.file_faults import path_text
from telemetry.model.validation import CheckedTable, validated

# Where Locust finds the document of the command that started it.
SETTINGS_VARIABLE: Final = "VOICEPROBE_SETTINGS"
# The file that Locust makes for the command that started it when every process has prepared its speech.
BEGUN_VARIABLE: Final = "VOICEPROBE_BEGUN"
S = TypeVar("S", bound=CheckedTable)


def encode_settings(settings: SwarmSettings) -> str:
    """Return the document of settings. Its reader gets the whole address, with credentials, from the environment."""
    # Escaped to ASCII: a path may hold bytes that are not UTF-8.
    return json.dumps(settings.model_dump() | {"host": public_target(settings.host)})


def decode_settings(text: str, where: str = "the settings") -> SwarmSettings:
    """Return the settings of a document. Raises UsageError with a line for each fault: it is damaged, or holds a key
    that is not a setting."""
    return _decode(SwarmSettings, text, where)


def encode_scenario(scenario: Scenario) -> str:
    """Return a scenario as JSON."""
    return json.dumps(scenario.document())


def decode_scenario(text: str) -> Scenario:
    """Return the scenario of a JSON text. Raises UsageError."""
    return _decode(Scenario, text, "the scenario")


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


def _decode(model: type[S], text: str, where: str) -> S:
    try:
        decoded, faults = validated(model, json.loads(text))
    except ValueError as error:
        raise UsageError(f"{where}: cannot be read: {error}; it is written by voiceprobe of the same version") from None
    if decoded is None:
        lines = (f"{where}: {path_text(fault.path)}: {fault.sentence}".replace(": : ", ": ") for fault in faults)
        raise UsageError("\n".join(lines))
    return decoded
