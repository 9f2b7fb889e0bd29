"""`POST /v1/messages` of Anthropic: the answer as typed events, or as one message. Pure."""

from collections.abc import Mapping
from typing import Final

import orjson

from loadtest.protocols.failure import Failure
from loadtest.protocols.json_fields import Json, as_list, as_object, excerpt
from loadtest.protocols.llm_stream.heard import Heard, count, object_at, text_at
from loadtest.protocols.stages.parts import Broken, Finished, Part
from loadtest.protocols.stages.reader import TypedEventReader, cut_short, error_in_stream

# A field of each kind of delta, and whether it is text, reasoning, or the arguments of a tool call.
_DELTAS: Final[Mapping[str, tuple[str, int]]] = {
    "text_delta": ("text", 0),
    "thinking_delta": ("thinking", 1),
    "input_json_delta": ("partial_json", 2),
}
_SILENT: Final = frozenset({"content_block_stop"})


class AnthropicStream(TypedEventReader):
    """One answer: text, thinking, uses of tools."""

    stage = "llm"

    def __init__(self) -> None:
        super().__init__()
        self.heard = Heard()

    def typed(self, kind: object, fields: Json) -> list[Part] | None:
        """Decode one event by its type."""
        heard = self.heard
        if kind == "message_start":
            self._message(object_at(fields, "message"))
        elif kind == "content_block_start":
            heard.has_choices = True
            self._block(count(fields, "index") or 0, object_at(fields, "content_block"), is_streamed=True)
        elif kind == "content_block_delta":
            heard.has_choices = True
            self._delta(count(fields, "index") or 0, object_at(fields, "delta"))
        elif kind == "message_delta":
            heard.finish_reason = text_at(object_at(fields, "delta"), "stop_reason") or heard.finish_reason
            self._usage(object_at(fields, "usage"))
        elif kind == "message_stop":
            return self._finish()
        elif kind == "ping":
            heard.pings += 1
        elif kind not in _SILENT:
            return None
        return []

    def whole(self, fields: Json) -> list[Part]:
        """Decode an answer that was not streamed."""
        if "error" in fields:
            return [error_in_stream("llm", fields)]
        self._message(fields)
        for index, entry in enumerate(as_list(fields.get("content")) or ()):
            self.heard.has_choices = True
            self._block(index, as_object(entry), is_streamed=False)
        self.heard.finish_reason = text_at(fields, "stop_reason") or None
        return self._finish()

    def raw(self, data: bytes) -> list[Part]:
        """Refuse a body that is neither a stream of events nor JSON."""
        sentence = f"the llm service sent neither an event stream nor JSON: {excerpt(data)}"
        return [Broken(sentence, Failure("protocol_violation", "content_type"))]

    def ended(self) -> list[Part]:
        """Refuse the end of a body before the message's own end."""
        return [cut_short("llm")]

    def _finish(self) -> list[Part]:
        self.over = True
        return [Finished(self.heard.finish_reason, self.heard.usage, bool(self.heard.tool_calls))]

    def _message(self, message: Json | None) -> None:
        self.heard.served_model = text_at(message, "model") or None
        self._usage(object_at(message, "usage"))

    def _block(self, index: int, block: Json | None, *, is_streamed: bool) -> None:
        kind = text_at(block, "type")
        arguments = ""
        if kind == "tool_use":
            # A stream begins with an empty object, which its deltas write again.
            given = "" if is_streamed else _json(block)
            arguments = self.heard.call(index, text_at(block, "name"), given)
        self.heard.add(text_at(block, "text"), text_at(block, "thinking"), arguments)

    def _delta(self, index: int, delta: Json | None) -> None:
        key, place = _DELTAS.get(text_at(delta, "type"), ("", 0))
        piece = text_at(delta, key)
        if place == 2:
            self.heard.call(index, "", piece)
        text, reasoning, arguments = (piece if at == place else "" for at in range(3))
        self.heard.add(text, reasoning, arguments)

    def _usage(self, usage: Json | None) -> None:
        """Read counts in OpenAI's meaning: Anthropic's input leaves out what came from the cache or went into it."""
        found = self.heard.usage
        prompt, cached = count(usage, "input_tokens"), count(usage, "cache_read_input_tokens")
        if prompt is not None:
            found["input_tokens"] = prompt + (cached or 0) + (count(usage, "cache_creation_input_tokens") or 0)
        if cached is not None:
            found["cached_tokens"] = cached
        if (completion := count(usage, "output_tokens")) is not None:
            found["output_tokens"] = completion


def _json(block: Json | None) -> str:
    return orjson.dumps((block or {}).get("input")).decode()
