"""Encoding server events: the client's dialect of the name, and an event id."""

from collections.abc import Callable

import orjson

from loadtest.protocols.openai_realtime.names import GA_ONLY, ServerEvent, wire_name

MakeId = Callable[[str], str]


class Encoder:
    """Makes one JSON message of a canonical event and its fields."""

    def __init__(self, make_id: MakeId, *, beta: bool) -> None:
        self.make_id = make_id
        self.beta = beta

    def __call__(self, event: ServerEvent, **fields: object) -> str:
        """The message, under the name this client knows."""
        named = {"type": wire_name(event, beta=self.beta), "event_id": self.make_id("event")}
        return orjson.dumps(named | fields).decode()

    def ga_only(self, event: ServerEvent, **fields: object) -> list[str]:
        """The message as a list, empty for a client whose dialect has no such event."""
        return [] if self.beta and event in GA_ONLY else [self(event, **fields)]
