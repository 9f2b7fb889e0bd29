"""Stage services over HTTP as OpenAI's reference and the protocols' documentation describe them."""

import json
from collections import defaultdict
from typing import Any, ClassVar

from loadtest.protocols.base import CallerOptions, Outgoing
from loadtest.protocols.http_items import HttpData, HttpEnd, HttpHead, HttpItem, HttpRequest
from tests.unit.loadtest.protocols.contract.wire_script import Messages, Refused, Stage, WireScript

STREAM = (("content-type", "text/event-stream"),)


def sse(request: HttpRequest, value: Any) -> HttpData:
    text = value if isinstance(value, str) else json.dumps(value)
    return HttpData(request.request_id, f"data: {text}\n\n".encode())


def chunk(delta: dict[str, Any], why: str | None = None) -> dict[str, Any]:
    choices = [{"index": 0, "delta": delta, "finish_reason": why}]
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices}


class StagesScript(WireScript):
    """All three stages at one address."""

    options: ClassVar[CallerOptions] = CallerOptions(turn_control="manual")
    url: ClassVar[str] = "http://127.0.0.1:1/v1"
    order: ClassVar[tuple[Stage, ...]] = ("partial", "final", "reply_started", "text", "audio", "reply_done")
    first_after_speech: ClassVar[Stage] = "partial"

    def __init__(self) -> None:
        # The newest request of each path. Before the first one, nobody's: what is sent to it is heard by nobody.
        self._last = defaultdict[str, HttpRequest](lambda: HttpRequest("nobody", "POST", ""))
        self._begun: set[str] = set()

    def answers(self, sent: Outgoing) -> Messages:
        if isinstance(sent, HttpRequest):
            self._last[sent.url.rpartition("/")[2]] = sent
            if sent.method == "GET":
                body = b'{"object": "list", "data": []}'
                return [HttpHead(sent.request_id, 200), HttpData(sent.request_id, body), HttpEnd(sent.request_id)]
        return ()

    def _begin(self, path: str, headers: tuple[tuple[str, str], ...]) -> list[HttpItem]:
        name = self._last[path].request_id
        if name in self._begun:
            return []
        self._begun.add(name)
        return [HttpHead(name, 200, headers)]

    def partial(self, text: str) -> Messages | None:
        delta = {"type": "transcript.text.delta", "delta": text}
        return [*self._begin("transcriptions", STREAM), sse(self._last["transcriptions"], delta)]

    def final(self, text: str) -> Messages | None:
        request = self._last["transcriptions"]
        done = {"type": "transcript.text.done", "text": text}
        return [*self._begin("transcriptions", STREAM), sse(request, done), HttpEnd(request.request_id)]

    def asr_failed(self) -> Messages:
        request = self._last["transcriptions"]
        error = {"error": {"message": "The audio is too short.", "type": "invalid_request_error", "code": "short"}}
        head = HttpHead(request.request_id, 400, (("content-type", "application/json"),))
        return [head, HttpData(request.request_id, json.dumps(error).encode()), HttpEnd(request.request_id)]

    def reply_started(self) -> Messages | None:
        role = sse(self._last["completions"], chunk({"role": "assistant", "content": ""}))
        return [*self._begin("completions", STREAM), role]

    def text(self, text: str) -> Messages | None:
        return [sse(self._last["completions"], chunk({"content": text}))]

    def audio(self, pcm: bytes) -> Messages | None:
        request = self._last["speech"]
        return [*self._begin("speech", (("content-type", "audio/pcm"),)), HttpData(request.request_id, pcm)]

    def reply_done(self) -> Messages | None:
        return [*self._end_of_text(), HttpEnd(self._last["speech"].request_id)]

    def _end_of_text(self) -> list[HttpItem]:
        request = self._last["completions"]
        usage = {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25}
        last = {**chunk({}), "choices": [], "usage": usage}
        parts = (chunk({}, "stop"), last, "[DONE]")
        return [*(sse(request, part) for part in parts), HttpEnd(request.request_id)]

    def refusal(self) -> Refused:
        name = self._last["models"].request_id
        error = {"error": {"message": "Incorrect API key.", "type": "invalid_request_error", "code": "invalid_api_key"}}
        body = HttpData(name, json.dumps(error).encode())
        return Refused([HttpHead(name, 401), body, HttpEnd(name)], "http_status", "401")

    def capacity(self) -> Refused:
        name = self._last["models"].request_id
        head = HttpHead(name, 503, (("retry-after", "3"),))
        return Refused([head, HttpData(name, b"busy"), HttpEnd(name)], "http_status", "503", 3_000_000_000)


class RecognitionScript(StagesScript):
    """Recognition alone: the transcript is the result of a turn."""

    order: ClassVar[tuple[Stage, ...]] = ("partial", "final")

    reply_started = WireScript.reply_started
    text = WireScript.text
    audio = WireScript.audio
    reply_done = WireScript.reply_done


class LanguageModelScript(StagesScript):
    """The language model alone: text in, text out."""

    order: ClassVar[tuple[Stage, ...]] = ("reply_started", "text", "reply_done")
    first_after_speech: ClassVar[Stage] = "reply_started"

    partial = WireScript.partial
    final = WireScript.final
    asr_failed = WireScript.asr_failed
    audio = WireScript.audio

    def reply_done(self) -> Messages | None:
        return self._end_of_text()


class SpeechScript(LanguageModelScript):
    """Speech synthesis alone: text in, audio out."""

    options: ClassVar[CallerOptions] = CallerOptions(turn_control="manual")
    order: ClassVar[tuple[Stage, ...]] = ("audio", "reply_done")
    first_after_speech: ClassVar[Stage] = "audio"

    reply_started = WireScript.reply_started
    text = WireScript.text

    def audio(self, pcm: bytes) -> Messages | None:
        return StagesScript.audio(self, pcm)

    def reply_done(self) -> Messages | None:
        return [HttpEnd(self._last["speech"].request_id)]


SCRIPTS = {
    "http-cascade": StagesScript,
    "asr": RecognitionScript,
    "llm": LanguageModelScript,
    "tts": SpeechScript,
}
