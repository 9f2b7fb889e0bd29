"""`models/NAME:streamGenerateContent?alt=sse` of Gemini: each event is a response with what is new. Pure."""

import orjson

from loadtest.protocols.failure import Failure
from loadtest.protocols.json_fields import Json, as_list, as_object, excerpt, parse_object
from loadtest.protocols.llm_stream.heard import Heard, count, object_at, text_at
from loadtest.protocols.stages.parts import Broken, Finished, Part
from loadtest.protocols.stages.reader import ResponseReader, cut_short, error_in_stream
from loadtest.protocols.stages.sse import SseEvent


class GeminiStream(ResponseReader):
    """One answer: text, thoughts, calls of functions. It is over when its body is."""

    stage = "llm"

    def __init__(self) -> None:
        super().__init__()
        self.heard = Heard()

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

    def raw(self, data: bytes) -> list[Part]:
        """Refuse a body that is neither a stream of events nor JSON."""
        sentence = f"the llm service sent neither an event stream nor JSON: {excerpt(data)}"
        return [Broken(sentence, Failure("protocol_violation", "content_type"))]

    def ended(self) -> list[Part]:
        """Finish an answer that gave its reason to end."""
        if self.heard.finish_reason is None:
            return [cut_short("llm")]
        self.over = True
        return [Finished(self.heard.finish_reason, self.heard.usage, bool(self.heard.tool_calls))]

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
        found = self.heard.usage
        for name, key in (("input_tokens", "promptTokenCount"), ("cached_tokens", "cachedContentTokenCount")):
            if (value := count(usage, key)) is not None:
                found[name] = value
        thoughts, candidates = count(usage, "thoughtsTokenCount"), count(usage, "candidatesTokenCount")
        if thoughts is not None:
            found["reasoning_tokens"] = thoughts
        if candidates is None:
            return None
        found["output_tokens"] = candidates + (thoughts or 0)
        return found["output_tokens"]
