"""Transcripts that come after the reply, through the whole command: each is counted in its own turn.

The endpoints here answer at once, and send the transcript of a question so long after they heard its end. Every turn
says the same clip. So a transcript that were counted for another turn would show in three figures: a turn with two of
them (its word error rate is 100 %), one without any, and a latency of less than the delay.
"""

import asyncio
import base64
import json
from array import array
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

import pytest
from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from loadtest.exit_codes import ExitCode
from loadtest.scenario.settings import SwarmSettings
from loadtest.speech.preparation import choose
from telemetry.model.turns import Turn
from telemetry.store.reader import StoreReader
from tests.integration.calling import CORPUS
from tests.integration.commands import completed
from tests.integration.runs.hosted_endpoint import HostedEndpoint
from tests.unit.loadtest.protocols.contract.line import tone

TURNS: Final = 4
LOUD: Final = 500
QUIET_S: Final = 0.3
REPLY_MS: Final = 300


class LateEndpoint(HostedEndpoint):
    """Hears speech and its end, replies at once, and transcribes `late_s` after that."""

    input_rate_hz = 24_000

    def __init__(self, text: str, late_s: float) -> None:
        super().__init__()
        self.text, self.late_s = text, late_s

    def _look(self, connection: ServerConnection, request: Request) -> Response | None:
        return None

    async def _talk(self, connection: ServerConnection) -> None:
        loud, quiet_s, number, late = False, 0.0, 0, set[asyncio.Task[None]]()
        try:
            async for samples in self._audio(connection):
                if max(map(abs, samples), default=0) > LOUD:
                    if not loud:
                        number += 1
                        await self._send(connection, self.started(number))
                    loud, quiet_s = True, 0.0
                elif loud:
                    quiet_s += len(samples) / self.input_rate_hz
                    if quiet_s >= QUIET_S:
                        loud = False
                        await self._reply(connection, number, late)
                        late.add(asyncio.create_task(self._transcribe(connection, number)))
        except ConnectionClosed:
            pass
        for task in late:
            task.cancel()

    async def _reply(self, connection: ServerConnection, number: int, tasks: set[asyncio.Task[None]]) -> None:
        """Send the reply to a question; what takes its time is one of the `tasks`."""
        del tasks
        await self._send(connection, self.reply(number))

    async def _transcribe(self, connection: ServerConnection, number: int) -> None:
        await asyncio.sleep(self.late_s)
        await self._send(connection, self.transcript(number))

    async def _send(self, connection: ServerConnection, messages: list[dict[str, Any]]) -> None:
        for message in messages:
            await connection.send(json.dumps(message))

    async def _audio(self, connection: ServerConnection) -> AsyncIterator["array[int]"]:
        """The caller's samples, message by message; whatever else it sends is answered."""
        raise NotImplementedError
        yield  # pyright: ignore[reportUnreachable] - makes it an asynchronous generator

    def started(self, number: int) -> list[dict[str, Any]]:
        """Return the events sent when the endpoint hears a question begin."""
        return []

    def reply(self, number: int) -> list[dict[str, Any]]:
        """Return the events sent when a question is over."""
        raise NotImplementedError

    def transcript(self, number: int) -> list[dict[str, Any]]:
        """Return the events that are sent late."""
        raise NotImplementedError


def pcm(rate_hz: int) -> str:
    return base64.b64encode(tone(rate_hz, REPLY_MS)).decode()


class LateOpenAI(LateEndpoint):
    """OpenAI Realtime: every event names its item or response; with `one_id`, all responses are one by their names."""

    one_id = False

    async def _audio(self, connection: ServerConnection) -> AsyncIterator["array[int]"]:
        await self._send(connection, [{"type": "session.created", "session": {"id": "s"}}])
        async for message in connection:
            fields = json.loads(message)
            if fields["type"] == "session.update":
                await self._send(connection, [{"type": "session.updated", "session": {"id": "s"}}])
            elif fields["type"] == "input_audio_buffer.append":
                yield array("h", base64.b64decode(fields["audio"]))

    def started(self, number: int) -> list[dict[str, Any]]:
        return [{"type": "input_audio_buffer.speech_started", "item_id": f"item_{number}", "audio_start_ms": 0}]

    def reply(self, number: int) -> list[dict[str, Any]]:
        name = "resp_1" if self.one_id else f"resp_{number}"
        part = {"response_id": name, "item_id": f"said_{number}"}
        return [
            {"type": "input_audio_buffer.speech_stopped", "item_id": f"item_{number}", "audio_end_ms": 0},
            {"type": "input_audio_buffer.committed", "item_id": f"item_{number}"},
            {"type": "response.created", "response": {"id": name}},
            {"type": "response.output_audio_transcript.delta", "delta": "Yes.", **part},
            {"type": "response.output_audio.delta", "delta": pcm(24_000), **part},
            {"type": "response.done", "response": {"id": name, "status": "completed"}},
        ]

    def transcript(self, number: int) -> list[dict[str, Any]]:
        name = "conversation.item.input_audio_transcription.completed"
        return [{"type": name, "item_id": f"item_{number}", "transcript": self.text}]


class OneIdOpenAI(LateOpenAI):
    """Gives each response the same id."""

    one_id = True


class DeafOpenAI(LateOpenAI):
    """Says when it hears speech, and speaks on as if it had not: one piece of its reply after the other."""

    async def _reply(self, connection: ServerConnection, number: int, tasks: set[asyncio.Task[None]]) -> None:
        tasks.add(asyncio.create_task(self._speak(connection, number)))

    async def _speak(self, connection: ServerConnection, number: int) -> None:
        *began, piece, done = self.reply(number)
        await self._send(connection, began)
        for _ in range(12):
            await self._send(connection, [piece])
            await asyncio.sleep(REPLY_MS / 1000)
        await self._send(connection, [done])


class LateGemini(LateEndpoint):
    """Gemini Live: nothing has a name, and a transcript may come at any time."""

    input_rate_hz = 16_000
    marks = True

    async def _audio(self, connection: ServerConnection) -> AsyncIterator["array[int]"]:
        async for message in connection:
            fields = json.loads(message)
            if "setup" in fields:
                await self._send(connection, [{"setupComplete": {}}])
            elif "audio" in fields.get("realtimeInput", {}):
                yield array("h", base64.b64decode(fields["realtimeInput"]["audio"]["data"]))

    def reply(self, number: int) -> list[dict[str, Any]]:
        part = {"inlineData": {"mimeType": "audio/pcm;rate=24000", "data": pcm(24_000)}}
        ends = [{"serverContent": {name: True}} for name in ("generationComplete", "turnComplete")]
        return [{"serverContent": {"modelTurn": {"parts": [part]}}}, *ends]

    def transcript(self, number: int) -> list[dict[str, Any]]:
        marked = {"finished": True} if self.marks else {}
        return [{"serverContent": {"inputTranscription": {"text": self.text, **marked}}}]


class UnmarkedGemini(LateGemini):
    """Sends transcripts in pieces that nothing marks as the last one."""

    marks = False


def turns_of(
    tmp_path: Path, kind: Callable[[str, float], LateEndpoint], late_s: float, protocol: str, *more: str
) -> tuple[list[Turn], dict[str, Any]]:
    """The turns of one call by `voiceprobe run`, and what it says of them in JSON."""
    _, (clip,) = choose(SwarmSettings(host="ws://127.0.0.1", corpus=CORPUS, length="short", clips=1, seed=1))
    spoken = ["--corpus", CORPUS, "--length", "short", "--clips", "1", "--seed", "1"]
    load = ["--users", "1", "--calls", "1", "--turns", str(TURNS), "--think", "0.3", "--protocol", protocol]
    file = tmp_path / "summary.json"
    with kind(clip.text, late_s) as endpoint:
        address = f"ws://127.0.0.1:{endpoint.port}/"
        done = completed("run", address, *load, *spoken, *more, "--out", str(tmp_path / "out"), "--json", str(file))
    assert done.stderr == "", done.stderr
    with StoreReader(tmp_path / "out" / "store") as reader:
        turns = reader.turns(source="client")
    # A busy machine may make a turn invalid: its figures are checked all the same, but do not count in the result.
    assert [turn.outcome_observed for turn in turns] == ["ok"] * TURNS, turns
    return turns, json.loads(file.read_text())


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("kind", "protocol", "late_s"),
    [
        (LateOpenAI, "openai-realtime", 1.2),
        (LateOpenAI, "openai-realtime", 0.55),
        (LateGemini, "gemini-live", 1.2),
        (UnmarkedGemini, "gemini-live", 1.2),
    ],
    ids=["in the next question", "between two turns", "without a name", "without a name or a mark"],
)
def test_a_late_transcript_counts_in_its_own_turn(
    tmp_path: Path, kind: Callable[[str, float], LateEndpoint], protocol: str, late_s: float
) -> None:
    turns, summary = turns_of(tmp_path, kind, late_s, protocol)
    # The last turn waits for its transcript for two seconds, since others have come.
    assert [turn.wer_errors for turn in turns] == [0] * TURNS
    for turn in turns:
        assert turn.asr_final_perf_ns is not None
        assert turn.speech_end_perf_ns is not None
        # From the last speech sample on; the endpoint's measure of loudness may end a little before it.
        assert (turn.asr_final_perf_ns - turn.speech_end_perf_ns) / 1e9 >= QUIET_S + late_s - 0.1
    final = summary["metrics"]["asr_final_latency"]
    assert final["n"] == sum(turn.outcome == "ok" for turn in turns)
    assert final["p50_s"] is None or final["p50_s"] >= QUIET_S + late_s - 0.1


@pytest.mark.nightly
def test_an_id_that_every_response_has_leaves_no_turn_unanswered(tmp_path: Path) -> None:
    turns, _ = turns_of(tmp_path, OneIdOpenAI, 0.1, "openai-realtime")
    assert [turn.outcome_reason for turn in turns] == [None, *["response id resp_1 was used before"] * (TURNS - 1)]
    assert [turn.response_id for turn in turns] == ["resp_1"] * TURNS


class EverySecondOpenAI(LateOpenAI):
    """Never transcribes every second question."""

    def transcript(self, number: int) -> list[dict[str, Any]]:
        return super().transcript(number) if number % 2 else []


@pytest.mark.nightly
def test_transcript_objective_is_missed_if_half_never_come(tmp_path: Path) -> None:
    """All that come are in time, so that of the turns with a value 100 % are good."""
    objectives = tmp_path / "objectives.yaml"
    objectives.write_text(TRANSCRIBED)
    load = ["--users", "6", "--calls", "6", "--turns", str(TURNS), "--think", "0.3", "--protocol", "openai-realtime"]
    file = tmp_path / "summary.json"
    with EverySecondOpenAI("yes", 0.05) as endpoint:
        address = f"ws://127.0.0.1:{endpoint.port}/"
        spoken = ["--corpus", CORPUS, "--length", "short", "--clips", "1", "--seed", "1", "--slo", str(objectives)]
        done = completed("run", address, *load, *spoken, "--out", str(tmp_path / "out"), "--json", str(file))
    assert done.returncode == ExitCode.OBJECTIVE_MISSED, done.stdout
    (objective,) = json.loads(file.read_text())["objectives"]
    # A busy machine may leave a few turns open; good, bad and open ones are all that there are.
    assert objective["good"] + objective["bad"] + sum(objective["open"].values()) == objective["eligible"] == 6 * TURNS
    assert objective["good"] <= 12
    assert objective["bad"] <= 12
    assert (objective["met"], objective["good"] + objective["bad"] >= 20) == (False, True)


TRANSCRIBED: Final = """\
apiVersion: openslo/v1
kind: SLO
metadata:
  name: transcribed
spec:
  service: voice
  budgetingMethod: Occurrences
  indicator:
    metadata:
      name: transcribed
    spec:
      ratioMetric:
        good:
          metricSource:
            type: voiceprobe
            spec: {metric: asr_final_latency, threshold: 5s}
        total:
          metricSource:
            type: voiceprobe
            spec: {turns: eligible}
  objectives:
    - target: 0.95
"""


@pytest.mark.nightly
def test_an_agent_that_ignores_its_callers_has_no_stop(tmp_path: Path) -> None:
    """When the endpoint hears speech, the client plays no more of its reply; but the endpoint sends on."""
    interrupting = ("--barge-in", "1", "--barge-in-after", "400ms")
    turns, summary = turns_of(tmp_path, DeafOpenAI, 0.1, "openai-realtime", *interrupting)
    assert [turn.barge_in_end for turn in turns] == [None, *["never_stopped"] * (TURNS - 1)]
    assert [turn.barge_in_stop_ns for turn in turns] == [None] * TURNS
    counts, valid = summary["behavior"]["barge_in"], sum(turn.outcome == "ok" for turn in turns[1:])
    assert (counts["n"], counts["never_stopped"], counts["stopped"], counts["stop_n"]) == (valid, valid, 0, 0)
