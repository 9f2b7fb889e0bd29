"""The registered protocols, by name."""

from collections.abc import Callable, Mapping
from typing import Final

from loadtest.errors import UsageError
from loadtest.protocols.base import CallerOptions, CallerProtocol
from loadtest.protocols.openai_realtime.caller import OpenAIRealtimeCaller
from loadtest.protocols.openai_realtime.client_events import BETA, GA

_CALLERS: Final[Mapping[str, Callable[[CallerOptions], CallerProtocol]]] = {
    GA.name: OpenAIRealtimeCaller,
    BETA.name: lambda options: OpenAIRealtimeCaller(options, BETA),
}


def names() -> tuple[str, ...]:
    """Return the names of all protocols."""
    return tuple(sorted(_CALLERS))


def make_caller(name: str, options: CallerOptions) -> CallerProtocol:
    """Create the protocol of one conversation. Raises UsageError for an unknown name."""
    make = _CALLERS.get(name)
    if make is None:
        raise UsageError(f"unknown protocol {name!r}; known: {', '.join(names())}")
    return make(options)
