"""Settings about the machine of one process: what a worker was given itself wins over what the master was given. Pure.

Locust sends the master's options with every order to start, and they overwrite a worker's own, also where they are
empty. So the master holds these back while a run goes on; workers get its values with the document of settings.
"""

from typing import Any, Final

from loadtest.scenario.options import OPTIONS
from loadtest.scenario.settings import SwarmSettings

NAMES: Final = tuple(option.name for option in OPTIONS if option.of_machine)
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
