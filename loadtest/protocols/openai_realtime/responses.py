"""Tracks which response is being generated, what each one contained, and which of them are over.

A conversation has one response at a time: if `response.created` announces another one before the `response.done` of the
first, the first is over, whether or not its `response.done` still comes. A response outside the conversation
(`conversation: none`, so that its `conversation_id` is null) runs in parallel and is not meant for the caller. The null
is significant only if the endpoint names the conversation of other responses: many servers always omit the field or
send null.

A response with a tool call is not a complete answer: the tool runs, and another response follows. Callers declare no
tools and cannot answer a tool call, so the endpoint, or a gateway in front of it, must continue by itself.
"""

from typing import Final, NamedTuple

from loadtest.protocols.base import Content
from loadtest.protocols.json_fields import Json, as_list, as_object
from telemetry.model.recent import RecentDict

REMEMBERED_RESPONSES: Final = 64
_TOOL_ITEMS: Final = frozenset({"function_call", "mcp_call", "custom_tool_call"})
_TEXT_FIELDS: Final = ("text", "transcript")
_NOTHING: Final[frozenset[Content]] = frozenset()


class Superseded(NamedTuple):
    """A response that is over because a newer one replaced it, and what it had contained."""

    response_id: str | None
    carried: frozenset[Content]


class Responses:
    """The responses of one connection; `generating` is the current one of the conversation."""

    def __init__(self) -> None:
        self.generating: str | None = None
        self._unnamed_open = False
        self._carried = RecentDict[str | None, set[Content]](REMEMBERED_RESPONSES)
        self._done = RecentDict[str, None](REMEMBERED_RESPONSES)
        self._outside = RecentDict[str, None](REMEMBERED_RESPONSES)
        self._names_conversations = False

    def begin(self, response_id: str | None, response: Json) -> "Superseded | None":
        """Record a response that was announced; return the one that it supersedes, if any."""
        conversation = response.get("conversation_id")
        if isinstance(conversation, str):
            self._names_conversations = True
        elif "conversation_id" in response and self._names_conversations and response_id is not None:
            self._outside[response_id] = None
            return None
        if response_id is not None:  # one that is announced again, after its end, is a new response
            self._done.pop(response_id, None)
            self._outside.pop(response_id, None)
        old = self.generating
        superseded = self._unnamed_open if old is None else old != response_id
        over = Superseded(old, self.end(old)) if superseded else None
        self.generating, self._unnamed_open = response_id, response_id is None
        return over

    def is_outside(self, response_id: str | None) -> bool:
        """Return whether a response runs outside the conversation."""
        return response_id in self._outside

    def is_done(self, response_id: str | None) -> bool:
        """Return whether a response is over."""
        return response_id in self._done

    def response_of(self, response_id: str | None) -> str | None:
        """Return the response that a part of a reply belongs to.

        A part without an id belongs to the current response. A response that was never announced begins with its first
        part.
        """
        if response_id is None:
            return self.generating
        if self.generating is None and not self.is_done(response_id) and not self.is_outside(response_id):
            self.generating = response_id
        return response_id

    def carry(self, response_id: str | None, content: Content) -> None:
        """Record that content of a response arrived."""
        carried = self._carried.get(response_id)
        if carried is None:
            carried = self._carried[response_id] = set()
        carried.add(content)

    def end(self, response_id: str | None) -> frozenset[Content]:
        """Record that a response is over, and return what it contained."""
        if response_id is None or response_id == self.generating:
            self.generating = None
            self._unnamed_open = False
        if response_id is not None:
            self._done[response_id] = None
        return frozenset(self._carried.pop(response_id, _NOTHING))


def is_tool_item(item: Json | None) -> bool:
    """Return whether an output item is a tool call."""
    return item is not None and item.get("type") in _TOOL_ITEMS


def content_of_output(response: Json) -> set[Content]:
    """Return what a whole response's output contains apart from audio, which counts only if it was received."""
    contents: set[Content] = set()
    for entry in as_list(response.get("output")) or ():
        item = as_object(entry)
        if is_tool_item(item):
            contents.add("tool_call")
        parts = None if item is None else as_list(item.get("content"))
        for part in map(as_object, parts or ()):
            if part is not None and any(part.get(name) for name in _TEXT_FIELDS):
                contents.add("text")
    return contents


class ReplyAudio:
    """The audio of the latest response with audio, item by item in order."""

    def __init__(self) -> None:
        self._response_id: str | None = None
        self._sent: dict[str | None, dict[int, int]] = {}  # of each item: samples by their rate
        self._half: tuple[str | None, str | None, bytes] = (None, None, b"")

    @property
    def item_id(self) -> str | None:
        """The item of the latest audio."""
        return next(reversed(self._sent), None)

    def add(self, response_id: str | None, item_id: str | None, samples: int, rate_hz: int) -> None:
        """Add samples that arrived for an item. A new response begins a new reply."""
        if response_id != self._response_id:
            self._response_id = response_id
            self._sent = {}
        by_rate = self._sent.setdefault(item_id, {})
        by_rate[rate_hz] = by_rate.get(rate_hz, 0) + samples

    def forget(self, response_id: str | None) -> None:
        """Forget an id: what comes next under it is another reply."""
        if response_id == self._response_id:
            self._response_id, self._sent = None, {}

    def truncations(self, played_ms: int) -> list[tuple[str, int]]:
        """Return (item, heard ms) of every item not heard to its end, never more than was sent."""
        cuts: list[tuple[str, int]] = []
        before_ms = 0.0
        for item_id, by_rate in self._sent.items():
            sent_ms = sum(samples * 1000 / rate_hz for rate_hz, samples in by_rate.items())
            heard_ms = max(0.0, played_ms - before_ms)
            if item_id is not None and heard_ms < sent_ms:
                cuts.append((item_id, int(heard_ms)))
            before_ms += sent_ms
        return cuts

    def whole_samples(self, response_id: str | None, item_id: str | None, data: bytes) -> bytes:
        """Prepend the half sample that the item's previous delta ended with; keep a new half for the next one."""
        kept_response, kept_item, half = self._half
        if not half and not len(data) % 2:
            return data
        if half and (kept_response, kept_item) == (response_id, item_id):
            data = half + data
        odd = len(data) % 2
        self._half = (response_id, item_id, data[-1:] if odd else b"")
        return data[:-1] if odd else data

    def ends_inside_sample(self, response_id: str | None, item_id: str | None) -> bool:
        """Return whether the item's audio ended with half a sample."""
        return self._half[:2] == (response_id, item_id) and bool(self._half[2])
