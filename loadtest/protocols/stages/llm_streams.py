"""Answers of language models as streams of events, on the wires of OpenAI, Anthropic and Gemini. Bytes in; no socket.

`Heard` collects what an answer said, in which counts. `POST /chat/completions` is OpenAI's wire, and that of many
servers, with what they add to it; `POST /v1/messages` is Anthropic's, whose events have types, and
`models/NAME:streamGenerateContent?alt=sse` is Gemini's, where each event is a response with what is new. Pure.
"""

from collections.abc import Mapping
from typing import Final

import msgspec
import orjson

from loadtest.protocols.json_fields import Json, as_list, as_object, parse_object
from loadtest.protocols.stages.parts import Finished, Part, Words
from loadtest.protocols.stages.reader import ResponseReader, SseEvent, TypedEventReader, cut_short, error_in_stream
from loadtest.protocols.stages.services import AnswerReader, chat_usage


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


_MARKS: Final = ("<think>", "</think>")
# How an event stream without its Content-Type begins.
_EVENT_STREAM = (b"data:", b"event:", b":", b"id:", b"retry:")


class InlineThoughts:
    """Takes out of an answer the reasoning at its beginning between <think> and </think>, as some servers leave it."""

    def __init__(self) -> None:
        self._held = ""  # may be the beginning of a mark
        self._mark: str | None = _MARKS[0]  # that which comes next, None once the answer itself has begun

    def split(self, text: str) -> tuple[str, str]:
        """Return what of the text is answer and what is reasoning."""
        if self._mark is None or not text:
            return text, ""
        held = self._held + text
        if self._mark == _MARKS[0]:
            begun = held.lstrip()
            if _MARKS[0].startswith(begun):
                self._held = held
                return "", ""
            self._held = ""
            if not begun.startswith(_MARKS[0]):
                self._mark = None
                return held, ""
            self._mark, held = _MARKS[1], begun.removeprefix(_MARKS[0])
        thought, ended, answer = held.partition(_MARKS[1])
        if ended:
            self._mark, self._held = None, ""
            return answer.lstrip(), thought
        kept = next(size for size in range(len(_MARKS[1]) - 1, -1, -1) if held.endswith(_MARKS[1][:size]))
        self._held = held[len(held) - kept :]
        return "", held[: len(held) - kept]


class OpenAiStream(AnswerReader):
    """One answer: text, reasoning, tool calls, running counts, and the server's own timings."""

    def __init__(self) -> None:
        super().__init__()
        self.heard = Heard()
        self._inline = InlineThoughts()

    def chunk(self, fields: Json, key: str) -> list[Part]:
        """Decode one event, or the one answer that was not streamed. May raise MalformedError."""
        heard = self.heard
        parts = super().chunk(fields, key)
        usage = chat_usage(object_at(fields, "usage"))
        heard.usage |= usage
        if (timings := object_at(fields, "timings")) is not None:
            heard.timings = timings
        heard.served_model = text_at(fields, "model") or heard.served_model
        heard.has_choices = heard.has_choices or bool(fields.get("choices"))
        heard.finish_reason = self.why
        words = [part for part in parts if isinstance(part, Words)]
        text, thought = self._inline.split("".join(part.text for part in words if not part.reasoning))
        heard.add(
            text,
            "".join(part.text for part in words if part.reasoning) + thought,
            self._calls(fields, key),
            usage.get("output_tokens", count(object_at(fields, "timings"), "predicted_n")),
        )
        return parts

    def raw(self, data: bytes) -> list[Part]:
        """Read an event stream whose head does not say that it is one; refuse everything else."""
        if data.lstrip().startswith(_EVENT_STREAM):
            return self.read_as_events(data)
        return super().raw(data)

    def _calls(self, fields: Json, key: str) -> str:
        choices = as_list(fields.get("choices"))
        delta = object_at(as_object(choices[0]), key) if choices else None
        texts: list[str] = []
        for place, entry in enumerate(as_list((delta or {}).get("tool_calls")) or ()):
            call = as_object(entry)
            index = count(call, "index")
            function = object_at(call, "function")
            name, arguments = text_at(function, "name"), text_at(function, "arguments")
            texts.append(self.heard.call(place if index is None else index, name, arguments))
        return "".join(texts)


class _Collecting(ResponseReader):
    """Collects one answer."""

    stage = "llm"

    def __init__(self) -> None:
        super().__init__()
        self.heard = Heard()

    def finish(self) -> list[Part]:
        """End the answer."""
        self.over = True
        return [Finished(self.heard.finish_reason, self.heard.usage, bool(self.heard.tool_calls))]


# A field of each kind of delta, and whether it is text, reasoning, or the arguments of a tool call.
_DELTAS: Final[Mapping[str, tuple[str, int]]] = {
    "text_delta": ("text", 0),
    "thinking_delta": ("thinking", 1),
    "input_json_delta": ("partial_json", 2),
}
_SILENT: Final = frozenset({"content_block_stop"})


class AnthropicStream(_Collecting, TypedEventReader):
    """One answer: text, thinking, uses of tools."""

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
            return self.finish()
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
        return self.finish()

    def ended(self) -> list[Part]:
        """Refuse the end of a body before the message's own end."""
        return [cut_short("llm")]

    def _message(self, message: Json | None) -> None:
        self.heard.served_model = text_at(message, "model") or None
        self._usage(object_at(message, "usage"))

    def _block(self, index: int, block: Json | None, *, is_streamed: bool) -> None:
        kind = text_at(block, "type")
        arguments = ""
        if kind == "tool_use":
            # A stream begins with an empty object, which its deltas write again.
            given = "" if is_streamed else orjson.dumps((block or {}).get("input")).decode()
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
        counts = self.heard.usage
        prompt, cached = count(usage, "input_tokens"), count(usage, "cache_read_input_tokens")
        if prompt is not None:
            counts["input_tokens"] = prompt + (cached or 0) + (count(usage, "cache_creation_input_tokens") or 0)
        if cached is not None:
            counts["cached_tokens"] = cached
        if (completion := count(usage, "output_tokens")) is not None:
            counts["output_tokens"] = completion


class GeminiStream(_Collecting):
    """One answer: text, thoughts, calls of functions. It is over when its body is."""

    def event(self, event: SseEvent) -> list[Part]:
        """Decode one response. May raise MalformedError."""
        fields = parse_object(event.data)
        if "error" in fields:
            return [error_in_stream("llm", fields)]
        heard = self.heard
        heard.served_model = text_at(fields, "modelVersion") or heard.served_model
        running = self._usage(object_at(fields, "usageMetadata"))
        blocked = text_at(object_at(fields, "promptFeedback"), "blockReason")
        heard.finish_reason = blocked or heard.finish_reason
        candidates = as_list(fields.get("candidates"))
        candidate = as_object(candidates[0]) if candidates else None
        if candidate is not None:
            heard.has_choices = True
            heard.finish_reason = text_at(candidate, "finishReason") or heard.finish_reason
            self._content(object_at(candidate, "content"), running)
        return []

    def whole(self, fields: Json) -> list[Part]:
        """Decode an answer that was not streamed. May raise MalformedError."""
        parts = self.event(SseEvent("message", orjson.dumps(fields).decode()))
        return parts or self.ended()

    def ended(self) -> list[Part]:
        """Finish an answer that gave its reason to end."""
        if self.heard.finish_reason is None:
            return [cut_short("llm")]
        return self.finish()

    def _content(self, content: Json | None, running: int | None) -> None:
        heard = self.heard
        text = reasoning = arguments = ""
        for entry in as_list((content or {}).get("parts")) or ():
            part = as_object(entry)
            if (part or {}).get("thought"):
                reasoning += text_at(part, "text")
            else:
                text += text_at(part, "text")
            if (call := object_at(part, "functionCall")) is not None:
                written = orjson.dumps(call.get("args") or {}).decode()
                arguments += heard.call(len(heard.tool_calls), text_at(call, "name"), written)
        heard.add(text, reasoning, arguments, running)

    def _usage(self, usage: Json | None) -> int | None:
        """Read counts in OpenAI's meaning, and return the running count: Gemini's candidates leave out the thoughts."""
        counts = self.heard.usage
        for name, key in (("input_tokens", "promptTokenCount"), ("cached_tokens", "cachedContentTokenCount")):
            if (value := count(usage, key)) is not None:
                counts[name] = value
        thoughts, candidates = count(usage, "thoughtsTokenCount"), count(usage, "candidatesTokenCount")
        if thoughts is not None:
            counts["reasoning_tokens"] = thoughts
        if candidates is None:
            return None
        counts["output_tokens"] = candidates + (thoughts or 0)
        return counts["output_tokens"]
