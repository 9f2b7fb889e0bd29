"""What the language model is reminded of: the last finished exchanges of one call, by the item they came from. Pure."""

from collections import deque
from typing import Final

HISTORY_TURNS: Final = 8


class History:
    """A client may delete an item, and the model then no longer knows of it."""

    def __init__(self) -> None:
        self._entries: deque[tuple[str | None, str, str]] = deque(maxlen=2 * HISTORY_TURNS)

    def add(self, item_id: str | None, role: str, text: str) -> None:
        """One side of an exchange; `item_id` is None where it has no item (the assistant spoke first)."""
        self._entries.append((item_id, role, text))

    def forget(self, item_id: str) -> None:
        """The item was deleted."""
        kept = [entry for entry in self._entries if entry[0] != item_id]
        self._entries.clear()
        self._entries.extend(kept)

    def messages(self) -> tuple[tuple[str, str], ...]:
        """(role, text) of each, oldest first."""
        return tuple((role, text) for _, role, text in self._entries)
