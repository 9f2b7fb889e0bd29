"""Each fault does what it says, on the calls it is meant for, and leaves the other calls alone."""

import asyncio
import json
from typing import Any

import numpy as np
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosedError, InvalidStatus, PayloadTooBig

from loadtest.targets.assistant import server
from loadtest.targets.assistant.config import build_config
from tests.integration.assistant.assistant_process import Caller, call, clip, hosted, injected, silence

VAD = {"type": "server_vad", "silence_duration_ms": 300}


async def ask(caller: Caller) -> None:
    await caller.update(VAD)
    pcm, _ = clip("home-stop")
    await caller.speak(silence(0.4), pcm, silence(0.8))


def test_never_answer() -> None:
    async def work(url: str) -> None:
        async with call(url) as caller:
            await ask(caller)
            with pytest.raises(TimeoutError):
                await caller.until("input_audio_buffer.speech_started", seconds=1.0)

    with hosted(fault="never-answer") as url:
        asyncio.run(work(url))


def test_garbage() -> None:
    async def work(url: str) -> list[str | bytes]:
        async with call(url) as caller:
            await ask(caller)
            received: list[str | bytes] = []
            async with asyncio.timeout(180):
                async for message in caller.connection:
                    received.append(message)
                    if isinstance(message, str) and '"response.done"' in message and "metadata" in message:
                        return received
        return received

    with hosted(fault="garbage") as url:
        received = asyncio.run(work(url))
    assert any(isinstance(message, bytes) for message in received)
    unreadable = 0
    for message in received:
        try:
            json.loads(message)
        except ValueError:
            unreadable += 1
    assert unreadable >= 2
    done = json.loads(received[-1])
    assert done["response"]["metadata"]["voice.fault"] == "garbage"


def test_drop_mid_turn() -> None:
    async def work(url: str) -> None:
        async with call(url) as caller:
            await ask(caller)
            with pytest.raises(ConnectionClosedError):
                await caller.until("response.done")
            assert caller.types().count("response.output_audio.delta") == 2

    with hosted(fault="drop-mid-turn") as url:
        asyncio.run(work(url))


def test_oversized_message() -> None:
    async def work(url: str) -> None:
        async with call(url) as caller:
            await ask(caller)
            with pytest.raises(ConnectionClosedError) as closed:
                await caller.until("response.done")
            assert isinstance(closed.value.__cause__, PayloadTooBig) or "1009" in str(closed.value)
        async with call(url, max_size=None) as caller:
            await ask(caller)
            assert (await caller.until("response.done"))["response"]["status"] == "completed"
            assert caller.types().count("voiceprobe.oversized") == 1

    with hosted(fault="oversized-message") as url:
        asyncio.run(work(url))


def test_unknown_messages() -> None:
    async def work(url: str) -> None:
        async with call(url) as caller:
            await ask(caller)
            assert (await caller.until("response.done"))["response"]["status"] == "completed"
            assert sum(kind.startswith("voiceprobe.unknown.") for kind in caller.types()) > 10

    with hosted(fault="unknown-messages") as url:
        asyncio.run(work(url))


def test_answer_before_question() -> None:
    async def work(url: str) -> None:
        async with call(url) as caller:
            await caller.update(VAD)
            early = await caller.until("response.done")
            assert len(caller.audio()) > 1000
            assert "input_audio_buffer.speech_started" not in caller.types()
            pcm, _ = clip("home-stop")
            await caller.speak(silence(0.4), pcm, silence(0.8))
            late = await caller.until("response.done")
            assert late["response"]["id"] != early["response"]["id"]

    with hosted(fault="answer-before-question") as url:
        asyncio.run(work(url))


def test_wrong_rate() -> None:
    async def work(url: str) -> None:
        async with call(url) as caller:
            await ask(caller)
            done = await caller.until("response.done")
            declared = injected(done)["reply_audio_ns"] * 24_000 / 1e9
            assert len(caller.audio()) == pytest.approx(declared * 8 / 24, rel=0.01)
            heard = caller.audio()[1000:]
            spectrum = np.abs(np.fft.rfft(heard.astype(np.float64)))
            # The hum has 140 Hz; played at the declared 24 kHz it sounds three times as high.
            assert np.argmax(spectrum) * 24_000 / len(heard) == pytest.approx(420, abs=20)

    with hosted(fault="wrong-rate") as url:
        asyncio.run(work(url))


def test_half_open() -> None:
    async def work(url: str) -> None:
        with pytest.raises(TimeoutError):
            await connect(url, open_timeout=0.5)

    with hosted(fault="half-open") as url:
        asyncio.run(work(url))


def test_refuse() -> None:
    async def work(url: str) -> int:
        with pytest.raises(InvalidStatus) as refused:
            await connect(url)
        return refused.value.response.status_code

    with hosted(fault="refuse") as url:
        assert asyncio.run(work(url)) == 503


def test_slow_accept(monkeypatch: pytest.MonkeyPatch) -> None:
    assert server.SLOW_ACCEPT_S == 3.0
    monkeypatch.setattr(server, "SLOW_ACCEPT_S", 0.3)

    async def work(url: str) -> float:
        begun = asyncio.get_running_loop().time()
        async with call(url):
            return asyncio.get_running_loop().time() - begun

    with hosted(fault="slow-accept") as url:
        assert asyncio.run(work(url)) >= 0.3


def test_only_chosen_calls_get_fault_and_others_are_unaffected() -> None:
    config = build_config({"fault": "drop-mid-turn", "fault_share": 0.5, "fault_seed": 2})
    expected = [config.fault_of(number) for number in range(4)]
    assert set(expected) == {None, "drop-mid-turn"}

    async def one(url: str) -> str | None:
        async with call(url) as caller:
            await ask(caller)
            try:
                await caller.until("response.done")
            except ConnectionClosedError:
                return "drop-mid-turn"
            return None

    async def work(url: str) -> list[Any]:
        return [await one(url) for _ in range(4)]

    with hosted(fault="drop-mid-turn", fault_share=0.5, fault_seed=2) as url:
        assert asyncio.run(work(url)) == expected
