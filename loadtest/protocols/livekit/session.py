"""The events of a LiveKit agent's session, whatever carries them: decoded messages in, normalized events out. Pure.

Source: livekit-agents 1.8.9, voice/remote_session.py. The end of the caller's turn is where the agent adds what the
caller said to the conversation, or begins to think about it; the end of speech that its voice activity detector sees
comes earlier, and counts as long as nothing later closes the turn. While the agent speaks the detector is not believed:
the agent may ignore what it hears (echo cancellation that warms up, a backchannel), and plays on.

A latency of 0 counts as not measured: protobuf does not tell the two apart where a field is not declared optional.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, TypeVar

from loadtest.protocols.base import CallerOptions, Content, EventKind, VoiceEvent
from loadtest.protocols.error_objects import error_message
from loadtest.protocols.failure import Failure, code_of
from loadtest.protocols.livekit import messages
from loadtest.protocols.livekit.messages import SPEAKING, THINKING
from loadtest.protocols.received import CumulativePartials, seconds_ns
from loadtest.protocols.transports.protobuf import chosen
from loadtest.protocols.wire_settings import WireSettings, checked_settings, faults_of_options

S = TypeVar("S", bound=WireSettings)
TEXT_COMES_LATE: Final = (
    "the agent sends the words of its answer after it has spoken them; its own llm_node_ttft is kept as reported"
)


def livekit_settings(options: CallerOptions, wire: str, kind: type[S], carries_not: Sequence[str] = ()) -> S:
    """Return the validated settings. Raises UsageError, one line for each fault, also for options without effect.

    `carries_not` are further options that the wire has no place for. The agent's code decides the rest.
    """
    faults = faults_of_options(options, wire, "the agent", "the agent's code")
    faults += [
        f"{wire}: the wire cannot carry {name!r}; leave it out" for name in carries_not if getattr(options, name)
    ]
    return checked_settings(kind, options, wire, faults)


LATENCIES: Final = (
    "transcription_delay",
    "end_of_turn_delay",
    "on_user_turn_completed_delay",
    "llm_node_ttft",
    "llm_node_ttfs",
    "tts_node_ttfb",
    "e2e_latency",
)
_TOKENS: Final[Mapping[str, str]] = {
    "input_tokens": "input_tokens",
    "input_cached_tokens": "cached_tokens",
    "input_audio_tokens": "input_audio_tokens",
    "input_cached_audio_tokens": "cached_audio_tokens",
    "output_tokens": "output_tokens",
    "output_audio_tokens": "output_audio_tokens",
}


def latencies_ns(report: Any) -> dict[str, int]:
    """Return the latencies of a MetricsReport, by LiveKit's names for them."""
    latencies = {name: seconds_ns(getattr(report, name)) for name in LATENCIES}
    return {name: value_ns for name, value_ns in latencies.items() if value_ns is not None}


class UsageOfTurns:
    """The usage of each turn, from totals of the session."""

    def __init__(self) -> None:
        self._total: dict[str, int] = {}
        self._before: dict[str, int] = {}

    def begin_turn(self) -> None:
        """Begin the next turn: from now on, reports beyond those so far belong to it."""
        self._before = dict(self._total)

    def update(self, usage: Any) -> dict[str, int]:
        """Return the counts of the turn so far, from the totals of a SessionUsage; {} if nothing was added.

        Tokens from a cache are also given where they are 0, together with other tokens: no cached token is an answer.
        """
        total: dict[str, int] = {}
        for entry in usage.model_usage:
            for name, count in _counts(*chosen(entry)).items():
                total[name] = total.get(name, 0) + count
        if total == self._total:
            return {}
        self._total = total
        turn = {name: count - self._before.get(name, 0) for name, count in total.items()}
        cached = ("cached_tokens",) if turn.get("input_tokens", 0) > 0 else ()
        return {name: count for name, count in turn.items() if count > 0 or (count == 0 and name in cached)}


def _counts(kind: str | None, fields: Any) -> dict[str, int]:
    """Return the counts of one model; audio is in ms."""
    if kind == "llm":
        return {name: getattr(fields, field) for field, name in _TOKENS.items() if getattr(fields, field) >= 0}
    if kind == "tts":
        return {"tts_characters": max(0, fields.characters_count), "tts_audio_ms": _ms(fields.audio_duration)}
    return {"stt_audio_ms": _ms(fields.audio_duration)} if kind == "stt" else {}


def _ms(duration_s: float) -> int:
    return round((seconds_ns(duration_s) or 0) / 1e6)


INTERRUPTED: Final = "interrupted"


class AgentReply:
    """The reply under way, if any, derived from what a LiveKit agent says of itself: the wire has no responses.

    A reply begins with its first audio, or when the agent says that it speaks. It is over when the agent adds what it
    has said to the conversation, with how it ended and with its own latencies. That comes after playback: the agent
    waits until it learns that everything it has flushed has been played. The state that the agent takes then says
    whether another response follows. Where nothing is added (it may be switched off), the state alone ends the reply.

    An agent that hears speech while it speaks takes the state `listening` at once, but only pauses: it may go on. On
    the console link the pause is not sent, so that the audio plays on until the agent asks to clear it.
    """

    def __init__(self) -> None:
        self._count = 0
        self._flushes = 0
        self._agent_state = -1
        self._pushed = False  # audio has come that the agent has not flushed
        self._unplayed: set[str] = set()  # flushes whose playback has not been reported to the agent
        self._forget()
        self.is_open = False

    def _forget(self) -> None:
        self._carried: set[Content] = set()
        self._spoken = False  # the agent has said that it speaks
        self._cleared = False
        self._ended: tuple[str, str | None] | None = None  # how it ended, while the state that follows is awaited

    @property
    def response_id(self) -> str:
        """The name of the reply; the wire has none."""
        return f"reply-{self._count}"

    def _begin(self, raw_type: str) -> list[VoiceEvent]:
        if self.is_open and self._ended is None:
            return []
        before = self._done(raw_type) if self.is_open else []
        self._count += 1
        self.is_open = True
        return [*before, VoiceEvent(EventKind.RESPONSE_STARTED, raw_type, response_id=self.response_id)]

    def audio(self, raw_type: str, pcm: bytes, rate_hz: int) -> list[VoiceEvent]:
        """A piece of what the agent says."""
        began = self._begin(raw_type)
        self._pushed = True
        self._carried.add("audio")
        piece = VoiceEvent(EventKind.AUDIO, raw_type, response_id=self.response_id, audio=pcm, rate_hz=rate_hz)
        return [*began, piece]

    def flush(self, raw_type: str) -> list[VoiceEvent]:
        """The agent has sent all of a piece and requests a report when it is played.

        Where nothing was sent the agent does not wait, and an answer could be taken for that to the next flush.
        """
        if not self._pushed:
            return [VoiceEvent(EventKind.OTHER, raw_type)]
        self._pushed = False
        self._flushes += 1
        mark = f"flush-{self._flushes}"
        self._unplayed.add(mark)
        return [VoiceEvent(EventKind.MARK, raw_type, text=mark)]

    def played(self, mark: str) -> bool:
        """Note that what was flushed was played, or is no longer played; return whether the agent needs a report."""
        if mark not in self._unplayed:
            return False
        self._unplayed.discard(mark)
        return True

    def clear(self, raw_type: str) -> list[VoiceEvent]:
        """The agent asks to play nothing more."""
        if not self.is_open or self._cleared or "audio" not in self._carried:
            return [VoiceEvent(EventKind.OTHER, raw_type)]
        self._cleared = True
        return [VoiceEvent(EventKind.CLEAR, raw_type, response_id=self.response_id)]

    def message_added(self, raw_type: str, message: Any) -> list[VoiceEvent]:
        """The agent adds what it has said to the conversation."""
        service_ns = latencies_ns(message.metrics)
        kind = EventKind.SERVICE_REPORT if service_ns else EventKind.OTHER
        if not self.is_open:
            return [VoiceEvent(kind, raw_type, service_ns=service_ns)]
        report = VoiceEvent(kind, raw_type, response_id=self.response_id, service_ns=service_ns)
        self._carried.add("text")
        # A synthesizer that failed also makes it read as interrupted, and then nothing is cleared.
        status = ("cancelled" if self._cleared else "incomplete") if message.interrupted else "completed"
        self._ended = status, INTERRUPTED if message.interrupted else None
        awaits_state = status == "completed" and self._agent_state == SPEAKING
        return [report] if awaits_state else [report, *self._done(raw_type)]

    def state_changed(self, raw_type: str, state: int) -> list[VoiceEvent]:
        """The agent takes another state."""
        self._agent_state = state
        if state == SPEAKING:
            began = self._begin(raw_type)
            if self._spoken:
                return began
            self._spoken = True
            return [*began, VoiceEvent(EventKind.SPEECH_SYNTHESIS_STARTED, raw_type, response_id=self.response_id)]
        if not self.is_open:
            return []
        paused = "audio" in self._carried and not self._cleared and (self._pushed or bool(self._unplayed))
        if self._ended is None and paused:
            return []
        return self._done(raw_type, owes_response=state == THINKING)

    def _done(self, raw_type: str, *, owes_response: bool = False) -> list[VoiceEvent]:
        status, why = self._ended or (("cancelled", INTERRUPTED) if self._cleared else ("completed", None))
        event = VoiceEvent(
            EventKind.RESPONSE_DONE,
            raw_type,
            response_id=self.response_id,
            status=status,
            carried=frozenset(self._carried),
            owes_response=owes_response and status == "completed",
            message=why,
        )
        self.is_open = False
        self._forget()
        return [event]


# An error is sent as Python shows it: type='llm_error' timestamp=… label='…' error=… recoverable=False
_ERROR_TYPE: Final = re.compile(r"\btype='([A-Za-z_]{1,60})'")
DETECTION: Final = "overlapping_speech_detection_delay"
# The first argument is the session.
EventHandler = Callable[[Any, str, Any], list[VoiceEvent]]


class AgentSession:
    """One conversation's session."""

    def __init__(self, reply: AgentReply | None = None) -> None:
        self.ready = False
        self.reply = AgentReply() if reply is None else reply
        self._usage = UsageOfTurns()
        self._partials = CumulativePartials()
        self._segment = 1  # of the caller's speech: what one final transcript covers
        self._turn_is_open = False  # the agent hears the caller speak and has not closed the turn
        self._transcripts_from: str | None = None  # which of several names for transcripts counts
        self._starts = False  # the session is known, and its agent is not initialized
        self._identity: Mapping[str, str] = {}

    def begin_turn(self) -> None:
        """The caller begins a turn: usage from now on is its, and what is recognized is another segment."""
        self._usage.begin_turn()
        self._segment += 1

    def event(self, fields: Any) -> list[VoiceEvent]:
        """Make events of an AgentSessionEvent."""
        name, event = chosen(fields)
        if name is None:
            return [VoiceEvent(EventKind.UNKNOWN, "event")]
        handler = self._handlers.get(name)
        events = [] if handler is None else handler(self, name, event)
        return events or [VoiceEvent(EventKind.OTHER, name)]

    def response(self, fields: Any) -> list[VoiceEvent]:
        """Make events of an answer to a request of ours: the framework's name and version, and the session's state."""
        name, response = chosen(fields)
        if fields.error:
            sentence = f"the agent refused the request {fields.request_id!r}: {fields.error}"
            failure = Failure("endpoint_error", "refused_request")
            return [VoiceEvent(EventKind.ERROR, "response", message=sentence, failure=failure, fatal=not self.ready)]
        if name == "get_framework_info":
            named = {"livekit.sdk": response.sdk, "livekit.version": response.sdk_version}
            self._identity = {key: value for key, value in named.items() if value}
            return [VoiceEvent(EventKind.OTHER, name)]
        if name == "get_session_state":
            self._starts = True
            return self._perhaps_ready(name, response.agent_state) or [VoiceEvent(EventKind.OTHER, name)]
        return [VoiceEvent(EventKind.UNKNOWN if name is None else EventKind.OTHER, name or "response")]

    def start(self) -> None:
        """The session is known without a request: it is ready as soon as its agent is initialized."""
        self._starts = True

    def _perhaps_ready(self, raw_type: str, agent_state: int) -> list[VoiceEvent]:
        """The session accepts audio once its agent is initialized; events before its first answer may be of before."""
        if self.ready or not self._starts or agent_state == messages.INITIALIZING:
            return []
        self.ready = True
        return [VoiceEvent(EventKind.READY, raw_type, metadata=self._identity)]

    # The caller's speech.

    def _user_state(self, raw_type: str, event: Any) -> list[VoiceEvent]:
        if event.new_state == messages.USER_SPEAKING:
            self._turn_is_open = True
            return [] if self.reply.is_open else [VoiceEvent(EventKind.SPEECH_STARTED, raw_type)]
        heard_end = event.new_state == messages.USER_LISTENING and self._turn_is_open and not self.reply.is_open
        return [VoiceEvent(EventKind.SPEECH_STOPPED, raw_type)] if heard_end else []

    def _close_turn(self, raw_type: str) -> list[VoiceEvent]:
        was_open, self._turn_is_open = self._turn_is_open, False
        return [VoiceEvent(EventKind.SPEECH_STOPPED, raw_type)] if was_open else []

    def _transcribed(self, raw_type: str, event: Any) -> list[VoiceEvent]:
        return self.transcript(raw_type, event.transcript, is_final=event.is_final)

    def transcript(
        self, raw_type: str, text: str, *, is_final: bool, segment_id: str | None = None
    ) -> list[VoiceEvent]:
        """Make events of what was recognized of the caller so far. The name that comes first in a session counts.

        `segment_id` is the wire's own name of the segment, where it has one.
        """
        self._transcripts_from = self._transcripts_from or raw_type
        if raw_type != self._transcripts_from:
            return []
        item_id = segment_id or f"segment-{self._segment}"
        if is_final:
            self._segment += 1
            return [VoiceEvent(EventKind.ASR_FINAL, raw_type, item_id=item_id, text=text)]
        added = self._partials.addition(item_id, text)
        return [VoiceEvent(EventKind.ASR_PARTIAL, raw_type, item_id=item_id, text=added)] if added else []

    # The agent.

    def _agent_state(self, raw_type: str, event: Any) -> list[VoiceEvent]:
        return self.agent_state(raw_type, event.new_state)

    def agent_state(self, raw_type: str, state: int) -> list[VoiceEvent]:
        """Make events of the state that the agent takes."""
        ready = self._perhaps_ready(raw_type, state)
        events = self._closing_turn(self.reply.state_changed(raw_type, state))
        if state == messages.THINKING:
            events += self._close_turn(raw_type)
        return ready + events

    def _item(self, raw_type: str, event: Any) -> list[VoiceEvent]:
        kind, message = chosen(event.item)
        if kind != "message":
            return []
        if message.role == messages.ASSISTANT:
            return self.reply.message_added(raw_type, message)
        if message.role != messages.USER:
            return []
        closed, service_ns = self._close_turn(raw_type), latencies_ns(message.metrics)
        report = [VoiceEvent(EventKind.SERVICE_REPORT, raw_type, service_ns=service_ns)] if service_ns else []
        return closed + report

    def audio(self, raw_type: str, pcm: bytes, rate_hz: int) -> list[VoiceEvent]:
        """Make events of a piece of what the agent says."""
        return self._closing_turn(self.reply.audio(raw_type, pcm, rate_hz))

    def _closing_turn(self, events: list[VoiceEvent]) -> list[VoiceEvent]:
        """A reply that begins answers the caller's turn: a late transcript does not close it again."""
        if any(event.kind is EventKind.RESPONSE_STARTED for event in events):
            self._turn_is_open = False
        return events

    def _session_usage(self, raw_type: str, event: Any) -> list[VoiceEvent]:
        usage = self._usage.update(event.usage)
        return [VoiceEvent(EventKind.SERVICE_REPORT, raw_type, usage=usage)] if usage else []

    def _overlap(self, raw_type: str, event: Any) -> list[VoiceEvent]:
        delay_ns = seconds_ns(event.detection_delay) if event.is_interruption else None
        if delay_ns is None:
            return []
        return [VoiceEvent(EventKind.SERVICE_REPORT, raw_type, service_ns={DETECTION: delay_ns})]

    def _error(self, raw_type: str, event: Any) -> list[VoiceEvent]:
        sentence = event.message or error_message(None)
        kind = _ERROR_TYPE.search(sentence)
        failure = Failure("endpoint_error", None if kind is None else code_of(kind[1]))
        return [VoiceEvent(EventKind.ERROR, raw_type, message=sentence, failure=failure)]

    # On the class, not on each object: bound methods in an object would be a reference cycle that only the garbage
    # collector breaks. Events without a handler are ones that no caller needs.
    _handlers: ClassVar[Mapping[str, EventHandler]] = {
        "agent_state_changed": _agent_state,
        "user_state_changed": _user_state,
        "user_input_transcribed": _transcribed,
        "conversation_item_added": _item,
        "session_usage_updated": _session_usage,
        "overlapping_speech": _overlap,
        "error": _error,
    }
