"""`POST /chat/completions`: the request for one answer, and the answer as a stream of server-sent events or as JSON."""

from collections.abc import Mapping, Sequence

import orjson

from loadtest.protocols.failure import Failure
from loadtest.protocols.json_fields import (
    Json,
    MalformedError,
    as_list,
    as_object,
    excerpt,
    optional_object,
    parse_object,
)
from loadtest.protocols.stages.parts import Broken, Finished, Part, Words
from loadtest.protocols.stages.reader import ResponseReader, cut_short, error_in_stream
from loadtest.protocols.stages.settings import StageSettings
from loadtest.protocols.stages.sse import SseEvent

PATH = "chat/completions"
_REASONING_FIELDS = ("reasoning_content", "reasoning")


def chat_body(
    messages: Sequence[Mapping[str, str]], settings: StageSettings, metadata: Mapping[str, str] | None = None
) -> bytes:
    """Return the body of the request for the answer to these messages, streamed with its usage."""
    body: dict[str, object] = {
        "messages": list(messages),
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if settings.llm_model is not None:
        body["model"] = settings.llm_model
    if settings.llm_max_tokens is not None:
        body["max_tokens"] = settings.llm_max_tokens
    if metadata:
        body["metadata"] = dict(metadata)
    return orjson.dumps(body | settings.llm_body)


class AnswerReader(ResponseReader):
    """The text of one answer, with what it used."""

    stage = "llm"

    def __init__(self) -> None:
        super().__init__()
        self._why: str | None = None
        self._usage: dict[str, int] = {}
        self._tool_call = False
        self._declined = False  # the model declined to answer, which it says in a text separate from the answer's

    def event(self, event: SseEvent) -> list[Part]:
        """Decode one chunk, or the end of the stream."""
        if event.data.strip() == "[DONE]":
            return self._finish()
        fields = parse_object(event.data)
        if event.event == "error" or fields.get("error"):
            return [error_in_stream(self.stage, fields)]
        return self.chunk(fields, "delta")

    def whole(self, fields: Json) -> list[Part]:
        """Decode an answer that was not streamed."""
        if fields.get("error"):
            return [error_in_stream(self.stage, fields)]
        return [*self.chunk(fields, "message"), *self._finish()]

    def chunk(self, fields: Json, key: str) -> list[Part]:
        """Decode what one event says, or the whole answer, whose choices have it at `key`. May raise MalformedError."""
        self._usage |= chat_usage(optional_object(fields, "usage"))
        return self._choice(fields, key)

    @property
    def why(self) -> str | None:
        """The service's reason to end the answer, None before it."""
        return self._why

    def raw(self, data: bytes) -> list[Part]:
        """Refuse a body that is neither a stream of events nor JSON."""
        sentence = f"the llm service sent neither an event stream nor JSON: {excerpt(data)}"
        return [Broken(sentence, Failure("protocol_violation", "content_type"))]

    def ended(self) -> list[Part]:
        """Finish an answer that gave its reason to end; some services send no [DONE] after it."""
        return [cut_short(self.stage)] if self._why is None else self._finish()

    def _finish(self) -> list[Part]:
        self.over = True
        why = "refusal" if self._declined and self._why in (None, "stop") else self._why
        return [Finished(why, self._usage, self._tool_call)]

    def _choice(self, fields: Json, key: str) -> list[Part]:
        choices = as_list(fields.get("choices"))
        if not choices:
            if choices is None and fields.get("choices") is not None:
                raise MalformedError(f"'choices' is no array: {excerpt(repr(fields['choices']))}")
            return []
        choice = as_object(choices[0])
        if choice is None:
            raise MalformedError(f"a choice is no object: {excerpt(repr(choices[0]))}")
        if choice.get("index") not in (None, 0):
            return []
        if isinstance(why := choice.get("finish_reason"), str):
            self._why = why
        delta = as_object(choice.get(key)) or {}
        self._declined = self._declined or bool(delta.get("refusal"))
        self._tool_call = self._tool_call or bool(delta.get("tool_calls") or delta.get("function_call"))
        parts: list[Part] = []
        for name in _REASONING_FIELDS:
            if isinstance(text := delta.get(name), str) and text:
                parts.append(Words(text, reasoning=True))
                break
        content = delta.get("content")
        parts += [Words(content)] if isinstance(content, str) and content else _typed_words(as_list(content) or ())
        return parts


def _typed_words(pieces: Sequence[object]) -> list[Part]:
    """Decode a content that is a list of typed pieces, as Mistral's reasoning models write it."""
    found: list[Part] = []
    for piece in map(as_object, pieces):
        thoughts = as_list((piece or {}).get("thinking")) or ()
        for of, reasoning in ((piece, False), *((as_object(each), True) for each in thoughts)):
            text = (of or {}).get("text")
            found += [Words(text, reasoning=reasoning)] if isinstance(text, str) and text else []
    return found


def chat_usage(usage: Json | None) -> dict[str, int]:
    """Return the counts of tokens by the names that reports use; a count that is missing is left out, never 0."""
    usage = usage or {}
    prompt, completion = (
        as_object(usage.get("prompt_tokens_details")),
        as_object(usage.get("completion_tokens_details")),
    )
    found = {
        "input_tokens": usage.get("prompt_tokens"),
        "output_tokens": usage.get("completion_tokens"),
        "total_tokens": usage.get("total_tokens"),
        "cached_tokens": (prompt or {}).get("cached_tokens"),
        "input_audio_tokens": (prompt or {}).get("audio_tokens"),
        "reasoning_tokens": (completion or {}).get("reasoning_tokens"),
    }
    counts = {
        name: value
        for name, value in found.items()
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0
    }
    if "output_tokens" in counts:
        counts["output_text_tokens"] = max(0, counts["output_tokens"] - counts.get("reasoning_tokens", 0))
    return counts
