"""The settings of LiveKit; the agent's code decides the rest."""

from typing import Final, TypeVar

from loadtest.protocols.base import CallerOptions
from loadtest.protocols.unused_options import faults_of_formats, faults_of_options
from loadtest.protocols.wire_settings import WireSettings, read_settings, refuse

_OF_THE_LINK: Final = ("token", "headers", "metadata")

S = TypeVar("S", bound=WireSettings)


def checked_settings(options: CallerOptions, wire: str, kind: type[S], *, carries_nothing: bool = False) -> S:
    """Return the validated settings. Raises UsageError, one line for each fault, also for options without effect.

    `carries_nothing` is for the console link, which has no token, no headers and no metadata.
    """
    faults = faults_of_options(options, wire, "the agent", "the agent's code")
    if carries_nothing:
        faults += [
            f"{wire}: the wire cannot carry {name!r}; leave it out" for name in _OF_THE_LINK if getattr(options, name)
        ]
    faults += faults_of_formats(options, wire)
    settings = read_settings(kind, options.settings, wire, known_faults=faults)
    refuse(faults)
    return settings
