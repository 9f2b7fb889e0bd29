"""The real engines: espeak-ng speaks, pocketsphinx recognizes, an OpenAI-compatible endpoint answers; and spans."""

import asyncio
import json
import os
import signal
import threading
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import psutil
import pytest

from corpora.manifest.library import BUNDLED, open_corpus
from loadtest.audio.onset import AudibleSpan
from loadtest.errors import UsageError
from loadtest.run.processes import ROOT
from loadtest.targets.assistant import workers
from loadtest.targets.assistant.clock import Clock
from loadtest.targets.assistant.config import build_config
from loadtest.targets.assistant.interfaces import TtsFailed
from loadtest.targets.assistant.real import environment
from loadtest.targets.assistant.turn import ServedVariant
from tests.fixtures_forwarding import UpstreamServer
from tests.integration.assistant.assistant_process import RATE, assistant, call, clip, engines_of, silence

VAD = {"type": "server_vad", "silence_duration_ms": 300}


def engines(**settings: object) -> ServedVariant:
    return engines_of(build_config(settings), Clock()).default


@pytest.fixture(scope="module")
def models() -> Iterator[None]:
    """The environment of real models, installed once for every run of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VOICEPROBE_CACHE", os.environ.get("VOICEPROBE_PEERS", str(ROOT / ".venv" / "peers")))
        environment.install(print)
        yield


@contextmanager
def http_server(handler: type[BaseHTTPRequestHandler]) -> Generator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_espeak_is_audible_at_requested_rate_for_many_at_once() -> None:
    async def work() -> list[np.ndarray]:
        voice = engines(tts="espeak").tts
        await voice.start()

        async def speak(sentence: str, rate_hz: int) -> np.ndarray:
            return np.concatenate([piece async for piece in voice.speak(sentence, rate_hz)])

        spoken = await asyncio.gather(*(speak("The lights are on.", rate) for rate in (24_000, 8_000, 24_000)))
        await voice.stop()
        return spoken

    wide, narrow, again = asyncio.run(work())
    assert len(wide) / RATE == pytest.approx(len(narrow) / 8000, rel=0.01)
    assert 0.6 < len(wide) / RATE < 3
    assert len(again) == pytest.approx(len(wide), rel=0.01)
    span = AudibleSpan("rms-10ms", RATE)
    span.feed(wide)
    assert span.first_sample is not None
    assert span.first_sample < RATE // 2


def test_espeak_that_dies_is_started_again() -> None:
    async def work() -> int:
        voice = engines(tts="espeak").tts
        await voice.start()
        running = [p for p in psutil.Process().children() if p.status() != psutil.STATUS_ZOMBIE]
        (worker,) = [p for p in running if "espeak_worker" in " ".join(p.cmdline())]
        os.kill(worker.pid, signal.SIGKILL)
        samples = 0
        for _ in range(2):
            try:
                samples = sum([len(piece) async for piece in voice.speak("Hello there.", RATE)])
            except TtsFailed:
                continue
        await voice.stop()
        return samples

    assert asyncio.run(work()) > RATE // 4


def test_unknown_voice_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="no voice 'martian'"):
        asyncio.run(engines(tts="espeak", tts_voice="martian").tts.start())


def test_pocketsphinx_recognizes_words_of_a_clip_with_partials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_FINAL_TIMEOUT_S", 180.0)  # what a busy machine needs decides nothing
    corpus = open_corpus(BUNDLED)
    utterance = next(u for u in corpus.utterances if u.id == "home-lights-on")
    pcm = (np.clip(corpus.read(utterance), -1, 1) * 32767).astype(np.int16)

    async def work() -> tuple[str, str, str]:
        engine = engines(asr="pocketsphinx").asr
        await engine.start()
        abandoned = engine.open(utterance.sample_rate_hz)
        abandoned.feed(pcm[:8000])
        abandoned.abandon()
        stream = engine.open(utterance.sample_rate_hz)
        partial = ""
        for at in range(0, len(pcm), 320):
            stream.feed(pcm[at : at + 320])
            if at % 8000 == 0:
                partial = await stream.partial(0) or partial
        final = await stream.finish(0)
        wide = engine.open(RATE)
        wide.feed(clip("home-lights-on")[0])
        resampled = await wide.finish(0)
        await engine.stop()
        return partial, final, resampled

    partial, final, resampled = asyncio.run(work())
    print(f"{utterance.text!r} was heard as {final!r}, at 24 kHz as {resampled!r}, meanwhile {partial!r}")
    assert partial
    for heard in (final, resampled):
        assert {"kitchen", "lights"} & set(heard.split())


def test_invalid_pocketsphinx_model_is_usage_error(tmp_path: Any) -> None:
    (tmp_path / "model.lm").write_text("nothing")
    engine = engines(asr="pocketsphinx", asr_lm=str(tmp_path / "model.lm")).asr
    with pytest.raises(UsageError, match="--asr-lm"):
        asyncio.run(engine.start())


class _Model(BaseHTTPRequestHandler):
    asked: list[dict[str, Any]]

    def do_POST(self) -> None:
        type(self).asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for word in ("Certainly.", " It", " is", " done."):
            event = {"choices": [{"delta": {"content": word}}]}
            self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, format: str, *args: Any) -> None: ...  # noqa: A002 - the base class's name


@pytest.mark.nightly
def test_a_call_with_all_real_engines() -> None:
    _Model.asked = []

    async def work(url: str) -> dict[str, Any]:
        async with call(url) as caller:
            await caller.update(VAD, instructions="Be brief.")
            pcm, _ = clip("home-lights-on")
            await caller.speak(silence(0.4), pcm, silence(0.8), realtime=True)
            done = await caller.until("response.done")
            assert len(caller.audio()) > RATE // 2
            return done["response"]

    with (
        http_server(_Model) as model,
        assistant(
            *("--asr", "pocketsphinx", "--tts", "espeak", "--llm-url", model, "--llm-model", "m1"),
            *("--llm-deadline", "2m"),  # a busy machine is no reason to answer by a rule
            quick=False,
        ) as url,
    ):
        response = asyncio.run(work(url))
    assert response["output"][0]["content"][0]["transcript"] == "Certainly. It is done."
    assert response["metadata"]["voice.route"] == "cloud"
    assert response["metadata"]["voice.model"] == "m1"
    reported = json.loads(response["metadata"]["voice.injected"])
    assert set(reported) & {"asr_ns", "llm_ns", "tts_ns", "planned_v2v_ns"} == set()
    (asked,) = _Model.asked
    assert asked["messages"][0] == {"role": "system", "content": "Be brief."}
    assert asked["messages"][-1]["role"] == "user"


@pytest.mark.nightly
def test_whisper_llama_and_piper_hold_a_conversation(models: None) -> None:
    async def work(url: str) -> tuple[dict[str, Any], str, np.ndarray]:
        async with call(url) as caller:
            await caller.update(VAD, input_audio_transcription={"model": "any"})
            pcm, _ = clip("home-lights-on")
            await caller.speak(silence(0.4), pcm, silence(0.8), realtime=True)
            heard = await caller.until("conversation.item.input_audio_transcription.completed")
            done = await caller.until("response.done")
            return done["response"], heard["transcript"], caller.audio()

    with assistant("--engines", "real", "--llm-deadline", "2m", quick=False) as url:
        response, heard, audio = asyncio.run(work(url))
    assert {"turn", "kitchen", "lights"} <= set(heard.lower().strip(" .").split())
    answer = response["output"][0]["content"][0]["transcript"]
    assert len(answer.split()) > 1
    assert response["metadata"]["voice.route"] == "local"
    assert response["metadata"]["voice.model"] == "SmolLM2-135M-Instruct"
    span = AudibleSpan("rms-10ms", RATE)
    span.feed(audio)
    assert span.last_sample is not None
    assert span.last_sample - (span.first_sample or 0) > RATE * len(answer.split()) * 0.1, "the answer is spoken whole"
    # Another ear than the assistant's own understands what it says.
    recognized = asyncio.run(_recognized(audio))
    assert len(set(recognized.split()) & set(answer.lower().replace(",", "").strip(" .").split())) >= 1


async def _recognized(pcm: np.ndarray) -> str:
    ear = engines(asr="pocketsphinx").asr
    await ear.start()
    stream = ear.open(RATE)
    stream.feed(pcm)
    text = await stream.finish(0)
    await ear.stop()
    return text


def test_service_side_turn_is_a_child_of_the_callers_trace() -> None:
    trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"

    async def work(url: str) -> dict[str, Any]:
        headers = {"traceparent": f"00-{trace}-{parent}-01"}
        async with call(url, additional_headers=headers) as caller:
            await caller.update(VAD)
            pcm, _ = clip("home-stop")
            await caller.speak(silence(0.4), pcm, silence(0.8), realtime=True)
            return await caller.until("response.done")

    with (
        closing(UpstreamServer()) as collector,
        assistant("--otlp", collector.url, "--cohort", "treatment=1", "--run-id", "run-7") as url,
    ):
        done = asyncio.run(work(url))["response"]
    sent = collector.spans()
    spans = {span.name: span for span in sent}
    assert {"voice.call", "voice.turn", "voice.asr", "voice.llm", "voice.tts"} <= set(spans)
    assert {span.trace_id.hex() for span in sent} == {trace}
    assert spans["voice.call"].parent_span_id.hex() == parent
    assert spans["voice.turn"].parent_span_id == spans["voice.call"].span_id
    values = {a.key.removeprefix("voice.turn."): a.value for a in spans["voice.turn"].attributes}
    reported = json.loads(done["metadata"]["voice.injected"])
    assert values["source"].string_value == "service"
    assert values["outcome"].string_value == "ok"
    assert values["run_id"].string_value == "run-7"
    assert values["cohort"].string_value == "treatment"
    assert values["response_id"].string_value == done["id"]
    assert values["injected_tts_ns"].int_value == reported["tts_ns"]
    assert values["speech_end_audio_ns"].int_value == int(done["metadata"]["speech_end_audio_ns"])
    heard = values["first_audio_perf_ns"].int_value - values["speech_end_perf_ns"].int_value
    assert heard == reported["actual_v2v_ns"]


@pytest.mark.nightly
def test_missing_collector_disturbs_no_call() -> None:
    async def work(url: str) -> str:
        async with call(url) as caller:
            await caller.update(VAD)
            pcm, _ = clip("home-stop")
            await caller.speak(silence(0.4), pcm, silence(0.8))
            return (await caller.until("response.done"))["response"]["status"]

    with assistant("--otlp", "http://127.0.0.1:9") as url:
        assert asyncio.run(work(url)) == "completed"
