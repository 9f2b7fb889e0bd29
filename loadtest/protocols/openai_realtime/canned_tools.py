"""Answers an endpoint's tool calls with results from the settings, so that its reply goes on."""

from collections.abc import Mapping
from typing import Any, Final

import orjson

from loadtest.protocols.json_fields import Json, as_list, as_object
from loadtest.protocols.tool_results import result_of, result_text

MAX_REMEMBERED: Final = 1000


class CannedTools:
    """The tool calls of a response until it is done, and which calls have been answered."""

    def __init__(self, results: Mapping[str, Any]) -> None:
        self._results = results
        self._called: dict[str, str] = {}  # by call id: the tool's name
        self._answered: dict[str, None] = {}

    def note(self, item: Json | None) -> None:
        """Remember an output item if it is a call of a function; servers send the same one several times."""
        if not self._results or item is None or item.get("type") != "function_call":
            return
        call_id, name = item.get("call_id"), item.get("name")
        # A call is announced before it has a name or arguments.
        if isinstance(call_id, str) and isinstance(name, str) and name and call_id not in self._answered:
            self._called[call_id] = name

    def note_output(self, response: Json) -> None:
        """Remember the calls in a whole response's output."""
        for entry in as_list(response.get("output")) or ():
            self.note(as_object(entry))

    def answers(self) -> tuple[list[str], list[str]]:
        """Return the answers of the calls since the last time, and the tools for which there is no result."""
        called, self._called = self._called, {}
        messages: list[str] = []
        unknown: list[str] = []
        for call_id, name in called.items():
            self._answered[call_id] = None
            if len(self._answered) > MAX_REMEMBERED:
                del self._answered[next(iter(self._answered))]
            result = result_of(self._results, name)
            if result is None:
                unknown.append(name)
                continue
            output = result_text(result)
            item = {"type": "function_call_output", "call_id": call_id, "output": output}
            messages.append(orjson.dumps({"type": "conversation.item.create", "item": item}).decode())
        return messages, unknown
