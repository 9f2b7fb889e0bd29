"""Messages that an endpoint sends twice, known by their `event_id`."""

from typing import Final

from loadtest.protocols.openai_realtime.fields import Json

REMEMBERED_EVENTS: Final = 2048


class Repeats:
    """Tells a message that was sent twice from one that is new.

    An `event_id` names one event of a session, so a second one is the same event again. Some servers give the same id
    to all they send, or none: an id that comes back with another type or length shows that this server's ids name
    nothing, and from then on no message is taken for a repeat.
    """

    def __init__(self) -> None:
        self._recent: dict[str, tuple[str, int]] = {}
        self._before: dict[str, tuple[str, int]] = {}
        self._ids_name_events = True

    def is_repeat(self, fields: Json, raw_type: str, length: int) -> bool:
        """Whether this very message came before, among the last `REMEMBERED_EVENTS` at least."""
        event_id = fields.get("event_id")
        if not self._ids_name_events or not isinstance(event_id, str) or not event_id:
            return False
        seen, this = self._recent.get(event_id) or self._before.get(event_id), (raw_type, length)
        if seen is None:
            if len(self._recent) >= REMEMBERED_EVENTS:
                self._before, self._recent = self._recent, {}
            self._recent[event_id] = this
            return False
        if seen != this:
            self._ids_name_events = False
            return False
        return True
