"""The events of a LiveKit agent's session, whatever carries them: decoded messages in, normalized events out. Pure.

Source: livekit-agents 1.8.9, voice/remote_session.py. The end of the caller's turn is where the agent adds what the
caller said to the conversation, or begins to think about it; the end of speech that its voice activity detector sees
comes earlier, and counts as long as nothing later closes the turn. While the agent speaks the detector is not believed:
the agent may ignore what it hears (echo cancellation that warms up, a backchannel), and plays on.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

from loadtest.protocols.base import EventKind, VoiceEvent
from loadtest.protocols.cumulative_partials import CumulativePartials
from loadtest.protocols.error_objects import error_message
from loadtest.protocols.failure import Failure, code_of
from loadtest.protocols.livekit import messages
from loadtest.protocols.livekit.metrics import UsageOfTurns, latencies_ns, seconds_ns
from loadtest.protocols.livekit.reply import AgentReply

# An error is sent as Python shows it: type='llm_error' timestamp=… label='…' error=… recoverable=False
_ERROR_TYPE: Final = re.compile(r"\btype='([A-Za-z_]{1,60})'")
DETECTION: Final = "overlapping_speech_detection_delay"
# The first argument is the session.
Handler = Callable[[Any, str, Any], list[VoiceEvent]]


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
        name, event = messages.chosen(fields)
        if name is None:
            return [VoiceEvent(EventKind.UNKNOWN, "event")]
        handler = self._handlers.get(name)
        found = [] if handler is None else handler(self, name, event)
        return found or [VoiceEvent(EventKind.OTHER, name)]

    def response(self, fields: Any) -> list[VoiceEvent]:
        """Make events of an answer to a request of ours: the framework's name and version, and the session's state."""
        name, response = messages.chosen(fields)
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
        found = self._of_reply(self.reply.state_changed(raw_type, state))
        if state == messages.THINKING:
            found += self._close_turn(raw_type)
        return ready + found

    def _item(self, raw_type: str, event: Any) -> list[VoiceEvent]:
        kind, message = messages.chosen(event.item)
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
        return self._of_reply(self.reply.audio(raw_type, pcm, rate_hz))

    def _of_reply(self, events: list[VoiceEvent]) -> list[VoiceEvent]:
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
    _handlers: ClassVar[Mapping[str, Handler]] = {
        "agent_state_changed": _agent_state,
        "user_state_changed": _user_state,
        "user_input_transcribed": _transcribed,
        "conversation_item_added": _item,
        "session_usage_updated": _session_usage,
        "overlapping_speech": _overlap,
        "error": _error,
    }
