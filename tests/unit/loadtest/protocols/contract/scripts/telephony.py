"""Agents on telephone calls, as the references of Twilio, Telnyx, Plivo, Exotel and Vonage describe their messages."""

import base64
import json
from io import BytesIO
from typing import Any, ClassVar

import numpy as np
import soundfile

from loadtest.protocols.base import Outgoing
from tests.unit.loadtest.protocols.contract.wire_script import Messages, WireScript


class TelephonyScript(WireScript):
    """The script of all providers: the agent sends audio, marks and clears, and nothing else."""

    url = "wss://agent.example/media"
    reply_rate_hz = 8000
    exact_audio = False
    stream_key: ClassVar[str] = ""

    def __init__(self) -> None:
        self._stream_id: str | None = None

    def answers(self, sent: Outgoing) -> Messages:
        if isinstance(sent, str):
            fields = json.loads(sent)
            if fields["event"] == "start":
                self._stream_id = fields.get(self.stream_key) or fields["start"].get(self.stream_key)
        return ()

    def _message(self, event: str, **fields: Any) -> str:
        stream = {self.stream_key: self._stream_id} if self.stream_key and self._stream_id else {}
        return json.dumps({"event": event, **stream, **fields})

    def audio(self, pcm: bytes) -> Messages:
        # Two pieces of uneven sizes: an agent may send any.
        octets = law(pcm)
        return [self._media(octets[:333]), self._media(octets[333:])]

    def _media(self, octets: bytes) -> str:
        return self._message("media", media={"payload": base64.b64encode(octets).decode()})

    def mark(self, name: str) -> Messages:
        return [self._message("mark", mark={"name": name})]

    def clear(self) -> Messages:
        return [self._message("clear")]

    def broken_off(self) -> Messages:
        return self.clear()

    def unknown(self) -> Messages:
        return [self._message("transfer", to="+15005550009")]

    def malformed(self) -> Messages:
        wrong = [self._message("media"), self._message("media", media={"payload": "*"}), self._message("mark", mark={})]
        return ["{", "[]", "{}", '{"event":3}', *wrong, b"\0\1"]


def law(pcm: bytes) -> bytes:
    """µ-law octets of 16-bit samples, by libsndfile's encoder."""
    coded = BytesIO()
    soundfile.write(coded, np.frombuffer(pcm, "<i2"), 8000, format="RAW", subtype="ULAW")
    return coded.getvalue()


class TwilioScript(TelephonyScript):
    stream_key = "streamSid"


class TelnyxScript(TelephonyScript):
    """Its agents do not repeat the stream's id."""


class PlivoScript(TelephonyScript):
    stream_key = "streamId"

    def _media(self, octets: bytes) -> str:
        payload = base64.b64encode(octets).decode()
        return self._message(
            "playAudio", media={"contentType": "audio/x-mulaw", "sampleRate": 8000, "payload": payload}
        )

    def mark(self, name: str) -> Messages:
        return [self._message("checkpoint", name=name)]

    def clear(self) -> Messages:
        return [self._message("clearAudio")]

    def malformed(self) -> Messages:
        media = {"contentType": "audio/x-l16", "sampleRate": 44100, "payload": "AAAA"}
        return ["{", "[]", "{}", self._message("playAudio", media=media), self._message("checkpoint"), b"\0\1"]


class ExotelScript(TelephonyScript):
    stream_key = "stream_sid"
    exact_audio = True

    def audio(self, pcm: bytes) -> Messages:
        return [self._media(pcm[:333]), self._media(pcm[333:])]


class VonageScript(TelephonyScript):
    """Audio is binary, and requests are called actions."""

    reply_rate_hz = 16_000
    exact_audio = True

    def audio(self, pcm: bytes) -> Messages:
        return [pcm[:333], pcm[333:]]

    def mark(self, name: str) -> Messages:
        return [json.dumps({"action": "notify", "payload": {"name": name}})]

    def clear(self) -> Messages:
        return ['{"action":"clear"}']

    def unknown(self) -> Messages:
        return ['{"action":"whisper"}']

    def malformed(self) -> Messages:
        return ["{", "[]", "{}", '{"action":3}', '{"action":"notify"}', '{"action":"notify","payload":"x"}']


SCRIPTS = {
    "twilio": TwilioScript,
    "telnyx": TelnyxScript,
    "plivo": PlivoScript,
    "exotel": ExotelScript,
    "vonage": VonageScript,
}
