"""Detects messages that an agent sends twice, by their type, `event_id` and content."""

from typing import Final

from loadtest.protocols.base import Message
from loadtest.protocols.elevenlabs.names import IDENTIFIED

REMEMBERED: Final = 1024


class RepeatedMessages:
    """Distinguishes repeated messages from new ones.

    Whether an `event_id` names one message or a whole answer is not documented. Once two messages of a type have the
    same id and another content, its ids name no single message, and from then on none of this type counts as repeated.
    """

    def __init__(self) -> None:
        self._recent: dict[tuple[str, int], int] = {}
        self._before: dict[tuple[str, int], int] = {}
        self._shared: set[str] = set()

    def is_repeat(self, raw_type: str, event_id: int | None, message: Message) -> bool:
        """Whether the same message was among at least the last `REMEMBERED` ones."""
        if event_id is None or raw_type not in IDENTIFIED or raw_type in self._shared:
            return False
        key, this = (raw_type, event_id), hash(message)
        seen = self._recent.get(key, self._before.get(key))
        if seen is None:
            if len(self._recent) >= REMEMBERED:
                self._before, self._recent = self._recent, {}
            self._recent[key] = this
            return False
        if seen != this:
            self._shared.add(raw_type)
            return False
        return True
