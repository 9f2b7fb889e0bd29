"""Derives replies from the messages of a Deepgram agent: the wire has no responses.

A reply is everything from the first sign of it (a thought, a call of a function, words or audio) to `AgentAudioDone`,
which ends what is sent, long before it has been played. `UserStartedSpeaking` breaks the reply off: the client drops
whatever it has not played. The service then sends `AgentAudioDone` for the reply that it broke off, or nothing.
"""

from collections.abc import Iterable
from itertools import islice
from typing import Any, Final

from loadtest.protocols.audio_format import AudioFormat
from loadtest.protocols.base import Content, EventKind, VoiceEvent
from loadtest.protocols.error_objects import violation

MAX_CALLS: Final = 1000  # remembered at once
INTERRUPTED: Final = "the service heard the caller speak"
# Audio that begins like a file. It would be played as noise: raw audio is asked for.
_FILE_HEADERS: Final = (b"RIFF", b"OggS", b"ID3", b"fLaC")


class DeepgramReply:
    """The reply under way, if any. Every method returns the events that the message makes."""

    def __init__(self, output_format: AudioFormat) -> None:
        self._format = output_format
        self._open = False
        self._carried: set[Content] = set()
        self._spoken = False  # words of the reply have come
        self._calls: set[str] = set()  # functions called since the last words: more words follow their results
        self._half = b""  # of a sample that was cut in two
        self._unplayed = False  # audio has come since the client last dropped all of it
        self._stale = False  # audio that comes now was under way when the reply was broken off
        self._owes_end = False  # of a reply that was broken off

    def thought(self, raw_type: str, text: str) -> list[VoiceEvent]:
        """The agent thinks."""
        events = self._begin(raw_type)
        return [*events, VoiceEvent(EventKind.REASONING_TEXT, raw_type, text=text)] if text else events

    def called(self, raw_type: str, call_ids: Iterable[str]) -> list[VoiceEvent]:
        """The agent calls functions: it goes on with their results."""
        events = self._begin(raw_type)
        self._carried.add("tool_call")
        self._calls.update(islice(call_ids, MAX_CALLS - len(self._calls)))
        return events

    def uncalled(self, raw_type: str, call_ids: Iterable[str]) -> list[VoiceEvent]:
        """The agent needs the results of these calls no longer."""
        self._calls.difference_update(call_ids)
        return [VoiceEvent(EventKind.OTHER, raw_type)]

    def words(self, raw_type: str, text: str, *, fills_wait: bool) -> list[VoiceEvent]:
        """A sentence of the reply, which is sent when it is spoken. Words that fill a wait answer nothing."""
        if not text:
            return [VoiceEvent(EventKind.OTHER, raw_type)]
        events = self._begin(raw_type)
        if not fills_wait:
            self._calls.clear()
        text = f" {text}" if self._spoken else text
        self._spoken = True
        self._carried.add("text")
        return [*events, VoiceEvent(EventKind.SPOKEN_TEXT, raw_type, text=text)]

    def speaking(self, raw_type: str, **reported: Any) -> list[VoiceEvent]:
        """The service says that it begins to speak, and what took it how long."""
        events = self._begin(raw_type)
        return [*events, VoiceEvent(EventKind.SPEECH_SYNTHESIS_STARTED, raw_type, **reported)]

    def audio(self, raw_type: str, data: bytes) -> list[VoiceEvent]:
        """A piece of audio; what was under way when the reply was broken off is no part of any."""
        if self._stale or not data:
            return [VoiceEvent(EventKind.OTHER, raw_type)]
        first = "audio" not in self._carried
        events = self._begin(raw_type)
        if first and data.startswith(_FILE_HEADERS):
            sentence = f"the audio begins like a file, with {data[:4]!r}; it must be raw audio"
            events.append(violation(raw_type, sentence, "audio_header"))
        self._carried.add("audio")
        pcm = self._decoded(data)
        if pcm:
            self._unplayed = True
            rate_hz = self._format.rate_hz
            events.append(VoiceEvent(EventKind.AUDIO, raw_type, audio=pcm, rate_hz=rate_hz))
        return events or [VoiceEvent(EventKind.OTHER, raw_type)]

    def _decoded(self, data: bytes) -> bytes:
        if self._format.encoding != "pcm16":
            return self._format.decode(data).tobytes()
        data = self._half + data
        whole = len(data) // 2 * 2
        self._half = data[whole:]
        return data[:whole]

    def audio_done(self, raw_type: str) -> list[VoiceEvent]:
        """All audio of a reply has been sent: of the one under way, or of the one that was broken off before it."""
        if self._owes_end and "audio" not in self._carried:
            self._owes_end = self._stale = False
            return [VoiceEvent(EventKind.OTHER, raw_type)]
        if not self._open:
            return [VoiceEvent(EventKind.OTHER, raw_type)]
        events = [VoiceEvent(EventKind.AUDIO_DONE, raw_type)]
        if self._half:
            sentence = "the audio ended inside a sample: an odd number of bytes of 16-bit PCM"
            events.append(violation(raw_type, sentence, "odd_audio"))
        self._owes_end = False
        return [*events, self._done(raw_type, "completed", None)]

    def interrupted(self, raw_type: str) -> list[VoiceEvent]:
        """The service heard the caller: nothing that it has sent is to be played any more."""
        events: list[VoiceEvent] = []
        if self._unplayed:
            self._unplayed = False
            events.append(VoiceEvent(EventKind.CLEAR, raw_type))
        if self._open:
            self._owes_end = self._stale = True
            events.append(self._done(raw_type, "cancelled", INTERRUPTED))
        return events

    def asked(self) -> None:
        """The caller's question is closed: what comes from now on answers it."""
        self._stale = False

    def _begin(self, raw_type: str) -> list[VoiceEvent]:
        self._stale = False
        if self._open:
            return []
        self._open = True
        return [VoiceEvent(EventKind.RESPONSE_STARTED, raw_type)]

    def _done(self, raw_type: str, status: str, why: str | None) -> VoiceEvent:
        event = VoiceEvent(
            EventKind.RESPONSE_DONE,
            raw_type,
            status=status,
            carried=frozenset(self._carried),
            owes_response=bool(self._calls) and status == "completed",
            message=why,
        )
        self._open = self._spoken = False
        self._carried = set()
        self._calls = set()
        self._half = b""
        return event
