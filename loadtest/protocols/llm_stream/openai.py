"""`POST /chat/completions` of OpenAI, and of the many servers with its wire, with what they add to it. Pure."""

from typing import Final

from loadtest.protocols.json_fields import Json, as_list, as_object
from loadtest.protocols.llm_stream.heard import Heard, count, object_at, text_at
from loadtest.protocols.stages.llm import AnswerReader, chat_usage
from loadtest.protocols.stages.parts import Part, Words

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
        found: list[str] = []
        for place, entry in enumerate(as_list((delta or {}).get("tool_calls")) or ()):
            call = as_object(entry)
            index = count(call, "index")
            function = object_at(call, "function")
            name, arguments = text_at(function, "name"), text_at(function, "arguments")
            found.append(self.heard.call(place if index is None else index, name, arguments))
        return "".join(found)
