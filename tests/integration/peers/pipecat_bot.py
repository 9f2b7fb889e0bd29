"""A Pipecat bot whose engines are local and scripted: run by Pipecat's own development runner, in its own environment.

Voice activity and turns are detected by Pipecat (Silero, smart-turn); recognizer, language model and synthesizer are
Pipecat services whose results are fixed. What a caller wants of the bot is said by the upgrade's headers or, where a
wire has none, by the runner's body: `x-reply-words` (default 6; a word takes 0.25 s), `x-error`, and `x-hang-up-s`, the
time after which the bot hangs up. Where tracing is on, FastAPI continues the trace of the upgrade's headers by itself;
on telephony streams the conversation has the provider's call id.

    python pipecat_bot.py --host 127.0.0.1 --port 17860
"""

import asyncio
import math
import os
import struct
from collections.abc import AsyncGenerator, AsyncIterator, Mapping

from pipecat.audio.vad.silero import SileroVADAnalyzer
from pipecat.evals.transport import EvalTransportParams
from pipecat.frames.frames import (
    Frame,
    InterimTranscriptionFrame,
    LLMContextFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    TranscriptionFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.metrics.metrics import LLMTokenUsage
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair, LLMUserAggregatorParams
from pipecat.processors.frame_processor import FrameDirection
from pipecat.processors.frameworks.rtvi.models import ClientMessage
from pipecat.processors.frameworks.rtvi.observer import RTVIObserverParams
from pipecat.runner.utils import create_transport
from pipecat.serializers.protobuf import ProtobufFrameSerializer
from pipecat.services.llm_service import LLMService
from pipecat.services.settings import LLMSettings, STTSettings, TTSSettings
from pipecat.services.stt_service import STTService
from pipecat.services.tts_service import TTSService
from pipecat.transports.base_transport import TransportParams
from pipecat.transports.websocket.fastapi import FastAPIWebsocketParams
from pipecat.utils.time import time_now_iso8601
from pipecat.workers.runner import WorkerRunner

HEARD = "what the caller said"
TONE_HZ = 440.0
LOUDNESS = 0.3
WORD_S = 0.25
LEADING_SILENCE_S = 0.1
FIRST_TOKEN_S = 0.08
TOKEN_S = 0.01
RECOGNITION_S = 0.05


class ScriptedSTT(STTService):
    """One partial when speech begins, and the final transcript shortly after it ended."""

    def __init__(self) -> None:
        super().__init__(ttfs_p99_latency=0.4, settings=STTSettings(model="scripted", language=None))

    def can_generate_metrics(self) -> bool:
        return True

    async def run_stt(self, audio: bytes) -> AsyncGenerator[Frame | None, None]:
        del audio
        yield None

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, VADUserStartedSpeakingFrame):
            await self.push_frame(InterimTranscriptionFrame(HEARD[:4], "caller", time_now_iso8601()))
        elif isinstance(frame, VADUserStoppedSpeakingFrame):
            await asyncio.sleep(RECOGNITION_S)
            await self.push_frame(TranscriptionFrame(HEARD, "caller", time_now_iso8601(), finalized=True))


class ScriptedLLM(LLMService):
    """A reply of so many words, one token after the other; every second one is answered from the prompt cache."""

    def __init__(self, words: int, fails: bool) -> None:
        names = ("system_instruction", "temperature", "max_tokens", "top_p", "top_k", "frequency_penalty")
        names += ("presence_penalty", "seed", "filter_incomplete_user_turns", "user_turn_completion_config")
        super().__init__(settings=LLMSettings(model="scripted", **dict.fromkeys(names)))
        self._words = words
        self._fails = fails
        self._replies = 0

    def can_generate_metrics(self) -> bool:
        return True

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if not isinstance(frame, LLMContextFrame):
            await self.push_frame(frame, direction)
            return
        if self._fails:
            await self.push_error(error_msg="the language model is out of reach")
        await self.push_frame(LLMFullResponseStartFrame())
        await self.start_processing_metrics()
        await self.start_ttfb_metrics()
        try:
            await asyncio.sleep(FIRST_TOKEN_S)
            await self.stop_ttfb_metrics()
            for index in range(self._words):
                end = "." if index == self._words - 1 else " "
                await self.push_frame(LLMTextFrame(f"word{end}"))
                await asyncio.sleep(TOKEN_S)
            cached = 32 if self._replies % 2 else 0
            usage = LLMTokenUsage(
                prompt_tokens=40,
                completion_tokens=self._words,
                total_tokens=40 + self._words,
                cache_read_input_tokens=cached,
            )
            await self.start_llm_usage_metrics(usage)
            self._replies += 1
        finally:
            await self.stop_processing_metrics()
            await self.push_frame(LLMFullResponseEndFrame())


class ToneTTS(TTSService):
    """A tone of a quarter of a second for each word, after a tenth of a second of silence."""

    def __init__(self) -> None:
        settings = TTSSettings(model="tone", voice=None, language=None)
        super().__init__(push_start_frame=True, push_stop_frames=True, settings=settings)

    def can_generate_metrics(self) -> bool:
        return True

    async def run_tts(self, text: str, context_id: str) -> AsyncGenerator[Frame | None, None]:
        await self.start_tts_usage_metrics(text)
        chunks = _chunks(_speech(len(text.split()), self.sample_rate), self.chunk_size)
        audio = self._stream_audio_frames_from_iterator(chunks, in_sample_rate=self.sample_rate, context_id=context_id)
        async for frame in audio:
            await self.stop_ttfb_metrics()
            yield frame


def _speech(words: int, rate_hz: int) -> bytes:
    peak = LOUDNESS * 32767
    tone = [
        round(peak * math.sin(2 * math.pi * TONE_HZ * index / rate_hz))
        for index in range(int(rate_hz * words * WORD_S))
    ]
    return bytes(2 * int(rate_hz * LEADING_SILENCE_S)) + struct.pack(f"<{len(tone)}h", *tone)


async def _chunks(audio: bytes, size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(audio), size):
        yield audio[start : start + size]


def _asked(runner_args: object) -> Mapping[str, str]:
    """Return the caller's requests: the headers of the upgrade over the body of the session."""
    body = getattr(runner_args, "body", None)
    websocket = getattr(runner_args, "websocket", None)
    asked = {str(name).lower(): str(value) for name, value in body.items()} if isinstance(body, Mapping) else {}
    return asked | (dict(websocket.headers) if websocket is not None else {})


def _socket() -> FastAPIWebsocketParams:
    return FastAPIWebsocketParams(audio_in_enabled=True, audio_out_enabled=True)


TRANSPORTS = {
    "websocket": lambda: FastAPIWebsocketParams(
        audio_in_enabled=True, audio_out_enabled=True, serializer=ProtobufFrameSerializer()
    ),
    "twilio": _socket,
    "telnyx": _socket,
    "plivo": _socket,
    "exotel": _socket,
    "webrtc": lambda: TransportParams(audio_in_enabled=True, audio_out_enabled=True),
    "eval": lambda: EvalTransportParams(audio_in_enabled=True, audio_out_enabled=True),
}


async def bot(runner_args: object) -> None:
    """One session; the runner calls it for every connection."""
    asked = _asked(runner_args)
    transport = await create_transport(runner_args, TRANSPORTS)
    context = LLMContext()
    users, assistants = LLMContextAggregatorPair(
        context, user_params=LLMUserAggregatorParams(vad_analyzer=SileroVADAnalyzer())
    )
    llm = ScriptedLLM(int(asked.get("x-reply-words", "6")), fails="x-error" in asked)
    pipeline = Pipeline([transport.input(), ScriptedSTT(), users, llm, ToneTTS(), transport.output(), assistants])
    worker = PipelineWorker(
        pipeline,
        params=PipelineParams(enable_metrics=True, enable_usage_metrics=True),
        rtvi_observer_params=RTVIObserverParams(
            vad_user_speaking_enabled=True,
            stt_raw_text_enabled=True,
            llm_raw_text_enabled=True,
            tts_raw_text_enabled=True,
        ),
        enable_tracing=TRACED,
        conversation_id=getattr(getattr(runner_args, "call_data", None), "call_id", None),
    )

    @worker.rtvi.event_handler("on_client_ready")
    async def on_client_ready(rtvi: object) -> None:
        del rtvi
        await worker.rtvi.send_server_message({"traceparent": asked.get("traceparent"), "route": "scripted"})
        if "x-hang-up-s" in asked:
            await asyncio.sleep(float(asked["x-hang-up-s"]))
            await worker.cancel()

    @worker.rtvi.event_handler("on_client_message")
    async def on_client_message(rtvi: object, message: ClientMessage) -> None:
        del rtvi
        await worker.rtvi.send_server_response(message, message.data)

    @transport.event_handler("on_client_disconnected")
    async def on_client_disconnected(transport: object, client: object) -> None:
        del transport, client
        await worker.cancel()

    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    await runner.run()


def _tracing() -> bool:
    """Export spans where the standard variable names a place."""
    if "OTEL_EXPORTER_OTLP_ENDPOINT" not in os.environ:
        return False
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from pipecat.utils.tracing.setup import setup_tracing

    return setup_tracing("pipecat-bot", exporter=OTLPSpanExporter())


TRACED = _tracing()

if __name__ == "__main__":
    from pipecat.runner.run import main

    main()
