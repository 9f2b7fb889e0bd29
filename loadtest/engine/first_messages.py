"""Watches what an endpoint says first: whether it is a message of the protocol that is spoken."""

from collections.abc import Sequence
from typing import Any

from loadtest.protocols.base import CallerProtocol, EventKind, Incoming, VoiceEvent
from loadtest.protocols.foreign import sent_instead


class FirstMessages:
    """A caller's protocol, until it has understood a message. `strange` names one before that of another protocol."""

    def __init__(self, caller: CallerProtocol) -> None:
        self._caller = caller
        self._understood = False
        self.strange: str | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._caller, name)

    def receive(self, message: Incoming) -> Sequence[VoiceEvent]:
        """Decode one message."""
        events = self._caller.receive(message)
        if not self._understood and self.strange is None and isinstance(message, str | bytes):
            self._understood = not all(map(_is_strange, events))
            self.strange = None if self._understood else sent_instead(message)
        return events


def _is_strange(event: VoiceEvent) -> bool:
    malformed = event.failure is not None and event.failure.code in ("malformed_message", "stray_binary")
    return event.kind is EventKind.UNKNOWN or (event.kind is EventKind.ERROR and malformed)
