"""Realtime transcription as vLLM's and SGLang's servers send it."""

import json
from typing import Any, ClassVar

from loadtest.protocols.base import CallerOptions, Outgoing
from tests.unit.loadtest.protocols.contract.wire_script import Messages, Refused, Stage, WireScript


class VllmScript(WireScript):
    """vLLM: the names of its events are its own, and an error is a sentence."""

    options: ClassVar[CallerOptions] = CallerOptions(turn_control="manual", model="voxtral")
    url: ClassVar[str] = "ws://127.0.0.1:1/v1/realtime"
    order: ClassVar[tuple[Stage, ...]] = ("partial", "final")
    first_after_speech: ClassVar[Stage] = "final"

    def _message(self, kind: str, **fields: Any) -> str:
        return json.dumps({"type": kind, **fields})

    def answers(self, sent: Outgoing) -> Messages:
        assert json.loads(sent)["type"] in (  # type: ignore[arg-type]  # every message of this wire is text
            "session.update",
            "input_audio_buffer.append",
            "input_audio_buffer.commit",
        ), "anything else is an error of this server"
        return ()

    def ends_turn(self, sent: Outgoing) -> bool:
        fields = json.loads(sent)  # type: ignore[arg-type]  # every message of this wire is text
        return fields["type"] == "input_audio_buffer.commit" and fields.get("final", True)

    def greets(self) -> Messages:
        return [self._message("session.created", id="sess-1", created=1780000000)]

    def partial(self, text: str) -> Messages:
        return [self._message("transcription.delta", delta=text)]

    def final(self, text: str) -> Messages:
        usage = {"prompt_tokens": 40, "total_tokens": 44, "completion_tokens": 4, "prompt_tokens_details": None}
        return [self._message("transcription.done", text=text, usage=usage)]

    def asr_failed(self) -> Messages:
        return [self._message("error", error="the engine is dead", code="processing_error")]

    def error(self) -> Messages:
        return [self._message("error", error="Invalid audio data", code="invalid_audio")]

    def fatal_error(self) -> Refused:
        error = self._message("error", error="Model not validated.", code="model_not_validated")
        return Refused([error], "endpoint_error", "model_not_validated")

    def refusal(self) -> Refused:
        error = self._message("error", error="The model `m` does not exist.", code="model_not_found")
        return Refused([error], "endpoint_error", "model_not_found")

    def unknown(self) -> Messages:
        return [self._message("vendor.mood", mood="cheerful")]

    def malformed(self) -> Messages:
        return ["{", "[]", "{}", '{"type":3}', '{"type":"transcription.delta","delta":7}', b"\0\1"]


class SglangScript(VllmScript):
    """SGLang: OpenAI Realtime's transcription sessions."""

    options: ClassVar[CallerOptions] = CallerOptions(
        turn_control="manual", model="whisper", settings={"server": "sglang"}
    )

    utterances = 0  # of which the caller has begun to speak

    def answers(self, sent: Outgoing) -> Messages:
        fields = json.loads(sent)  # type: ignore[arg-type]  # every message of this wire is text
        if fields["type"] == "input_audio_buffer.clear":
            self.utterances += 1
        if fields["type"] == "session.update":
            assert fields["session"]["audio"]["input"]["turn_detection"] is None
            return [self._message("session.updated", session={**fields["session"], "id": "sess_1"})]
        if fields["type"] == "input_audio_buffer.commit":
            return [
                self._message("input_audio_buffer.committed", item_id=f"item_{self.utterances}", previous_item_id=None)
            ]
        return ()

    def greets(self) -> Messages:
        return [self._message("session.created", session={"type": "transcription", "id": "sess_1"})]

    def repeated(self) -> Messages:
        (message,) = self.partial("turn it on")
        message = json.dumps({**json.loads(str(message)), "event_id": "event_7"})
        return [message, message]

    def partial(self, text: str) -> Messages:
        kind = "conversation.item.input_audio_transcription.delta"
        return [self._message(kind, item_id=f"item_{self.utterances}", content_index=0, delta=text)]

    def final(self, text: str) -> Messages:
        kind = "conversation.item.input_audio_transcription.completed"
        usage = {"type": "duration", "seconds": 1}
        return [self._message(kind, item_id=f"item_{self.utterances}", content_index=0, transcript=text, usage=usage)]

    def asr_failed(self) -> Messages:
        kind = "conversation.item.input_audio_transcription.failed"
        error = {"type": "server_error", "code": "decode_failed", "message": "The audio could not be decoded."}
        return [self._message(kind, item_id=f"item_{self.utterances}", content_index=0, error=error)]

    def error(self) -> Messages:
        return [self._message("error", error={"type": "invalid_request_error", "code": "x", "message": "No."})]

    def malformed(self) -> Messages:
        return ["{", "[]", json.dumps({"type": "conversation.item.input_audio_transcription.delta", "delta": 7})]


SCRIPTS = {"vllm-realtime": VllmScript}
