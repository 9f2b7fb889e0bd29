"""One call in a room: the caller's microphone, the agent's audio, and what the agent says of itself.

Runs in the process for rooms. Source: livekit 1.2.1 (rtc), livekit-agents 1.8.9 (voice/room_io, voice/remote_session).
"""

import asyncio
import datetime as dt
import re
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec
from livekit import api, rtc

from loadtest.engine.local_limits import NO_PORT, Exhausted, LocalLimits, no_port
from loadtest.engine.webrtc.messages import HANDED_OVER, PACKET, LinkKind, Lost
from loadtest.protocols.failure import Failure
from loadtest.protocols.room_items import AgentLeft, AgentState, JoinRoom, RoomItem, RoomJoined, RoomTranscript

VALID: Final = dt.timedelta(hours=6)


def token_of(join: JoinRoom) -> str:
    """Return a signed token; the one that was given where no key signs one."""
    if join.api_key is None:
        return join.secret
    token = (
        api.AccessToken(join.api_key, join.secret)
        .with_identity(join.identity)
        .with_grants(api.VideoGrants(room_join=True, room=join.room))
        .with_attributes(join.attributes)
        .with_metadata(join.metadata)
        .with_ttl(VALID)
    )
    if join.agent_name is not None:
        dispatch = api.RoomAgentDispatch(agent_name=join.agent_name, metadata=join.agent_metadata)
        token = token.with_room_config(api.RoomConfiguration(agents=[dispatch]))
    return token.to_jwt()


RATE_HZ: Final = 48_000
# What the SDK may hold of the microphone's audio before it is sent.
QUEUE_MS: Final = 40
_LATE_NS: Final = 2_000_000 + QUEUE_MS * 1_000_000
_CONNECT_S: Final = 10.0
_CLOSE_S: Final = 2.0
STATE: Final = "lk.agent.state"
TRANSCRIPTION: Final = "lk.transcription"
SESSION: Final = "lk.agent.session"
# How Rust ends the text of a system error.
_SYSTEM_ERROR: Final = re.compile(r"\(os error (\d+)\)")

# kind, stamp, lag bound, data
Report = Callable[[LinkKind, int, int, bytes], None]


class RoomCall:
    """One call's room. `report` takes what happens."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._room: Any = None
        self._source: Any = None
        self._frames: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()
        self._over = False

    async def join(self, wanted: JoinRoom) -> None:
        """Join the room and publish the microphone."""
        self._source = rtc.AudioSource(RATE_HZ, 1, queue_size_ms=QUEUE_MS)
        self._room = room = rtc.Room()
        self._listen(room)
        try:
            await room.connect(wanted.url, token_of(wanted), rtc.RoomOptions(connect_timeout=_CONNECT_S))
        except rtc.ConnectError as error:
            exhausted = exhaustion_in(str(error))
            if exhausted is None:
                self._lose(f"the room of the LiveKit server cannot be joined: {error}", cause_of(str(error)))
            else:
                self._lose(str(exhausted), exhausted.failure)
            return
        track = rtc.LocalAudioTrack.create_audio_track("microphone", self._source)
        options = rtc.TrackPublishOptions(source=rtc.TrackSource.SOURCE_MICROPHONE)
        await room.local_participant.publish_track(track, options)
        self._start(self._send_frames())
        self.say(RoomJoined())
        for participant in room.remote_participants.values():
            self.attributes_changed(dict(participant.attributes), participant)

    def _listen(self, room: Any) -> None:
        room.on("participant_attributes_changed", self.attributes_changed)
        room.on("participant_disconnected", self.participant_left)
        room.on("track_subscribed", self.track_subscribed)
        room.on("disconnected", self.disconnected)
        room.register_text_stream_handler(TRANSCRIPTION, self._text_stream)
        room.register_byte_stream_handler(SESSION, self._byte_stream)

    def frame(self, data: bytes) -> None:
        """Send one frame of audio."""
        (handed_over_perf_ns,) = HANDED_OVER.unpack_from(data)
        self._frames.put_nowait((handed_over_perf_ns, data[HANDED_OVER.size :]))

    async def _send_frames(self) -> None:
        while True:
            handed_over_perf_ns, pcm = await self._frames.get()
            await self._source.capture_frame(rtc.AudioFrame(pcm, RATE_HZ, 1, len(pcm) // 2))
            late_ns = time.perf_counter_ns() - handed_over_perf_ns
            if late_ns > _LATE_NS:
                self._tell(LinkKind.SENT_LATE, HANDED_OVER.pack(late_ns))

    async def close(self) -> None:
        """Leave the room."""
        self._over = True
        for task in self._tasks:
            task.cancel()
        room, self._room = self._room, None
        if room is not None and room.isconnected():
            await asyncio.wait_for(room.disconnect(), _CLOSE_S)
        source, self._source = self._source, None
        if source is not None:
            await source.aclose()
        self._tell(LinkKind.CLOSED)

    # What happens in the room.

    def attributes_changed(self, changed: dict[str, str], participant: Any) -> None:
        """Pass an agent's state on."""
        state = changed.get(STATE)
        if state and participant.kind == rtc.ParticipantKind.PARTICIPANT_KIND_AGENT:
            self.say(AgentState(state))

    def participant_left(self, participant: Any) -> None:
        """Pass on that an agent has left."""
        if participant.kind == rtc.ParticipantKind.PARTICIPANT_KIND_AGENT:
            self.say(AgentLeft())

    def track_subscribed(self, track: Any, publication: Any, participant: Any) -> None:
        """Hear an agent's audio."""
        del publication
        is_agent = participant.kind == rtc.ParticipantKind.PARTICIPANT_KIND_AGENT
        if is_agent and track.kind == rtc.TrackKind.KIND_AUDIO:
            self._start(self.hear(rtc.AudioStream(track, sample_rate=RATE_HZ, num_channels=1)))

    async def hear(self, stream: Any) -> None:
        """Pass audio on as it comes out of the SDK's jitter buffer."""
        async for event in stream:
            self._tell(LinkKind.AUDIO, PACKET.pack(0, 0) + bytes(event.frame.data))

    def _text_stream(self, reader: Any, identity: str) -> None:
        self._start(self.read_text(reader, identity))

    def _byte_stream(self, reader: Any, identity: str) -> None:
        del identity
        self._start(self.read_bytes(reader))

    async def read_text(self, reader: Any, identity: str) -> None:
        """Read a transcript of the caller's speech; that of the agent's keeps to its playback and is left out."""
        attributes = reader.info.attributes or {}
        text = await reader.read_all()
        room = self._room
        if room is not None and identity == room.local_participant.identity:
            is_final = attributes.get("lk.transcription_final") == "true"
            self.say(RoomTranscript(attributes.get("lk.segment_id", ""), text, is_final))

    async def read_bytes(self, reader: Any) -> None:
        """Read a message of the agent's session."""
        self._tell(LinkKind.BINARY, b"".join([chunk async for chunk in reader]))

    def disconnected(self, reason: Any = None) -> None:
        """The server has ended the call, or cannot be reached any more."""
        names: Any = rtc.DisconnectReason
        name = names.Name(reason) if isinstance(reason, int) else "UNKNOWN_REASON"
        self._lose(f"the LiveKit server ended the call ({name})", Failure("close_code", name))

    def say(self, item: RoomItem) -> None:
        """Report an item."""
        self._tell(LinkKind.ROOM, msgspec.json.encode(item))

    def _tell(self, kind: LinkKind, data: bytes = b"") -> None:
        self._report(kind, time.perf_counter_ns(), 0, data)

    def _lose(self, reason: str, failure: Failure) -> None:
        if not self._over:
            self._over = True
            self._tell(LinkKind.LOST, msgspec.json.encode(Lost(reason, failure)))

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def exhaustion_in(sentence: str) -> Exhausted | None:
    """Return the exhaustion of this machine that a sentence of the SDK names by the number of a system error."""
    number = _SYSTEM_ERROR.search(sentence)
    if number is None:
        return None
    if int(number[1]) == NO_PORT:
        return no_port("for connections to the LiveKit server")
    return LocalLimits().exhausted(OSError(int(number[1]), sentence))


def cause_of(sentence: str) -> Failure:
    """Return the cause in a sentence of the SDK, which has no other way to say it."""
    lower = sentence.lower()
    if "401" in lower or "unauthorized" in lower:
        return Failure("http_status", "401")
    if "refused" in lower:
        return Failure("tcp", "ECONNREFUSED")
    if "timed out" in lower or "timeout" in lower:
        return Failure("timeout", "connect")
    return Failure("other", "livekit_connect")
