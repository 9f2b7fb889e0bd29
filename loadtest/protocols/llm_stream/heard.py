"""The text of one language model's answer so far, and its newest part. Pure."""

import msgspec

from loadtest.protocols.json_fields import Json, as_object


class Piece(msgspec.Struct, frozen=True):
    """The new part since the last piece. `tokens` is None where no running count says it."""

    text: str
    reasoning: str
    arguments: str
    tokens: int | None
    events: int


class Heard:
    """Collects one answer. Counts have OpenAI's meaning: input includes cached tokens, output includes reasoning."""

    def __init__(self) -> None:
        self.usage: dict[str, int] = {}
        self.timings: Json | None = None  # the server's own, as llama.cpp sends them
        self.served_model: str | None = None
        self.tool_calls: dict[int, list[str]] = {}  # name and arguments by index
        self.has_choices = False
        self.finish_reason: str | None = None
        self.pings = 0
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._arguments: list[str] = []
        self._events = 0
        self._tokens: int | None = 0
        self._running: int | None = 0  # the running count at the last event with content

    def call(self, index: int, name: str, arguments: str) -> str:
        """Keep a part of a tool call and return what it adds to the answer."""
        known = self.tool_calls.setdefault(index, ["", ""])
        known[0] += name
        known[1] += arguments
        return name + arguments

    def add(self, text: str = "", reasoning: str = "", arguments: str = "", running: int | None = None) -> None:
        """Add the content of one event, after which the server's running count of tokens is `running`.

        A count that begins late says nothing of what came before it, and none of an event that has it alone; one that
        falls says nothing of its event.
        """
        if not (text or reasoning or arguments):
            return
        self._events += 1
        self._text.append(text)
        self._reasoning.append(reasoning)
        self._arguments.append(arguments)
        if running is None or self._running is None or self._tokens is None or running < self._running:
            self._tokens = None
        else:
            self._tokens += running - self._running
        self._running = running

    def take(self) -> Piece | None:
        """Return what is new since the last call, None if nothing is."""
        if not self._events:
            return None
        joined = ["".join(parts) for parts in (self._text, self._reasoning, self._arguments)]
        piece = Piece(*joined, tokens=self._tokens, events=self._events)
        self._text, self._reasoning, self._arguments = [], [], []
        self._events, self._tokens = 0, 0
        return piece


def count(fields: Json | None, key: str) -> int | None:
    """Return the whole number ≥ 0 at `key`, None for everything else: a count is left out, never 0."""
    value = (fields or {}).get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def text_at(fields: Json | None, key: str) -> str:
    """Return the string at `key`, "" for everything else."""
    value = (fields or {}).get(key)
    return value if isinstance(value, str) else ""


def object_at(fields: Json | None, key: str) -> Json | None:
    """Return the object at `key`, None for everything else."""
    return as_object((fields or {}).get(key))
