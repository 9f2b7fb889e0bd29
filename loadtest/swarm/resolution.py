"""The settings of this process: from the command that started Locust, from the master, or from flags."""

import os
from pathlib import Path
from typing import Any

from locust.env import Environment

from loadtest.protocols.address import public_target
from loadtest.scenario.document import SETTINGS_VARIABLE, decode_settings, encode_settings, read_settings
from loadtest.scenario.options import settings_from
from loadtest.scenario.settings import SwarmSettings
from loadtest.swarm.machine_options import with_own


def handed_over() -> str:
    """The document of the command that started this process; empty if no command did. Raises UsageError."""
    file = os.environ.get(SETTINGS_VARIABLE)
    return encode_settings(read_settings(Path(file))) if file else ""


def settings_of(environment: Environment) -> SwarmSettings:
    """The settings of this process, with what its own command line says of its machine. Raises UsageError."""
    options: Any = environment.parsed_options
    document: str = getattr(options, "voice_settings", "")
    asked = {**vars(options), "host": environment.host or options.host}
    settings = decode_settings(document) if document else settings_from(asked)
    host = environment.host or settings.host
    whole = getattr(options, "voice_target", host)
    called = whole if public_target(whole) == host else host
    return with_own(settings.replaced(host=called), options)
