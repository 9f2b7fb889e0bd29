"""Records the spans of a Pipecat pipeline, for tests/fixtures/frameworks: `record_spans_pipecat.py FOLDER [WITH]`.

Runs in the environment of the peer. Recognizer, language model and synthesizer are Pipecat services with known delays;
the caller is a script that says when it speaks. Texts are invented. Where WITH is `openinference`, Pipecat's own
tracing is off, and the observer of openinference-instrumentation-pipecat makes the spans.
"""

import asyncio
import importlib.metadata
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import spans_fixture
from opentelemetry import trace
from pipecat.frames.frames import (
    BotStartedSpeakingFrame,
    BotStoppedSpeakingFrame,
    EndFrame,
    Frame,
    FunctionCallFromLLM,
    LLMContextFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    OutputAudioRawFrame,
    StartFrame,
    TranscriptionFrame,
    TTSAudioRawFrame,
    TTSSpeakFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.metrics.metrics import LLMTokenUsage
from pipecat.observers.base_observer import BaseObserver, FramePushed
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair, LLMUserAggregatorParams
from pipecat.processors.frame_processor import FrameDirection
from pipecat.services.llm_service import FunctionCallParams, LLMService
from pipecat.services.settings import LLMSettings, STTSettings, TTSSettings
from pipecat.services.stt_service import STTService
from pipecat.services.tts_service import TTSService
from pipecat.transports.base_output import BaseOutputTransport
from pipecat.transports.base_transport import TransportParams
from pipecat.turns.user_stop import SpeechTimeoutUserTurnStopStrategy
from pipecat.turns.user_turn_strategies import UserTurnStrategies
from pipecat.utils.time import time_now_iso8601
from pipecat.utils.tracing.service_decorators import traced_llm, traced_stt, traced_tts
from pipecat.workers.runner import WorkerRunner

SPEECH_S = 0.4
VAD_START_S = 0.05
VAD_STOP_S = 0.1
RECOGNITION_S = 0.05
ENDPOINTING_S = 0.15
FIRST_TOKEN_S = 0.08
SYNTHESIS_S = 0.06
TOOL_S = 0.05
REPLY_S = 0.6
RATE_HZ = 16_000
LLM_NAMES = ("system_instruction", "temperature", "max_tokens", "top_p", "top_k", "frequency_penalty")
LLM_NAMES += ("presence_penalty", "seed", "filter_incomplete_user_turns", "user_turn_completion_config")


class ScriptedSTTService(STTService):
    """The final transcript, shortly after the speech was found to have ended."""

    def __init__(self) -> None:
        super().__init__(ttfs_p99_latency=0.4, settings=STTSettings(model="scripted-stt", language=None))

    def can_generate_metrics(self) -> bool:
        return True

    @traced_stt
    async def run_stt(self, audio: bytes) -> AsyncGenerator[Frame | None, None]:
        del audio
        yield None

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, VADUserStoppedSpeakingFrame):
            await asyncio.sleep(RECOGNITION_S)
            await self.push_frame(TranscriptionFrame("turn on the light", "caller", time_now_iso8601(), finalized=True))


class ScriptedLLMService(LLMService):
    """A model that answers each request by script: a reply, a tool call, or nothing."""

    def __init__(self, script: list[str]) -> None:
        super().__init__(settings=LLMSettings(model="scripted-llm", **dict.fromkeys(LLM_NAMES)))
        self._script = script

    def can_generate_metrics(self) -> bool:
        return True

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if not isinstance(frame, LLMContextFrame):
            await self.push_frame(frame, direction)
            return
        await self.push_frame(LLMFullResponseStartFrame())
        await self.start_processing_metrics()
        try:
            await self._process_context(frame.context)
        finally:
            await self.stop_processing_metrics()
            await self.push_frame(LLMFullResponseEndFrame())

    @traced_llm
    async def _process_context(self, context: LLMContext) -> None:
        does = self._script.pop(0)
        await self.start_ttfb_metrics()
        await asyncio.sleep(FIRST_TOKEN_S)
        if does == "nothing":
            return
        await self.stop_ttfb_metrics()
        cached = {"cached": 32, "plain": 0}.get(does)
        if does == "variant":
            attributes = {"feature_flag.key": "voice", "feature_flag.result.variant": "canary"}
            trace.get_current_span().add_event("feature_flag.evaluation", attributes)
        usage = LLMTokenUsage(prompt_tokens=40, completion_tokens=4, total_tokens=44, cache_read_input_tokens=cached)
        if does != "tool":
            for word in ("The ", "light ", "is ", "on."):
                await self.push_frame(LLMTextFrame(word))
        await self.start_llm_usage_metrics(usage)
        if does == "tool":
            await self.run_function_calls([FunctionCallFromLLM("look_up", "call-1", {"room": "hall"}, context)])


class ScriptedTTSService(TTSService):
    """A tone, after a known delay."""

    def __init__(self) -> None:
        settings = TTSSettings(model="scripted-tts", voice=None, language=None)
        super().__init__(push_start_frame=True, push_stop_frames=True, settings=settings)

    def can_generate_metrics(self) -> bool:
        return True

    @traced_tts
    async def run_tts(self, text: str, context_id: str) -> AsyncGenerator[Frame | None, None]:
        await self.start_tts_usage_metrics(text)
        await asyncio.sleep(SYNTHESIS_S)
        await self.stop_ttfb_metrics()
        tone = (b"\x00\x20" * 8 + b"\x00\xe0" * 8) * int(RATE_HZ * REPLY_S / 16)
        yield TTSAudioRawFrame(tone, self.sample_rate, 1, context_id=context_id)


class PacedOutput(BaseOutputTransport):
    """Plays audio as fast as it would be heard."""

    async def start(self, frame: StartFrame) -> None:
        await super().start(frame)
        await self.set_transport_ready(frame)

    async def write_audio_frame(self, frame: OutputAudioRawFrame) -> bool:
        await asyncio.sleep(len(frame.audio) / 2 / frame.sample_rate)
        return True


class Playing(BaseObserver):
    """Whether the bot speaks."""

    def __init__(self) -> None:
        super().__init__(observe_every_push=False)
        self.started = asyncio.Event()
        self.stopped = asyncio.Event()

    async def on_push_frame(self, data: FramePushed) -> None:
        if isinstance(data.frame, BotStartedSpeakingFrame):
            self.started.set()
        elif isinstance(data.frame, BotStoppedSpeakingFrame):
            self.stopped.set()


async def look_up(params: FunctionCallParams) -> None:
    """The tool."""
    await asyncio.sleep(TOOL_S)
    await params.result_callback({"bulbs": 3})


class Call:
    """One conversation with the pipeline."""

    def __init__(self, name: str, script: list[str], own_tracing: bool) -> None:
        self.playing = Playing()
        context = LLMContext()
        stop = SpeechTimeoutUserTurnStopStrategy(user_speech_timeout=ENDPOINTING_S)
        users, assistants = LLMContextAggregatorPair(
            context, user_params=LLMUserAggregatorParams(user_turn_strategies=UserTurnStrategies(stop=[stop]))
        )
        llm = ScriptedLLMService(script)
        llm.register_function("look_up", look_up)
        output = PacedOutput(TransportParams(audio_out_enabled=True, audio_out_sample_rate=RATE_HZ))
        self.worker = PipelineWorker(
            Pipeline([ScriptedSTTService(), users, llm, ScriptedTTSService(), output, assistants]),
            params=PipelineParams(enable_metrics=True, enable_usage_metrics=True, audio_out_sample_rate=RATE_HZ),
            observers=[self.playing],
            enable_tracing=own_tracing,
            conversation_id=name,
            additional_span_attributes={"feature_flag.result.variant": "blue"} if name == "call-late-hang-up" else None,
            cancel_on_idle_timeout=False,
        )

    async def speak(self) -> None:
        """Say something, as a detector of speech reports it."""
        await asyncio.sleep(VAD_START_S)
        await self.worker.queue_frame(VADUserStartedSpeakingFrame(start_secs=VAD_START_S))
        await asyncio.sleep(SPEECH_S - VAD_START_S + VAD_STOP_S)
        await self.worker.queue_frame(VADUserStoppedSpeakingFrame(stop_secs=VAD_STOP_S))

    async def answered(self) -> None:
        """Wait until the reply was played."""
        await asyncio.wait_for(self.playing.stopped.wait(), 10)
        self.clear()
        await asyncio.sleep(0.2)

    def clear(self) -> None:
        self.playing.started.clear()
        self.playing.stopped.clear()

    async def hang_up(self) -> None:
        await self.worker.cancel()


async def talk(call: Call) -> None:
    """Four answered turns, one that is interrupted, the one that interrupts, and a hang-up in the last."""
    for _ in range(4):
        await call.speak()
        await call.answered()
    await call.speak()
    await asyncio.wait_for(call.playing.started.wait(), 10)
    call.clear()
    await asyncio.sleep(0.2)
    await call.speak()
    await asyncio.wait_for(call.playing.started.wait(), 10)
    call.clear()
    await call.answered()
    await call.speak()
    await asyncio.sleep(0.1)
    await call.hang_up()


async def silent(call: Call) -> None:
    """A turn that is never answered, until the call ends."""
    await call.speak()
    await asyncio.sleep(1.5)
    await call.worker.queue_frame(EndFrame())


async def late_hang_up(call: Call) -> None:
    """A turn that is answered; the caller hangs up during the reply."""
    await call.speak()
    await asyncio.wait_for(call.playing.started.wait(), 10)
    await asyncio.sleep(0.2)
    await call.hang_up()


async def greeted(call: Call) -> None:
    """The bot speaks first; then comes a turn, after which the bot ends the call."""
    await call.worker.queue_frame(TTSSpeakFrame("Hello."))
    await call.answered()
    await call.speak()
    await call.answered()
    await call.worker.queue_frame(EndFrame())


CALLS = {
    "talk": (talk, ["plain", "cached", "tool", "plain", "variant", "plain", "plain", "plain"]),
    "silent": (silent, ["nothing"]),
    "late-hang-up": (late_hang_up, ["plain"]),
    "greeted": (greeted, ["plain"]),
}


async def main(folder: Path, instrumented: bool) -> None:
    recorder = spans_fixture.Recorder("pipecat-bot")
    trace.set_tracer_provider(recorder.provider)
    about = {"pipecat-ai": importlib.metadata.version("pipecat-ai")}
    name = f"pipecat-{about['pipecat-ai']}"
    if instrumented:
        from openinference.instrumentation.pipecat import PipecatInstrumentor

        PipecatInstrumentor().instrument(tracer_provider=recorder.provider)
        package = "openinference-instrumentation-pipecat"
        about[package] = importlib.metadata.version(package)
        name = f"openinference-pipecat-{about[package]}"
    for call_name, (converse, script) in CALLS.items():
        call = Call(f"call-{call_name}", [*script], own_tracing=not instrumented)
        runner = WorkerRunner(handle_sigint=False)
        await runner.add_workers(call.worker)
        running = asyncio.create_task(runner.run())
        await asyncio.sleep(0.5)
        await converse(call)
        await asyncio.wait_for(running, 20)
        await asyncio.sleep(0.2)
        recorder.write(folder / name / f"{call_name}.json", about)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), "openinference" in sys.argv[2:]))
