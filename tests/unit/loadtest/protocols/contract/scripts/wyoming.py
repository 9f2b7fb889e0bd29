"""Wyoming as its package documents it: one server that recognizes, handles and synthesizes, streaming each."""

import json
from typing import Any, ClassVar

from loadtest.protocols.base import CallerOptions, Outgoing
from loadtest.protocols.transports.byte_streams import EventLines
from tests.unit.loadtest.protocols.contract.wire_script import Messages, Stage, WireScript

RATE = {"rate": 22_050, "width": 2, "channels": 1}


def wyoming_event(kind: str, data: dict[str, Any] | None = None, payload: bytes = b"") -> bytes:
    """An event with its data after the line, as the official package writes it."""
    encoded = json.dumps(data, ensure_ascii=False).encode() if data else b""
    line: dict[str, Any] = {"type": kind, "version": "1.10.2"}
    if encoded:
        line["data_length"] = len(encoded)
    if payload:
        line["payload_length"] = len(payload)
    return json.dumps(line).encode() + b"\n" + encoded + payload


class WyomingScript(WireScript):
    """All services behind one address."""

    options: ClassVar[CallerOptions] = CallerOptions(turn_control="manual")
    url: ClassVar[str] = "tcp://127.0.0.1:1"
    reply_rate_hz: ClassVar[int] = 22_050
    order: ClassVar[tuple[Stage, ...]] = (
        "partial",
        "final",
        "reply_started",
        "text",
        "synthesis_started",
        "audio",
        "reply_done",
    )
    first_after_speech: ClassVar[Stage] = "partial"

    def answers(self, sent: Outgoing) -> Messages:
        assert isinstance(sent, bytes)
        if json.loads(sent.partition(b"\n")[0])["type"] != "describe":
            return ()
        offered = {stage: [{"name": f"any-{stage}", "models": []}] for stage in ("asr", "handle", "tts")}
        return [wyoming_event("info", offered)]

    def partial(self, text: str) -> Messages:
        return [
            wyoming_event("transcript-start", {"language": "en"}),
            wyoming_event("transcript-chunk", {"text": text}),
        ]

    def final(self, text: str) -> Messages:
        return [wyoming_event("transcript", {"text": text}), wyoming_event("transcript-stop")]

    def asr_failed(self) -> Messages:
        return [wyoming_event("error", {"text": "the model is not loaded", "code": "not-loaded"})]

    def reply_started(self) -> Messages:
        return [wyoming_event("handled-start")]

    def text(self, text: str) -> Messages:
        return [wyoming_event("handled-chunk", {"text": text})]

    def synthesis_started(self) -> Messages:
        return [wyoming_event("audio-start", {**RATE, "timestamp": 0})]

    def audio(self, pcm: bytes) -> Messages:
        return [wyoming_event("audio-chunk", RATE, pcm)]

    def reply_done(self) -> Messages:
        handled = wyoming_event("handled", {"text": "It is on. "})
        return [handled, wyoming_event("handled-stop"), wyoming_event("audio-stop", {"timestamp": 200})]

    def error(self) -> Messages:
        return [wyoming_event("error", {"text": "no such program", "code": "unknown-program"})]

    def unknown(self) -> Messages:
        return [wyoming_event("mood", {"mood": "cheerful"})]

    def malformed(self) -> Messages:
        mono = {"rate": 22_050, "width": 2, "channels": 2}
        return [wyoming_event("audio-chunk", mono, b"\0\0"), b'{"type":"info","data_length":1}\n[', b"{}\n"]

    def encoded(self, messages: Messages) -> bytes:
        return b"".join(messages)

    def decoder(self) -> EventLines:
        return EventLines()


SCRIPTS = {"wyoming": WyomingScript}
