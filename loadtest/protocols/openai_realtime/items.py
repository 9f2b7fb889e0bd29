"""The items of one conversation as last sent to the client, for `conversation.item.retrieve`. Pure.

At most a thousand are kept, far more than a call has turns; the oldest are dropped first.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final, cast

from loadtest.protocols.json_fields import Json
from loadtest.protocols.openai_realtime.names import ServerEvent

MAX_ITEMS: Final = 1000
_WITH_ITEM: Final = frozenset({ServerEvent.ITEM_ADDED, ServerEvent.ITEM_DONE, ServerEvent.OUTPUT_ITEM_DONE})
_WITH_TRANSCRIPT: Final = frozenset({ServerEvent.TRANSCRIPTION_COMPLETED, ServerEvent.ITEM_TRUNCATED})


class Items:
    """The items, kept up to date from the events that are sent."""

    def __init__(self) -> None:
        self._items: OrderedDict[str, dict[str, object]] = OrderedDict()

    def note(self, event: ServerEvent, fields: Mapping[str, object]) -> None:
        """Record an event that is about to be sent."""
        if event in _WITH_ITEM:
            item = cast("dict[str, object]", fields["item"])
            self._items[str(item["id"])] = dict(item)
            if len(self._items) > MAX_ITEMS:
                self._items.popitem(last=False)
        elif event in _WITH_TRANSCRIPT:
            # Truncating deletes the transcript, because it was not heard completely.
            self._set_transcript(str(fields["item_id"]), fields.get("transcript"))

    def get(self, item_id: str) -> Json | None:
        """Return the current form of an item, or None if there is no item with that id."""
        return self._items.get(item_id)

    def remove(self, item_id: str) -> None:
        """Remove an item, if it is there."""
        self._items.pop(item_id, None)

    @property
    def last_id(self) -> str | None:
        """The newest item's id."""
        return next(reversed(self._items), None)

    def _set_transcript(self, item_id: str, transcript: object) -> None:
        item = self._items.get(item_id)
        if item is not None:
            parts = cast("list[dict[str, object]]", item["content"])
            item["content"] = [part | {"transcript": transcript} for part in parts]
