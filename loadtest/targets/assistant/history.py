"""The conversation history for the language model: the last finished exchanges of one call, by item. Pure."""

from collections import deque
from typing import Final

HISTORY_TURNS: Final = 8


class History:
    """The last exchanges of a call. An item that the client deletes is removed."""

    def __init__(self) -> None:
        self._entries: deque[tuple[str | None, str, str]] = deque(maxlen=2 * HISTORY_TURNS)

    def add(self, item_id: str | None, role: str, text: str) -> None:
        """Add one side of an exchange; `item_id` is None if it has no item (the assistant spoke first)."""
        self._entries.append((item_id, role, text))

    def forget(self, item_id: str) -> None:
        """Remove a deleted item."""
        kept = [entry for entry in self._entries if entry[0] != item_id]
        self._entries.clear()
        self._entries.extend(kept)

    def messages(self) -> tuple[tuple[str, str], ...]:
        """Return (role, text) of each entry, oldest first."""
        return tuple((role, text) for _, role, text in self._entries)
