"""An ElevenLabs agent, as its AsyncAPI document (@elevenlabs/types 0.23.0) and the vendor's Python client have it.

The vendor's client is run against the same messages: see tests/integration/recorders/record_elevenlabs.py.
"""

import base64
import json
from typing import Any, ClassVar

from loadtest.protocols.base import CallerOptions, Outgoing
from tests.unit.loadtest.protocols.contract.wire_script import Messages, Refused, Stage, WireScript

CONVERSATION_ID = "conv_0001"
EVERY_EVENT = [
    "audio",
    "interruption",
    "user_transcript",
    "tentative_user_transcript",
    "agent_response",
    "agent_response_correction",
    "agent_chat_response_part",
    "agent_response_complete",
    "client_tool_call",
    "client_error",
    "context_usage",
    "guardrail_triggered",
    "vad_score",
]


def message(kind: str, member: str | None = None, **content: Any) -> str:
    """One message: its type, and its content in a member of its own."""
    return json.dumps({"type": kind} if member is None else {member: content, "type": kind})


def metadata(output: Any = "pcm_24000", taken: Any = "pcm_16000", conversation_id: Any = CONVERSATION_ID) -> str:
    """The answer to the first message."""
    return message(
        "conversation_initiation_metadata",
        "conversation_initiation_metadata_event",
        conversation_id=conversation_id,
        agent_output_audio_format=output,
        user_input_audio_format=taken,
    )


def ping(event_id: Any, ping_ms: Any) -> str:
    return message("ping", "ping_event", event_id=event_id, ping_ms=ping_ms)


def audio(data: bytes, event_id: Any, **more: Any) -> str:
    encoded = base64.b64encode(data).decode()
    return message("audio", "audio_event", audio_base_64=encoded, event_id=event_id, **more)


def transcript(text: Any, event_id: Any) -> str:
    return message("user_transcript", "user_transcription_event", user_transcript=text, event_id=event_id)


def tentative(text: Any, event_id: Any) -> str:
    return message(
        "tentative_user_transcript", "tentative_user_transcription_event", user_transcript=text, event_id=event_id
    )


def response(text: Any, event_id: Any) -> str:
    return message("agent_response", "agent_response_event", agent_response=text, event_id=event_id)


def part(kind: str, text: Any, event_id: Any) -> str:
    return message("agent_chat_response_part", "text_response_part", text=text, type=kind, event_id=event_id)


def complete(event_id: Any) -> str:
    return message("agent_response_complete", "agent_response_complete_event", event_id=event_id)


def interruption(event_id: Any) -> str:
    return message("interruption", "interruption_event", event_id=event_id)


def correction(original: Any, corrected: Any, event_id: Any) -> str:
    return message(
        "agent_response_correction",
        "agent_response_correction_event",
        original_agent_response=original,
        corrected_agent_response=corrected,
        event_id=event_id,
    )


def tool_call(name: Any, call_id: Any, **more: Any) -> str:
    return message(
        "client_tool_call",
        "client_tool_call",
        tool_name=name,
        tool_call_id=call_id,
        parameters={"city": "Paris"},
        event_id=1,
        **more,
    )


def usage(event_id: Any, tokens: Any = 812) -> str:
    return message(
        "context_usage",
        "context_usage_event",
        event_id=event_id,
        model="gpt-9-mini",
        context_tokens=tokens,
        context_limit_tokens=128_000,
    )


def error(code: int, kind: str, reason: str) -> str:
    return message("error", "error_event", code=code, error_type=kind, reason=reason)


def odd_messages() -> list[str]:
    """Messages at the edges of what the vendor's client takes, after an interruption with an id below 900."""
    pcm = b"\x00\x40\x01\x20" * 40
    return [
        ping(901, None),
        ping(902, 0),
        ping("903", 12),
        transcript("  lights on \n", 904),
        response(" Yes. ", 905),
        correction(" Yes. ", "", 906),
        part("murmur", "Hm", 907),
        message("agent_chat_response_part", "text_response_part", event_id=908),
        interruption("920"),
        audio(pcm, 919),
        audio(pcm, "920"),
        audio(pcm, "921"),
        audio(pcm + b"\x02\x03", 922.0),
        interruption(930),
        interruption(925),  # an older one, which came late
        audio(pcm + b"\x04\x05", 928),
        tool_call("weather", "call_9"),
        tool_call("no-such-tool", "call_10"),
        message("agent_mood", "agent_mood_event", mood="cheerful"),
        message("internal_turn_probability", "turn_probability_internal_event", turn_probability=0.4),
        error(1002, "llm_timeout", "the language model took too long"),
    ]


class ElevenLabsScript(WireScript):
    """An agent that sends every client event. Each message has the next id: only the order of the ids counts."""

    options: ClassVar[CallerOptions] = CallerOptions(settings={"client_events": EVERY_EVENT})
    url: ClassVar[str] = "wss://api.elevenlabs.io/v1/convai/conversation?agent_id=agent_0001"
    order: ClassVar[tuple[Stage, ...]] = ("partial", "final", "reply_started", "text", "audio", "reply_done")
    first_after_speech: ClassVar[Stage] = "final"

    def __init__(self) -> None:
        self.event_id = 0

    def next_id(self) -> int:
        self.event_id += 1
        return self.event_id

    def answers(self, sent: Outgoing) -> Messages:
        assert isinstance(sent, str)
        fields = json.loads(sent)
        if "user_audio_chunk" in fields:
            assert list(fields) == ["user_audio_chunk"]
            return ()
        if fields["type"] == "conversation_initiation_client_data":
            return [metadata(), ping(self.next_id(), None)]
        assert fields["type"] in ("pong", "client_tool_result"), "anything else is an error of this server"
        return ()

    def partial(self, text: str) -> Messages:
        score = message("vad_score", "vad_score_event", vad_score=0.97)
        return [score, tentative(text, self.next_id())]

    def final(self, text: str) -> Messages:
        return [transcript(text, self.next_id())]

    def reply_started(self) -> Messages:
        return [part("start", "", self.next_id())]

    def text(self, text: str) -> Messages:
        parts = [part("delta", text, self.next_id()), part("stop", "", self.next_id())]
        return [*parts, response(text, self.next_id())]

    def audio(self, pcm: bytes) -> Messages:
        middle = len(pcm) // 4 * 2
        alignment = {"chars": ["I", "t"], "char_start_times_ms": [0, 40], "char_durations_ms": [40, 60]}
        return [audio(pcm[:middle], self.next_id(), alignment=alignment), audio(pcm[middle:], self.next_id())]

    def reply_done(self) -> Messages:
        return [complete(self.next_id()), usage(self.next_id())]

    def broken_off(self) -> Messages:
        interrupted = self.event_id
        late = audio(b"\x00\x40" * 240, interrupted)  # audible, and of what was interrupted
        return [
            interruption(interrupted),
            late,
            correction("It is on. ", "It is", self.next_id()),
            complete(interrupted),
        ]

    def service_report(self) -> Messages:
        guardrail = message("guardrail_triggered", "guardrail_triggered_event", guardrail_name="profanity_filter")
        return [usage(self.next_id()), ping(self.next_id(), 42), guardrail, message("guardrail_triggered")]

    def error(self) -> Messages:
        return [message("client_error", "error_event", error_name="tool_failed", message="the tool failed", code=1002)]

    def fatal_error(self) -> Refused:
        sent = error(1002, "llm_timeout", "the language model took too long")
        return Refused([sent], "endpoint_error", "llm_timeout")

    def refusal(self) -> Refused:
        sent = error(1008, "override_error", "Override for field 'voice_id' is not allowed by config.")
        return Refused([sent], "endpoint_error", "override_error")

    def unknown(self) -> Messages:
        return [message("agent_mood", "agent_mood_event", mood="cheerful"), message("audio_done")]

    def malformed(self) -> Messages:
        return [
            "{",
            "[]",
            '"text"',
            "{}",
            b"\0\1",
            '{"type":3}',
            '{"type":"audio"}',
            '{"type":"audio","audio_event":"AAAA"}',
            message("audio", "audio_event", audio_base_64="*", event_id=900),
            message("audio", "audio_event", audio_base_64="AAAA"),
            message("audio", "audio_event", audio_base_64="AAAA", event_id="x"),
            message("audio", "audio_event", audio_base_64="AAAA", event_id=True),
            message("interruption", "interruption_event"),
            message("ping", "ping_event", ping_ms=20),
            message("ping"),
            tentative(7, 901),
            transcript(None, 902),
            response(7, 903),
            correction("a", None, 904),
            tool_call(None, "call_1"),
            tool_call("weather", 7),
            usage(905, -1),
            metadata(conversation_id="conv_of_another"),
        ]

    def repeated(self) -> Messages:
        first = audio(b"\x00\x40" * 240, self.next_id())
        return [first, audio(b"\x00\x41" * 240, self.next_id()), first]


SCRIPTS = {"elevenlabs": ElevenLabsScript}
