"""Whole calls against the assistant, as a real process or on a thread."""

import asyncio
import base64
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosedError, InvalidStatus

from loadtest.audio.onset import AudibleSpan
from loadtest.run import processes
from tests import asking
from tests.integration.assistant.assistant_process import (
    RATE,
    Caller,
    assistant,
    call,
    clip,
    hosted,
    injected,
    refused,
    silence,
)
from tests.programs import needed

VAD = {"type": "server_vad", "silence_duration_ms": 300}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with assistant("--cohort", "treatment=0.5") as running:
        yield running


async def one_turn(caller: Caller, utterance_id: str) -> dict[str, object]:
    pcm, _ = clip(utterance_id)
    await caller.speak(silence(0.4), pcm, silence(0.8))
    return await caller.until("response.done")


def test_server_vad_turn_in_order(url: str) -> None:
    async def work() -> None:
        async with call(url) as caller:
            await caller.update(VAD)
            pcm, text = clip("home-lights-on")
            await caller.speak(silence(0.4), pcm, silence(0.8), realtime=True)
            done = await caller.until("response.done")
            types = caller.types()
            order = [
                "input_audio_buffer.speech_started",
                "conversation.item.input_audio_transcription.delta",
                "input_audio_buffer.speech_stopped",
                "input_audio_buffer.committed",
                "response.created",
                "conversation.item.input_audio_transcription.completed",
                "response.output_audio_transcript.delta",
                "response.output_audio.delta",
                "response.output_audio.done",
                "response.done",
            ]
            assert [types.index(name) for name in order] == sorted(types.index(name) for name in order)
            final = next(e for e in caller.events if e["type"].endswith("transcription.completed"))
            assert final["transcript"] == text
            assert done["response"]["status"] == "completed"
            reported = injected(done)
            assert reported["asr_ns"] == 30_000_000
            assert reported["tts_ns"] == 20_000_000
            assert reported["endpointing_ns"] == 330_000_000
            parts = ("endpointing_ns", "asr_ns", "llm_ns", "tts_ns", "leading_silence_ns")
            assert sum(reported[part] for part in parts) == reported["planned_v2v_ns"]
            assert reported["actual_v2v_ns"] - reported["planned_v2v_ns"] == pytest.approx(
                reported["first_chunk_late_ns"], abs=2
            )
            print(f"first chunk late by {reported['first_chunk_late_ns'] / 1e6:.3f} ms")
            created = next(e for e in caller.events if e["type"] == "response.created")["response"]["metadata"]
            assert created["voice.cohort"] in ("treatment", "control")
            assert created["speech_end_audio_ns"] == done["response"]["metadata"]["speech_end_audio_ns"]
            span = AudibleSpan("rms-10ms", RATE)
            span.feed(caller.audio())
            assert span.first_sample == reported["leading_silence_ns"] * RATE // 10**9

    asyncio.run(work())


def test_second_same_question_comes_from_the_cache(url: str) -> None:
    async def work() -> list[dict[str, str]]:
        async with call(url) as caller:
            await caller.update(VAD)
            return [(await one_turn(caller, "travel-gate"))["response"]["metadata"] for _ in range(2)]  # type: ignore[index] - JSON

    first, second = asyncio.run(work())
    assert (first["voice.cache_hit"], first["voice.route"]) == ("false", "local")
    assert (second["voice.cache_hit"], second["voice.route"], second["voice.cache_tier"]) == ("true", "cache", "edge")
    assert first["voice.cohort"] == second["voice.cohort"]


def test_cohort_follows_the_call_id_and_both_occur(url: str) -> None:
    async def cohort(call_id: str) -> str:
        async with call(f"{url}?call_id={call_id}") as caller:
            await caller.update(None)
            await caller.send(type="response.create", response={})
            return (await caller.until("response.created"))["response"]["metadata"]["voice.cohort"]

    async def work() -> list[str]:
        return [await cohort(f"call-{n % 10}") for n in range(20)]

    cohorts = asyncio.run(work())
    assert cohorts[:10] == cohorts[10:]
    assert set(cohorts) == {"treatment", "control"}


def test_manual_turn_and_its_errors(url: str) -> None:
    async def work() -> None:
        async with call(url) as caller:
            await caller.update(None)
            await caller.send(type="input_audio_buffer.commit", event_id="mine")
            error = (await caller.until("error"))["error"]
            assert (error["code"], error["event_id"]) == ("input_audio_buffer_commit_empty", "mine")
            pcm, text = clip("home-stop")
            await caller.speak(silence(0.4), pcm)
            await caller.send(type="input_audio_buffer.commit")
            await caller.send(type="response.create", response={"metadata": {"mine": "kept"}})
            done = await caller.until("response.done")
            assert "input_audio_buffer.speech_started" not in caller.types()
            final = next(e for e in caller.events if e["type"].endswith("transcription.completed"))
            assert final["transcript"] == text
            assert done["response"]["metadata"]["mine"] == "kept"
            assert "endpointing_ns" not in injected(done)
            await caller.send(type="response.cancel")
            assert (await caller.until("error"))["error"]["code"] == "response_cancel_not_active"
            item = done["response"]["output"][0]["id"]
            await caller.send(type="conversation.item.truncate", item_id=item, content_index=0, audio_end_ms=10_000_000)
            assert (await caller.until("error"))["error"]["code"] == "invalid_value"
            await caller.send(type="conversation.item.truncate", item_id=item, content_index=0, audio_end_ms=50)
            await caller.until("conversation.item.truncated")

    asyncio.run(work())


def test_typed_question_gets_a_text_answer(url: str) -> None:
    async def work() -> None:
        async with call(url) as caller:
            await caller.update(None, output_modalities=["text"])
            content = [{"type": "input_text", "text": "Will it rain?"}]
            await caller.send(
                type="conversation.item.create", item={"type": "message", "role": "user", "content": content}
            )
            await caller.send(type="response.create")
            done = await caller.until("response.done")
            assert "response.output_text.delta" in caller.types()
            assert "response.output_audio.delta" not in caller.types()
            assert done["response"]["output"][0]["content"][0]["text"]

    asyncio.run(work())


def test_unknown_speech_is_answered_as_not_understood(url: str) -> None:
    async def work() -> None:
        async with call(url) as caller:
            await caller.update(VAD)
            at = np.arange(RATE) / RATE
            babble = (np.sin(2 * np.pi * 500 * at) * (1 + np.sin(2 * np.pi * 7 * at)) * 8000).astype(np.int16)
            await caller.speak(silence(0.4), babble, silence(0.8))
            done = await caller.until("response.done")
            final = next(e for e in caller.events if e["type"].endswith("transcription.completed"))
            assert final["transcript"] == ""
            assert done["response"]["metadata"]["voice.route"] == "rule"
            assert "did not understand" in done["response"]["output"][0]["content"][0]["transcript"]

    asyncio.run(work())


def test_telephone_audio_both_ways(url: str) -> None:
    from loadtest.audio.g711 import ulaw_decode, ulaw_encode
    from loadtest.audio.resample import resample

    async def work() -> None:
        async with call(url) as caller:
            formats = {"format": {"type": "audio/pcmu"}}
            heard = {**formats, "turn_detection": VAD, "transcription": {"model": "any"}}
            await caller.send(
                type="session.update", session={"type": "realtime", "audio": {"input": heard, "output": formats}}
            )
            await caller.until("session.updated")
            pcm, text = clip("home-lights-on")
            line = ulaw_encode(resample(np.concatenate((silence(0.4), pcm, silence(0.8))), RATE, 8000))
            for at in range(0, len(line), 160):
                audio = base64.b64encode(line[at : at + 160]).decode()
                await caller.send(type="input_audio_buffer.append", audio=audio)
            done = await caller.until("response.done")
            final = next(e for e in caller.events if e["type"].endswith("transcription.completed"))
            assert final["transcript"] == text
            reply = ulaw_decode(caller.audio().tobytes())
            assert len(reply) == pytest.approx(injected(done)["reply_audio_ns"] * 8000 / 1e9, abs=1)

    asyncio.run(work())


def test_caller_speaking_into_reply_cancels_it() -> None:
    async def work(url: str) -> None:
        async with call(url) as caller:
            await caller.update(VAD)
            pcm, _ = clip("home-thermostat-up")
            await caller.speak(silence(0.4), pcm, silence(0.5))
            await caller.until("response.output_audio.delta")
            await caller.speak(pcm)
            done = await caller.until("response.done")
            assert done["response"]["status"] == "cancelled"
            assert done["response"]["status_details"]["reason"] == "turn_detected"
            sent = len(caller.audio())
            await caller.speak(silence(0.8))
            again = await caller.until("response.done")
            assert again["response"]["status"] == "completed"
            mine = [e for e in caller.events if e.get("response_id") == done["response"]["id"]]
            assert sum(e["type"] == "response.output_audio.done" for e in mine) == 1
            assert sent < len(caller.audio())

    async def held(url: str) -> None:
        async with call(url) as caller:
            await caller.update({**VAD, "interrupt_response": False})
            pcm, _ = clip("home-thermostat-up")
            await caller.speak(silence(0.4), pcm, silence(0.5))
            await caller.until("response.output_audio.delta")
            await caller.speak(pcm)
            assert (await caller.until("response.done"))["response"]["status"] == "completed"

    with hosted(tts_pace=2.0) as url:
        asyncio.run(work(url))
        asyncio.run(held(url))


def test_missed_deadline_falls_back_to_a_rule() -> None:
    async def work(url: str) -> dict[str, str]:
        async with call(url) as caller:
            await caller.update(VAD)
            return (await one_turn(caller, "home-stop"))["response"]["metadata"]  # type: ignore[index] - JSON

    with hosted(llm_ttft="constant:20s", llm_deadline="100ms") as url:
        reported = asyncio.run(work(url))
    assert (reported["voice.fallback"], reported["voice.route"]) == ("rule", "rule")


def test_cache_in_a_real_redis(tmp_path: Path) -> None:
    async def ask(url: str) -> dict[str, str]:
        async with call(url) as caller:
            await caller.update(VAD)
            return (await one_turn(caller, "home-stop"))["response"]["metadata"]  # type: ignore[index] - JSON

    needed("redis-server")
    with processes.redis_server(tmp_path, "--save", "") as address:
        assert address is not None
        with hosted(cache_url=address) as url:
            assert asyncio.run(ask(url))["voice.cache_hit"] == "false"
        with hosted(cache_url=address) as url:
            hit = asyncio.run(ask(url))
            assert (hit["voice.cache_hit"], hit["voice.cache_tier"]) == ("true", "central")
            redis.Redis.from_url(address).shutdown(nosave=True)
            down = asyncio.run(ask(url))
            assert (down["voice.cache_hit"], down["voice.route"]) == ("false", "local")


def test_token_health_paths_and_limits() -> None:
    async def status(url: str, **headers: str) -> int:
        try:
            async with connect(url, additional_headers=headers):
                return 101
        except InvalidStatus as refused:
            return refused.response.status_code

    async def work(url: str) -> None:
        assert await status(url) == 401
        assert await status(url, Authorization="Bearer wrong") == 401
        assert await status(url, Authorization="Basic s3cret") == 401
        assert await status(url, Authorization="Bearer s3cret") == 101
        assert await status(url.replace("/v1/realtime", "/elsewhere"), Authorization="Bearer s3cret") == 404
        headers = {"Authorization": "Bearer s3cret"}
        async with call(url, additional_headers=headers), connect(url, additional_headers=headers) as second:
            caller = Caller(second)
            assert (await caller.until("error"))["error"]["code"] == "session_limit_reached"
            with pytest.raises(ConnectionClosedError) as closed:
                await second.recv()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1008

    with hosted(max_sessions=1, token="s3cret") as url:
        health = url.replace("ws://", "http://").replace("/v1/realtime", "/healthz")
        assert asking.get(health).status_code == 200
        asyncio.run(work(url))


def test_bad_configuration_and_taken_port_exit_2(tmp_path: Path) -> None:
    bad = refused("--host", "0.0.0.0", "--asr", "magic", cwd=tmp_path)
    assert (bad.returncode, bad.stdout) == (2, "")
    assert len(bad.stderr.splitlines()) == 2
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        not_free = refused("--port", str(port), cwd=tmp_path)
        nowhere = refused("--host", "name.invalid", "--token", "t", cwd=tmp_path)
    where = f"The assistant cannot listen on 127.0.0.1:{port}"
    assert (not_free.returncode, not_free.stderr) == (2, f"{where} (Address already in use); choose another --port.\n")
    assert nowhere.returncode == 2
    assert re.fullmatch(r"The assistant cannot listen on name.invalid:\d+ \([A-Z][^\n]+\); .*\n", nowhere.stderr)
    assert "Traceback" not in not_free.stderr + bad.stderr


def test_sigterm_in_the_middle_of_a_call_is_a_clean_end() -> None:
    command = [sys.executable, "-m", "loadtest.targets.assistant"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    url = process.stdout.readline().split('"url": "')[1].split('"')[0]

    async def work() -> int:
        async with call(url) as caller:
            await caller.update(VAD)
            pcm, _ = clip("home-stop")
            await caller.speak(silence(0.4), pcm, silence(1.0))
            await caller.until("response.created")
            os.kill(process.pid, signal.SIGTERM)
            with pytest.raises(Exception, match="1001"):
                await caller.until("never", seconds=10)
            return process.wait(180)

    try:
        assert asyncio.run(work()) == 0
        _, complaints = process.communicate()
        assert complaints == ""
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_answer_begun_on_partial_transcript_reports_its_work() -> None:
    async def work(url: str) -> dict[str, Any]:
        async with call(url) as caller:
            await caller.update()
            pcm, _ = clip("home-dim-bedroom")
            await caller.speak(pcm, silence(0.8), realtime=True)
            return await caller.until("response.done")

    with hosted(llm_speculate=True) as url:
        done = asyncio.run(work(url))
    took = json.loads(done["response"]["metadata"]["voice.work"])
    assert took["speculative_starts"] >= took["wrong_starts"] >= 0
    assert took["speculative_starts"] >= 1
    assert done["response"]["status"] == "completed"
