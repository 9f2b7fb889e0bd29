"""OpenAI Realtime as its reference describes it, in its GA and its beta form."""

import base64
import json
from typing import Any, ClassVar

from loadtest.protocols.base import Outgoing
from tests.unit.loadtest.protocols.contract.wire_script import Messages, Refused, WireScript


class OpenAIRealtimeScript(WireScript):
    """GA."""

    audio_delta: ClassVar[str] = "response.output_audio.delta"
    audio_done: ClassVar[str] = "response.output_audio.done"
    text_delta: ClassVar[str] = "response.output_audio_transcript.delta"
    session: ClassVar[dict[str, Any]] = {"type": "realtime", "id": "sess_1", "model": "gpt-realtime"}

    def __init__(self) -> None:
        self._events = 0
        self._replies = 0
        self._questions = 0

    @property
    def _question(self) -> str:
        return f"user_{self._questions}"

    def _message(self, kind: str, **fields: Any) -> str:
        self._events += 1
        return json.dumps({"event_id": f"event_{self._events}", "type": kind, **fields})

    @property
    def _reply(self) -> dict[str, Any]:
        part = {"output_index": 0, "content_index": 0}
        return {"response_id": f"resp_{self._replies}", "item_id": f"item_{self._replies}", **part}

    def answers(self, sent: Outgoing) -> Messages:
        assert isinstance(sent, str), "every message of this wire is text"
        if json.loads(sent)["type"] == "session.update":
            return [self._message("session.updated", session=self.session)]
        return ()

    def greets(self) -> Messages:
        return [self._message("session.created", session=self.session)]

    def speech_started(self) -> Messages:
        self._questions += 1
        return [self._message("input_audio_buffer.speech_started", audio_start_ms=100, item_id=self._question)]

    def partial(self, text: str) -> Messages:
        kind = "conversation.item.input_audio_transcription.delta"
        return [self._message(kind, item_id=self._question, content_index=0, delta=text)]

    def speech_stopped(self) -> Messages:
        stopped = self._message("input_audio_buffer.speech_stopped", audio_end_ms=1100, item_id=self._question)
        committed = self._message("input_audio_buffer.committed", item_id=self._question, previous_item_id=None)
        return [stopped, committed]

    def final(self, text: str) -> Messages:
        kind = "conversation.item.input_audio_transcription.completed"
        usage = {"type": "duration", "seconds": 1}
        return [self._message(kind, item_id=self._question, content_index=0, transcript=text, usage=usage)]

    def asr_failed(self) -> Messages:
        kind = "conversation.item.input_audio_transcription.failed"
        error = {"type": "transcription_error", "code": "audio_unintelligible", "message": "No words were understood."}
        return [self._message(kind, item_id=self._question, content_index=0, error=error)]

    def reply_started(self) -> Messages:
        self._replies += 1
        response = {"object": "realtime.response", "id": f"resp_{self._replies}", "status": "in_progress", "output": []}
        return [self._message("response.created", response=response)]

    def text(self, text: str) -> Messages:
        return [self._message(self.text_delta, delta=text, **self._reply)]

    def audio(self, pcm: bytes) -> Messages:
        return [self._message(self.audio_delta, delta=base64.b64encode(pcm).decode(), **self._reply)]

    def reply_done(self) -> Messages:
        return [self._message(self.audio_done, **self._reply), self._done("completed", None)]

    def _done(self, status: str, details: dict[str, Any] | None) -> str:
        response = {"object": "realtime.response", "id": f"resp_{self._replies}", "status": status, "output": []}
        return self._message("response.done", response={**response, "status_details": details})

    def broken_off(self) -> Messages:
        details = {"type": "cancelled", "reason": "turn_detected"}
        return [*self.speech_started(), self._done("cancelled", details)]

    def service_report(self) -> Messages:
        usage = {"total_tokens": 30, "output_tokens": 10, "input_token_details": {"cached_tokens": 20}}
        response = {"id": f"resp_{self._replies}", "status": "completed", "output": [], "usage": usage}
        return [self._message("response.done", response=response)]

    def error(self) -> Messages:
        error = {"type": "invalid_request_error", "code": "invalid_value", "message": "No such voice.", "param": None}
        return [self._message("error", error=error)]

    def fatal_error(self) -> Refused:
        error = {"type": "session_expired", "message": "Your session hit its maximum duration."}
        return Refused([self._message("error", error=error)], "endpoint_error", "session_expired")

    def refusal(self) -> Refused:
        error = {"type": "invalid_request_error", "code": "invalid_api_key", "message": "Incorrect API key provided."}
        return Refused([self._message("error", error=error)], "endpoint_error", "invalid_api_key")

    def capacity(self) -> Refused:
        error = {"type": "session_limit_reached", "message": "All sessions are taken.", "retry_after": 3}
        return Refused([self._message("error", error=error)], "endpoint_error", "session_limit_reached", 3_000_000_000)

    def unknown(self) -> Messages:
        return [self._message("vendor.mood", mood="cheerful")]

    def malformed(self) -> Messages:
        return ["{", "[]", '"text"', "{}", '{"type":3}', json.dumps({"type": self.audio_delta, "delta": "*"}), b"\0\1"]

    def repeated(self) -> Messages:
        (message,) = self.text("It is on. ")
        return [message, message]


class OpenAIRealtimeBetaScript(OpenAIRealtimeScript):
    """The beta: other names for the same, and a flat session."""

    audio_delta = "response.audio.delta"
    audio_done = "response.audio.done"
    text_delta = "response.audio_transcript.delta"
    session: ClassVar[dict[str, Any]] = {"id": "sess_1", "model": "gpt-4o-realtime-preview"}


SCRIPTS = {"openai-realtime": OpenAIRealtimeScript, "openai-realtime-beta": OpenAIRealtimeBetaScript}
