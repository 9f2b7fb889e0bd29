"""A real OpenAI Realtime server that this project did not write: speech-to-speech 1.1.0, with scripted engines.

Run as a process: `python s2s_server.py [--units 2]`. It prints one line, `listening 127.0.0.1:PORT`, when it takes
connections (ws://127.0.0.1:PORT/v1/realtime), and serves until it is terminated. Its protocol layer is the real one;
what is behind it is scripted here: an energy detector, a fixed transcript, a fixed reply and a tone as speech.
"""

import argparse
import socket
import threading
from collections.abc import Iterator
from queue import Empty, Queue
from typing import Any

import numpy as np
import uvicorn
from speech_to_speech.api.openai_realtime.pipeline_unit import PipelineUnit
from speech_to_speech.api.openai_realtime.service import RealtimeService
from speech_to_speech.api.openai_realtime.websocket_router import create_app
from speech_to_speech.pipeline.cancel_scope import CancelScope
from speech_to_speech.pipeline.control import PipelineControlMessage
from speech_to_speech.pipeline.events import (
    AssistantOutputEvent,
    AssistantResponseDoneEvent,
    PartialTranscriptionEvent,
    SpeechStartedEvent,
    SpeechStoppedEvent,
    TokenUsageEvent,
    TranscriptionCompletedEvent,
)
from speech_to_speech.pipeline.messages import AUDIO_RESPONSE_DONE, AudioOutput, GenerateResponseRequest

RATE_HZ = 16_000
SPEECH_LEVEL = 500.0  # RMS of a 32 ms chunk
SILENCE_CHUNKS = 10  # 320 ms of silence close the turn
TRANSCRIPT = "what is the weather like in paris"
PARTIALS = ("what is", "what is the weather")
REPLY = ("It is mild in Paris. ", "Take a light coat.")
TONE_S = 0.5
LEADING_SILENCE_S = 0.1


class Detector(threading.Thread):
    """Energy detection over the caller's audio, and the fixed transcript."""

    def __init__(self, unit: PipelineUnit, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self.unit, self.stop = unit, stop
        self.turn = 0
        self.heard_chunks = 0
        self.quiet_chunks = 0
        self.speaking = False

    def run(self) -> None:
        for item in drained(self.unit.input_queue, self.stop):
            if isinstance(item, PipelineControlMessage):
                self.heard_chunks, self.speaking = 0, False
                self.unit.output_queue.put(item)
            else:
                self.chunk(np.frombuffer(item[0], np.int16).astype(np.float64))

    def chunk(self, samples: np.ndarray) -> None:
        self.heard_chunks += 1
        loud = float(np.sqrt(np.mean(samples**2))) > SPEECH_LEVEL
        now_ms = self.heard_chunks * 32
        say = self.unit.text_output_queue.put
        if loud and not self.speaking:
            self.turn += 1
            self.speaking = True
            say(SpeechStartedEvent(audio_start_ms=now_ms - 32, turn_id=f"turn_{self.turn}", turn_revision=0))
            for words in PARTIALS:
                say(PartialTranscriptionEvent(delta=words, turn_id=f"turn_{self.turn}", turn_revision=0))
        self.quiet_chunks = 0 if loud else self.quiet_chunks + 1
        if self.speaking and self.quiet_chunks >= SILENCE_CHUNKS:
            self.speaking = False
            ids = {"turn_id": f"turn_{self.turn}", "turn_revision": 0}
            say(SpeechStoppedEvent(duration_s=1.0, audio_end_ms=now_ms, **ids))
            say(TranscriptionCompletedEvent(transcript=TRANSCRIPT, **ids))


class Responder(threading.Thread):
    """The fixed reply: text and a tone after leading silence, sentence by sentence."""

    def __init__(self, unit: PipelineUnit, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self.unit, self.stop = unit, stop

    def run(self) -> None:
        for item in drained(self.unit.text_prompt_queue, self.stop):
            if isinstance(item, GenerateResponseRequest):
                self.answer(item)

    def answer(self, request: GenerateResponseRequest) -> None:
        ids: dict[str, Any] = {
            "turn_id": request.turn_id,
            "turn_revision": request.turn_revision,
            "cancel_generation": self.unit.cancel_scope.generation,
            "response_key": request.response_key,
        }
        audio_ids = {key: ids[key] for key in ("cancel_generation", "response_key")}
        put = self.unit.output_queue.put
        tone = 9000 * np.sin(2 * np.pi * 440 * np.arange(int(TONE_S * RATE_HZ)) / RATE_HZ)
        silence = np.zeros(int(LEADING_SILENCE_S * RATE_HZ))
        for index, sentence in enumerate(REPLY):
            put(AssistantOutputEvent(text=sentence, **ids))
            speech = np.concatenate((silence, tone)) if index == 0 else tone
            for piece in np.array_split(speech.astype(np.int16), 5):
                put(AudioOutput(audio=piece.tobytes(), **audio_ids))
        put(TokenUsageEvent(input_tokens=21, output_tokens=9, **ids))
        put(AssistantResponseDoneEvent(**ids))
        put(AudioOutput(audio=AUDIO_RESPONSE_DONE, **audio_ids))


def drained(queue: "Queue[Any]", stop: threading.Event) -> Iterator[Any]:
    while not stop.is_set():
        try:
            yield queue.get(timeout=0.1)
        except Empty:
            continue


def make_unit(index: int, stop: threading.Event) -> PipelineUnit:
    should_listen = threading.Event()
    prompts: Queue[Any] = Queue()
    service = RealtimeService(text_prompt_queue=prompts, should_listen=should_listen, speculative_turns=None)
    unit = PipelineUnit(
        index=index,
        service=service,
        cancel_scope=CancelScope(),
        should_listen=should_listen,
        response_playing=threading.Event(),
        input_queue=Queue(),
        output_queue=Queue(),
        text_output_queue=Queue(),
        text_prompt_queue=prompts,
        handlers=[],
    )
    Detector(unit, stop).start()
    Responder(unit, stop).start()
    return unit


class AnnouncingServer(uvicorn.Server):
    """Says where it listens once it does."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        print(f"listening {host}:{port}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--units", type=int, default=2, help="concurrent sessions")
    units = parser.parse_args().units
    stop = threading.Event()
    app = create_app(pool=[make_unit(index, stop) for index in range(units)], stop_event=stop)
    try:
        AnnouncingServer(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning")).run()
    finally:
        stop.set()


if __name__ == "__main__":
    main()
