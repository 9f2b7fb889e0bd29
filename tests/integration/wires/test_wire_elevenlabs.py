"""Our callers and the vendor's own client (elevenlabs 2.78), both with the same agent, which is one of ours.

Nothing here ever reached ElevenLabs: the agent sends what the vendor's documents say, and the vendor's client, which
knows the service, must understand it.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from websockets.sync.client import connect

from loadtest.protocols.base import CallerOptions
from loadtest.protocols.registry import make_caller
from tests.integration.calling import Callers, interrupting, reasons
from tests.integration.peers import processes
from tests.integration.servers.elevenlabs_server import SIGNATURE
from tests.unit.loadtest.protocols.contract.scripts.elevenlabs import EVERY_EVENT
from tests.unit.loadtest.protocols.elevenlabs.vendors_client import TOOLS, TRACE, assert_same, first_message

ROOT = Path(__file__).parents[3]
RECORDER = Path(__file__).parents[1] / "recorders" / "record_elevenlabs.py"
MS = 1_000_000
BOUND_S = 120.0
CLIPS = 4
EVENTFUL = {"client_events": EVERY_EVENT, "tools": TOOLS}


@dataclass
class Agent:
    """A running agent, and what it has written down."""

    port: int
    log: Path

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/v1/convai/conversation?agent_id=agent_0001"

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]

    def got(self) -> list[dict[str, Any]]:
        """The received items in order: requests to connect, messages, and the first loud frame of each question."""
        return [line["got"] for line in self.lines() if "got" in line]

    def callers(self, **settings: Any) -> Callers:
        return Callers(self.url, 1, protocol="elevenlabs", endpointing_ms=None, clips=CLIPS, **settings)


@contextmanager
def agent(folder: Path, reply_ms: int) -> Iterator[Agent]:
    port, log = processes.free_port(), folder / "agent.log"
    command = [sys.executable, "-m", "tests.integration.servers.elevenlabs_server", str(port), str(reply_ms)]
    with processes.running(command, port, log, environment={"PYTHONPATH": str(ROOT)}):
        yield Agent(port, log)


def recorded(peer: Agent, folder: Path) -> dict[str, Any]:
    """A session of the vendor's client with this agent."""
    python, out, ours = processes.python_of("vendors"), folder / "session.json", folder / "ours.json"
    ours.write_text(json.dumps(first_message()))
    command = [python, str(RECORDER), f"http://127.0.0.1:{peer.port}", str(out), str(ours)]
    ended = subprocess.run(command, env={"PATH": ""}, capture_output=True, timeout=BOUND_S, check=False)
    assert ended.returncode == 0, ended.stderr.decode()
    return json.loads(out.read_text())


def converse_as_ours(peer: Agent) -> None:
    """Our caller's messages of the same conversation, without the engine: a question, and its answer to the end."""
    caller = make_caller("elevenlabs", CallerOptions(settings={**EVENTFUL, "user_id": "user_1"}))
    request = caller.upgrade(peer.url, TRACE)
    frame = caller.capabilities.input_rate_hz * caller.capabilities.frame_ms // 1000
    loud, silent = np.full(frame, 9_000, np.int16), np.zeros(frame, np.int16)
    with connect(request.url, additional_headers=dict(request.headers), compression=None) as line:
        for message in caller.opened():
            line.send(message)  # type: ignore[arg-type]  # every message is text
        for pcm in [loud] * 20 + [silent] * 40:
            line.send(caller.audio_message(pcm).decode())
        while True:
            message = line.recv(timeout=BOUND_S)
            caller.receive(message)
            for answer in caller.pending():
                line.send(answer)  # type: ignore[arg-type]
            if "context_usage" in str(message):
                return


def members(messages: list[dict[str, Any]]) -> dict[str, list[str]]:
    """The members of each type of message that an agent got."""
    return {
        message.get("type", "audio"): sorted(message if "type" in message else message["members"])
        for message in messages
        if "path" not in message
    }


def test_vendor_client_and_our_caller_send_agent_the_same(tmp_path: Path) -> None:
    with agent(tmp_path, 500) as peer:
        session = recorded(peer, tmp_path)
        theirs = peer.got()
        converse_as_ours(peer)
        ours = peer.got()[len(theirs) :]
    assert_same(session)
    assert session["initiation"]["unknown_members"] == ["type"]
    assert session["initiation"]["fields"] == first_message()

    signed, opened = [message for message in theirs if "path" in message]
    assert signed["headers"] == {"xi-api-key": "sk_test"}, "the key is only part of the request for a signed address"
    assert f"conversation_signature={SIGNATURE}" in opened["path"]
    assert opened["headers"] == {}
    sent, wanted = members(ours), members(theirs)
    # It names one of the vendor's own clients.
    wanted["conversation_initiation_client_data"].remove("source_info")
    del wanted["user_activity"]  # only makes this agent send odd messages
    assert sent == wanted
    assert set(sent) == {"conversation_initiation_client_data", "audio", "pong", "client_tool_result"}
    assert tool_answers(ours) == tool_answers(theirs)[:1]


def tool_answers(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [message for message in messages if message.get("type") == "client_tool_result"]


@pytest.mark.nightly
def test_interrupting_caller_gets_no_late_audio_of_old_answer(tmp_path: Path) -> None:
    with agent(tmp_path, 2_500) as peer:
        # Of an agent with the usual events: its replies end by silence.
        run = peer.callers(
            behavior=interrupting("300ms"), wire_settings={"tools": TOOLS}, token="sk_test", longest_reply_s=20.0
        )
        (turns,) = run.call()
    assert [turn.turn_kind for turn in turns] == ["question", "barge_in"], reasons(turns)
    assert [turn.outcome for turn in turns] == ["ok", "ok"], reasons(turns)
    old, new = turns
    assert old.cut_short
    (interrupted_ns,) = [line["interrupted"] for line in peer.lines() if "interrupted" in line]
    assert new.speech_start_perf_ns is not None
    assert new.barge_in_stop_ns is not None
    late_ns = new.speech_start_perf_ns + new.barge_in_stop_ns - interrupted_ns
    print(f"stopped {late_ns / MS:.3f} ms after the interruption was sent")
    assert late_ns >= -MS / 10
    # All of the old answer had been sent; what came late besides, with an older id, is neither heard nor counted.
    assert old.reply_audio_ns == 2_500 * MS
    assert new.reply_audio_ns == 2_500 * MS
    (opened,) = [message for message in peer.got() if "path" in message]
    assert opened["headers"]["xi-api-key"] == "sk_test"
    assert {"type": "pong", "event_id": 1} in peer.got()
