"""Deepgram's Voice Agent as its documents and the types of its package have its messages."""

import json
from typing import Any, ClassVar

from loadtest.protocols.base import CallerOptions, Outgoing
from tests.unit.loadtest.protocols.contract.wire_script import Messages, Refused, Stage, WireScript


def message(kind: str, **fields: Any) -> str:
    """One JSON message."""
    return json.dumps({"type": kind, **fields})


class DeepgramScript(WireScript):
    """The service: it waits for Settings, closes turns without a word, and speaks sentence by sentence."""

    options: ClassVar[CallerOptions] = CallerOptions(settings={"tools": {"light": "on"}})
    url: ClassVar[str] = "wss://agent.deepgram.com/v1/agent/converse"
    order: ClassVar[tuple[Stage, ...]] = (
        "speech_started",
        "final",
        "reply_started",
        "text",
        "synthesis_started",
        "audio",
        "reply_done",
    )
    first_after_speech: ClassVar[Stage] = "final"

    def answers(self, sent: Outgoing) -> Messages:
        if isinstance(sent, bytes):
            return ()  # audio
        assert isinstance(sent, str)
        kind = json.loads(sent)["type"]
        assert kind in ("Settings", "ForceEndTurn", "FunctionCallResponse"), "anything else is an error of this service"
        return [message("SettingsApplied")] if kind == "Settings" else ()

    def greets(self) -> Messages:
        return [message("Welcome", request_id="550e8400-e29b-41d4-a716-446655440000")]

    def speech_started(self) -> Messages:
        return [message("UserStartedSpeaking"), message("LatencyReport", stt_latency=0.02)]

    def final(self, text: str) -> Messages:
        content = {"role": "user", "content": text}
        return [message("ConversationText", **content), message("History", **content)]

    def reply_started(self) -> Messages:
        return [message("AgentThinking", content="The light is meant.")]

    def text(self, text: str) -> Messages:
        content = {"role": "assistant", "content": text}
        return [
            message("ConversationText", **content, conversational_behavior="default"),
            message("History", **content),
        ]

    def synthesis_started(self) -> Messages:
        return [message("AgentStartedSpeaking", total_latency=1.2, tts_latency=0.4, ttt_latency=0.8)]

    def audio(self, pcm: bytes) -> Messages:
        # Pieces that end inside a sample: the service may send any.
        return [pcm[:333], pcm[333:]]

    def reply_done(self) -> Messages:
        return [message("AgentAudioDone"), message("LatencyReport", total_latency=1.3)]

    def broken_off(self) -> Messages:
        return [message("UserStartedSpeaking"), message("AgentAudioDone")]

    def service_report(self) -> Messages:
        return [message("LatencyReport", ttt_text_latency=0.36, tts_latency=0.18)]

    def error(self) -> Messages:
        waited = "We have now waited 5 seconds for a think response."
        return [message("Warning", description=waited, code="SLOW_THINK_REQUEST")]

    def fatal_error(self) -> Refused:
        spent = message("Error", description="The agent could not speak.", code="FAILED_TO_SPEAK")
        return Refused([spent], "endpoint_error", "FAILED_TO_SPEAK")

    def refusal(self) -> Refused:
        wrong = message("Error", description="Settings cannot be used.", code="INVALID_SETTINGS")
        return Refused([wrong], "endpoint_error", "INVALID_SETTINGS")

    def unknown(self) -> Messages:
        return [message("AgentMood", mood="cheerful"), message("AgentMood", mood="sad").encode()]

    def malformed(self) -> Messages:
        return [
            "{",
            "[]",
            "{}",
            '{"type":3}',
            message("ConversationText", role="user"),
            message("ConversationText", role="narrator", content="x"),
            message("AgentStartedSpeaking", total_latency="soon"),
            message("LatencyReport", stt_latency=-1),
            message("LatencyReport", stt_latency=True),
            message("FunctionCallRequest", functions={}),
            message("FunctionCallRequest", functions=[{"name": "light"}]),
            message("FunctionCallCancelled", functions=[3]),
        ]


SCRIPTS = {"deepgram-agent": DeepgramScript}
