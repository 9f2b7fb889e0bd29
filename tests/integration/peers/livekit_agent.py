"""A LiveKit agent whose engines are local and scripted: run by LiveKit's own console link, in its own environment.

    python -m livekit.agents console livekit_agent.py --connect-addr 127.0.0.1:PORT

Voice activity is detected by LiveKit (Silero, native); recognizer, language model and synthesizer are LiveKit plugins
whose results are fixed. The environment says what a test wants of it: AGENT_WORDS (default 6; a word takes 0.25 s),
AGENT_TOOL (every first answer of a turn calls a tool), AGENT_FAILS (the language model cannot be reached),
AGENT_WARMUP_S (LiveKit's `aec_warmup_duration`; 0 switches it off, unset leaves LiveKit's default).
"""

import asyncio
import math
import os
import struct

import numpy as np
from livekit import rtc
from livekit.agents import (
    Agent,
    AgentServer,
    AgentSession,
    APIConnectionError,
    APIConnectOptions,
    JobContext,
    function_tool,
    inference,
    llm,
    stt,
    tts,
)
from livekit.agents.language import LanguageCode
from livekit.agents.types import DEFAULT_API_CONNECT_OPTIONS, NOT_GIVEN
from livekit.agents.voice.agent_session import SessionConnectOptions

HEARD = "what the caller said"
RATE_HZ = 24_000
TONE_HZ = 440.0
LOUDNESS = 0.3
WORD_S = 0.25
LEADING_SILENCE_S = 0.1
FIRST_TOKEN_S = 0.08
SYNTHESIS_S = 0.06
LOUD = 500.0  # root mean square of samples that are speech
PARTIAL_AFTER_S = 0.2
FINAL_AFTER_S = 0.3
WORDS = int(os.environ.get("AGENT_WORDS", "6"))


class ScriptedStream(stt.RecognizeStream):
    """A partial after a little speech, and the final transcript after a little silence."""

    async def _run(self) -> None:
        loud_s = quiet_s = heard_s = 0.0
        partial = False
        async for frame in self._input_ch:
            if not isinstance(frame, rtc.AudioFrame):
                continue
            samples = np.frombuffer(frame.data, np.int16).astype(np.float64)
            loud = float(np.sqrt(np.mean(samples**2))) > LOUD
            heard_s += frame.duration
            loud_s, quiet_s = (loud_s + frame.duration, 0.0) if loud else (loud_s, quiet_s + frame.duration)
            if loud_s >= PARTIAL_AFTER_S and not partial:
                partial = True
                self._say(stt.SpeechEventType.INTERIM_TRANSCRIPT, HEARD[:4])
            elif partial and quiet_s >= FINAL_AFTER_S:
                self._say(stt.SpeechEventType.INTERIM_TRANSCRIPT, HEARD[:8])
                self._say(stt.SpeechEventType.FINAL_TRANSCRIPT, HEARD)
                usage = stt.RecognitionUsage(audio_duration=heard_s)
                self._event_ch.send_nowait(
                    stt.SpeechEvent(type=stt.SpeechEventType.RECOGNITION_USAGE, recognition_usage=usage)
                )
                loud_s = quiet_s = heard_s = 0.0
                partial = False

    def _say(self, kind: stt.SpeechEventType, text: str) -> None:
        heard = stt.SpeechData(language=LanguageCode("en"), text=text, confidence=1.0)
        self._event_ch.send_nowait(stt.SpeechEvent(type=kind, alternatives=[heard]))


class ScriptedSTT(stt.STT):
    """Hears the same words in whatever is loud."""

    def __init__(self) -> None:
        super().__init__(capabilities=stt.STTCapabilities(streaming=True, interim_results=True))

    async def _recognize_impl(self, buffer: object, **options: object) -> stt.SpeechEvent:
        raise NotImplementedError

    def stream(
        self, *, language: object = NOT_GIVEN, conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS
    ) -> ScriptedStream:
        del language
        return ScriptedStream(stt=self, conn_options=conn_options, sample_rate=16_000)


class ScriptedLLM(llm.LLM):
    """A reply of so many words; every second one is answered from the prompt cache."""

    replies = 0

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
    """One answer, word by word."""

    async def _run(self) -> None:
        if os.environ.get("AGENT_FAILS"):
            raise APIConnectionError("the language model is out of reach", retryable=False)
        await asyncio.sleep(FIRST_TOKEN_S)
        last = self._chat_ctx.items[-1]
        calls = bool(os.environ.get("AGENT_TOOL")) and last.type == "message"
        words = ["One ", "moment."] if calls else ["word "] * (WORDS - 1) + ["word."]
        for word in words:
            self._event_ch.send_nowait(llm.ChatChunk(id="1", delta=llm.ChoiceDelta(role="assistant", content=word)))
            await asyncio.sleep(0.01)
        if calls:
            call = llm.FunctionToolCall(name="look_up", arguments="{}", call_id=f"call-{len(self._chat_ctx.items)}")
            self._event_ch.send_nowait(
                llm.ChatChunk(id="1", delta=llm.ChoiceDelta(role="assistant", tool_calls=[call]))
            )
        cached = 32 if ScriptedLLM.replies % 2 else 0
        ScriptedLLM.replies += 1
        usage = llm.CompletionUsage(
            completion_tokens=len(words), prompt_tokens=40, prompt_cached_tokens=cached, total_tokens=40 + len(words)
        )
        self._event_ch.send_nowait(llm.ChatChunk(id="1", usage=usage))


class ToneTTS(tts.TTS):
    """A tone of a quarter of a second for each word, after a tenth of a second of silence."""

    def __init__(self) -> None:
        super().__init__(capabilities=tts.TTSCapabilities(streaming=False), sample_rate=RATE_HZ, num_channels=1)

    def synthesize(self, text: str, *, conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS) -> "ToneStream":
        return ToneStream(tts=self, input_text=text, conn_options=conn_options)


class ToneStream(tts.ChunkedStream):
    """One synthesis."""

    async def _run(self, output_emitter: tts.AudioEmitter) -> None:
        output_emitter.initialize(request_id="1", sample_rate=RATE_HZ, num_channels=1, mime_type="audio/pcm")
        await asyncio.sleep(SYNTHESIS_S)
        output_emitter.push(_speech(len(self._input_text.split())))
        output_emitter.flush()


def _speech(words: int) -> bytes:
    peak = LOUDNESS * 32767
    count = int(RATE_HZ * words * WORD_S)
    tone = [round(peak * math.sin(2 * math.pi * TONE_HZ * index / RATE_HZ)) for index in range(count)]
    return bytes(2 * int(RATE_HZ * LEADING_SILENCE_S)) + struct.pack(f"<{count}h", *tone)


@function_tool
async def look_up() -> str:
    """Look something up."""
    await asyncio.sleep(0.05)
    return "42"


server = AgentServer()


@server.rtc_session()
async def entrypoint(ctx: JobContext) -> None:
    """One session, as long as the process lives."""
    await ctx.connect()
    options = {}
    if (warmup := os.environ.get("AGENT_WARMUP_S")) is not None:
        options["aec_warmup_duration"] = float(warmup) or None
    session = AgentSession(
        vad=inference.VAD(),
        stt=ScriptedSTT(),
        llm=ScriptedLLM(),
        tts=ToneTTS(),
        turn_detection="vad",
        conn_options=SessionConnectOptions(llm_conn_options=APIConnectOptions(max_retry=0)),
        **options,
    )
    await session.start(Agent(instructions="Answer.", tools=[look_up]), room=ctx.room)
