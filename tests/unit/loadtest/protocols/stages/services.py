"""A caller of stage services and the services it asks, for the tests: what each answers is said message by message."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from loadtest.protocols.base import CallerOptions, Outgoing, SpokenText, VoiceEvent
from loadtest.protocols.http_items import HttpCancel, HttpData, HttpEnd, HttpHead, HttpItem, HttpRequest
from loadtest.protocols.registry import make_caller
from loadtest.protocols.stages.caller import StagesCaller

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
EVENT_STREAM = (("content-type", "text/event-stream"),)
FRAME_NS = 20_000_000


class Services:
    """A caller and what it asks of its services."""

    def __init__(self, wire: str, options: CallerOptions | None = None, url: str = "http://gateway:4000/v1") -> None:
        caller = make_caller(wire, options or CallerOptions("manual"))
        assert isinstance(caller, StagesCaller)
        self.caller = caller
        self.caller.upgrade(url, TRACE)
        self.requests: list[HttpRequest] = []
        self.canceled: list[str] = []
        self.take(self.caller.opened())

    def take(self, messages: Sequence[Outgoing]) -> None:
        for message in messages:
            if isinstance(message, HttpCancel):
                self.canceled.append(message.request_id)
            else:
                assert isinstance(message, HttpRequest)
                self.requests.append(message)

    def get(self, *items: HttpItem) -> list[VoiceEvent]:
        events = [event for item in items for event in self.caller.receive(item)]
        self.take(self.caller.pending())
        return events

    def last(self, path: str) -> HttpRequest:
        return [request for request in self.requests if request.url.endswith(path)][-1]

    def ready(self) -> list[VoiceEvent]:
        waiting, self.requests = self.requests, []
        return [event for request in waiting for event in self.get(HttpHead(request.request_id, 404))]

    def say(self, text: str = "hello", frames: int = 3) -> None:
        self.take(self.caller.begin_turn(SpokenText(text)))
        for _ in range(frames):
            self.frame()
        self.take(self.caller.end_turn())

    def frame(self) -> None:
        self.caller.keep_audio(self.caller.audio_message(np.arange(320, dtype=np.int16)))
        self.take(self.caller.pending())

    def heard(self, text: str) -> list[VoiceEvent]:
        name = self.last("transcriptions").request_id
        body = HttpData(name, json.dumps({"text": text}).encode())
        return self.get(HttpHead(name, 200, (("content-type", "application/json"),)), body, HttpEnd(name))

    def begins(self) -> list[VoiceEvent]:
        return self.get(HttpHead(self.last("completions").request_id, 200, EVENT_STREAM))

    def words(self, text: str, why: str | None = None) -> list[VoiceEvent]:
        value = {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": why}]}
        return self.get(HttpData(self.last("completions").request_id, f"data: {json.dumps(value)}\n\n".encode()))

    def words_end(self, usage: dict[str, Any] | None = None) -> list[VoiceEvent]:
        body = f"data: {json.dumps({'choices': [], 'usage': usage})}\n\ndata: [DONE]\n\n".encode()
        name = self.last("completions").request_id
        return self.get(HttpData(name, body), HttpEnd(name))

    def speech(self, pcm: bytes) -> list[VoiceEvent]:
        name = self.last("speech").request_id
        return self.get(HttpHead(name, 200), HttpData(name, pcm), HttpEnd(name))


def answering(options: CallerOptions | None = None) -> Services:
    """A cascade whose language model is answering."""
    services = Services("http-cascade", options)
    services.ready()
    services.say()
    services.heard("what is the weather")
    services.begins()
    return services
