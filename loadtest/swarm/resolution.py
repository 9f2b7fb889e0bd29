"""The settings of this process: from the command that started Locust, from the master, or from flags.

Some settings are about the machine of one process: those that a worker was given win over the master's. Locust sends
the master's options with every order to start, and they overwrite a worker's own, also where they are empty. So the
master holds these back while a run goes on; workers get its values with the document of settings.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from loadtest.protocols.address import public_target
from loadtest.scenario.document import SETTINGS_VARIABLE, decode_settings, encode_settings, read_settings
from loadtest.scenario.options import OPTIONS, settings_from
from loadtest.scenario.settings import SwarmSettings

if TYPE_CHECKING:
    from locust.env import Environment

NAMES: Final = tuple(option.name for option in OPTIONS if option.is_per_machine)
# A certificate and its key belong together: the master's key does not fit a worker's own certificate.
_BELONGS_TO: Final = {"client_key": "client_cert"}


def hold_back(options: Any) -> dict[str, Any]:
    """Take the options of a machine out of a master's before it sends them; what was taken, for `put_back`."""
    given = vars(options)
    return {name: given.pop(name) for name in NAMES if name in given}


def put_back(options: Any, held: dict[str, Any]) -> None:
    """Give them back when the run is over: the master's page shows and changes them."""
    vars(options).update(held)


def with_own(settings: SwarmSettings, options: Any) -> SwarmSettings:
    """The settings as they hold for this process: with its own options of the machine, then the master's."""
    own: dict[str, Any] = {name: value for name in NAMES if (value := getattr(options, name, None))}
    for name, owner in _BELONGS_TO.items():
        if owner in own and name not in own:
            own[name] = None
    return settings.replaced(**own)


def handed_over() -> str:
    """The document of the command that started this process; empty if no command did. Raises UsageError."""
    file = os.environ.get(SETTINGS_VARIABLE)
    return encode_settings(read_settings(Path(file))) if file else ""


def settings_of(environment: "Environment") -> SwarmSettings:
    """The settings of this process, with what its own command line says of its machine. Raises UsageError."""
    options: Any = environment.parsed_options
    document: str = getattr(options, "voice_settings", "")
    asked = {**vars(options), "host": environment.host or options.host}
    settings = decode_settings(document) if document else settings_from(asked)
    host = environment.host or settings.host
    whole = getattr(options, "voice_target", host)
    called = whole if public_target(whole) == host else host
    return with_own(settings.replaced(host=called), options)
