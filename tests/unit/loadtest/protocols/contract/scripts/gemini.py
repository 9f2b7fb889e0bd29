"""Gemini Live as google-genai's types and client describe it: JSON in binary messages."""

import base64
import json
from collections.abc import Mapping
from typing import Any, ClassVar

from loadtest.protocols.base import CallerOptions, Outgoing
from tests.unit.loadtest.protocols.contract.wire_script import Messages, Refused, Stage, WireScript

NO_KEY = "API key not valid. Please pass a valid API key."


class GeminiScript(WireScript):
    """A native audio model: it says nothing of when it hears speech, and marks the last piece of a transcript."""

    options: ClassVar[CallerOptions] = CallerOptions(model="gemini-live")
    url: ClassVar[str] = "wss://generativelanguage.googleapis.com"
    order: ClassVar[tuple[Stage, ...]] = ("partial", "final", "reply_started", "text", "audio", "reply_done")
    first_after_speech: ClassVar[Stage] = "final"
    rate_suffix: ClassVar[str] = ";rate=24000"

    def _message(self, **members: Any) -> bytes:
        return json.dumps(members).encode()

    def _content(self, **members: Any) -> bytes:
        return self._message(serverContent=members)

    def answers(self, sent: Outgoing) -> Messages:
        assert isinstance(sent, str), "every message of the caller is text"
        fields: Mapping[str, Any] = json.loads(sent)
        (member,) = fields
        assert member in ("setup", "realtimeInput", "toolResponse"), "the service would close the session"
        if member != "setup":
            return ()
        return [self._message(setupComplete={"sessionId": "session-1"})]

    def ends_turn(self, sent: Outgoing) -> bool:
        return "activityEnd" in str(sent)

    def partial(self, text: str) -> Messages:
        return [self._content(interimInputTranscription={"text": text})]

    def final(self, text: str) -> Messages | None:
        return [self._content(inputTranscription={"text": text, "finished": True, "languageCode": "en-US"})]

    def text(self, text: str) -> Messages:
        return [self._content(outputTranscription={"text": text})]

    def audio(self, pcm: bytes) -> Messages:
        middle = len(pcm) // 4 * 2
        return [self._speech(pcm[:middle]), self._speech(pcm[middle:])]

    def _speech(self, pcm: bytes) -> bytes:
        blob = {"mimeType": f"audio/pcm{self.rate_suffix}", "data": base64.b64encode(pcm).decode()}
        return self._content(modelTurn={"role": "model", "parts": [{"inlineData": blob}]})

    def reply_done(self) -> Messages:
        usage = {"promptTokenCount": 300, "responseTokenCount": 40, "totalTokenCount": 340}
        complete = self._message(serverContent={"turnComplete": True}, usageMetadata=usage)
        return [self._content(generationComplete=True), complete]

    def broken_off(self) -> Messages:
        return [self._content(interrupted=True), self._content(turnComplete=True)]

    def clear(self) -> Messages:
        return [self._content(interrupted=True)]

    def service_report(self) -> Messages:
        details = [{"modality": "AUDIO", "tokenCount": 260}, {"modality": "TEXT", "tokenCount": 40}]
        usage = {"promptTokenCount": 300, "cachedContentTokenCount": 200, "promptTokensDetails": details}
        resumption = {"newHandle": "handle-1", "resumable": True}
        return [self._message(usageMetadata=usage), self._message(sessionResumptionUpdate=resumption)]

    def error(self) -> Messages:
        return [self._message(goAway={"timeLeft": "50s"})]

    def fatal_error(self) -> Refused:
        error = {"code": 500, "message": "Internal error encountered.", "status": "INTERNAL"}
        return Refused([self._message(error=error)], "endpoint_error", "INTERNAL")

    def refusal(self) -> Refused:
        error = {"code": 400, "message": NO_KEY, "status": "INVALID_ARGUMENT"}
        return Refused([self._message(error=error)], "endpoint_error", "INVALID_ARGUMENT")

    def capacity(self) -> Refused:
        error = {
            "code": 429,
            "message": "Resource has been exhausted (e.g. check quota).",
            "status": "RESOURCE_EXHAUSTED",
        }
        return Refused([self._message(error=error)], "endpoint_error", "RESOURCE_EXHAUSTED")

    def unknown(self) -> Messages:
        return [self._message(modelMood={"mood": "cheerful"}), self._content(outputGesture={"name": "nod"})]

    def malformed(self) -> Messages:
        blob = {"mimeType": "audio/pcm;rate=24000", "data": "*"}
        odd = {"mimeType": "audio/pcm;rate=24000", "data": "AA=="}
        slow = {"mimeType": "audio/pcm;rate=1", "data": "AAA="}
        opus = {"mimeType": "audio/opus", "data": "AAA="}
        parts = [self._content(modelTurn={"parts": [{"inlineData": data}]}) for data in (blob, odd, slow, opus)]
        wrong = [self._content(modelTurn={"parts": {}}), self._content(modelTurn={"parts": [1]})]
        tool = self._message(toolCall={"functionCalls": [{"id": "1"}]})
        usage = self._message(usageMetadata={"promptTokenCount": "many"})
        transcript = self._content(inputTranscription={"text": 7})
        texts = [b"{", b"[]", b'"text"', b"\0\1", b"\xff", "", '{"serverContent":[]}']
        return [*texts, *parts, *wrong, tool, usage, transcript, self._content(turnComplete="yes")]


class GeminiWordsScript(GeminiScript):
    """A model whose transcripts come in pieces without a last one, with the service's detection of speech reported."""

    options: ClassVar[CallerOptions] = CallerOptions(model="gemini-live", settings={"voice_activity": True})
    order: ClassVar[tuple[Stage, ...]] = (
        "speech_started",
        "partial",
        "speech_stopped",
        "reply_started",
        "text",
        "audio",
        "reply_done",
    )
    first_after_speech: ClassVar[Stage] = "speech_stopped"
    rate_suffix: ClassVar[str] = ""

    def _activity(self, kind: str) -> bytes:
        return self._message(voiceActivity={"type": kind, "audioOffset": "0.4s"})

    def speech_started(self) -> Messages:
        return [self._activity("ACTIVITY_START")]

    def speech_stopped(self) -> Messages:
        return [self._activity("ACTIVITY_END")]

    def partial(self, text: str) -> Messages:
        middle = len(text) // 2
        return [self._content(inputTranscription={"text": piece}) for piece in (f" {text[:middle]}", text[middle:])]

    def final(self, text: str) -> None:
        del text


class GeminiTextScript(GeminiScript):
    """Replies in text."""

    options: ClassVar[CallerOptions] = CallerOptions(model="gemini-live", settings={"replies": "text"})
    order: ClassVar[tuple[Stage, ...]] = ("partial", "final", "reply_started", "text", "reply_done")

    def text(self, text: str) -> Messages:
        thought = {"text": "The user wants light.", "thought": True}
        return [self._content(modelTurn={"parts": [thought, {"text": text}]})]


SCRIPTS = {"gemini-live": GeminiScript}
