"""Encodes server events, with an event id and the name in the client's dialect."""

from collections.abc import Callable, Mapping

import orjson

from loadtest.protocols.openai_realtime.names import GA_ONLY, ServerEvent, wire_name

MakeId = Callable[[str], str]
Note = Callable[[ServerEvent, Mapping[str, object]], None]


def _ignore(event: ServerEvent, fields: Mapping[str, object]) -> None:
    del event, fields


class Encoder:
    """Encodes a canonical event and its fields as one JSON message."""

    def __init__(self, make_id: MakeId, *, beta: bool, note: Note = _ignore) -> None:
        """`note` is called with each event before it is encoded."""
        self.make_id = make_id
        self.beta = beta
        self._note = note

    def __call__(self, event: ServerEvent, **fields: object) -> str:
        """Return the message, with the event's name in the client's dialect."""
        self._note(event, fields)
        named = {"type": wire_name(event, beta=self.beta), "event_id": self.make_id("event")}
        return orjson.dumps(named | fields).decode()

    def ga_only(self, event: ServerEvent, **fields: object) -> list[str]:
        """Return the message in a list, which is empty if the client's dialect has no such event."""
        return [] if self.beta and event in GA_ONLY else [self(event, **fields)]
