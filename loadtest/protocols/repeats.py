"""Detects messages that an endpoint sends twice, by the id that its protocol gives each event."""

from typing import Final

REMEMBERED_EVENTS: Final = 2048


class RepeatDetector:
    """Distinguishes repeated messages from new ones.

    An event's id identifies one event of a session, so a second message with the same id is the same event again. Some
    servers use the same id for all messages, or none: an id that recurs with another type or length shows that this
    server's ids identify nothing, and from then on no message counts as a repeat.
    """

    def __init__(self) -> None:
        self._recent: dict[str, tuple[str, int]] = {}
        self._before: dict[str, tuple[str, int]] = {}
        self._ids_are_unique = True

    def is_repeat(self, event_id: object, raw_type: str, length: int) -> bool:
        """Return whether the same message was among at least the last `REMEMBERED_EVENTS` ones; one without an id is
        not."""
        if not self._ids_are_unique or not isinstance(event_id, str) or not event_id:
            return False
        seen, this = self._recent.get(event_id) or self._before.get(event_id), (raw_type, length)
        if seen is None:
            if len(self._recent) >= REMEMBERED_EVENTS:
                self._before, self._recent = self._recent, {}
            self._recent[event_id] = this
            return False
        if seen != this:
            self._ids_are_unique = False
            return False
        return True
