"""WebRTC: a peer connection in the engine's WebRTC process, and the HTTP requests with which it is negotiated."""

from collections.abc import Sequence
from typing import Final

import msgspec

from loadtest.engine.transports.base import Transport, TransportCallbacks, TransportItem, TransportParts
from loadtest.engine.transports.http import HttpTransport
from loadtest.engine.webrtc.media_process import MediaProcess
from loadtest.engine.webrtc.messages import REPORTED_LATE_NS, LinkKind
from loadtest.protocols.base import Message, Outgoing
from loadtest.protocols.failure import Failure
from loadtest.protocols.http_items import HttpCancel, HttpRequest
from loadtest.protocols.room_items import RoomItem
from loadtest.protocols.webrtc_items import ChannelOpen, KeepAlive, LocalOffer, MakeOffer, RemoteAnswer, WebRtcItem

_CONNECTED: Final = frozenset({"connected", "completed"})


class WebRtcTransport(Transport, TransportCallbacks):
    """One call's peer connection, and the owner of its requests.

    Raises UsageError without aiortc, and InstrumentError if the WebRTC process does not start.
    """

    hand_over_ns = REPORTED_LATE_NS

    def __init__(self, parts: TransportParts, process: MediaProcess) -> None:
        process.start()
        super().__init__(parts)
        self._process = process
        self._http = HttpTransport(parts, None)
        self._call: int | None = None
        self._closed: str | None = "not connected"
        self._hung_up = False
        self._offered = self._answered = self._channel_is_open = False
        self._ice = "new"

    @property
    def closed(self) -> str | None:
        """The reason why the transport is not open; None while it is."""
        return self._closed

    @property
    def is_open(self) -> bool:
        """Whether messages may be sent."""
        return self._closed is None and not self._hung_up

    def open(self, callbacks: TransportCallbacks, timeout_s: float) -> None:
        """Take over the call; what is to be negotiated with whom, its protocol says."""
        self._callbacks = callbacks
        self._call = self._process.register(self)
        self._closed = None
        self._http.open(self, timeout_s)

    # Outgoing.

    def send(self, message: Outgoing) -> None:
        """Send a request, a text of the data channel, or a command about the connection. Raises TypeError for bytes."""
        call = self._call
        if call is None or not self.is_open:
            return
        if isinstance(message, str):
            self._process.send(LinkKind.TEXT, call, message.encode())
        elif isinstance(message, HttpRequest | HttpCancel):
            self._http.send(message)
        elif isinstance(message, MakeOffer):
            self._process.send(LinkKind.MAKE_OFFER, call, msgspec.json.encode(message))
        elif isinstance(message, RemoteAnswer):
            self._answered = True
            self._process.send(LinkKind.ANSWER, call, message.sdp.encode())
        elif isinstance(message, KeepAlive):
            self._process.send(LinkKind.KEEP_ALIVE, call, msgspec.json.encode(message))
        else:
            raise TypeError(f"a data channel carries texts here, not {type(message).__name__}")

    def send_frame(self, frame: bytes) -> bool:
        """Hand a frame to the WebRTC process, which says so if it sends it late."""
        self.frame_bytes = len(frame)
        if self._call is not None and self.is_open:
            self._process.send_frame(self._call, frame)
        return True

    # Incoming; called by the WebRTC process and by the requests.

    def readable(self) -> None:
        """Read what has arrived and pass it on."""
        self._process.readable()
        self._http.readable()

    def arrived(self, stamp_perf_ns: int, lag_bound_ns: int, items: Sequence[WebRtcItem | RoomItem | Message]) -> None:
        """Pass on what came from the endpoint."""
        for item in items:
            self._offered = self._offered or isinstance(item, LocalOffer)
            self._channel_is_open = self._channel_is_open or isinstance(item, ChannelOpen)
        self.lag_bound_ns = lag_bound_ns
        if self._callbacks is not None and not self._hung_up:
            self._callbacks.receive(stamp_perf_ns, self._now_perf_ns(), items)

    def receive(self, stamp_perf_ns: int, seen_perf_ns: int, items: Sequence[TransportItem]) -> None:
        """Pass on what a request brought."""
        self.lag_bound_ns = None
        if self._callbacks is not None and not self._hung_up:
            self._callbacks.receive(stamp_perf_ns, seen_perf_ns, items)

    def state(self, word: str) -> None:
        """Take over the state of the connection's ICE."""
        self._ice = word

    def sent_late(self, late_ns: int) -> None:
        """Pass on that this machine sent a frame late."""
        if self._callbacks is not None and not self._hung_up:
            self._callbacks.sent_late(late_ns)

    def lost(self, reason: str, failure: Failure) -> None:
        """Pass on that the connection cannot continue."""
        if self._callbacks is not None and not self._hung_up:
            self._callbacks.disconnected(reason, failure)

    def disconnected(self, reason: str, failure: Failure) -> None:
        """Pass on that a request cannot continue."""
        self.lost(reason, failure)

    def broken(self, error: Exception) -> None:
        """Pass on a fault of ours."""
        self._closed = str(error)
        if self._callbacks is not None and not self._hung_up:
            self._callbacks.failed(error)

    def ended(self) -> None:
        """Note that the connection is closed."""
        self._closed = "closed"

    def no_session_reason(self, waited_s: float, awaited: str | None = None) -> tuple[str, Failure]:
        """Explain why there is no session after `waited_s` seconds."""
        del awaited  # the steps of the negotiation say more
        if not self._answered:
            what = "the offer" if self._offered else "the request for a session"
            return f"the endpoint did not answer {what} within {waited_s:g} s", Failure("timeout", "offer")
        if self._channel_is_open:
            return f"the bot was not ready within {waited_s:g} s", Failure("timeout", "session")
        if self._ice in _CONNECTED:
            sentence = f"the endpoint was reached, but opened no data channel within {waited_s:g} s"
            return sentence, Failure("timeout", "data_channel")
        sentence = (
            f"the endpoint answered the offer, but no path to it was found within {waited_s:g} s (ICE: {self._ice})"
        )
        return sentence, Failure("timeout", "ice")

    # The end.

    def hang_up(self, reason: str) -> None:
        """End the connection once what was said before it is sent, and pass nothing on any more."""
        del reason
        if self._call is not None and not self._hung_up:
            self._hung_up = True
            self._process.send(LinkKind.CLOSE, self._call)
            self._http.hang_up("")

    def release(self) -> None:
        """Release the owner's callbacks; `close` does the rest."""
        self._callbacks = None

    def close(self) -> None:
        """Release the connection. Idempotent."""
        self.hang_up("")
        call, self._call = self._call, None
        self._closed = "closed"
        self._callbacks = None
        if call is not None:
            self._process.forget(call)
        self._http.close()
