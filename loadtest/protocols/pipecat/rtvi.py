"""RTVI 2, the messages of a Pipecat bot, whatever carries them: JSON in, events out, and what a caller sends.

Source: pipecat 1.14.0, processors/frameworks/rtvi/{models,observer,processor}.py (protocol 2.2.0).

Several messages come under more than one name (a deprecated one, and raw text that a bot may switch on); the name that
comes first in a session counts, and the others are ignored. Texts "as spoken" (bot-output, tts-raw-text) are not the
language model's output, and are ignored as well. Of `metrics`, values of 0 count as not measured: the first message of
a session holds nothing else, and no latency is 0.
"""

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final, Literal

import orjson

from loadtest.protocols.audio_format import HIGHEST_RATE_HZ, LOWEST_RATE_HZ
from loadtest.protocols.base import EventKind, Message, VoiceEvent
from loadtest.protocols.error_objects import error_message, violation
from loadtest.protocols.failure import Failure, code_of, retry_after_of_fields
from loadtest.protocols.json_fields import (
    Json,
    MalformedError,
    as_list,
    as_object,
    optional_object,
    optional_text,
    required_text,
)
from loadtest.protocols.received import (
    CumulativePartials,
    Handler,
    JsonMessages,
    ReplyUnderWay,
    seconds_ns,
    text_pairs,
    unhandled,
)

VERSION: Final = "2.2.0"
LIBRARY: Final = "voiceprobe"
READY_ID: Final = "voiceprobe-ready"
TRACE_ID: Final = "voiceprobe-trace"
EVAL_CONNECT: Final = "eval-connect"


def rtvi(kind: str, message_id: str, data: object) -> str:
    """Create a message of any type."""
    return orjson.dumps({"label": "rtvi-ai", "type": kind, "id": message_id, "data": data}).decode()


def client_ready(version: str) -> str:
    """State the version of RTVI, which decides what the bot sends; it answers with `bot-ready`."""
    return rtvi("client-ready", READY_ID, {"version": version, "about": {"library": LIBRARY}})


def trace(traceparent: str, turn: int) -> str:
    """Encode the message that gives the bot's code the trace of the next turn."""
    data = {"turn": turn, "traceparent": traceparent}
    return rtvi("client-message", f"{TRACE_ID}-{turn}", {"t": "trace", "d": data})


def disconnect() -> str:
    """Ask the bot to end its pipeline."""
    return rtvi("disconnect-bot", "voiceprobe-disconnect", None)


def eval_connect() -> str:
    """Choose the evaluation transport of Pipecat's runner, with speech; must come first."""
    flags = {"skip_tts": False, "capture_bot_audio": True, "capture_bot_images": False}
    return rtvi("client-message", EVAL_CONNECT, {"t": EVAL_CONNECT, "d": flags})


# The lists of latencies, and within their entries the fields with seconds. An entry names its processor.
_LATENCIES: Final[Mapping[str, Mapping[str, str]]] = {
    "ttfb": {"value": "ttfb"},
    "ttfa": {"ttfa": "ttfa", "leading_silence": "leading_silence"},
    "ttfat": {"ttfat": "ttfat", "thinking_time": "thinking_time"},
    "processing": {"value": "processing"},
}
_TOKENS: Final[Mapping[str, str]] = {
    "prompt_tokens": "input_tokens",
    "completion_tokens": "output_tokens",
    "total_tokens": "total_tokens",
    "cache_read_input_tokens": "cached_tokens",
    "cache_creation_input_tokens": "cache_creation_tokens",
    "reasoning_tokens": "output_reasoning_tokens",
    "input_audio_tokens": "input_audio_tokens",
    "output_audio_tokens": "output_audio_tokens",
    "cache_read_input_audio_tokens": "cached_audio_tokens",
}
# Pipecat numbers the processors of one class through the life of the bot's process.
_INSTANCE: Final = re.compile(r"#\d+$")
MAX_NAME_CHARS: Final = 80


def latencies_ns(metrics: Json) -> dict[str, int]:
    """Return latencies by `PROCESSOR.NAME`, the processor's class without its number: ScriptedLLM.ttfb, …

    The largest counts where two processors have one class. What is not a positive number of seconds is left out.
    """
    latencies: dict[str, int] = {}
    for kind, fields in _LATENCIES.items():
        for entry in _objects(metrics.get(kind)):
            processor = entry.get("processor")
            if not isinstance(processor, str):
                continue
            name = _INSTANCE.sub("", processor)[:MAX_NAME_CHARS]
            for field, latency in fields.items():
                if (value_ns := seconds_ns(entry.get(field))) is not None:
                    key = f"{name}.{latency}"
                    latencies[key] = max(value_ns, latencies.get(key, 0))
    return latencies


def usage_of(metrics: Json) -> dict[str, int]:
    """Return counts: tokens of the language model, `tts_characters`, `stt_audio_ms`; several entries are added up.

    Tokens that are 0 are kept where the same entry counts others: no cached token is an answer.
    """
    counts: dict[str, int] = {}
    for entry in _objects(metrics.get("tokens")):
        known = {name: entry[field] for field, name in _TOKENS.items() if field in entry}
        tokens = {name: value for name, value in known.items() if _is_count(value)}
        if any(tokens.values()):
            for name, value in tokens.items():
                _add(counts, name, value)
    for entry in _objects(metrics.get("characters")):
        if _is_count(entry.get("value")) and entry["value"]:
            _add(counts, "tts_characters", entry["value"])
    for entry in _objects(metrics.get("stt_usage")):
        heard_ns = seconds_ns((as_object(entry.get("value")) or {}).get("audio_seconds"))
        if heard_ns is not None:
            _add(counts, "stt_audio_ms", round(heard_ns / 1e6))
    return counts


def _objects(value: object) -> list[Json]:
    return [entry for element in as_list(value) or () if (entry := as_object(element)) is not None]


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53


def _add(counts: dict[str, int], name: str, value: object) -> None:
    if isinstance(value, int):
        counts[name] = counts.get(name, 0) + value


INTERRUPTED: Final = "interrupted"
Status = Literal["completed", "cancelled"]


class RtviReply(ReplyUnderWay):
    """The reply under way, if any, derived from what an RTVI bot says of itself.

    It is everything from the first sign of it (the language model starts, synthesis starts, or audible audio comes) to
    the point where the bot has stopped speaking and neither the language model nor the synthesizer is still at work. A
    pause between two sentences also makes the bot send `bot-stopped-speaking`. An interruption ends the reply at once.
    """

    def __init__(self) -> None:
        super().__init__()
        self._at_work: set[str] = set()  # of "llm", "tts" and "output"
        self._spoke = False  # and stopped at least once
        self._announces_generation = False  # the bot sends bot-llm-started
        self._stale = False  # what comes now was under way when the reply was interrupted

    def begin(self, raw_type: str) -> list[VoiceEvent]:
        """The first sign of a reply begins it."""
        self._stale = False
        return super().begin(raw_type)

    def started(self, part: str, raw_type: str) -> list[VoiceEvent]:
        """The language model, the synthesizer or the bot's output starts; audio may have come before the last one."""
        if part == "llm":
            self._announces_generation, self.owes_response = True, False
        self._at_work.add(part)
        began = self.begin(raw_type)
        if part == "output" and not self._spoke:
            began.append(VoiceEvent(EventKind.SPEECH_SYNTHESIS_STARTED, raw_type))
        return began

    def stopped(self, part: str, raw_type: str) -> list[VoiceEvent]:
        """One of them has done its work, which ends the reply if the bot has said all of it.

        After an interruption the output stops that was over already.
        """
        if part == "output":
            if part not in self._at_work:
                return []
            self._spoke = True
        self._at_work.discard(part)
        return self._close(raw_type, "completed") if self.is_open and self._spoke and not self._at_work else []

    def tool_called(self) -> None:
        """The language model calls a tool: it will run again with the result."""
        self.owes_response = True
        if self.is_open:
            self.carried.add("tool_call")

    def text(self, raw_type: str, text: str) -> list[VoiceEvent]:
        """A piece of the answer's text; late pieces of an interrupted answer are no part of any."""
        if not text or (not self.is_open and (self._announces_generation or self._stale)):
            return [VoiceEvent(EventKind.OTHER, raw_type, text=text)]
        return self.piece(EventKind.LLM_TEXT, raw_type, "text", text=text)

    def audio(self, raw_type: str, pcm: bytes, rate_hz: int) -> list[VoiceEvent]:
        """A piece of the bot's output; silence outside a reply is only the idle line."""
        if not self.is_open and (self._stale or pcm.count(0) == len(pcm)):
            return []
        return self.piece(EventKind.AUDIO, raw_type, "audio", audio=pcm, rate_hz=rate_hz)

    def interrupted(self, raw_type: str) -> list[VoiceEvent]:
        """The bot drops what it was doing. It says so at the start of every user turn, also while it is silent."""
        if not self.is_open:
            return []
        events = self._close(raw_type, "cancelled")
        self._stale = True
        return events

    def turn_closed(self) -> None:
        """The caller's turn is closed: whatever comes from now on is not of an earlier reply."""
        self._stale = False

    def _close(self, raw_type: str, status: Status) -> list[VoiceEvent]:
        """End the reply: as completed, or as cancelled by the caller's interruption."""
        cancelled = status == "cancelled"
        events = [VoiceEvent(EventKind.CLEAR, raw_type)] if cancelled and "audio" in self.carried else []
        self._at_work, self._spoke = set(), False
        return [*events, self.done(raw_type, status, INTERRUPTED if cancelled else None)]


LABEL: Final = "rtvi-ai"
MAJOR: Final = "2"


class RtviSession(JsonMessages):
    """One conversation's RTVI messages."""

    # Messages about the voice activity detector come twice for each edge, and the turns that the bot makes of them have
    # messages of their own.
    unused = frozenset(
        {
            "bot-audio-level",
            "bot-llm-marker",
            "bot-output",
            "bot-transcription",
            "bot-tts-audio",
            "bot-tts-text",
            "llm-function-call",
            "llm-function-call-in-progress",
            "llm-function-call-stopped",
            "server-response",
            "system-log",
            "tts-raw-text",
            "ui-command",
            "ui-job-group",
            "user-audio-level",
            "user-llm-text",
            "user-mute-started",
            "user-mute-stopped",
            "vad-user-started-speaking",
            "vad-user-stopped-speaking",
        }
    )

    def __init__(self, reply: RtviReply | None = None) -> None:
        self.ready = False
        self._reply = reply or RtviReply()
        self._chosen: dict[str, str] = {}  # which of several names counts
        self._partials = CumulativePartials()
        self._segment = 0  # of the caller's speech: what one final transcript covers

    def handle(self, raw_type: str, fields: Json, message: Message) -> Sequence[VoiceEvent]:
        """Return the events of a message of this type. May raise MalformedError."""
        if fields.get("label") != LABEL:
            return unhandled(raw_type, frozenset())  # of the bot's own
        content = optional_object(fields, "data") or {} if raw_type in _WITH_DATA else fields
        return super().handle(raw_type, content, message)

    def audio(self, raw_type: str, pcm: bytes, rate_hz: int, channels: int) -> list[VoiceEvent]:
        """Account for a piece of the bot's audio: 16-bit little-endian samples, interleaved."""
        if not LOWEST_RATE_HZ <= rate_hz <= HIGHEST_RATE_HZ:
            sentence = f"audio at {rate_hz} Hz; between {LOWEST_RATE_HZ} and {HIGHEST_RATE_HZ} Hz is possible"
            return [violation(raw_type, sentence, "audio_format")]
        if len(pcm) % (2 * channels):
            sentence = f"{len(pcm)} bytes of audio end inside a 16-bit sample of {channels} channel(s)"
            return [violation(raw_type, sentence, "odd_audio")]
        pcm = pcm if channels == 1 else _first_channel(pcm, channels)
        events = self._reply.audio(raw_type, pcm, rate_hz) if pcm else []
        return events or [VoiceEvent(EventKind.OTHER, raw_type)]

    def interrupted(self, raw_type: str) -> list[VoiceEvent]:
        """Account for an interruption that was announced in another way than by a message."""
        return self._reply.interrupted(raw_type) or [VoiceEvent(EventKind.OTHER, raw_type)]

    def _is_twin(self, what: str, raw_type: str) -> bool:
        """Return whether the same is sent under another name, which came first."""
        return self._chosen.setdefault(what, raw_type) != raw_type

    # Session.

    def _bot_ready(self, raw_type: str, data: Json) -> list[VoiceEvent]:
        if self.ready:
            return []
        self.ready = True
        version = optional_text(data, "version")
        about = optional_object(data, "about") or {}
        named = {
            "rtvi.version": version,
            "bot.library": about.get("library"),
            "bot.version": about.get("library_version"),
        }
        identity = {name: value for name, value in named.items() if isinstance(value, str)}
        events = [VoiceEvent(EventKind.READY, raw_type, metadata=identity)]
        if version is not None and version.partition(".")[0] not in (MAJOR, "1"):
            sentence = f"the bot speaks RTVI {version}, of which nothing is known here; RTVI 1 and {MAJOR} are"
            events.append(violation(raw_type, sentence, "rtvi_version"))
        return events

    def _error(self, raw_type: str, data: Json) -> list[VoiceEvent]:
        fatal = data.get("fatal") is True
        message = error_message(data)
        failure = Failure("endpoint_error", code_of(data.get("code")), retry_after_of_fields(data))
        return [VoiceEvent(EventKind.ERROR, raw_type, message=message, fatal=fatal, failure=failure)]

    def _error_response(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        """A message of ours was refused. Bots that do not know what `trace` is may refuse that one."""
        answered = fields.get("id")
        data = optional_object(fields, "data") or {}
        if isinstance(answered, str) and answered.startswith(TRACE_ID):
            return [VoiceEvent(EventKind.OTHER, raw_type, message=optional_text(data, "error"))]
        code = "client_ready" if answered == READY_ID else "refused_message"
        message = optional_text(data, "error") or "a message was refused without a reason"
        return [VoiceEvent(EventKind.ERROR, raw_type, message=message, failure=Failure("endpoint_error", code))]

    # The caller's speech.

    def _user_started(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        return [VoiceEvent(EventKind.SPEECH_STARTED, raw_type)]

    def _user_stopped(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        self._reply.turn_closed()
        return [VoiceEvent(EventKind.SPEECH_STOPPED, raw_type)]

    def _user_input(self, raw_type: str, data: Json) -> list[VoiceEvent]:
        if data.get("input_type") != "transcription":
            return []  # a backchannel, or what was typed
        return self._transcript(raw_type, data)

    def _transcript(self, raw_type: str, data: Json) -> list[VoiceEvent]:
        text = required_text(data, "text")
        final = data.get("final")
        if not isinstance(final, bool):
            raise MalformedError("'final' is missing or no boolean")
        if self._is_twin("transcript", raw_type):
            return [VoiceEvent(EventKind.OTHER, raw_type, text=text)]
        if final:
            self._segment += 1
            return [VoiceEvent(EventKind.ASR_FINAL, raw_type, text=text)]
        added = self._partials.addition(str(self._segment), text)
        return [VoiceEvent(EventKind.ASR_PARTIAL if added else EventKind.OTHER, raw_type, text=added)]

    # The reply.

    def _llm_text(self, raw_type: str, data: Json) -> list[VoiceEvent]:
        text = required_text(data, "text")
        if self._is_twin("text", raw_type):
            return [VoiceEvent(EventKind.OTHER, raw_type, text=text)]
        return self._reply.text(raw_type, text)

    def _interrupted(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        del fields
        return self._reply.interrupted(raw_type)

    def _tool_called(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        del raw_type, fields
        self._reply.tool_called()
        return []

    def _started(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        del fields
        return self._reply.started(_PARTS[raw_type], raw_type)

    def _stopped(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        del fields
        return self._reply.stopped(_PARTS[raw_type], raw_type)

    # What the bot reports of itself.

    def _metrics(self, raw_type: str, data: Json) -> list[VoiceEvent]:
        service_ns, usage = latencies_ns(data), usage_of(data)
        report = VoiceEvent(EventKind.SERVICE_REPORT, raw_type, service_ns=service_ns, usage=usage)
        return [report] if service_ns or usage else []

    def _server_message(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        """Messages of the bot's own code: an object may name cache, route, fallback or model."""
        pairs = text_pairs(as_object(fields.get("data")))
        return [VoiceEvent(EventKind.SERVICE_REPORT, raw_type, metadata=pairs)] if pairs else []

    handlers: ClassVar[Mapping[str, Handler]] = {
        "bot-ready": _bot_ready,
        "error": _error,
        "error-response": _error_response,
        "user-started-speaking": _user_started,
        "user-stopped-speaking": _user_stopped,
        "user-input": _user_input,
        "stt-raw-text": _transcript,
        "user-transcription": _transcript,
        "bot-llm-started": _started,
        "bot-llm-stopped": _stopped,
        "llm-raw-text": _llm_text,
        "bot-llm-text": _llm_text,
        "bot-tts-started": _started,
        "bot-tts-stopped": _stopped,
        "bot-started-speaking": _started,
        "bot-stopped-speaking": _stopped,
        "bot-interrupted": _interrupted,
        "llm-function-call-started": _tool_called,
        "metrics": _metrics,
        "server-message": _server_message,
    }


# What of the bot starts and stops.
_PARTS: Final[Mapping[str, str]] = {
    "bot-llm-started": "llm",
    "bot-llm-stopped": "llm",
    "bot-tts-started": "tts",
    "bot-tts-stopped": "tts",
    "bot-started-speaking": "output",
    "bot-stopped-speaking": "output",
}
_WITH_DATA: Final = frozenset(
    {
        "bot-ready",
        "error",
        "llm-raw-text",
        "bot-llm-text",
        "metrics",
        "stt-raw-text",
        "user-input",
        "user-transcription",
    }
)


def _first_channel(pcm: bytes, channels: int) -> bytes:
    step = 2 * channels
    mono = bytearray(len(pcm) // channels)
    mono[0::2], mono[1::2] = pcm[0::step], pcm[1::step]
    return bytes(mono)
