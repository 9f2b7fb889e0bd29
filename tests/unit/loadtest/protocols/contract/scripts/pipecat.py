"""A Pipecat bot as its recorded sessions have it (tests/fixtures/pipecat), over protobuf and over the evaluation wire.

Protobuf is written by hand here, field by field: neither the codec under test nor its library is asked.
"""

import base64
import json
from typing import Any, ClassVar

from loadtest.protocols.base import Outgoing
from tests.unit.loadtest.protocols.contract.wire_script import Messages, Refused, Stage, WireScript


def varint(value: int) -> bytes:
    """A whole number, seven bits a byte, the lowest first."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def field(number: int, value: int | bytes) -> bytes:
    """One field of a protobuf message: a varint, or bytes with their length before them."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def audio_frame(pcm: bytes, rate_hz: int, channels: int = 1) -> bytes:
    """Frame{audio}: id, name, audio, sample_rate, num_channels."""
    fields = field(1, 4711) + field(2, b"OutputAudioRawFrame#7") + field(3, pcm)
    return field(2, fields + field(4, rate_hz) + field(5, channels))


def message_frame(text: str) -> bytes:
    """Frame{message}."""
    return field(4, field(1, text.encode()))


def rtvi(kind: str, data: Any = None) -> str:
    """One RTVI message as Pipecat dumps it, without what is null."""
    message = {"label": "rtvi-ai", "type": kind}
    return json.dumps(message if data is None else {**message, "data": data})


METRICS = {
    "ttfb": [{"processor": "ScriptedLLM#1", "model": "scripted", "value": 0.08}],
    "tokens": [{"prompt_tokens": 40, "completion_tokens": 6, "total_tokens": 46, "cache_read_input_tokens": 32}],
}


class RtviScript(WireScript):
    """The script of both wires."""

    order: ClassVar[tuple[Stage, ...]] = (
        "speech_started",
        "partial",
        "final",
        "speech_stopped",
        "reply_started",
        "text",
        "audio",
        "synthesis_started",
        "reply_done",
    )
    first_after_speech: ClassVar[Stage] = "final"

    def carried(self, message: str) -> Any:
        """One RTVI message as the wire carries it."""
        raise NotImplementedError

    def sent(self, message: Outgoing) -> dict[str, Any]:
        """The RTVI message that the caller sent, {} for its audio."""
        raise NotImplementedError

    def _each(self, *messages: str) -> Messages:
        return [self.carried(message) for message in messages]

    def answers(self, sent: Outgoing) -> Messages:
        message = self.sent(sent)
        if message.get("type") != "client-ready":
            return ()
        about = {"library": "pipecat-ai", "library_version": "1.14.0"}
        ready = {
            "label": "rtvi-ai",
            "type": "bot-ready",
            "id": message["id"],
            "data": {"version": "2.2.0", "about": about},
        }
        zero = {"ttfb": [{"processor": "ScriptedLLM#1", "value": 0.0}], "processing": []}
        return self._each(json.dumps(ready), rtvi("metrics", zero))

    def speech_started(self) -> Messages:
        vad = rtvi("vad-user-started-speaking")
        return self._each(vad, vad, rtvi("user-started-speaking"), rtvi("bot-interrupted"))

    def _transcript(self, text: str, final: bool) -> Messages:
        fields = {"text": text, "user_id": "caller", "timestamp": "2026-11-22T17:59:19.018+00:00", "final": final}
        user_input = rtvi("user-input", {**fields, "input_type": "transcription"})
        return self._each(user_input, rtvi("stt-raw-text", fields), rtvi("user-transcription", fields))

    def partial(self, text: str) -> Messages:
        return self._transcript(text, False)

    def final(self, text: str) -> Messages:
        return self._transcript(text, True)

    def speech_stopped(self) -> Messages:
        return self._each(rtvi("user-llm-text", {"text": "turn the light on"}), rtvi("user-stopped-speaking"))

    def reply_started(self) -> Messages:
        return self._each(rtvi("bot-llm-started"), rtvi("metrics", {}))

    def text(self, text: str) -> Messages:
        pieces = [rtvi(kind, {"text": text}) for kind in ("llm-raw-text", "bot-llm-text", "bot-transcription")]
        return self._each(*pieces, rtvi("bot-llm-stopped"), rtvi("bot-tts-started"))

    def synthesis_started(self) -> Messages:
        spoken = {"text": "It is on.", "output_type": "sentence", "will_be_spoken": True, "spoken_status": "new"}
        return self._each(rtvi("bot-started-speaking"), rtvi("bot-output", spoken))

    def reply_done(self) -> Messages:
        spoken = rtvi("bot-tts-text", {"text": "It is on."})
        return self._each(rtvi("bot-tts-stopped"), spoken, rtvi("bot-stopped-speaking"))

    def broken_off(self) -> Messages:
        return self._each(rtvi("user-started-speaking"), rtvi("bot-interrupted"), rtvi("bot-stopped-speaking"))

    def service_report(self) -> Messages:
        return self._each(rtvi("metrics", METRICS), rtvi("server-message", {"voice.route": "cloud"}))

    def error(self) -> Messages:
        return self._each(rtvi("error", {"error": "the language model is out of reach", "fatal": False}))

    def fatal_error(self) -> Refused:
        return Refused(
            self._each(rtvi("error", {"error": "no service is left", "fatal": True})), "endpoint_error", None
        )

    def refusal(self) -> Refused:
        return self.fatal_error()

    def unknown(self) -> Messages:
        return self._each(rtvi("bot-mood", {"mood": "cheerful"}), '{"type":"of the bot\'s own"}')

    def malformed(self) -> Messages:
        wrong = [
            "{",
            "[]",
            '"text"',
            "{}",
            '{"label":"rtvi-ai","type":3}',
            rtvi("user-input", []),
            rtvi("llm-raw-text", {}),
        ]
        no_final = rtvi("user-input", {"text": "a", "input_type": "transcription"})
        return self._each(*wrong, no_final)


class PipecatScript(RtviScript):
    """Protobuf in binary messages."""

    def carried(self, message: str) -> bytes:
        return message_frame(message)

    def sent(self, message: Outgoing) -> dict[str, Any]:
        assert isinstance(message, bytes)
        # Frame{message}: a tag, a length of one or two bytes, and the same within.
        return json.loads(message[message.index(b"{") :]) if message[0] == 4 << 3 | 2 else {}

    def speech_started(self) -> Messages:
        interruption = field(5, field(1, 4712) + field(2, b"InterruptionFrame#3"))
        return [interruption, *super().speech_started()]

    def audio(self, pcm: bytes) -> Messages:
        middle = len(pcm) // 4 * 2
        return [audio_frame(pcm[:middle], self.reply_rate_hz), audio_frame(pcm[middle:], self.reply_rate_hz)]

    def broken_off(self) -> Messages:
        return [field(5, field(1, 4713)), *super().broken_off()]

    def unknown(self) -> Messages:
        return [*super().unknown(), b"", field(9, b"a frame of another release")]

    def malformed(self) -> Messages:
        odd, silent, slow = audio_frame(b"\1", 24_000), audio_frame(b"\1\0", 0), audio_frame(b"\1\0", 1)
        many = audio_frame(b"\1\0", 24_000, 2**32 - 1)
        return [*super().malformed(), "text", b"\xff", field(2, b"\xff"), odd, silent, slow, many]


class PipecatEvalScript(RtviScript):
    """JSON in text messages."""

    def carried(self, message: str) -> str:
        return message

    def sent(self, message: Outgoing) -> dict[str, Any]:
        assert isinstance(message, str)
        return json.loads(message)

    def _audio(self, **data: Any) -> str:
        return json.dumps({"label": "rtvi-ai", "type": "eval-bot-audio", "data": data})

    def audio(self, pcm: bytes) -> Messages:
        return [self._audio(audio=base64.b64encode(pcm).decode(), sampleRate=self.reply_rate_hz)]

    def malformed(self) -> Messages:
        wrong = [{}, {"audio": "*", "sampleRate": 24_000}, {"audio": "AAAA", "sampleRate": "fast"}, {"audio": "AAAA"}]
        return [*super().malformed(), *(self._audio(**data) for data in wrong), b"\0\1"]


SCRIPTS = {"pipecat": PipecatScript, "pipecat-eval": PipecatEvalScript}
