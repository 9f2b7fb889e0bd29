"""The official client, written independently, against our assistant."""

import asyncio
import base64
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from openai import AsyncOpenAI

from tests.integration.assistant.assistant_process import FRAME, RATE, clip, hosted, silence


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    with hosted() as url:
        yield url.replace("ws://", "http://").removesuffix("/realtime")


async def _say(connection: Any, pcm: np.ndarray) -> None:
    for at in range(0, len(pcm), FRAME):
        await connection.input_audio_buffer.append(audio=base64.b64encode(pcm[at : at + FRAME].tobytes()).decode())


async def _turn(base_url: str, *, manual: bool) -> tuple[list[Any], str]:
    pcm, text = clip("travel-gate")
    detection: Any = None if manual else {"type": "server_vad", "silence_duration_ms": 300}
    heard = {
        "format": {"type": "audio/pcm", "rate": RATE},
        "transcription": {"model": "gpt-4o-transcribe"},
        "turn_detection": detection,
    }
    events: list[Any] = []
    async with (
        AsyncOpenAI(base_url=base_url, api_key="unused", websocket_base_url=base_url.replace("http", "ws")) as client,
        client.realtime.connect(model="gpt-realtime") as connection,
        asyncio.timeout(30),
    ):
        await connection.session.update(
            session={"type": "realtime", "output_modalities": ["audio"], "audio": {"input": heard}}  # type: ignore[arg-type] - plain JSON
        )
        await _say(connection, np.concatenate((silence(0.4), pcm, silence(0.8))))
        if manual:
            await connection.input_audio_buffer.commit()
            await connection.response.create()
        async for event in connection:
            events.append(event)
            if event.type == "response.done":
                break
    return events, text


@pytest.mark.parametrize("manual", [False, True], ids=["server-vad", "manual"])
def test_official_client_completes_a_turn(base_url: str, manual: bool) -> None:
    events, text = asyncio.run(_turn(base_url, manual=manual))
    by_type = {event.type: event for event in events}
    assert by_type["conversation.item.input_audio_transcription.completed"].transcript == text
    response = by_type["response.done"].response
    assert response.status == "completed"
    assert response.metadata["voice.route"] == "local" if not manual else response.metadata["voice.route"] == "cache"
    audio = b"".join(base64.b64decode(e.delta) for e in events if e.type == "response.output_audio.delta")
    assert np.abs(np.frombuffer(audio, np.int16)).max() > 1000
    spoken = "".join(e.delta for e in events if e.type == "response.output_audio_transcript.delta")
    assert response.output[0].content[0].transcript == spoken
    assert ("input_audio_buffer.speech_started" in by_type) is not manual
