"""Options about the machine of one process: what a worker was given itself wins over what the master was given. Pure.

Locust sends the master's options with every order to start, and a worker's own are overwritten by them, an empty one of
the master's too. So while a run goes on the master keeps these under another name, which overwrites nothing.
"""

from argparse import Namespace
from typing import Any, Final

from loadtest.scenario.options import OPTIONS

NAMES: Final = tuple(option.name for option in OPTIONS if option.of_machine)
SHARED: Final = "voice_machine_options"
# A certificate and its key belong together: a worker with a certificate of its own has no use for the master's key.
_BELONGS_TO: Final = {"client_key": "client_cert"}


def set_aside(options: Any) -> None:
    """The master, before it sends its options: workers get these where they were given none. Undone by `put_back`."""
    put_back(options)
    given = vars(options)
    given[SHARED] = {name: given.pop(name) for name in NAMES if name in given}


def put_back(options: Any) -> None:
    """The master, when the run is over: its page shows and changes them under their own names."""
    given = vars(options)
    given.update(given.pop(SHARED, {}))


def resolved(options: Any) -> Namespace:
    """The options as they hold for this process: its own first, then the master's."""
    given = dict(vars(options))
    shared: dict[str, Any] = given.pop(SHARED, {})
    for name, value in shared.items():
        if not given.get(name) and not given.get(_BELONGS_TO.get(name, name)):
            given[name] = value
    return Namespace(**given)
