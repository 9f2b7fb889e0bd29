"""A caller of HTTP stage services: recognition, language model and speech, together as a cascade or one alone.

The caller itself is the agent between the services: it ends its turn, sends the utterance to the recognizer, the
transcript to the language model, and each sentence of the answer to speech synthesis, the first as soon as it is
complete. Sentences are spoken one after the other, as one reply. Without a recognizer a turn is the text that the
caller would have said; without a language model the text itself is spoken, or the transcript is the result.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from loadtest.audio import pcm as samples
from loadtest.audio.pcm import Pcm16
from loadtest.protocols.base import (
    CallerOptions,
    CallerProtocol,
    Capabilities,
    EventKind,
    OpenRequest,
    Outgoing,
    SpokenText,
    VoiceEvent,
)
from loadtest.protocols.error_objects import violation
from loadtest.protocols.headers import bearer_headers
from loadtest.protocols.http_items import HttpCancel, HttpData, HttpEnd, HttpFailed, HttpHead, HttpItem, HttpRequest
from loadtest.protocols.stages.parts import (
    STAGES,
    Broken,
    Finished,
    Malformed,
    Part,
    Partial,
    Pcm,
    Served,
    StageName,
    Transcript,
    Unknown,
    Words,
    not_observable,
)
from loadtest.protocols.stages.reader import FATAL_STATUSES, ResponseReader
from loadtest.protocols.stages.reply import StageReply
from loadtest.protocols.stages.services import (
    PATHS,
    AnswerReader,
    SpeechReader,
    TranscriptionReader,
    chat_body,
    speech_body,
    transcription_form,
)
from loadtest.protocols.stages.settings import RecordedUtterance, stage_settings
from telemetry.model import semconv

# A service that knows no such page still shows that it is there; one that refuses now would refuse a turn as well.
_REFUSALS: Final = FATAL_STATUSES | {429, 502, 503, 504}


class _RefusalReader(ResponseReader):
    """Reads the body of a refusal, for the sentence about it."""

    def __init__(self, stage: StageName) -> None:
        super().__init__()
        self.stage = stage

    def raw(self, data: bytes) -> list[Part]:
        """Ignore what is not about the refusal."""
        del data
        return []

    def ended(self) -> list[Part]:
        """Return nothing: there was no refusal."""
        return []


class Readiness:
    """Waits until every service has answered; the first refusal is fatal."""

    def __init__(self, requests: Sequence[HttpRequest]) -> None:
        self.requests = tuple(requests)
        self._urls = {request.request_id: request.url for request in requests}
        self._waits_for = set(self._urls)
        self._names = frozenset(self._waits_for)
        self._refused: dict[str, ResponseReader] = {}
        self._failed = False

    def owns(self, request_id: str) -> bool:
        """Return whether a response answers one of these requests."""
        return request_id in self._names

    def receive(self, item: HttpItem) -> list[VoiceEvent]:
        """Decode one part of such a response."""
        if self._failed:
            return [VoiceEvent(EventKind.OTHER, "ready")]
        if isinstance(item, HttpHead) and item.status in _REFUSALS:
            stage: StageName = next(name for name in ("asr", "llm", "tts") if item.request_id.endswith(name))
            reader = self._refused[item.request_id] = _RefusalReader(stage)
            reader.url = self._urls[item.request_id]
        reader = self._refused.get(item.request_id)
        if reader is not None:
            broken = [part for part in reader.receive(item) if isinstance(part, Broken)]
            return self._fatal(broken[0]) if broken else [VoiceEvent(EventKind.OTHER, "ready")]
        if isinstance(item, HttpFailed) and item.request_id in self._waits_for:
            return self._fatal(Broken(item.reason, item.failure))
        if not isinstance(item, HttpHead) or item.status < 200 or item.request_id not in self._waits_for:
            return [VoiceEvent(EventKind.OTHER, "ready")]
        self._waits_for.discard(item.request_id)
        return [VoiceEvent(EventKind.OTHER if self._waits_for else EventKind.READY, "ready")]

    def _fatal(self, broken: Broken) -> list[VoiceEvent]:
        self._failed = True
        return [VoiceEvent(EventKind.ERROR, "ready", message=broken.message, fatal=True, failure=broken.failure)]


_NS_PER_MS = 1_000_000


class PartialsReplay:
    """The transcripts of one turn. Time is that of the caller's audio, from the first frame of the turn on."""

    def __init__(self) -> None:
        self._left: list[tuple[int, str]] = []
        self._passed_ns = 0
        self._final = ""
        self._ended = True

    def begin(self, spoken: SpokenText, recorded: RecordedUtterance | None) -> str:
        """Begin a turn: `spoken.lead_ns` of audio precede its first speech sample.

        Returns what the caller's words are taken for: the final transcript that was recorded, or the words themselves.
        """
        heard = [] if recorded is None else sorted((*recorded.partials, recorded.final))
        self._left = [(spoken.lead_ns + round(at_ms * _NS_PER_MS), text) for at_ms, text in heard if text.strip()]
        self._passed_ns = 0
        self._final = spoken.text if recorded is None else recorded.final[1]
        self._ended = False
        return self._final

    @property
    def is_over(self) -> bool:
        """Whether the caller has finished and everything has been recognized."""
        return self._ended and not self._left

    def advance(self, passed_ns: int) -> str | None:
        """Advance the clock; return the newest text recognized by now, if any, or the whole text when it is due."""
        if not self._left:
            return None
        self._passed_ns += passed_ns
        newest: str | None = None
        while self._left and self._left[0][0] < self._passed_ns:
            newest = self._left.pop(0)[1]
        if not self._left and self._ended:
            return self._final
        return newest

    def end(self) -> bool:
        """Note that the caller has finished; return whether everything has been recognized by now."""
        self._ended = True
        return self.is_over


FRAME_MS: Final = 20
_FRAME_NS: Final = FRAME_MS * 1_000_000


class StagesCaller(CallerProtocol):
    """One conversation with some of the stages."""

    def __init__(self, wire: str, stages: Sequence[StageName], options: CallerOptions) -> None:
        """Raises UsageError with all faults of the settings."""
        self._options = options
        self._stages = frozenset(stages)
        self._settings = stage_settings(options, wire, self._stages)
        self.capabilities = Capabilities(
            input_rate_hz=self._settings.asr_rate_hz,
            frame_ms=FRAME_MS,
            not_observable=not_observable(self._stages),
            audio_is_text=False,
            transport="http",
            turn_controls=frozenset({"manual"}),
            sends_speech="when_over" if "asr" in stages else "as_text",
        )
        self._target_url = ""  # where stages without an address of their own are
        self._traceparent: str | None = None
        self._history: list[dict[str, str]] = []
        self._readiness: Readiness | None = None
        self._running: dict[str, ResponseReader] = {}
        self._owed: list[VoiceEvent] = []  # of replies that were broken off: no message of theirs comes any more
        self._kept: list[bytes] = []
        self._keeps = False
        self._utterance = SpokenText("")
        self._question = ""  # what the reply that is running answers
        self._replay = PartialsReplay()
        self._speculates = False  # what is running answers a part of what the caller says
        self._turn = 0
        self._reply: StageReply | None = None

    def upgrade(self, target_url: str, traceparent: str | None) -> OpenRequest:
        """Take over the address of the services and the trace of the call, which every request carries."""
        self._target_url, self._traceparent = target_url, traceparent
        return OpenRequest(target_url, self._headers(self._options.token))

    def opened(self) -> Sequence[Outgoing]:
        """Ask each service once, those at one address together: the session is ready when all of them have answered."""
        by_url: dict[str, HttpRequest] = {}
        for stage in sorted(self._stages):
            url = f"{self._settings.base_url(stage, self._target_url)}/{self._settings.ready_path}"
            headers = self._headers(self._settings.key(stage, self._options.token))
            by_url.setdefault(url, HttpRequest(self._name(f"ready-{stage}"), "GET", url, headers))
        self._readiness = Readiness([*by_url.values()])
        return self._readiness.requests

    def _headers(self, token: str | None) -> tuple[tuple[str, str], ...]:
        return (*bearer_headers(token, self._traceparent), *self._options.headers)

    def _name(self, stage: str) -> str:
        """Return the name of a request, which the service gets too: the call's trace, the turn and the stage."""
        trace = "call" if self._traceparent is None else self._traceparent.split("-")[1]
        return f"{trace}-{self._turn}-{stage}"

    # The caller's turn.

    def begin_turn(self, spoken: SpokenText) -> Sequence[Outgoing]:
        """Keep the audio from here on, and replay what was recognized of this utterance when it was recorded."""
        self._utterance = spoken
        self._kept.clear()
        self._keeps = True
        if "asr" not in self._stages and "llm" in self._stages:
            recorded = self._settings.recorded(spoken.utterance_id)
            self._utterance = replace(spoken, text=self._replay.begin(spoken, recorded))
        return ()

    def keep_audio(self, frame: bytes) -> None:
        """Keep a frame of the utterance; its length is also the time that has passed."""
        if self._keeps and "asr" in self._stages:
            self._kept.append(frame)
        text = self._replay.advance(_FRAME_NS)
        if text is not None:
            self._ask(text, speculative=not self._replay.is_over)

    def audio_message(self, pcm: Pcm16) -> bytes:
        """Return the samples unchanged."""
        return samples.to_bytes(pcm)

    def end_turn(self) -> Sequence[Outgoing]:
        """Send the utterance to the first stage; what is left of an earlier turn is given up."""
        self._keeps = False
        if "asr" in self._stages:
            messages = self._break_off()
            self._turn += 1
            utterance = b"".join(self._kept)
            self._kept.clear()
            body, content_type = transcription_form(utterance, self._settings)
            return [*messages, self._start(self._name("asr"), TranscriptionReader(), body, content_type)]
        if self._replay.end():
            self._ask(self._utterance.text)
        return self.pending()  # nothing while the recording goes on: its last words come later than the speech

    def interrupt(self, played_ms: int) -> Sequence[Outgoing]:
        """Cancel every request that is running: its answer is not heard any more."""
        del played_ms
        return self._break_off()

    def goodbye(self) -> Sequence[Outgoing]:
        """Cancel what is still running."""
        return self._break_off()

    # What arrives.

    def receive(self, message: HttpItem) -> Sequence[VoiceEvent]:
        """Decode one part of a response; never raises."""
        events, self._owed = self._owed, []
        if self._readiness is not None and self._readiness.owns(message.request_id):
            return [*events, *self._readiness.receive(message)]
        reader = self._running.get(message.request_id)
        if reader is None:
            events.append(VoiceEvent(EventKind.OTHER, _raw_type(message)))  # of a request that was canceled
            return events
        if isinstance(message, HttpEnd | HttpFailed):
            del self._running[message.request_id]
        if self._speculates:
            events.append(VoiceEvent(EventKind.OTHER, _raw_type(message)))
            return events
        for part in reader.receive(message):
            events += self._on_part(reader.stage, message, part)
        return events

    def _on_part(self, stage: StageName, message: HttpItem, part: Part) -> Iterable[VoiceEvent]:
        raw_type = f"{stage}.{type(part).__name__.lower()}"
        match part:
            case Served():
                return self._served(stage, raw_type, part)
            case Partial(text):
                return [VoiceEvent(EventKind.ASR_PARTIAL, raw_type, item_id=message.request_id, text=text)]
            case Transcript():
                final = VoiceEvent(
                    EventKind.ASR_FINAL, raw_type, item_id=message.request_id, text=part.text, usage=part.usage
                )
                return [final, *self._heard(part.text, raw_type)]
            case Words():
                return self._words(raw_type, part)
            case Pcm():
                return self._audio(raw_type, part)
            case Finished():
                return self._finished(stage, raw_type, part, message.request_id)
            case Malformed():
                return [violation(raw_type, part.message, part.code)]
            case Unknown(name):
                return [VoiceEvent(EventKind.UNKNOWN, name)]
            case Broken():
                return self._broken(stage, raw_type, part)

    def _served(self, stage: StageName, raw_type: str, part: Served) -> list[VoiceEvent]:
        reply = None if stage == "asr" else self._reply
        decides = "llm" if "llm" in self._stages else stage  # whose cache and route are those of the turn
        metadata = part.metadata if stage == decides else {k: v for k, v in part.metadata.items() if k not in _OF_TURN}
        events: list[VoiceEvent] = []
        if reply is not None:
            reply.metadata |= metadata
            events += reply.start(raw_type)
        if part.service_ns or metadata:
            response_id = None if reply is None else reply.response_id
            ns = part.service_ns
            events.append(VoiceEvent(EventKind.SERVICE_REPORT, raw_type, response_id, metadata=metadata, service_ns=ns))
        return events

    def _heard(self, text: str, raw_type: str) -> list[VoiceEvent]:
        """Go on with the words that were recognized."""
        if text.strip() and self._stages & {"llm", "tts"}:
            self._answer(text)
            return []
        # Nothing more comes of this turn: the transcript is its result, or an agent has no answer to nothing.
        reply = StageReply(self._name("reply"))
        return [*reply.start(raw_type), reply.done(raw_type, "completed")]

    def _words(self, raw_type: str, part: Words) -> list[VoiceEvent]:
        reply = self._reply
        if reply is None:
            return []
        if part.reasoning:
            return [reply.event(EventKind.REASONING_TEXT, raw_type, text=part.text)]
        reply.add(part.text)
        self._speak(reply)
        return [reply.event(EventKind.LLM_TEXT, raw_type, text=part.text)]

    def _audio(self, raw_type: str, part: Pcm) -> list[VoiceEvent]:
        reply = self._reply
        if reply is None:
            return []
        reply.carried.add("audio")
        return [reply.event(EventKind.AUDIO, raw_type, audio=part.data, rate_hz=part.rate_hz)]

    def _finished(self, stage: StageName, raw_type: str, part: Finished, name: str) -> list[VoiceEvent]:
        reply = self._reply
        if reply is None:
            return []
        if stage == "llm":
            reply.usage |= part.usage
            reply.why = part.why
            if part.tool_call:
                reply.carried.add("tool_call")
            self._remember(reply)
            reply.end_words()
        else:
            reply.usage |= {f"tts_{key}": value for key, value in part.usage.items()}
            if reply.speaking == name:
                reply.speaking = None
        if "tts" in self._stages:
            self._speak(reply)
        else:
            reply.waiting.clear()
        if not reply.complete:
            return []
        self._reply = None
        is_whole = (reply.why or "stop").lower() in _COMPLETE
        return reply.finish(raw_type) if is_whole else reply.finish(raw_type, "incomplete", reply.why)

    def _broken(self, stage: StageName, raw_type: str, part: Broken) -> list[VoiceEvent]:
        """End the turn: no later stage can go on from one that failed."""
        events: list[VoiceEvent] = []
        if stage == "asr":
            events.append(VoiceEvent(EventKind.ASR_FAILED, raw_type, message=part.message, failure=part.failure))
        if part.fatal:
            fatal = VoiceEvent(EventKind.ERROR, raw_type, message=part.message, fatal=True, failure=part.failure)
            self._send(*self._break_off())
            events, self._owed = [*events, *self._owed], []
            return [*events, fatal]
        reply, self._reply = self._reply or StageReply(self._name("reply")), None
        self._send(*self._break_off())
        return [*events, *reply.start(raw_type), reply.done(raw_type, "failed", part.message, part.failure)]

    # What is sent.

    def _ask(self, text: str, *, speculative: bool = False) -> None:
        """Give up what is running, and answer this text, or a part of it that a recognizer had sent by now.

        The answer to a part is `speculative`: it is the load that an agent makes that does not wait for the end, and no
        reply to the caller.
        """
        self._speculates = speculative
        self._send(*self._break_off())
        self._turn += 1
        self._answer(text)

    def _answer(self, text: str) -> None:
        """Send the caller's words to the language model, or where there is none, to speech synthesis."""
        self._question = text
        reply = self._reply = StageReply(self._name("reply"))
        if "llm" in self._stages:
            instructions = self._settings.llm_instructions
            system = [] if instructions is None else [{"role": "system", "content": instructions}]
            messages = [*system, *self._history, {"role": "user", "content": text}]
            body = chat_body(messages, self._settings)
            self._send(self._start(self._name("llm"), AnswerReader(), body))
            return
        reply.waiting.append(text)
        reply.words_over = True
        self._speak(reply)

    def _remember(self, reply: StageReply) -> None:
        """Keep a finished turn for the requests that follow."""
        if self._settings.history and reply.text:
            answer = {"role": "assistant", "content": reply.text}
            self._history += [{"role": "user", "content": self._question}, answer]

    def _speak(self, reply: StageReply) -> None:
        """Request the speech of the next sentence unless another one is being spoken."""
        text = reply.next_text() if "tts" in self._stages else None
        if text is None:
            return
        name = reply.speaking = f"{self._name('tts')}-{reply.spoken}"
        body = speech_body(text, self._settings)
        self._send(self._start(name, SpeechReader(self._settings.tts_rate_hz), body))

    def _start(
        self, name: str, reader: ResponseReader, body: bytes, content_type: str = "application/json"
    ) -> HttpRequest:
        """Return the request to the stage of this reader, which reads its response."""
        self._running[name] = reader
        reader.url = f"{self._settings.base_url(reader.stage, self._target_url)}/{PATHS[reader.stage]}"
        key = self._settings.key(reader.stage, self._options.token)
        headers = (("Content-Type", content_type), ("X-Client-Request-Id", name), *self._headers(key))
        return HttpRequest(name, "POST", reader.url, headers, body)

    def _break_off(self) -> list[HttpCancel]:
        cancels = [HttpCancel(name) for name in self._running]
        self._running.clear()
        reply, self._reply = self._reply, None
        if reply is not None and reply.started:
            self._remember(reply)
            self._owed.append(reply.done("cancel", "cancelled"))
        return cancels


http_cascade: Final = partial(StagesCaller, "http-cascade", STAGES)
asr_alone: Final = partial(StagesCaller, "asr", ("asr",))
llm_alone: Final = partial(StagesCaller, "llm", ("llm",))
tts_alone: Final = partial(StagesCaller, "tts", ("tts",))

# Why a language model ends an answer that is whole; any other reason (length, content_filter, refusal) cuts it short.
_COMPLETE: Final = frozenset({"stop", "end_turn", "stop_sequence", "eos", "tool_calls", "tool_use", "function_call"})
_OF_TURN: Final = frozenset(
    {
        semconv.META_CACHE_HIT,
        semconv.META_CACHE_TIER,
        semconv.META_ROUTE,
        semconv.META_FALLBACK,
        semconv.META_MODEL,
    }
)


def _raw_type(message: HttpItem) -> str:
    names = {HttpHead: "http.head", HttpData: "http.data", HttpEnd: "http.end", HttpFailed: "http.failed"}
    return names[type(message)]
