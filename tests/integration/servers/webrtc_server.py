"""A SmallWebRTC bot of aiortc that answers after known delays, and servers that fail: `... webrtc_server PORT`.

Paths: `/ok/api/offer` answers by a script, and prints one line of JSON for each turn: the moment of each message right
before it is handed to the data channel, of the first loud frame of audio when aiortc takes it to encode it, and of the
arrival of each of the caller's packets, by number. `/renegotiates`, `/leaves` and `/dies` do that when the caller has
begun to speak, and `/loses` sends its audio over a bad network. `/never` answers no request, `/status/CODE` refuses
with it, `/garbage` answers with what is no SDP, `/deaf` answers with an address at which nobody listens. What a request
brought is printed too.
"""

import asyncio
import contextlib
import fractions
import json
import os
import sys
import time
from array import array
from typing import Any, Final

from aiohttp import web
from aiortc import MediaStreamTrack, RTCBundlePolicy, RTCConfiguration, RTCPeerConnection, RTCSessionDescription
from aiortc.mediastreams import MediaStreamError
from av import AudioFrame

from tests.unit.loadtest.protocols.contract.scripts.pipecat import rtvi

RATE_HZ: Final = 48_000
FRAME_S: Final = 0.02
LOUD: Final = 500
LOUD_FRAMES: Final = 10  # 20 ms each
QUIET_FRAMES: Final = 30  # longer than any pause within the words
LATER_S: Final = 0.008
SILENCE: Final = bytes(2 * 960)
TONE: Final = array("h", [6000, 6000, 6000, -6000, -6000, -6000] * 160).tobytes()  # 8 kHz, loud from its first sample
TONE_FRAMES: Final = 10
# After the end of the question was detected: what is sent, and when. The tone begins with the next frame of the track.
SCRIPT_S: Final[tuple[tuple[float, str, list[str]], ...]] = (
    (0.0, "stopped", [rtvi("user-stopped-speaking")]),
    (0.05, "final", [rtvi("user-input", {"text": "x", "input_type": "transcription", "final": True})]),
    (0.06, "started", [rtvi("bot-llm-started"), rtvi("bot-tts-started")]),
    (0.13, "text", [rtvi("bot-llm-text", {"text": "Yes."})]),
    (0.15, "spoken", [rtvi("bot-started-speaking")]),
    (0.25, "audio", []),
    (0.55, "ended", [rtvi(f"bot-{kind}") for kind in ("llm-stopped", "tts-stopped", "stopped-speaking")]),
)
# Connections that nothing else refers to.
KEPT: Final[list[Any]] = []


class PacedTrack(MediaStreamTrack):
    """Silence, and a tone when it is asked for, paced by the clock."""

    kind = "audio"

    def __init__(self) -> None:
        super().__init__()
        self._began_s = time.perf_counter()
        self._frames = 0
        self._tone = 0
        self.loud_ns: asyncio.Future[int] | None = None  # set when the first frame of the tone is taken

    def speak(self) -> "asyncio.Future[int]":
        """Begin the tone with the next frame; gives the moment."""
        self._tone = TONE_FRAMES
        self.loud_ns = asyncio.get_running_loop().create_future()
        return self.loud_ns

    async def recv(self) -> AudioFrame:
        self._frames += 1
        await asyncio.sleep(self._began_s + self._frames * FRAME_S - time.perf_counter())
        frame = AudioFrame(format="s16", layout="mono", samples=960)
        frame.planes[0].update(TONE if self._tone else SILENCE)
        self._tone = max(0, self._tone - 1)
        frame.sample_rate, frame.pts = RATE_HZ, self._frames * 960
        frame.time_base = fractions.Fraction(1, RATE_HZ)
        if self._tone == TONE_FRAMES - 1 and self.loud_ns is not None and not self.loud_ns.done():
            self.loud_ns.set_result(time.perf_counter_ns())
        return frame


class Bot:
    """One caller's peer."""

    def __init__(self, behavior: str) -> None:
        self._behavior = behavior
        self._connection = RTCPeerConnection(RTCConfiguration(iceServers=[], bundlePolicy=RTCBundlePolicy.MAX_BUNDLE))
        self._track = PacedTrack()
        self._channel: Any = None
        self._packets: list[int] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._connection.on("datachannel", self._channel_came)
        self._connection.on("track", self._track_came)

    async def answer(self, sdp: str) -> str:
        """Take an offer."""
        await self._connection.setRemoteDescription(RTCSessionDescription(sdp, "offer"))
        (transceiver,) = self._connection.getTransceivers()
        transceiver.direction = "sendrecv"
        transceiver.sender.replaceTrack(self._track)
        receiver: Any = transceiver.receiver
        handle = receiver._handle_rtp_packet

        async def stamped(packet: Any, arrival_time_ms: int) -> None:
            self._packets.append(time.perf_counter_ns())
            await handle(packet, arrival_time_ms=arrival_time_ms)

        receiver._handle_rtp_packet = stamped
        if self._behavior == "loses":
            self._impair(transceiver.sender.transport)
        await self._connection.setLocalDescription(await self._connection.createAnswer())
        answered = self._connection.localDescription.sdp
        if self._behavior == "deaf":
            await self._connection.close()
        return answered

    def _impair(self, transport: Any) -> None:
        """Lose each tenth packet of audio, and send each odd one later."""
        send, count = transport._send_rtp, 0

        async def impaired(data: bytes) -> None:
            nonlocal count
            if 192 <= data[1] < 224:  # RTCP
                await send(data)
                return
            count += 1
            if count % 2:
                await asyncio.sleep(LATER_S)
            if count % 10:
                await send(data)

        transport._send_rtp = impaired

    def _channel_came(self, channel: Any) -> None:
        self._channel = channel
        channel.on("message", self._message)

    def _message(self, message: str) -> None:
        if "client-ready" in message:
            self._channel.send(rtvi("bot-ready", {"version": "2.2.0"}))
        elif not message.startswith("ping"):
            print(json.dumps({"said": json.loads(message)}), flush=True)
        else:
            print(json.dumps({"ping": message}), flush=True)

    def _track_came(self, track: MediaStreamTrack) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(self._listen(track)))

    async def _listen(self, track: MediaStreamTrack) -> None:
        quiet = loud = 0
        with contextlib.suppress(MediaStreamError):
            while True:
                frame = await track.recv()
                assert isinstance(frame, AudioFrame)
                if abs(frame.to_ndarray()).max() > LOUD:
                    loud, quiet = loud + 1, 0
                else:
                    quiet += 1
                if loud == LOUD_FRAMES:
                    await self._misbehave()
                if loud >= LOUD_FRAMES and quiet == QUIET_FRAMES:
                    loud = 0
                    self._tasks.append(asyncio.get_running_loop().create_task(self._reply()))

    async def _misbehave(self) -> None:
        if self._behavior == "dies":
            os._exit(1)
        if self._behavior == "renegotiates":
            self._channel.send(json.dumps({"type": "signalling", "message": {"type": "renegotiate"}}))
        if self._behavior == "leaves":
            self._channel.send(json.dumps({"type": "signalling", "message": {"type": "peerLeft"}}))
            await self._connection.close()

    async def _reply(self) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        stamps: dict[str, Any] = {}
        for after_s, name, messages in SCRIPT_S:
            await asyncio.sleep(began + after_s - loop.time())
            stamps[name] = time.perf_counter_ns()
            if name == "audio":
                stamps[name] = await self._track.speak()
            for message in messages:
                self._channel.send(message)
        print(json.dumps(stamps | {"packets": self._packets}), flush=True)


async def offered(request: web.Request) -> web.StreamResponse:
    """Answer an offer, or fail to."""
    behavior = request.match_info["behavior"]
    body = await request.json()
    asked = {"traceparent": request.headers.get("traceparent"), "data": body.get("request_data")}
    print(json.dumps({"asked": asked}), flush=True)
    if behavior == "never":
        await asyncio.sleep(60)
    if behavior == "garbage":
        return web.json_response({"sdp": "v=0\r\nm=audio what is this", "type": "answer", "pc_id": "1"})
    bot = Bot(behavior)
    KEPT.append(bot)
    return web.json_response({"sdp": await bot.answer(body["sdp"]), "type": "answer", "pc_id": "1"})


async def refused(request: web.Request) -> web.Response:
    """Refuse an offer."""
    return web.Response(status=int(request.match_info["code"]), text="no room", headers={"Retry-After": "7"})


def main() -> None:
    """Serve until the process is ended."""
    app = web.Application()
    app.add_routes([web.post("/status/{code}/api/offer", refused), web.post("/{behavior}/api/offer", offered)])
    web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), print=lambda *text: None, shutdown_timeout=0.1)


if __name__ == "__main__":
    main()
