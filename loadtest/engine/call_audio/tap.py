"""One call's audio on its way to the queue: implements both taps of `loadtest.conversation.prepared_clip`."""

from typing import Final

from loadtest.conversation.prepared_clip import PreparedClip
from loadtest.engine.call_audio.messages import KeeperMessage, KeeperMessageKind, turn_payload
from loadtest.engine.call_audio.queue import CallAudioQueue
from telemetry.store.recordings.kept_call import KeptTurn

_PLAYED: Final = int(KeeperMessageKind.PLAYED)


class CallAudioTap:
    """Queues what is heard and sent in one call. `number` is the call's in this process."""

    __slots__ = ("_ended_perf_ns", "_is_closed", "_keeps_audio", "_queue", "number")

    def __init__(self, queue: CallAudioQueue, number: int, *, keeps_audio: bool) -> None:
        self._queue = queue
        self.number = number
        self._keeps_audio = keeps_audio
        self._ended_perf_ns = 0
        self._is_closed = False

    @property
    def keeps_audio(self) -> bool:
        """Whether the call's audio is kept, not its texts alone."""
        return self._keeps_audio

    def played(self, playback: int, rate_hz: int, start_perf_ns: int, audio: bytes) -> None:
        """Audio of a reply is played from a moment."""
        self._queue.put(KeeperMessage(_PLAYED, self.number, playback, rate_hz, start_perf_ns, audio))

    def stopped(self, playback: int, now_perf_ns: int) -> None:
        """Nothing of a playback is heard from this moment."""
        self._put(KeeperMessageKind.STOPPED, now_perf_ns, playback=playback)

    def began(self, first_sample_perf_ns: int) -> None:
        """The first sample of the call was spoken."""
        self._put(KeeperMessageKind.BEGAN, first_sample_perf_ns)

    def spoke(self, frame: int, clip: PreparedClip) -> None:
        """An utterance begins."""
        rendered = clip.rendered
        view = rendered.pcm.astype("<i2", copy=False).data.cast("B")
        self._queue.put(KeeperMessage(KeeperMessageKind.SPOKE, self.number, 0, rendered.rate_hz, frame, view))

    def muted(self, frame: int) -> None:
        """The utterance is broken off."""
        self._put(KeeperMessageKind.MUTED, frame)

    def hung_up(self, now_perf_ns: int) -> None:
        """The call has ended; turns may still be recorded."""
        if not self._ended_perf_ns:
            self._ended_perf_ns = now_perf_ns

    def recorded(self, turn: KeptTurn) -> None:
        """A turn of the call has been recorded."""
        self._put(KeeperMessageKind.TURN, 0, payload=turn_payload(turn))

    def close(self, now_perf_ns: int) -> None:
        """Nothing more comes of this call. Idempotent."""
        if not self._is_closed:
            self._is_closed = True
            self._put(KeeperMessageKind.CLOSE, self._ended_perf_ns or now_perf_ns)

    def _put(self, kind: KeeperMessageKind, at: int, *, playback: int = 0, payload: bytes = b"") -> None:
        self._queue.put(KeeperMessage(kind, self.number, playback, 0, at, payload))
