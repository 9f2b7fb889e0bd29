"""Which response is being generated, what each one carried, and which of them are over.

What this wire says about it. A conversation has one response at a time: where `response.created` announces another one
before the `response.done` of the first, the first is over, whether or not its `response.done` still comes. A response
outside the conversation (`conversation: none`, so that its `conversation_id` is null) runs beside and is not for the
caller. Its null only means something where the endpoint names the conversation of other responses: many servers leave
the field out or null everywhere.

A response with a tool call is not all of an answer: somebody runs the tool, and another response follows. A caller
declares no tools and so can answer no call: it is the endpoint, or a gateway before it, that must go on by itself.
"""

from collections import OrderedDict
from typing import Final, NamedTuple

from loadtest.protocols.base import Content
from loadtest.protocols.openai_realtime.fields import Json, as_list, as_object

REMEMBERED_RESPONSES: Final = 64
_TOOL_ITEMS: Final = frozenset({"function_call", "mcp_call", "custom_tool_call"})
_TEXT_FIELDS: Final = ("text", "transcript")
_NOTHING: Final[frozenset[Content]] = frozenset()


class Superseded(NamedTuple):
    """A response that is over because a newer one took its place, and what it had carried."""

    response_id: str | None
    carried: frozenset[Content]


class Responses:
    """The responses of one connection, oldest first; `generating` is the one in the conversation."""

    def __init__(self) -> None:
        self.generating: str | None = None
        self._unnamed_open = False
        self._carried: OrderedDict[str | None, set[Content]] = OrderedDict()
        self._done: OrderedDict[str, None] = OrderedDict()
        self._outside: OrderedDict[str, None] = OrderedDict()
        self._names_conversations = False

    def begin(self, response_id: str | None, response: Json) -> "Superseded | None":
        """A response was announced; the one before it that it supersedes, if any, which is over now."""
        conversation = response.get("conversation_id")
        if isinstance(conversation, str):
            self._names_conversations = True
        elif "conversation_id" in response and self._names_conversations and response_id is not None:
            _remember(self._outside, response_id)
            return None
        old = self.generating
        superseded = self._unnamed_open if old is None else old != response_id
        over = Superseded(old, self.end(old)) if superseded else None
        self.generating, self._unnamed_open = response_id, response_id is None
        return over

    def is_outside(self, response_id: str | None) -> bool:
        """Whether a response runs outside the conversation."""
        return response_id in self._outside

    def is_done(self, response_id: str | None) -> bool:
        """Whether a response was closed."""
        return response_id in self._done

    def of_piece(self, response_id: str | None) -> str | None:
        """The response that a piece of a reply belongs to: one without an id belongs to what is being generated, and
        one that was never announced begins with its first piece."""
        if response_id is None:
            return self.generating
        if self.generating is None and not self.is_done(response_id) and not self.is_outside(response_id):
            self.generating = response_id
        return response_id

    def carry(self, response_id: str | None, content: Content) -> None:
        """Something of a response arrived."""
        carried = self._carried.get(response_id)
        if carried is None:
            carried = self._carried[response_id] = set()
            while len(self._carried) > REMEMBERED_RESPONSES:
                self._carried.popitem(last=False)
        carried.add(content)

    def end(self, response_id: str | None) -> frozenset[Content]:
        """A response is over: what it carried."""
        if response_id is None or response_id == self.generating:
            self.generating = None
            self._unnamed_open = False
        if response_id is not None:
            _remember(self._done, response_id)
        return frozenset(self._carried.pop(response_id, _NOTHING))


def is_tool_item(item: Json | None) -> bool:
    """Whether an output item is a tool call."""
    return item is not None and item.get("type") in _TOOL_ITEMS


def content_of_output(response: Json) -> set[Content]:
    """What the output of a whole response holds beside audio, which counts only where it was heard."""
    found: set[Content] = set()
    for entry in as_list(response.get("output")) or ():
        item = as_object(entry)
        if is_tool_item(item):
            found.add("tool_call")
        parts = None if item is None else as_list(item.get("content"))
        for part in map(as_object, parts or ()):
            if part is not None and any(part.get(name) for name in _TEXT_FIELDS):
                found.add("text")
    return found


def _remember(ids: "OrderedDict[str, None]", response_id: str) -> None:
    ids[response_id] = None
    while len(ids) > REMEMBERED_RESPONSES:
        ids.popitem(last=False)
