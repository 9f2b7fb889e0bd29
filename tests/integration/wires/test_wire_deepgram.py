"""Our callers and the official package's client against the same scripted Deepgram agent, of a process of its own."""

import json
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from loadtest.protocols.base import CallerOptions
from loadtest.protocols.registry import make_caller
from tests.integration.calling import Callers, interrupting, reasons
from tests.integration.peers.processes import free_port, python_of, running
from tests.integration.servers.deepgram_server import SCRIPT_S
from tests.integration.waiting import wait_for_lines
from tests.integration.wires.brackets import assert_measured
from tests.unit.loadtest.protocols.contract.scripts.deepgram import DeepgramScript

ROOT = Path(__file__).parents[3]
CLIENT = Path(__file__).parents[1] / "peers" / "deepgram_client.py"
MS = 1_000_000
TRACE = f"00-{1:032x}-{1:016x}-01"


@dataclass
class Agent:
    """A running agent, and what it has written down."""

    port: int
    log: Path

    def lines(self, what: str) -> list[Any]:
        lines = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [line[what] for line in lines if what in line]

    def callers(self, count: int, **settings: Any) -> Callers:
        url = f"ws://127.0.0.1:{self.port}"
        return Callers(url, count, protocol="deepgram-agent", endpointing_ms=None, **settings)


@contextmanager
def agent(folder: Path, **options: Any) -> Generator[Agent]:
    port, log = free_port(), folder / "log.jsonl"
    command = [sys.executable, "-m", "tests.integration.servers.deepgram_server"]
    environment = {"PYTHONPATH": str(ROOT)}  # the server is ours
    arguments = [str(port), str(log), json.dumps(options)]
    with running([*command, *arguments], port, folder / "output", environment=environment):
        yield Agent(port, log)


def test_a_conversation_with_known_delays_and_a_tool(tmp_path: Path) -> None:
    with agent(tmp_path, tool="light") as peer:
        run = peer.callers(1, turns_per_call=2, wire_settings={"tools": {"light": "on"}}, token="key")
        (turns,) = run.call()
        assert [turn.outcome for turn in turns] == ["ok"] * 2, reasons(turns)
        sent = [line["stamps"] for line in wait_for_lines(peer.log, "stamps", 2)]
    arrived = [{"final": turn.asr_final_perf_ns, "audio": turn.tts_first_chunk_perf_ns} for turn in turns]
    assert_measured(arrived, sent)
    for turn in turns:
        assert turn.first_audio_perf_ns is not None
        assert turn.first_audio_perf_ns - (turn.tts_first_chunk_perf_ns or 0) < 50 * MS
        assert turn.unknown_events == 0
        stated = dict(zip(turn.service_reported, turn.service_reported_ns, strict=True))
        assert stated["LatencyReport.total_latency"] == round(SCRIPT_S["audio"] * 1000) * MS
        assert stated["AgentStartedSpeaking.tts_latency"] == 30 * MS
        assert "llm_first_token_latency" in turn.withheld_metrics
    (headers,) = peer.lines("headers")
    assert {name: headers[name] for name in ("Authorization", "traceparent")} == {
        "Authorization": "Token key",
        "traceparent": TRACE,
    }
    assert peer.lines("path") == ["/v1/agent/converse"]
    settings, *results = peer.lines("message")
    assert settings["tags"] == [f"traceparent={TRACE}"]
    assert [result["type"] for result in results] == ["FunctionCallResponse"] * 2
    assert peer.lines("frames")[0] == 0, "no audio before the settings"
    warned = [error for exchange in run.exchanges for error in exchange.timeline.errors]
    assert len(warned) == 2
    assert all("SLOW_THINK_REQUEST" in error for error in warned)


@pytest.mark.nightly
def test_interrupting_caller_gets_no_more_of_the_reply(tmp_path: Path) -> None:
    with agent(tmp_path, reply_ms=1500) as peer:
        (turns,) = peer.callers(1, behavior=interrupting("500ms")).call()
    assert [turn.turn_kind for turn in turns] == ["question", "barge_in"], reasons(turns)
    assert [turn.outcome for turn in turns] == ["ok", "ok"], reasons(turns)
    # Three seconds were sent within a tenth of one; the agent hears the caller after three loud frames.
    assert turns[0].cut_short
    stopped_ns, speech_start = turns[1].barge_in_stop_ns, turns[1].speech_start_perf_ns
    assert stopped_ns is not None
    assert speech_start is not None
    heard = next(bracket for bracket in peer.lines("interrupted_ns") if bracket[0] > speech_start)
    assert_measured([{"stopped": speech_start + stopped_ns}], [{"stopped": heard}])
    reply_audio_ns = turns[1].reply_audio_ns
    assert reply_audio_ns == pytest.approx(3_000 * MS, abs=MS), "nothing of the first reply is part of the second"


@pytest.mark.parametrize("option", ["refuse", "fault"])
def test_an_error_ends_the_call_with_its_cause(tmp_path: Path, option: str) -> None:
    with agent(tmp_path, **{option: "INVALID_SETTINGS"}) as peer:
        (turns,) = peer.callers(1).call()
    (turn,) = turns
    assert (turn.outcome, turn.failure_kind, turn.failure_code) == ("error", "endpoint_error", "INVALID_SETTINGS")
    assert ("refused" in (turn.outcome_reason or "")) == (option == "refuse")


G711 = CallerOptions("manual", settings={"input_encoding": "mulaw", "output_encoding": "alaw"})
NEUTRAL = CallerOptions(model="gpt-4.1-mini", transcription_model="nova-3")
OPTIONS = [
    G711,
    NEUTRAL,
    CallerOptions(settings={"input_rate_hz": 24000, "output_rate_hz": 16000, "tags": ["nightly"], "history": False}),
    CallerOptions(
        settings={"input_rate_hz": 48000, "output_rate_hz": 48000, "mip_opt_out": True, "experimental": True}
    ),
    CallerOptions(settings={"agent": "0198b1c6-4b0e-7a6b-9d3c-2f3f0d1c5a11"}),
]


def settings_of(options: CallerOptions) -> dict[str, Any]:
    """The message `Settings` of a caller with these options."""
    caller = make_caller("deepgram-agent", options)
    caller.upgrade("wss://agent.deepgram.com", TRACE)
    caller.receive('{"type":"Welcome","request_id":"550e8400-e29b-41d4-a716-446655440000"}')
    (message,) = caller.pending()
    return json.loads(str(message))


def served_by_the_contract() -> list[str]:
    """All text that the contract suite takes for this service's, but for what it is to take as wrong."""
    script = DeepgramScript()
    steps = [script.greets(), *(getattr(script, stage)() for stage in ("speech_started", "reply_started"))]
    steps += [script.final("on"), script.text("It is on."), script.synthesis_started(), script.reply_done()]
    steps += [script.broken_off(), script.service_report(), script.error()]
    steps += [script.fatal_error().messages, script.refusal().messages]
    return [message for step in steps for message in step]


def test_official_client_and_types_understand_agent_and_callers(tmp_path: Path) -> None:
    with agent(tmp_path, tool="light") as peer:
        tools = {"tools": {"light": {"state": "on"}}}
        (turns,) = peer.callers(1, manual_turns=True, wire_settings=tools).call()
        assert [turn.outcome for turn in turns] == ["ok"], reasons(turns)
        ours = peer.lines("message")
        sent = [*ours, *map(settings_of, OPTIONS)]
        served = served_by_the_contract()
        arguments = [f"ws://127.0.0.1:{peer.port}", json.dumps(sent), json.dumps(served)]
        command = [python_of("vendors"), str(CLIENT), *arguments]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120, cwd=tmp_path)
        assert done.returncode == 0, done.stderr[-3000:]
        theirs = peer.lines("message")[len(ours) :]
    result = json.loads(done.stdout)
    assert [message["type"] for message in ours] == ["Settings", "ForceEndTurn", "FunctionCallResponse"]
    for message, accepted in zip(sent, result["accepted"], strict=True):
        assert accepted["unknown"] == [], message
        assert accepted["same"], message
    assert len(result["served"]) == len(served)
    received = [*result["received"], *result["served"]]
    assert [message for message in received if message.get("unknown")] == []
    assert {message["type"] for message in received} == {
        "AgentV1Welcome",
        "AgentV1SettingsApplied",
        "AgentV1UserStartedSpeaking",
        "AgentV1LatencyReport",
        "AgentV1ConversationText",
        "ConversationHistoryMessage",
        "AgentV1FunctionCallRequest",
        "AgentV1Warning",
        "AgentV1AgentThinking",
        "AgentV1AgentStartedSpeaking",
        "AgentV1AgentAudioDone",
        "AgentV1Error",
        "bytes",
    }
    assert [message["type"] for message in theirs] == ["Settings", "ForceEndTurn", "FunctionCallResponse"]
    # What both sent for the same purpose is the same, but for what is ours to choose.
    assert {**ours[0], "tags": None} == {**theirs[0], "tags": None} | {"agent": ours[0]["agent"]}
