"""Transcripts that come after the reply, over a real socket: each is counted in its own turn.

The endpoint answers at once, and sends the transcript of a question while the next one is asked. Every turn says the
same clip. So a transcript that were counted for another turn would show in three figures: a turn with two of them (its
word error rate is 100 %), one without any, and a latency of less than the delay.
"""

import asyncio
import base64
import json
from array import array
from typing import Any, Final

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from tests.integration.calling import Callers, reasons
from tests.integration.runs.hosted_endpoint import HostedEndpoint
from tests.unit.loadtest.protocols.contract.line import tone

TURNS: Final = 4
RATE_HZ: Final = 24_000
LOUD: Final = 500
QUIET_S: Final = 0.3
LATE_S: Final = 1.2
REPLY: Final = base64.b64encode(tone(RATE_HZ, 300)).decode()


class LateEndpoint(HostedEndpoint):
    """Hears speech and its end, replies at once, and transcribes that later."""

    text = ""

    def _look(self, connection: ServerConnection, request: Request) -> Response | None:
        return None

    async def _talk(self, connection: ServerConnection) -> None:
        quiet_s, number, late = QUIET_S, 0, set[asyncio.Task[None]]()
        await self._send(connection, {"type": "session.created", "session": {"id": "s"}})
        try:
            async for message in connection:
                fields = json.loads(message)
                if fields["type"] == "session.update":
                    await self._send(connection, {"type": "session.updated", "session": {"id": "s"}})
                if fields["type"] != "input_audio_buffer.append":
                    continue
                samples = array("h", base64.b64decode(fields["audio"]))
                if max(map(abs, samples), default=0) > LOUD:
                    if quiet_s >= QUIET_S:
                        number += 1
                        await self._send(connection, _heard("speech_started", number))
                    quiet_s = 0.0
                elif quiet_s < QUIET_S:
                    quiet_s += len(samples) / RATE_HZ
                    if quiet_s >= QUIET_S:
                        await self._send(connection, *_reply(number))
                        late.add(asyncio.create_task(self._transcribe(connection, number)))
        except ConnectionClosed:
            pass
        for task in late:
            task.cancel()

    async def _transcribe(self, connection: ServerConnection, number: int) -> None:
        await asyncio.sleep(LATE_S)
        name = "conversation.item.input_audio_transcription.completed"
        await self._send(connection, {"type": name, "item_id": f"item_{number}", "transcript": self.text})

    async def _send(self, connection: ServerConnection, *messages: dict[str, Any]) -> None:
        for message in messages:
            await connection.send(json.dumps(message))


def _heard(what: str, number: int) -> dict[str, Any]:
    times = {"audio_start_ms": 0, "audio_end_ms": 0}
    return {"type": f"input_audio_buffer.{what}", "item_id": f"item_{number}", **times}


def _reply(number: int) -> list[dict[str, Any]]:
    name = f"resp_{number}"
    part = {"response_id": name, "item_id": f"said_{number}"}
    return [
        _heard("speech_stopped", number),
        _heard("committed", number),
        {"type": "response.created", "response": {"id": name}},
        {"type": "response.output_audio_transcript.delta", "delta": "Yes.", **part},
        {"type": "response.output_audio.delta", "delta": REPLY, **part},
        {"type": "response.done", "response": {"id": name, "status": "completed"}},
    ]


def test_a_late_transcript_counts_in_its_own_turn() -> None:
    with LateEndpoint() as endpoint:
        url = f"ws://127.0.0.1:{endpoint.port}/"
        callers = Callers(url, 1, turns_per_call=TURNS, clips=1, endpointing_ms=None, think_s=0.3)
        (clip,) = callers.prepared().clips
        endpoint.text = clip.rendered.utterance.text or ""
        (turns,) = callers.call()
    assert [turn.outcome for turn in turns] == ["ok"] * TURNS, reasons(turns)
    # The last turn waits for its transcript for two seconds, since others have come.
    assert [turn.wer_errors for turn in turns] == [0] * TURNS
    for turn in turns:
        assert turn.asr_final_perf_ns is not None
        assert turn.speech_end_perf_ns is not None
        # From the last speech sample on; the endpoint's measure of loudness may end a little before it.
        assert (turn.asr_final_perf_ns - turn.speech_end_perf_ns) / 1e9 >= QUIET_S + LATE_S - 0.1
