"""The caller's side of OpenAI Realtime: whole messages in, normalized events out.

Audio deltas carry neither rate nor encoding: the session object or the response object declares them, and `rate_hz` of
AUDIO events is what was declared. A declaration that differs from the request is used and reported. An endpoint that
declares one rate and sends another cannot be distinguished from one that speaks slowly; only audio that ends inside a
sample can be detected, and is reported.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from loadtest.audio import pcm as samples
from loadtest.audio.pcm import Pcm16
from loadtest.protocols.audio_format import ODD_AUDIO, PCM, AudioFormat
from loadtest.protocols.base import (
    SUPERSEDED,
    CallerOptions,
    CallerProtocol,
    Capabilities,
    EventKind,
    Message,
    OpenRequest,
    VoiceEvent,
)
from loadtest.protocols.error_objects import endpoint_error, error_message, violation
from loadtest.protocols.headers import bearer_headers
from loadtest.protocols.json_fields import (
    Json,
    as_list,
    as_object,
    optional_count,
    optional_object,
    optional_text,
    required_base64,
    required_text,
)
from loadtest.protocols.openai_realtime.dialects import (
    BETA,
    COMMIT,
    GA,
    RESPONSE_CREATE,
    UPDATE_EVENT_ID,
    Dialect,
    encoded,
    openai_settings,
    parse_beta,
    parse_ga,
    session_update,
)
from loadtest.protocols.openai_realtime.names import AliasFilter, ServerEvent, canonical, is_known, is_tool_call
from loadtest.protocols.openai_realtime.responses import ReplyAudio, Responses, content_of_output, is_tool_item
from loadtest.protocols.received import (
    CumulativePartials,
    Handler,
    JsonMessages,
    RepeatDetector,
    flat_usage,
    text_pairs,
)
from loadtest.protocols.wire_settings import result_of, result_text, unknown_tool
from telemetry.model.recent import RecentDict

MAX_REMEMBERED: Final = 1000


class CannedTools:
    """The tool calls of a response until it is done, and which calls have been answered."""

    def __init__(self, results: Mapping[str, Any]) -> None:
        self._results = results
        self._called: dict[str, str] = {}  # by call id: the tool's name
        self._answered = RecentDict[str, None](MAX_REMEMBERED)

    def note(self, item: Json | None) -> None:
        """Remember an output item if it is a call of a function; servers send the same one several times."""
        if not self._results or item is None or item.get("type") != "function_call":
            return
        call_id, name = item.get("call_id"), item.get("name")
        # A call is announced before it has a name or arguments.
        if isinstance(call_id, str) and isinstance(name, str) and name and call_id not in self._answered:
            self._called[call_id] = name

    def note_output(self, response: Json) -> None:
        """Remember the calls in a whole response's output."""
        for entry in as_list(response.get("output")) or ():
            self.note(as_object(entry))

    def answers(self) -> tuple[list[str], list[str]]:
        """Return the answers of the calls since the last time, and the tools for which there is no result."""
        called, self._called = self._called, {}
        messages: list[str] = []
        unknown: list[str] = []
        for call_id, name in called.items():
            self._answered[call_id] = None
            result = result_of(self._results, name)
            if result is None:
                unknown.append(name)
                continue
            output = result_text(result)
            item = {"type": "function_call_output", "call_id": call_id, "output": output}
            messages.append(encoded("conversation.item.create", item=item))
        return messages, unknown


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """The declarations of a session object; None where it declares nothing.

    `unreadable` contains a sentence for each declaration that is invalid.
    """

    input_format: AudioFormat | None
    output_format: AudioFormat | None
    identity: Mapping[str, str]
    unreadable: tuple[str, ...]


def session_info(session: Json) -> SessionInfo:
    """Read a session object, or the audio formats of a response object."""
    unreadable: list[str] = []
    audio = as_object(session.get("audio")) or {}
    sides: list[AudioFormat | None] = []
    for side in ("input", "output"):
        ga = (as_object(audio.get(side)) or {}).get("format")
        beta = session.get(f"{side}_audio_format")
        try:
            sides.append(parse_ga(ga) if ga is not None else parse_beta(beta) if beta is not None else None)
        except ValueError as error:
            unreadable.append(f"{side} format: {error}")
            sides.append(None)
    identity = {f"session.{key}": value for key in ("id", "model") if isinstance(value := session.get(key), str)}
    return SessionInfo(sides[0], sides[1], identity, tuple(unreadable))


# Errors after which the endpoint does not continue, by `type` or `code`.
FATAL_ERRORS: Final = frozenset({"session_limit_reached", "session_expired", "invalid_api_key", "insufficient_quota"})
# The endpoint had already finished or cancelled the response when our cancel arrived: a race, not an error.
LOST_RACES: Final = frozenset({"response_cancel_not_active"})


FRAME_MS: Final = 20


class OpenAIRealtimeCaller(JsonMessages, CallerProtocol):
    """One conversation of a caller."""

    def __init__(self, options: CallerOptions, dialect: Dialect = GA) -> None:
        """Raises UsageError for settings that cannot be used."""
        self._options = options
        self._settings, self._dialect = openai_settings(options, dialect)
        self._tools = CannedTools(self._settings.tools)
        self.capabilities = Capabilities(
            input_rate_hz=PCM.rate_hz,
            frame_ms=FRAME_MS,
            not_observable={},
            audio_is_text=not self._settings.binary_audio,
            turn_controls=self._dialect.turn_controls,
            speech_stops_replies=True,
        )
        self._update_sent = False
        self._ready = False
        self._output_format = PCM
        self._response_format: tuple[str | None, AudioFormat] | None = None
        self._responses = Responses()
        self._repeats = RepeatDetector()
        self._aliases = AliasFilter()
        self._reply = ReplyAudio()
        # The part that the previous audio delta belongs to, as sent (name on the wire, response_id, item_id and
        # content_index) and as resolved to a response and an item. It ends when a response begins or ends.
        self._part: tuple[object, ...] | None = None
        self._part_ids: tuple[str | None, str | None] = (None, None)
        self._partials = CumulativePartials()

    def upgrade(self, target_url: str, traceparent: str | None) -> OpenRequest:
        """Complete the URL by what it lacks: path, query, model; put the token and the trace into headers."""
        dialect, parts = self._dialect, urlsplit(target_url)
        query = parse_qsl(parts.query, keep_blank_values=True)
        model = () if self._options.model is None else ((dialect.model_parameter, self._options.model),)
        missing = [(name, value) for name, value in (*dialect.query, *model) if name not in dict(query)]
        if missing:
            parts = parts._replace(query=urlencode([*query, *missing]))
        if parts.path in ("", "/"):
            parts = parts._replace(path=dialect.path)
        named = {} if dialect.key_header is None else {"name": dialect.key_header, "scheme": ""}
        access = bearer_headers(self._options.token, traceparent, **named)
        headers = (*dialect.headers, *self._settings.headers.items(), *access, *self._options.headers)
        return OpenRequest(urlunsplit(parts), headers)

    def receive(self, message: Message) -> Sequence[VoiceEvent]:
        """Decode one message; never raises."""
        if isinstance(message, str):
            return super().receive(message)
        if not message.startswith(b"{"):
            return self._binary(message)
        events = super().receive(message)
        is_no_event = events[0].kind is EventKind.ERROR and not events[0].raw_type
        if is_no_event and self._responses.generating is not None:
            return self._binary(message)  # audio whose first byte happens to be an opening brace
        return events

    def handle(self, raw_type: str, fields: Json, message: Message) -> Sequence[VoiceEvent]:
        """Return the events of a message of this type. May raise MalformedError."""
        if self._repeats.is_repeat(fields.get("event_id"), (raw_type, len(message))):
            return [VoiceEvent(EventKind.DUPLICATE, raw_type)]
        event = canonical(raw_type)
        handler = None if event is None else self.handlers.get(event)
        return self._unused(raw_type, fields) if handler is None else handler(self, raw_type, fields)

    def awaited(self) -> str | None:
        """Return the message that opens the session, or acknowledges what was asked of it."""
        return "session.updated in answer to session.update" if self._update_sent else "session.created"

    def audio_message(self, pcm: Pcm16) -> bytes:
        """Return one frame: `input_audio_buffer.append`, or the audio itself."""
        audio = samples.to_bytes(pcm)
        if self._settings.binary_audio:
            return audio
        encoded = base64.b64encode(audio)
        return b'{"type":"input_audio_buffer.append","audio":"' + encoded + b'"}'

    def end_turn(self) -> Sequence[Message]:
        """Under manual turn control, commit the audio and request a response."""
        if self._options.turn_control == "server":
            return ()
        return (COMMIT, RESPONSE_CREATE)

    def interrupt(self, played_ms: int) -> Sequence[Message]:
        """Cancel the current response, if any, and truncate the latest one to what the caller heard of it."""
        generating = self._responses.generating
        messages = [] if generating is None else [encoded("response.cancel", response_id=generating)]
        for item_id, end_ms in self._reply.truncations(played_ms):
            heard = {"item_id": item_id, "content_index": 0, "audio_end_ms": end_ms}
            messages.append(encoded("conversation.item.truncate", **heard))
        return messages

    # Session.

    def _session_created(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        if not self._update_sent:
            self._update_sent = True
            self._send(session_update(self._options, self._dialect, self._settings))
        return []

    def _session_updated(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        session = optional_object(fields, "session")
        declared = session_info(session or {})
        events: list[VoiceEvent] = []
        if not self._ready:
            self._ready = True
            events.append(VoiceEvent(EventKind.READY, raw_type, metadata=declared.identity))
        events += [violation(raw_type, sentence, "malformed_message") for sentence in declared.unreadable]
        if declared.input_format is not None and declared.input_format != PCM:
            sentence = f"the session declares {declared.input_format} for the caller's audio, not {PCM}"
            events.append(violation(raw_type, sentence, "audio_format"))
        if declared.output_format is not None:
            self._output_format = declared.output_format
            if declared.output_format != PCM:
                sentence = f"the session declares {declared.output_format}, not {PCM} as requested"
                events.append(violation(raw_type, f"{sentence}; decoded as declared", "audio_format"))
        return events

    # The caller's speech.

    def _speech(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        started = canonical(raw_type) is ServerEvent.SPEECH_STARTED
        # The position itself is not recorded, but one that is malformed is a fault of the endpoint.
        optional_count(fields, "audio_start_ms" if started else "audio_end_ms")
        kind = EventKind.SPEECH_STARTED if started else EventKind.SPEECH_STOPPED
        return [VoiceEvent(kind, raw_type, item_id=optional_text(fields, "item_id"))]

    def _committed(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        item_id = optional_text(fields, "item_id")
        kind = EventKind.OTHER if item_id is None else EventKind.QUESTION_NAMED
        return [VoiceEvent(kind, raw_type, item_id=item_id)]

    def _partial(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        item_id = optional_text(fields, "item_id")
        if canonical(raw_type) is ServerEvent.TRANSCRIPTION_UPDATED:
            whole = optional_text(fields, "transcript")
            whole = required_text(fields, "delta") if whole is None else whole
            text = self._partials.addition(item_id, whole)
        else:
            text = required_text(fields, "delta")
        if not text or self._aliases.is_alias(ServerEvent.TRANSCRIPTION_DELTA, raw_type, item_id):
            return [VoiceEvent(EventKind.OTHER, raw_type, item_id=item_id)]
        return [VoiceEvent(EventKind.ASR_PARTIAL, raw_type, item_id=item_id, text=text)]

    def _final(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        text = required_text(fields, "transcript")
        usage = flat_usage(optional_object(fields, "usage"))
        item_id = optional_text(fields, "item_id")
        return [VoiceEvent(EventKind.ASR_FINAL, raw_type, item_id=item_id, text=text, usage=usage)]

    def _failed(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        message = error_message(fields.get("error"))
        return [VoiceEvent(EventKind.ASR_FAILED, raw_type, item_id=optional_text(fields, "item_id"), message=message)]

    # The reply.

    def _response_created(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        response = optional_object(fields, "response") or {}
        response_id = optional_text(response, "id")
        self._part = None
        metadata = text_pairs(optional_object(response, "metadata"))
        events: list[VoiceEvent] = []
        if self._responses.is_done(response_id):
            self._reply.forget(response_id)  # the id is used again, for another response
        if (old := self._responses.begin(response_id, response)) is not None:
            done = VoiceEvent(
                EventKind.RESPONSE_DONE, raw_type, old.response_id, status=SUPERSEDED, carried=old.carried
            )
            events.append(done)
        if self._responses.is_outside(response_id):
            return [VoiceEvent(EventKind.OTHER, raw_type, response_id=response_id)]
        events.append(VoiceEvent(EventKind.RESPONSE_STARTED, raw_type, response_id=response_id, metadata=metadata))
        declared = session_info(response).output_format
        self._response_format = None
        if declared is not None and declared != self._output_format:
            self._response_format = (response_id, declared)
            sentence = (
                f"the response declares {declared}, its session {self._output_format}; decoded as the response declares"
            )
            events.append(violation(raw_type, sentence, "audio_format"))
        return events

    def _text(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        event = canonical(raw_type) or ServerEvent.TEXT_DELTA
        response_id, item_id = self._reply_ids(fields)
        text = required_text(fields, "delta")
        kind = EventKind.REASONING_TEXT if event is ServerEvent.REASONING_DELTA else EventKind.LLM_TEXT
        if not text or self._aliases.is_alias(event, raw_type, response_id, item_id, str(fields.get("content_index"))):
            kind = EventKind.OTHER
        if self._responses.is_outside(response_id):
            kind = EventKind.OTHER
        elif kind is EventKind.LLM_TEXT:
            self._responses.carry(response_id, "text")
        return [VoiceEvent(kind, raw_type, response_id=response_id, item_id=item_id, text=text)]

    def _unused(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        """Handle an event that is used only to find out whether its response contains a tool call."""
        item = as_object(fields.get("item"))
        if is_tool_call(raw_type) or is_tool_item(item):
            self._tools.note(item)
            self._responses.carry(self._reply_ids(fields)[0], "tool_call")
        return [VoiceEvent(EventKind.OTHER if is_known(raw_type) else EventKind.UNKNOWN, raw_type)]

    def _audio(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        # Most deltas continue the previous one's part, so what was resolved for that one is used again.
        part = (raw_type, fields.get("response_id"), fields.get("item_id"), fields.get("content_index"))
        if part != self._part:
            self._part = None
            response_id, item_id = self._reply_ids(fields)
            if self._aliases.is_alias(ServerEvent.AUDIO_DELTA, raw_type, response_id, item_id, str(part[3])):
                return [VoiceEvent(EventKind.OTHER, raw_type, response_id=response_id, item_id=item_id)]
            self._part, self._part_ids = part, (response_id, item_id)
        return self._audio_bytes(raw_type, required_base64(fields, "delta"), *self._part_ids)

    def _binary(self, data: bytes) -> list[VoiceEvent]:
        """Decode reply audio that some servers send as plain binary messages."""
        if (generating := self._responses.generating) is None:
            return [violation("binary", f"a binary message of {len(data)} bytes outside a response", "stray_binary")]
        return self._audio_bytes("binary", data, generating, self._reply.item_id)

    def _audio_bytes(
        self, raw_type: str, data: bytes, response_id: str | None, item_id: str | None
    ) -> list[VoiceEvent]:
        declared = self._format_of(response_id)
        if declared.encoding == "pcm16":
            audio = self._reply.whole_samples(response_id, item_id, data)
        else:
            audio = samples.to_bytes(declared.decode(data))
        if not audio:
            return [VoiceEvent(EventKind.OTHER, raw_type, response_id=response_id, item_id=item_id)]
        self._responses.carry(response_id, "audio")
        # Late audio of a finished response is not part of the current reply.
        if self._responses.generating is None or not self._responses.is_done(response_id):
            self._reply.add(response_id, item_id, len(audio) // 2, declared.rate_hz)
        return [VoiceEvent(EventKind.AUDIO, raw_type, response_id, item_id, audio=audio, rate_hz=declared.rate_hz)]

    def _format_of(self, response_id: str | None) -> AudioFormat:
        """Return the format that a response's audio is declared to have."""
        own = self._response_format
        return own[1] if own is not None and own[0] == response_id else self._output_format

    def _audio_done(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        response_id, item_id = self._reply_ids(fields)
        events = [VoiceEvent(EventKind.AUDIO_DONE, raw_type, response_id=response_id, item_id=item_id)]
        if self._reply.ends_inside_sample(response_id, item_id):
            events.append(violation(raw_type, ODD_AUDIO, "odd_audio"))
        return events

    def _response_done(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        response = optional_object(fields, "response") or {}
        response_id = optional_text(response, "id")
        self._part = None
        carried = self._responses.end(response_id) | content_of_output(response)
        if self._responses.is_outside(response_id) and "audio" not in carried:
            return [VoiceEvent(EventKind.OTHER, raw_type, response_id=response_id)]
        status = optional_text(response, "status")
        metadata = text_pairs(optional_object(response, "metadata"))
        details = optional_object(response, "status_details") or {}
        failure = details.get("error")
        self._tools.note_output(response)
        return [
            *self._answer_tools(raw_type),
            VoiceEvent(
                EventKind.RESPONSE_DONE,
                raw_type,
                response_id=response_id,
                status=status,
                carried=carried,
                owes_response="tool_call" in carried and status in (None, "completed"),
                reports_latency=any("latency" in name.lower() for name in metadata),
                metadata=metadata,
                usage=flat_usage(optional_object(response, "usage")),
                message=optional_text(details, "reason") if failure is None else error_message(failure),
                failure=endpoint_error(failure, details.get("reason"), "failed") if status == "failed" else None,
            ),
        ]

    def _answer_tools(self, raw_type: str) -> list[VoiceEvent]:
        """Answer the tool calls of a response that is done with their canned results, and ask for the next one."""
        answers, unknown = self._tools.answers()
        if answers:
            self._send(*answers, RESPONSE_CREATE)
        return [unknown_tool(raw_type, name) for name in unknown]

    def _reply_ids(self, fields: Json) -> tuple[str | None, str | None]:
        """Return the response and the item that a part of a reply belongs to."""
        return self._responses.response_of(optional_text(fields, "response_id")), optional_text(fields, "item_id")

    def _error(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        error = fields.get("error")
        message = error_message(error)
        inner: Mapping[str, object] = optional_object(fields, "error") or {} if not isinstance(error, str) else fields
        names = {name for name in (inner.get("type"), inner.get("code")) if isinstance(name, str)}
        if names & LOST_RACES:
            return [VoiceEvent(EventKind.OTHER, raw_type, message=message)]
        answered = inner.get("event_id")
        refused = not self._ready and (answered is None or answered == UPDATE_EVENT_ID)
        if refused:
            message = f"the session was refused: {message}"
        fatal = refused or bool(names & FATAL_ERRORS)
        failure = endpoint_error(inner)
        return [VoiceEvent(EventKind.ERROR, raw_type, message=message, fatal=fatal, failure=failure)]

    handlers: ClassVar[Mapping[str, Handler]] = {
        ServerEvent.SESSION_CREATED: _session_created,
        ServerEvent.SESSION_UPDATED: _session_updated,
        ServerEvent.SPEECH_STARTED: _speech,
        ServerEvent.SPEECH_STOPPED: _speech,
        ServerEvent.COMMITTED: _committed,
        ServerEvent.TRANSCRIPTION_DELTA: _partial,
        ServerEvent.TRANSCRIPTION_UPDATED: _partial,
        ServerEvent.TRANSCRIPTION_COMPLETED: _final,
        ServerEvent.TRANSCRIPTION_FAILED: _failed,
        ServerEvent.RESPONSE_CREATED: _response_created,
        ServerEvent.TEXT_DELTA: _text,
        ServerEvent.TRANSCRIPT_DELTA: _text,
        ServerEvent.REASONING_DELTA: _text,
        ServerEvent.AUDIO_DELTA: _audio,
        ServerEvent.AUDIO_DONE: _audio_done,
        ServerEvent.RESPONSE_DONE: _response_done,
        ServerEvent.ERROR: _error,
    }


beta: Final = partial(OpenAIRealtimeCaller, dialect=BETA)
