"""One request and its response as it arrives: chunks with their times, and in the end the answer or its fault. Pure."""

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from loadtest.llm.answers import (
    SECOND_NS,
    FaultKind,
    LlmAnswer,
    LlmChunk,
    LlmFault,
    LlmUsage,
    ServerTimings,
    ToolCall,
)
from loadtest.llm.bodies import KEY_VARIABLES, LlmTarget, Wire
from loadtest.protocols.failure import Failure
from loadtest.protocols.http_items import HttpData, HttpEnd, HttpFailed, HttpHead, HttpItem
from loadtest.protocols.json_fields import Json
from loadtest.protocols.stages.llm_streams import AnthropicStream, GeminiStream, OpenAiStream, count
from loadtest.protocols.stages.parts import Broken, Finished, Malformed
from telemetry.model.formatting import milliseconds

Stream = OpenAiStream | AnthropicStream | GeminiStream
_STREAMS: Final[Mapping[Wire, type[Stream]]] = {
    "openai": OpenAiStream,
    "anthropic": AnthropicStream,
    "gemini": GeminiStream,
}
MAX_ANSWER_BYTES: Final = 64 * 2**20
# An answer of so many tokens or events that arrives in one piece was held back: no model writes so many at once.
HELD_BACK: Final = 8
# The client looks at its sockets every 10 ms: what came after a longer time of not looking may have come in pieces.
NOT_LOOKED_NS: Final = 50_000_000
_OVERLOADED: Final = frozenset({429, 529})
_FAULT_OF_CODE: Final[Mapping[str | None, FaultKind]] = {
    "cut_short": "cut_off",
    "connection": "cut_off",
    "tls": "cut_off",
    "bad_http": "http",
}


class Times(msgspec.Struct):
    """The times of the steps of a request, as the answer has them; those of opening a connection where one was made."""

    started_ns: int
    dns_ns: int | None = None
    tcp_ns: int | None = None
    tls_ns: int | None = None
    asked_ns: int | None = None
    stamps: Literal["kernel", "user"] = "user"


class ModelExchange:
    """Collects one response. `is_over` once nothing that comes can change the answer."""

    def __init__(self, target: LlmTarget, url: str) -> None:
        self._target = target
        self._reader = _STREAMS[target.wire]()
        self._reader.url = url
        self._status: int | None = None
        self._is_json = False
        self._bytes = 0
        self.first_byte_ns: int | None = None
        self.finished_ns: int | None = None
        self.last_ns: int | None = None
        self.chunks: list[LlmChunk] = []
        self.malformed: list[str] = []
        self.fault: LlmFault | None = None
        self.is_over = False
        self.is_complete = False  # the whole body came, so that the connection can be used again

    def receive(self, lower_ns: int, upper_ns: int, items: list[HttpItem]) -> None:
        """Take over what one read completed."""
        if not any(isinstance(item, HttpFailed) and item.failure.kind in ("tcp", "tls") for item in items):
            self.first_byte_ns = upper_ns if self.first_byte_ns is None else self.first_byte_ns
            self.last_ns = upper_ns
        for item in items:
            if isinstance(item, HttpHead) and item.status >= 200:
                self._status = item.status
                kind = dict(item.headers).get("content-type", "").partition(";")[0].strip().lower()
                self._is_json = kind == "application/json"
            elif isinstance(item, HttpData):
                self._bytes += len(item.data)
            elif isinstance(item, HttpEnd):
                self.is_complete = True
            if not self.is_over:
                self._take(item, upper_ns)
        if (piece := self._reader.heard.take()) is not None:
            lower_ns = upper_ns if piece.events == 1 else lower_ns
            self.chunks.append(
                LlmChunk(lower_ns, upper_ns, piece.text, piece.reasoning, piece.arguments, piece.tokens, piece.events)
            )
        if self._bytes > MAX_ANSWER_BYTES and not self.is_over:
            self.fail("never_ended", f"the stream had not ended after {MAX_ANSWER_BYTES >> 20} MiB")

    def fail(self, kind: FaultKind, sentence: str) -> None:
        """End an answer that will not be completed."""
        self._fail(LlmFault(kind, sentence))

    def _take(self, item: HttpItem, upper_ns: int) -> None:
        for part in self._reader.receive(item):
            if isinstance(part, Malformed):
                self.malformed.append(part.message)
            elif isinstance(part, Broken):
                self._fail(self._fault_of(part.message, part.failure))
            elif isinstance(part, Finished):
                self.is_over, self.finished_ns = True, upper_ns
        if isinstance(item, HttpEnd | HttpFailed) and not self.is_over:
            self._fail(LlmFault("cut_off", "the answer ended before it was complete"))

    def _fail(self, fault: LlmFault) -> None:
        self.is_over = True
        self.fault = fault

    # What came of it.

    def answer(self, times: Times) -> LlmAnswer:
        """Return the answer, or what came of it, with all its times."""
        heard = self._reader.heard
        return LlmAnswer(
            target=self._target.name,
            **msgspec.structs.asdict(times),
            first_byte_ns=self.first_byte_ns,
            finished_ns=self.finished_ns,
            chunks=tuple(self.chunks),
            tool_calls=tuple(ToolCall(*call) for _, call in sorted(heard.tool_calls.items())),
            usage=self._usage(),
            finish_reason=heard.finish_reason,
            served_model=heard.served_model,
            timings=self._timings(),
            keep_alives=self._reader.comments + heard.pings,
            fault=self._fault_of_answer(),
        )

    def _fault_of_answer(self) -> LlmFault | None:
        """Return why this answer has no figures: how it failed, or why it says nothing about the model's times."""
        if self.fault is not None:
            return self.fault
        heard = self._reader.heard
        if heard.finish_reason == "error":
            return LlmFault("error_in_stream", "the answer names an error as its reason to end")
        if self.malformed:
            number, first = len(self.malformed), self.malformed[0]
            return LlmFault("undecodable", f"{number} events cannot be decoded; the first: {first}")
        if not heard.has_choices:
            why = "" if heard.finish_reason is None else f" ({heard.finish_reason})"
            return LlmFault("empty_choices", f"the answer ended without a single choice{why}")
        if not self.chunks:
            why = "no reason" if heard.finish_reason is None else f"the reason {heard.finish_reason!r}"
            return LlmFault("empty_answer", f"the answer has neither text nor a tool call, and {why} to end")
        return self._held_back()

    def _held_back(self) -> LlmFault | None:
        if self._is_json:
            return LlmFault("not_a_stream", "a stream was asked for, and the whole answer came as one JSON body")
        if len(self.chunks) > 1:
            return None
        only, usage = self.chunks[0], self._reader.heard.usage
        if only.arguments and not only.text and only.events == 1:
            return None  # several services send each call of a tool whole
        held = max(only.events, usage.get("output_tokens", 0))
        if held < HELD_BACK:
            return None
        what = f"all {only.events} events" if only.events > 1 else f"all {held} tokens"
        if (blind_ns := only.upper_ns - only.lower_ns) > NOT_LOOKED_NS:
            blind = milliseconds(blind_ns)
            return LlmFault("not_seen", f"{what} came while this busy machine did not look for {blind}")
        return LlmFault("buffered", f"{what} of the stream arrived in one piece: something on the way holds them back")

    def _usage(self) -> LlmUsage | None:
        """The server's counts, None where it sends none; those that cannot be are none."""
        usage = self._reader.heard.usage
        if not usage:
            return None
        prompt, cached = usage.get("input_tokens"), usage.get("cached_tokens")
        return LlmUsage(
            prompt=prompt or None,
            cached=None if cached is not None and prompt is not None and cached > prompt else cached,
            completion=usage.get("output_tokens") or None,
            reasoning=usage.get("reasoning_tokens"),
            audio=usage.get("input_audio_tokens"),
        )

    def _timings(self) -> ServerTimings | None:
        """The server's own times, None where it sends none."""
        timings = self._reader.heard.timings
        if timings is None:
            return None
        return ServerTimings(
            prompt_n=count(timings, "prompt_n"),
            prompt_ms=_number(timings, "prompt_ms"),
            predicted_n=count(timings, "predicted_n"),
            predicted_ms=_number(timings, "predicted_ms"),
            cache_n=count(timings, "cache_n"),
        )

    @property
    def finish_reason(self) -> str | None:
        """The service's reason to end."""
        return self._reader.heard.finish_reason

    def _fault_of(self, sentence: str, failure: Failure) -> LlmFault:
        kind = self._kind_of(sentence.lower(), failure)
        if kind == "unauthorized" and self._target.key is None:
            sentence += f"; no key was sent: set {KEY_VARIABLES[self._target.wire][0]}"
        elif kind == "rate_limited" and failure.retry_after_ns is not None:
            sentence += f"; it asks to wait {failure.retry_after_ns / SECOND_NS:g} s"
        if self._target.key is not None:  # a server may repeat what it was sent
            sentence = sentence.replace(self._target.key.reveal(), "…")
        return LlmFault(kind, sentence, self._status, failure.retry_after_ns)

    def _kind_of(self, sentence: str, failure: Failure) -> FaultKind:
        if failure.kind == "http_status":
            if self._status in _OVERLOADED:
                return "rate_limited"
            if self._status in (401, 403) or "api key not valid" in sentence:
                return "unauthorized"
            reason = sentence.partition(": ")[2]
            return "unknown_model" if "model" in reason and _says_unknown(reason, self._status) else "http_status"
        if failure.kind == "endpoint_error":
            return "error_in_stream"
        if failure.kind in ("tcp", "tls"):
            if self._status is not None:
                return "cut_off"
            return "http" if self.first_byte_ns is not None else "tls" if failure.kind == "tls" else "connection"
        return _FAULT_OF_CODE.get(failure.code, "undecodable")


def _says_unknown(sentence: str, status: int | None) -> bool:
    words = ("not found", "not_found", "does not exist", "unknown", "invalid model", "no such", "not a valid model")
    return status in (400, 404, 422) and any(word in sentence for word in words)


def _number(fields: Json, key: str) -> float | None:
    value = fields.get(key)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
