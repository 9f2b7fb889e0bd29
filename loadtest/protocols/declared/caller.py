"""The caller's side of a declared wire: any WebSocket whose messages a spec describes.

The spec comes from a file that the setting `spec` names, or is the setting itself.
"""

import base64
import itertools
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import msgspec
import orjson

from loadtest.audio.pcm import Pcm16
from loadtest.errors import UsageError
from loadtest.protocols.audio_format import ODD_AUDIO, AudioFormat, SampleStream
from loadtest.protocols.base import (
    CallerOptions,
    CallerProtocol,
    Capabilities,
    Content,
    CountedHead,
    EventKind,
    Message,
    OpenRequest,
    SpokenText,
    VoiceEvent,
)
from loadtest.protocols.declared.recognition import KINDS, Recognition, not_observable, shows_cuts
from loadtest.protocols.declared.spec import CallersAudio, EventRule, Spec, parse_spec, spec_of
from loadtest.protocols.declared.templates import AUDIO, OF_FRAME, JsonPath, filled, places
from loadtest.protocols.error_objects import violation
from loadtest.protocols.failure import Failure, code_of
from loadtest.protocols.json_fields import excerpt
from loadtest.protocols.received import CumulativePartials, RepeatDetector
from loadtest.protocols.wire_settings import WireSettings, faults_without_effect, read_settings, refuse

_MARK: Final = "@voiceprobe-audio@"
# Placeholders for a counter while a template is made. None of them begins with the digits that another ends with,
# so that they are found where they were put, whatever digits are around them.
_STAND_INS: Final = range(10**18 + 7, 10**19, 10)


class DeclaredFrames:
    """The frames of one call. What differs from call to call is in the head, which precedes the audio."""

    def __init__(self, spec: CallersAudio) -> None:
        self._format = AudioFormat(spec.encoding, spec.rate_hz)
        self.is_text = spec.frame != "binary"
        self._before, self._after = _around(spec.frame, {}) if self.is_text else (b"", b"")
        counts = self.is_text and OF_FRAME & set(places(spec.frame))
        self.head = _counting_head(spec.frame, spec.frame_ms) if counts else None

    def message(self, pcm: Pcm16) -> bytes:
        """Return what all callers share of a frame."""
        encoded = self._format.encode(pcm)
        if not self.is_text:
            return encoded
        rest = base64.b64encode(encoded) + self._after
        return self._before + rest if self.head is None else rest


def _around(frame: object, values: Mapping[str, Any]) -> tuple[bytes, bytes]:
    """Return a frame's JSON before its audio and behind it."""
    text = orjson.dumps(filled(frame, {**values, AUDIO: _MARK}))
    before, _, after = text.partition(_MARK.encode())
    return before, after


def _counting_head(frame: object, frame_ms: int) -> CountedHead:
    """Return the JSON before the audio, in which sequence numbers count from 1 and times from 0 ms.

    It is made once, with numbers that occur nowhere else in it: for a frame, only the counters are written.
    """
    text = orjson.dumps(frame).decode()
    sequence_number, timestamp_ms = itertools.islice((number for number in _STAND_INS if str(number) not in text), 2)
    before, _ = _around(frame, {"sequence": sequence_number, "timestamp_ms": timestamp_ms})
    pattern = b"%d|%d" % (sequence_number, timestamp_ms)
    is_sequence = [int(number) == sequence_number for number in re.findall(pattern, before)]
    steps = [1 if counted else frame_ms for counted in is_sequence]
    return CountedHead(re.sub(pattern, b"%d", before.replace(b"%", b"%%")), list(map(int, is_sequence)), steps)


_OF_REPLY: Final = frozenset(
    {
        EventKind.RESPONSE_STARTED,
        EventKind.LLM_TEXT,
        EventKind.REASONING_TEXT,
        EventKind.SPEECH_SYNTHESIS_STARTED,
        EventKind.AUDIO,
        EventKind.AUDIO_DONE,
        EventKind.RESPONSE_DONE,
    }
)
_LONGEST_MS: Final = 86_400_000.0


class DeclaredCaller(CallerProtocol):
    """One conversation over a declared wire."""

    def __init__(self, options: CallerOptions, spec: Spec) -> None:
        self._options = options
        self._spec = spec
        self._frames = DeclaredFrames(spec.audio)
        self._recognition = Recognition(spec)
        needs_ready = any(rule.is_ == "ready" for rule in spec.events)
        self.capabilities = Capabilities(
            input_rate_hz=spec.audio.rate_hz,
            frame_ms=spec.audio.frame_ms,
            not_observable=not_observable(spec),
            audio_heads=self._frames.head is not None,
            audio_is_text=self._frames.is_text,
            turn_controls=frozenset({spec.turn.control}),
            reply_end=spec.reply.end,
            shows_cuts=shows_cuts(spec),
            ready_when_open=not needs_ready,
        )
        self._output = SampleStream(AudioFormat(spec.reply.encoding, spec.reply.rate_hz))
        self._values: dict[str, Any] = {"model": options.model, "turn": 0}
        self._ready = not needs_ready
        self._partials = CumulativePartials()
        self._repeats = RepeatDetector()
        self._carried: set[Content] = set()

    # What is sent.

    def upgrade(self, target_url: str, traceparent: str | None) -> OpenRequest:
        """Return the address and headers of the spec, with the token and the trace."""
        self._values["traceparent"] = traceparent
        opening = self._spec.open
        parts = urlsplit(target_url)
        query = parse_qsl(parts.query, keep_blank_values=True)
        for name, template in opening.query.items():
            value = filled(template, self._values)
            if name not in dict(query) and value not in (None, ""):
                query.append((name, str(value)))
        if opening.query:
            parts = parts._replace(query=urlencode(query))
        own = {name: filled(template, self._values) for name, template in opening.headers.items()}
        headers = [(name, str(value)) for name, value in own.items() if value not in (None, "")]
        given = {name.lower() for name in own}
        if self._options.token is not None and "authorization" not in given:
            headers.append(("Authorization", f"Bearer {self._options.token}"))
        if traceparent is not None and "traceparent" not in given:
            headers.append(("traceparent", traceparent))
        return OpenRequest(urlunsplit(parts), (*headers, *self._options.headers), opening.subprotocols)

    def opened(self) -> Sequence[Message]:
        """Return the first messages of the spec."""
        return self._messages(self._spec.open.send)

    def awaited(self) -> str | None:
        """Return what the spec says opens the session."""
        return None if self._ready else "message that the spec calls ready"

    def audio_message(self, pcm: Pcm16) -> bytes:
        """Return what all callers share of one frame."""
        return self._frames.message(pcm)

    def audio_head(self) -> bytes | None:
        """Return the beginning of the next frame where the spec has counters in it."""
        return None if self._frames.head is None else self._frames.head.next()

    def counted_head(self) -> CountedHead | None:
        """Return the beginning of frames where the spec has counters in it."""
        return self._frames.head

    def begin_turn(self, spoken: SpokenText) -> Sequence[Message]:
        """Return what the spec sends before a turn."""
        self._values |= {"turn": self._values["turn"] + 1, "text": spoken.text, "language": spoken.language}
        return self._messages(self._spec.turn.begin)

    def end_turn(self) -> Sequence[Message]:
        """Return what the spec sends at the end of a turn."""
        return self._messages(self._spec.turn.end) if self._spec.turn.control == "manual" else ()

    def interrupt(self, played_ms: int) -> Sequence[Message]:
        """Return what the spec sends when the caller speaks into a reply."""
        self._values["played_ms"] = played_ms
        return self._messages(self._spec.turn.interrupt)

    def goodbye(self) -> Sequence[Message]:
        """Return what the spec sends at the end."""
        return self._messages(self._spec.close)

    def _messages(self, templates: Sequence[Any], answered: object = None) -> list[Message]:
        messages: list[Message] = []
        for template in templates:
            value = filled(template, self._values, answered)
            messages.append(value if isinstance(value, str) else orjson.dumps(value).decode())
        return messages

    # What arrives.

    def receive(self, message: Message) -> Sequence[VoiceEvent]:
        """Decode one message; never raises."""
        if isinstance(message, bytes) and self._spec.reply.audio == "binary":
            return self._audio("binary", message, None, None)
        try:
            decoded: object = orjson.loads(message)
        except orjson.JSONDecodeError as error:
            return [violation("", f"neither audio nor JSON ({error}): {excerpt(message)}", "malformed_message")]
        name = self._spec.type.first(decoded)
        raw_type = name if isinstance(name, str) else ""
        event_id = None if self._spec.event_id is None else self._spec.event_id.first(decoded)
        if self._repeats.is_repeat(event_id, (raw_type, len(message))):
            return [VoiceEvent(EventKind.DUPLICATE, raw_type or excerpt(message))]
        rules = self._recognition.rules_of(name, decoded)
        if not rules:
            return [VoiceEvent(EventKind.UNKNOWN, raw_type or excerpt(message))]
        events: list[VoiceEvent] = []
        for rule in rules:
            events += self._apply(rule, raw_type, decoded)
            self._send(*self._messages(rule.send, decoded))
        return events

    def _apply(self, rule: EventRule, raw_type: str, decoded: object) -> list[VoiceEvent]:
        kind = KINDS[rule.is_]
        if kind is EventKind.AUDIO:
            return self._json_audio(rule, raw_type, decoded)
        item_id = _text(rule.item, decoded)
        response_id = _text(rule.response, decoded) if kind in _OF_REPLY or kind is EventKind.SERVICE_REPORT else None
        if kind is EventKind.READY:
            if self._ready:
                return [VoiceEvent(EventKind.OTHER, raw_type)]
            self._ready = True
        elif kind is EventKind.ERROR:
            return [self._error(rule, raw_type, decoded)]
        text = _text(rule.text, decoded)
        if rule.text is not None and text is None:
            return [violation(raw_type, f"{raw_type}: no text at {rule.text.text}", "malformed_message")]
        if kind is EventKind.ASR_PARTIAL and rule.whole:
            text = self._partials.addition(item_id, text or "")
        if kind in (EventKind.ASR_PARTIAL, EventKind.LLM_TEXT, EventKind.REASONING_TEXT) and not text:
            return [VoiceEvent(EventKind.OTHER, raw_type, item_id=item_id)]
        if kind is EventKind.LLM_TEXT:
            self._carried.add("text")
        event = VoiceEvent(
            kind,
            raw_type,
            response_id=response_id,
            item_id=item_id,
            text=text,
            message=_text(rule.message, decoded),
            service_ns=_latencies(rule.latencies_ms, decoded),
            usage=_counts(rule.usage, decoded),
            metadata=_texts(rule.metadata, decoded),
        )
        return self._done(event, rule, decoded) if kind is EventKind.RESPONSE_DONE else [event]

    def _done(self, event: VoiceEvent, rule: EventRule, decoded: object) -> list[VoiceEvent]:
        carried, self._carried = frozenset(self._carried), set()
        odd, self._output.half = self._output.half, b""
        status = _text(rule.status, decoded) or "completed"
        failure = None
        if status == "failed":
            failure = Failure("endpoint_error", code_of(_text(rule.code, decoded), "failed"))
        done = msgspec.structs.replace(event, status=status, carried=carried, failure=failure)
        if not odd:
            return [done]
        return [violation(event.raw_type, ODD_AUDIO, "odd_audio"), done]

    def _json_audio(self, rule: EventRule, raw_type: str, decoded: object) -> list[VoiceEvent]:
        encoded = _text(rule.audio, decoded)
        try:
            data = msgspec.convert(encoded, bytes)
        except msgspec.ValidationError:
            where = rule.audio.text if rule.audio is not None else ""
            return [violation(raw_type, f"{raw_type}: no base64 at {where}", "malformed_message")]
        return self._audio(raw_type, data, _text(rule.response, decoded), _text(rule.item, decoded))

    def _audio(self, raw_type: str, data: bytes, response_id: str | None, item_id: str | None) -> list[VoiceEvent]:
        if not (pcm := self._output.feed(data)):
            return [VoiceEvent(EventKind.OTHER, raw_type)]
        self._carried.add("audio")
        rate_hz = self._output.format.rate_hz
        return [VoiceEvent(EventKind.AUDIO, raw_type, response_id, item_id, audio=pcm, rate_hz=rate_hz)]

    def _error(self, rule: EventRule, raw_type: str, decoded: object) -> VoiceEvent:
        message = _text(rule.message, decoded) or excerpt(orjson.dumps(decoded))
        failure = Failure("endpoint_error", code_of(_text(rule.code, decoded)))
        fatal = rule.fatal or not self._ready
        return VoiceEvent(EventKind.ERROR, raw_type, message=message, fatal=fatal, failure=failure)


def _text(path: JsonPath | None, decoded: object) -> str | None:
    value = None if path is None else path.first(decoded)
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _texts(paths: Mapping[str, JsonPath], decoded: object) -> dict[str, str]:
    return {name: text for name, path in paths.items() if (text := _text(path, decoded)) is not None}


def _counts(paths: Mapping[str, JsonPath], decoded: object) -> dict[str, int]:
    values = {name: path.first(decoded) for name, path in paths.items()}
    return {name: value for name, value in values.items() if type(value) is int and value >= 0}


def _latencies(paths: Mapping[str, JsonPath], decoded: object) -> dict[str, int]:
    values = {name: path.first(decoded) for name, path in paths.items()}
    return {
        name: round(value * 1e6)
        for name, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _LONGEST_MS
    }


class DeclaredSettings(WireSettings):
    """The settings of the wire declared."""

    spec: str | dict[str, Any] | None = None


def declared(options: CallerOptions) -> DeclaredCaller:
    """Create a caller of the wire that the setting `spec` declares. Raises UsageError with all its faults."""
    settings = read_settings(DeclaredSettings, options.settings, "declared")
    if settings.spec is None:
        raise UsageError("declared: give the file that describes the wire: --protocol-option spec=FILE")
    spec = read_spec(settings.spec) if isinstance(settings.spec, str) else spec_of(settings.spec, "spec")
    refuse(faults_without_effect(options, "declared", _without_effect(spec)))
    return DeclaredCaller(options, spec)


def _without_effect(spec: Spec) -> dict[str, str]:
    """Return the options that nothing in the spec carries, each with the reason."""
    turn, opening = spec.turn, spec.open
    answers = [rule.send for rule in spec.events]
    sent = [opening.query, opening.headers, *opening.send, *turn.begin, *turn.end, *turn.interrupt, *answers]
    unsaid = "the spec states what the endpoint is sent, and has no place for it"
    model = {} if "model" in places(sent) else {"model": "the spec has no place {model}"}
    return {**model, "transcription_model": unsaid, "silence_duration_ms": unsaid}


@cache
def read_spec(file: str) -> Spec:
    """Return the wire that a file declares; all calls share it. Raises UsageError with all its faults."""
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UsageError(f"the spec {file!r} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    return parse_spec(text, file)
