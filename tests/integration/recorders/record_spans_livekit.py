"""Records the spans of a LiveKit agent for tests/fixtures/frameworks: `record_spans_livekit.py FOLDER`.

Runs in the environment of a peer, of any version since 1.6. The session has no room: a script pushes audio frames and
says when the caller speaks, and the agent's audio is played by a clock. Recognizer, language model and synthesizer are
LiveKit's base classes with known delays. Texts are invented.
"""

import asyncio
import contextlib
import contextvars
import importlib.metadata
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import spans_fixture
from livekit import rtc
from livekit.agents import Agent, AgentSession, APIConnectionError, APIConnectOptions, function_tool, llm, stt, tts, vad
from livekit.agents.language import LanguageCode
from livekit.agents.telemetry import set_tracer_provider
from livekit.agents.types import DEFAULT_API_CONNECT_OPTIONS, NOT_GIVEN
from livekit.agents.voice import io
from livekit.agents.voice.agent_session import SessionConnectOptions
from opentelemetry import trace

SPEECH_S = 0.4
VAD_STOP_S = 0.1
RECOGNITION_S = 0.05
ENDPOINTING_S = 0.15
FIRST_TOKEN_S = 0.08
SYNTHESIS_S = 0.06
TOOL_S = 0.05
REPLY_S = 0.6
LONG_ENOUGH_S = 1.0  # of speech, to interrupt
RATE_HZ = 16_000
FRAME = rtc.AudioFrame(bytes(640), RATE_HZ, 1, 320)
TONE = (b"\x00\x20" * 8 + b"\x00\xe0" * 8) * int(RATE_HZ * REPLY_S / 16)


class Speech:
    """The caller's speech, as detector and recognizer report it."""

    def __init__(self) -> None:
        self.detectors: list[asyncio.Queue[str]] = []
        self.recognizers: list[asyncio.Queue[str]] = []

    def note(self, what: str) -> None:
        for queue in (*self.detectors, *self.recognizers):
            queue.put_nowait(what)


class ScriptedVAD(vad.VAD):
    def __init__(self, speech: Speech) -> None:
        super().__init__(capabilities=vad.VADCapabilities(update_interval=0.02))
        self.speech = speech

    def stream(self) -> "ScriptedVADStream":
        return ScriptedVADStream(self)


class ScriptedVADStream(vad.VADStream):
    """Speech begins at once; its end is known after a little silence."""

    async def _main_task(self) -> None:
        queue: asyncio.Queue[str] = asyncio.Queue()
        self._vad.speech.detectors.append(queue)
        drain = asyncio.create_task(self._drain())
        try:
            while True:
                what = await queue.get()
                if what == "start":
                    self._note(vad.VADEventType.START_OF_SPEECH, 0.0, 0.0, speaking=True)
                    self._note(vad.VADEventType.INFERENCE_DONE, LONG_ENOUGH_S, 0.0, speaking=True)
                elif what == "end":
                    await asyncio.sleep(VAD_STOP_S)
                    self._note(vad.VADEventType.END_OF_SPEECH, SPEECH_S, VAD_STOP_S, speaking=False)
        finally:
            drain.cancel()

    async def _drain(self) -> None:
        async for _ in self._input_ch:
            pass

    def _note(self, kind: vad.VADEventType, speech_s: float, silence_s: float, *, speaking: bool) -> None:
        self._event_ch.send_nowait(
            vad.VADEvent(kind, 0, time.time(), speech_s, silence_s, frames=[FRAME], probability=0.9, speaking=speaking)
        )


class ScriptedSTT(stt.STT):
    def __init__(self, speech: Speech) -> None:
        super().__init__(capabilities=stt.STTCapabilities(streaming=True, interim_results=True))
        self.speech = speech

    async def _recognize_impl(self, buffer: object, **options: object) -> stt.SpeechEvent:
        raise NotImplementedError

    def stream(
        self, *, language: object = NOT_GIVEN, conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS
    ) -> "ScriptedRecognition":
        del language
        return ScriptedRecognition(stt=self, conn_options=conn_options, sample_rate=RATE_HZ)


class ScriptedRecognition(stt.RecognizeStream):
    """One partial, and the final transcript shortly after the end of speech was found."""

    async def _run(self) -> None:
        queue: asyncio.Queue[str] = asyncio.Queue()
        self._stt.speech.recognizers.append(queue)
        drain = asyncio.create_task(self._drain())
        try:
            while True:
                what = await queue.get()
                if what == "start":
                    await asyncio.sleep(0.2)
                    self._note(stt.SpeechEventType.INTERIM_TRANSCRIPT, "turn on")
                elif what == "end":
                    await asyncio.sleep(VAD_STOP_S + RECOGNITION_S)
                    self._note(stt.SpeechEventType.FINAL_TRANSCRIPT, "turn on the light")
        finally:
            drain.cancel()

    async def _drain(self) -> None:
        async for _ in self._input_ch:
            pass

    def _note(self, kind: stt.SpeechEventType, text: str) -> None:
        heard = stt.SpeechData(language=LanguageCode("en"), text=text, confidence=1.0)
        self._event_ch.send_nowait(stt.SpeechEvent(type=kind, alternatives=[heard]))


class ScriptedLLM(llm.LLM):
    """A model that answers each request by script: a reply, a tool call, or an error."""

    def __init__(self, script: list[str]) -> None:
        super().__init__()
        self.script = script

    @property
    def model(self) -> str:
        return "scripted-llm"

    @property
    def provider(self) -> str:
        return "scripted"

    def chat(
        self,
        *,
        chat_ctx: llm.ChatContext,
        tools: list[llm.Tool] | None = None,
        conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS,
        **options: object,
    ) -> "ScriptedAnswer":
        return ScriptedAnswer(self, chat_ctx=chat_ctx, tools=tools or [], conn_options=conn_options)


class ScriptedAnswer(llm.LLMStream):
    async def _run(self) -> None:
        does = self._llm.script.pop(0)
        if does == "fails":
            raise APIConnectionError("the language model is out of reach", retryable=False)
        await asyncio.sleep(FIRST_TOKEN_S)
        if does == "variant":
            attributes = {"feature_flag.key": "voice", "feature_flag.result.variant": "canary"}
            trace.get_current_span().add_event("feature_flag.evaluation", attributes)
        words = () if does == "tool" else ("The ", "light ", "is ", "on.")
        for word in words:
            self._note(llm.ChoiceDelta(role="assistant", content=word))
        if does == "tool":
            call = llm.FunctionToolCall(name="look_up", arguments='{"room": "hall"}', call_id="call-1")
            self._note(llm.ChoiceDelta(role="assistant", tool_calls=[call]))
        cached = 32 if does == "cached" else 0
        usage = llm.CompletionUsage(completion_tokens=4, prompt_tokens=40, prompt_cached_tokens=cached, total_tokens=44)
        self._event_ch.send_nowait(llm.ChatChunk(id="1", usage=usage))

    def _note(self, delta: llm.ChoiceDelta) -> None:
        self._event_ch.send_nowait(llm.ChatChunk(id="1", delta=delta))


class ScriptedTTS(tts.TTS):
    def __init__(self) -> None:
        super().__init__(capabilities=tts.TTSCapabilities(streaming=False), sample_rate=RATE_HZ, num_channels=1)
        self.fails = 0

    def synthesize(self, text: str, *, conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS) -> "Tone":
        return Tone(tts=self, input_text=text, conn_options=conn_options)


class Tone(tts.ChunkedStream):
    """A tone, after a known delay."""

    async def _run(self, output_emitter: tts.AudioEmitter) -> None:
        output_emitter.initialize(request_id="1", sample_rate=RATE_HZ, num_channels=1, mime_type="audio/pcm")
        await asyncio.sleep(SYNTHESIS_S)
        output_emitter.push(TONE)
        output_emitter.flush()


class Microphone(io.AudioInput):
    """Silent frames, at the pace of speech."""

    def __init__(self) -> None:
        super().__init__(label="script")

    async def __anext__(self) -> rtc.AudioFrame:
        await asyncio.sleep(0.02)
        return FRAME


class Loudspeaker(io.AudioOutput):
    """Plays what it gets by the clock; nobody listens."""

    def __init__(self) -> None:
        super().__init__(label="script", capabilities=io.AudioOutputCapabilities(pause=False), sample_rate=RATE_HZ)
        self.playing = asyncio.Event()
        self.quiet = asyncio.Event()
        self._queued_s = 0.0
        self._began = 0.0
        self._end: asyncio.TimerHandle | None = None

    async def capture_frame(self, frame: rtc.AudioFrame) -> None:
        await super().capture_frame(frame)
        if not self._queued_s:
            self._began = time.time()
            self.on_playback_started(created_at=self._began)
            self.playing.set()
        self._queued_s += frame.duration

    def flush(self) -> None:
        super().flush()
        if self._queued_s:
            left_s = self._began + self._queued_s - time.time()
            self._end = asyncio.get_running_loop().call_later(max(0.0, left_s), self._stop, False)

    def clear_buffer(self) -> None:
        if self._queued_s:
            self._stop(True)

    def _stop(self, interrupted: bool) -> None:
        if self._end is not None:
            self._end.cancel()
        played_s = min(self._queued_s, time.time() - self._began)
        self._queued_s, self._end = 0.0, None
        self.playing.clear()
        self.quiet.set()
        self.on_playback_finished(playback_position=played_s, interrupted=interrupted)


class Caller(Agent):
    def __init__(self) -> None:
        super().__init__(instructions="Answer.", tools=[look_up])


@function_tool
async def look_up(room: str) -> str:
    """Look something up."""
    del room
    await asyncio.sleep(TOOL_S)
    return "3 bulbs"


class Call:
    """One session, and what its caller does."""

    def __init__(self, script: list[str], models: int) -> None:
        self.speech = Speech()
        self.speaker = Loudspeaker()
        scripted: llm.LLM = ScriptedLLM(script)
        if models > 1:
            scripted = llm.FallbackAdapter([ScriptedLLM(["fails"] * 9), scripted], max_retry_per_llm=0)
        options: dict[str, Any] = {"turn_handling": {"endpointing": {"min_delay": ENDPOINTING_S}}}
        self.session = AgentSession(
            vad=ScriptedVAD(self.speech),
            stt=ScriptedSTT(self.speech),
            llm=scripted,
            tts=ScriptedTTS(),
            conn_options=SessionConnectOptions(llm_conn_options=APIConnectOptions(max_retry=0)),
            aec_warmup_duration=None,
            **options,
        )
        self.session.input.audio = Microphone()
        self.session.output.audio = self.speaker

    async def speak(self) -> None:
        self.speaker.quiet.clear()
        self.speech.note("start")
        await asyncio.sleep(SPEECH_S)
        self.speech.note("end")

    async def answered(self) -> None:
        self.speaker.quiet.clear()
        await asyncio.wait_for(self.speaker.quiet.wait(), 10)
        await asyncio.sleep(0.3)

    async def replies(self) -> None:
        await asyncio.sleep(VAD_STOP_S)
        await asyncio.wait_for(self.speaker.playing.wait(), 10)


async def talk(call: Call) -> None:
    """Four answered turns, one that is interrupted, the one that interrupts, and a hang-up in the last."""
    for _ in range(4):
        await call.speak()
        await call.answered()
    await call.speak()
    await call.replies()
    await asyncio.sleep(0.2)
    await call.speak()
    await call.replies()
    await call.answered()
    await call.speak()
    await asyncio.sleep(0.2)


async def silent(call: Call) -> None:
    """A turn that is never answered, until the call ends."""
    await call.speak()
    await asyncio.sleep(1.5)


async def late_hang_up(call: Call) -> None:
    """A turn that is answered; the caller hangs up during the reply."""
    await call.speak()
    await call.replies()
    await asyncio.sleep(0.2)


async def fallback(call: Call) -> None:
    """A turn that another model answers, because the first is out of reach."""
    await call.speak()
    await call.answered()


async def greeted(call: Call) -> None:
    """The agent speaks first; then comes a turn."""
    call.session.say("Hello.")
    await call.answered()
    await call.speak()
    await call.answered()


CALLS = {
    "talk": (talk, ["plain", "cached", "tool", "plain", "variant", "plain", "plain", "plain"], 1),
    "silent": (silent, ["fails"], 1),
    "late-hang-up": (late_hang_up, ["plain"], 1),
    "fallback": (fallback, ["plain"], 2),
    "greeted": (greeted, ["plain"], 1),
}


async def hold(converse: Callable[[Call], Awaitable[None]], script: list[str], models: int) -> None:
    """Hold one conversation, as a job does."""
    with trace.get_tracer("livekit-agents").start_as_current_span("job_entrypoint"):
        call = Call(script, models)
        await call.session.start(Caller())
        await asyncio.sleep(0.2)
        await converse(call)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(call.session.aclose(), 10)
        await asyncio.sleep(0.3)


async def main(folder: Path) -> None:
    recorder = spans_fixture.Recorder("livekit-agent")
    trace.set_tracer_provider(recorder.provider)
    set_tracer_provider(recorder.provider)
    version = importlib.metadata.version("livekit-agents")
    for name, (converse, script, models) in CALLS.items():
        # A context of its own: a session belongs to the trace of its job.
        await asyncio.create_task(hold(converse, [*script], models), context=contextvars.Context())
        recorder.write(folder / f"livekit-agents-{version}" / f"{name}.json", {"livekit-agents": version})


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
