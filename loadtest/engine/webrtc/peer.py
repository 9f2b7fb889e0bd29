"""One peer connection: a call's audio in both directions, and its data channel. Runs in the WebRTC process."""

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec
from aiortc import (
    MediaStreamTrack,
    RTCBundlePolicy,
    RTCConfiguration,
    RTCIceServer,
    RTCPeerConnection,
    RTCRtpSender,
    RTCSessionDescription,
)
from av import Packet

from loadtest.engine.local_limits import LocalLimits
from loadtest.engine.webrtc.arrivals import CURRENT_PEER, PacketOrder, PeerStamps
from loadtest.engine.webrtc.messages import HANDED_OVER, PACKET, REPORTED_LATE_NS, LinkKind, Lost
from loadtest.engine.webrtc.opus import RATE_HZ, OpusDecoder, OpusEncoder
from loadtest.protocols.failure import Failure
from loadtest.protocols.webrtc_items import KeepAlive, MakeOffer

# Where aiortc keeps the packets of a receiver until it decodes them.
_JITTER_BUFFER: Final = "_RTCRtpReceiver__jitter_buffer"
CHANNEL_LABEL: Final = "rtvi"
MAX_MESSAGE_BYTES: Final = 2**20
_QUIET_NS: Final = 100_000_000
_LOOK_S: Final = 0.05
_REPORT_EVERY_NS: Final = 1_000_000_000
# A peer sends RTCP about every second, and checks of its own consent every five (RFC 7675): with nothing at all it is
# gone. ICE itself would detect it after half a minute.
_GONE_NS: Final = 6_000_000_000
_FLUSH_S: Final = 0.3

# kind, stamp, lag bound, data
Report = Callable[[LinkKind, int, int, bytes], None]


class CallerTrack(MediaStreamTrack):
    """The caller's audio: each frame is encoded and sent when the engine hands it over, and at no other time."""

    kind = "audio"

    def __init__(self, late: Callable[[int], None]) -> None:
        super().__init__()
        self._late = late
        self._frames: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue()
        self._packets: list[Packet[Any]] = []
        self._encoder = OpusEncoder()
        self._sent: int | None = None  # when the frame was handed over that is being sent

    def feed(self, handed_over_perf_ns: int, pcm: bytes) -> None:
        """Take one frame."""
        self._frames.put_nowait((handed_over_perf_ns, pcm))

    async def recv(self) -> "Packet[Any]":
        """Return the next packet; aiortc asks for it when it has sent the one before."""
        if self._sent is not None and not self._packets:
            late_ns = time.perf_counter_ns() - self._sent
            self._sent = None
            if late_ns > REPORTED_LATE_NS:
                self._late(late_ns)
        while not self._packets:
            self._sent, pcm = await self._frames.get()
            self._packets = self._encoder.encode(pcm)
        return self._packets.pop(0)


class ArrivalBuffer:
    """Takes the place of aiortc's jitter buffer: passes each packet on when it comes, and keeps none."""

    def __init__(self, packet: Callable[[int, int, bytes], None]) -> None:
        self._packet = packet

    def add(self, packet: Any) -> tuple[bool, None]:
        """Pass a packet on; there is never a frame for aiortc to decode."""
        self._packet(packet.sequence_number, packet.timestamp, packet.payload)
        return False, None


class PeerCall:
    """One call's peer connection. `report` takes what happens."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._stamps = PeerStamps()
        self._connection: RTCPeerConnection | None = None
        self._channel: Any = None
        self._track = CallerTrack(self._sent_late)
        self._order = PacketOrder(RATE_HZ)
        self._decoder = OpusDecoder()
        self._tasks: set[asyncio.Task[None]] = set()
        self._over = False
        self._connected = False
        self._quiet = True  # nothing to report until packets have come
        self._packet_perf_ns = 0
        self._reported_perf_ns = 0
        self._last_report = b""

    # What the engine asks for.

    async def offer(self, wanted: MakeOffer) -> None:
        """Make the peer connection and the offer, with all candidates in it."""
        CURRENT_PEER.set(self._stamps)
        servers = [
            RTCIceServer(urls=list(server.urls), username=server.username, credential=server.credential)
            for server in wanted.ice_servers
        ]
        connection = RTCPeerConnection(RTCConfiguration(iceServers=servers, bundlePolicy=RTCBundlePolicy.MAX_BUNDLE))
        self._connection = connection
        transceiver = connection.addTransceiver(self._track, direction="sendrecv")
        codecs = RTCRtpSender.getCapabilities("audio").codecs
        transceiver.setCodecPreferences([codec for codec in codecs if codec.mimeType.lower() == "audio/opus"])
        if not hasattr(transceiver.receiver, _JITTER_BUFFER):
            reason = "this version of aiortc does not show when packets arrive; install 'aiortc<2'"
            self._lose(Lost(reason, None))
            return
        setattr(transceiver.receiver, _JITTER_BUFFER, ArrivalBuffer(self._packet))
        self._channel = connection.createDataChannel(CHANNEL_LABEL)
        self._channel.on("open", self._opened)
        self._channel.on("message", self._message)
        self._channel.on("close", self._channel_closed)
        connection.on("connectionstatechange", self._state_changed)
        connection.on("iceconnectionstatechange", self._ice_state_changed)
        await connection.setLocalDescription(await connection.createOffer())
        sdp = connection.localDescription.sdp
        if "a=candidate:" not in sdp:
            # aiortc leaves out what it could open no socket for, and an endpoint that gets no candidate cannot answer.
            exhausted = LocalLimits().datagram_exhausted("for calls over WebRTC")
            if exhausted is not None:
                self._lose(Lost(str(exhausted), exhausted.failure))
                return
        self._say(LinkKind.OFFER, sdp.encode())

    async def answer(self, sdp: str) -> None:
        """Take the endpoint's answer and connect."""
        connection = self._connection
        if connection is None:
            return
        CURRENT_PEER.set(self._stamps)
        try:
            await connection.setRemoteDescription(RTCSessionDescription(sdp, "answer"))
        except Exception as error:  # noqa: BLE001 - aiortc raises whatever its parser meets
            reason = f"the endpoint's answer is no SDP that fits the offer: {type(error).__name__}: {error}"
            self._lose(Lost(reason, Failure("protocol_violation", "bad_sdp")))
            return
        self._start(self._watch())

    def text(self, message: str) -> None:
        """Send a text over the data channel, if it is open."""
        if self._channel is not None and self._channel.readyState == "open":
            self._channel.send(message)

    def keep_alive(self, wanted: KeepAlive) -> None:
        """Send a text every so often."""
        self._start(self._repeat(wanted))

    def frame(self, data: bytes) -> None:
        """Send one frame of audio."""
        (handed_over_perf_ns,) = HANDED_OVER.unpack_from(data)
        self._track.feed(handed_over_perf_ns, data[HANDED_OVER.size :])

    async def close(self) -> None:
        """Send what is still to be said, and end the connection."""
        connection, self._connection = self._connection, None
        if connection is None:
            self._say(LinkKind.CLOSED)
            return
        deadline = time.perf_counter() + _FLUSH_S
        while not self._over and self._unsent() and time.perf_counter() < deadline:  # noqa: ASYNC110 - no event says so
            await asyncio.sleep(0.005)
        self._over = True
        for task in self._tasks:
            task.cancel()
        await connection.close()
        self._say(LinkKind.CLOSED)

    def _unsent(self) -> bool:
        """Return whether the endpoint has not confirmed all that was said over the data channel."""
        return self._channel is not None and self._channel.readyState == "open" and self._channel.bufferedAmount > 0

    # What happens.

    def _say(self, kind: LinkKind, data: bytes = b"") -> None:
        self._report(kind, time.perf_counter_ns(), 0, data)

    def _lose(self, lost: Lost) -> None:
        if not self._over:
            self._over = True
            self._say(LinkKind.LOST, msgspec.json.encode(lost))

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _opened(self) -> None:
        self._connected = True
        self._report(LinkKind.CHANNEL_OPEN, *self._stamps.newest, b"")

    def _message(self, message: str | bytes) -> None:
        is_text = isinstance(message, str)
        data = message.encode(errors="replace") if is_text else message
        if len(data) > MAX_MESSAGE_BYTES:
            reason = f"the endpoint sent a message of {len(data)} bytes over the data channel"
            self._lose(Lost(reason, Failure("protocol_violation", "too_long")))
            return
        self._report(LinkKind.TEXT if is_text else LinkKind.BINARY, *self._stamps.newest, data)

    def _channel_closed(self) -> None:
        self._lose(Lost("the endpoint closed the data channel", Failure("tcp", "EOF")))

    def _ice_state_changed(self) -> None:
        if self._connection is not None:
            self._say(LinkKind.STATE, self._connection.iceConnectionState.encode())

    def _state_changed(self) -> None:
        state = "closed" if self._connection is None else self._connection.connectionState
        if state == "closed":
            self._lose(Lost("the endpoint closed the connection", Failure("tcp", "EOF")))
        elif state == "failed":
            reason = "no path to the endpoint was found: none of its ICE candidates answered"
            self._lose(Lost(reason, Failure("timeout", "ice")))

    def _packet(self, sequence: int, timestamp: int, payload: bytes) -> None:
        stamp_perf_ns, lag_bound_ns = self._stamps.packet_stamp(sequence)
        lost = self._order.add(sequence, timestamp, stamp_perf_ns)
        if lost is None or self._over:
            return
        self._quiet = False
        self._packet_perf_ns = stamp_perf_ns
        pcm = self._decoder.decode(payload)
        data = PACKET.pack(min(lost, 0xFFFF), self._order.jitter_ns) + pcm
        self._report(LinkKind.AUDIO, stamp_perf_ns, lag_bound_ns, data)

    def _sent_late(self, late_ns: int) -> None:
        self._say(LinkKind.SENT_LATE, HANDED_OVER.pack(late_ns))

    # Background tasks.

    async def _repeat(self, wanted: KeepAlive) -> None:
        while not self._over:
            self.text(wanted.text)
            await asyncio.sleep(wanted.every_ms / 1000)

    async def _watch(self) -> None:
        """Report an idle line, what the endpoint says of what it hears, and an endpoint that is gone."""
        while not self._over:
            await asyncio.sleep(_LOOK_S)
            now = time.perf_counter_ns()
            if not self._quiet and now - self._packet_perf_ns > _QUIET_NS:
                self._quiet = True
                self._say(LinkKind.QUIET)
            if self._connected and now - self._stamps.newest[0] > _GONE_NS:
                reason = f"nothing has come from the endpoint for {_GONE_NS / 1e9:.0f} s"
                self._lose(Lost(reason, Failure("timeout", "peer_gone")))
            if now - self._reported_perf_ns > _REPORT_EVERY_NS:
                self._reported_perf_ns = now
                await self._pass_report_on()

    async def _pass_report_on(self) -> None:
        if self._connection is None or not self._connected:
            return
        for sender in self._connection.getSenders():
            for stats in (await sender.getStats()).values():
                if stats.type == "remote-inbound-rtp":
                    jitter_ns = stats.jitter * 1_000_000_000 // RATE_HZ
                    data = PACKET.pack(max(0, stats.packetsLost), jitter_ns)
                    if data != self._last_report:
                        self._last_report = data
                        self._say(LinkKind.REPORT, data)
