"""A bot on Pipecat's SmallWebRTC: RTVI as recorded over its other wires, its audio as packets of 20 ms.

Offer and answer are exchanged as Pipecat's runner does it (pipecat 1.14.0, transports/smallwebrtc/request_handler.py).
"""

import json
from typing import Any, ClassVar

from loadtest.protocols.base import CallerOptions, Outgoing
from loadtest.protocols.http_items import HttpData, HttpEnd, HttpHead, HttpRequest
from loadtest.protocols.webrtc_items import ChannelOpen, KeepAlive, LocalOffer, MakeOffer, PeerAudio, RemoteAnswer
from tests.unit.loadtest.protocols.contract.scripts.pipecat import RtviScript, rtvi
from tests.unit.loadtest.protocols.contract.wire_script import Messages, Refused

PACKET_MS = 20
OFFER = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\n"
ANSWER = "v=0\r\no=- 2 2 IN IP4 127.0.0.1\r\n"


class SmallWebRtcScript(RtviScript):
    """Offer and answer by HTTP, then RTVI in texts and audio in packets."""

    options: ClassVar[CallerOptions] = CallerOptions()
    url: ClassVar[str] = "http://127.0.0.1:7860/api/offer"
    reply_rate_hz: ClassVar[int] = 48_000

    _asked = ""

    def carried(self, message: str) -> str:
        return message

    def sent(self, message: Outgoing) -> dict[str, Any]:
        return json.loads(message) if isinstance(message, str) else {}

    def answers(self, sent: Outgoing) -> Messages:
        match sent:
            case MakeOffer():
                return [LocalOffer(OFFER)]
            case HttpRequest():
                assert json.loads(sent.body)["sdp"] == OFFER
                self._asked = sent.request_id
                return ()
            case RemoteAnswer():
                assert sent.sdp == ANSWER
                return [ChannelOpen(), self.silence(), self.silence()]
            case KeepAlive():
                return ()
            case _:
                return super().answers(sent)

    def greets(self) -> Messages:
        answer = json.dumps({"sdp": ANSWER, "type": "answer", "pc_id": "SmallWebRTCConnection#0-9f"})
        return self._responds(200, answer.encode(), (("content-type", "application/json"),))

    def silence(self) -> PeerAudio:
        """Return the audio that arrives all the time; a decoder's silence is not quite zero."""
        return PeerAudio(b"\1\0\0\0\xff\xff" * (48 * PACKET_MS // 3), 48_000)

    def audio(self, pcm: bytes) -> Messages:
        size = 2 * 48 * PACKET_MS
        return [PeerAudio(pcm[begin : begin + size], 48_000) for begin in range(0, len(pcm), size)]

    def reply_done(self) -> Messages:
        return [*super().reply_done(), self.silence()]

    def broken_off(self) -> Messages:
        return [*super().broken_off(), self.silence()]

    def refusal(self) -> Refused:
        body = b'{"detail":"Cannot create new connection with existing connection active"}'
        return Refused(self._responds(400, body), "http_status", "400")

    def capacity(self) -> Refused:
        busy = self._responds(503, b"", (("retry-after", "7"),))
        return Refused(busy, "http_status", "503", 7_000_000_000)

    def _responds(self, status: int, body: bytes, headers: tuple[tuple[str, str], ...] = ()) -> Messages:
        return [HttpHead(self._asked, status, headers), HttpData(self._asked, body), HttpEnd(self._asked)]

    def closing(self) -> Messages:
        return [self._signal({"type": "peerLeft"})]

    def _signal(self, message: Any) -> str:
        return json.dumps({"type": "signalling", "message": message})

    def error(self) -> Messages:
        return [self._signal({"type": "renegotiate"})]

    def unknown(self) -> Messages:
        return [rtvi("bot-mood", {"mood": "cheerful"}), self._signal({"type": "trackMoved"}), self._signal("left")]

    def malformed(self) -> Messages:
        odd, slow = PeerAudio(b"\1", 48_000), PeerAudio(b"\1\0", 0)
        return [*super().malformed(), '{"type":"signalling"', b"\xff", odd, slow]


SCRIPTS = {"smallwebrtc": SmallWebRtcScript}
