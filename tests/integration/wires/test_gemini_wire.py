"""Our callers and the vendor's client over TLS, against one server of Gemini Live's wire."""

import base64
import json
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gevent
import numpy as np
import pytest

from loadtest.engine.tls import tls_client
from loadtest.protocols.base import CallerOptions, SpokenText
from loadtest.protocols.gemini.caller import GeminiCaller
from telemetry.model.turns import Turn
from tests.integration.calling import Callers, interrupting
from tests.integration.certificates import authority
from tests.integration.peers.processes import free_port, python_of, running
from tests.integration.wires.brackets import Bracket, assert_measured

ROOT = Path(__file__).parents[3]
RECORDER = ROOT / "tests" / "integration" / "recorders" / "record_gemini.py"
FIXTURE = ROOT / "tests" / "fixtures" / "gemini" / "google-genai-3.4.0.json"
MS = 1_000_000
DELAY_MS = 900  # longer than the silence after which the server takes a question to have ended
LONGEST_S = 120.0
USUAL = str.maketrans("-_", "+/")


@dataclass
class Server:
    """A running server, and what it has written down."""

    port: int
    ca: Path
    log: Path

    def lines(self, *what: str) -> list[dict[str, Any]]:
        whole = self.log.read_text().rpartition("\n")[0].splitlines()  # the last one may still be on its way
        lines = [json.loads(line) for line in whole]
        return [line for line in lines if line["what"] in what]

    def callers(self, count: int = 1, **fields: Any) -> Callers:
        """Callers of this server, who trust its authority."""
        return Callers(
            f"wss://localhost:{self.port}",
            count,
            protocol="gemini-live",
            endpointing_ms=None,
            token="key-1",
            tls=tls_client(str(self.ca)),
            **fields,
        )


@contextmanager
def server(folder: Path, **options: Any) -> Generator[Server]:
    ca = authority(folder / "ca")
    signed = ca.sign("localhost")
    port, log = free_port(), folder / "log.jsonl"
    given = {"cert": str(signed.cert), "key": str(signed.key), "delay_ms": DELAY_MS, "tone_ms": 300, **options}
    command = [sys.executable, "-m", "tests.integration.servers.gemini_server", str(port), str(log), json.dumps(given)]
    with running(command, port, folder / "output", environment={"PYTHONPATH": str(ROOT)}):
        yield Server(port, ca.cert, log)


def reasons(turns: list[Turn]) -> list[tuple[str | None, str | None]]:
    return [(turn.outcome, turn.outcome_reason) for turn in turns]


def ours() -> list[dict[str, Any]]:
    """One of each kind of message that our caller sends, with everything that can be set."""
    settings = {
        "language": "en-US",
        "voice_activity": True,
        "start_sensitivity": "high",
        "end_sensitivity": "low",
        "prefix_padding_ms": 20,
        "interruptible": False,
        "setup": {
            "tools": [{"functionDeclarations": [{"name": "light"}]}],
            "generationConfig": {
                "seed": 7,
                "speechConfig": {"voiceConfig": {"prebuiltVoiceConfig": {"voiceName": "Puck"}}},
            },
            "systemInstruction": {"parts": [{"text": "hi"}], "role": "user"},
        },
        "tools": {"light": {"state": "on"}},
    }
    options = CallerOptions(model="m", silence_duration_ms=300, settings=settings)
    automatic, manual = GeminiCaller(options), GeminiCaller(CallerOptions("manual", model="m"))
    manual.receive(b'{"toolCall":{"functionCalls":[{"id":"1","name":"none"}]}}')
    automatic.receive(b'{"toolCall":{"functionCalls":[{"id":"1","name":"light"}]}}')
    sent = [*automatic.opened(), *automatic.pending(), *automatic.goodbye(), *manual.opened()]
    sent += [*manual.begin_turn(SpokenText("x")), manual.audio_message(np.arange(320, dtype=np.int16))]
    return [json.loads(message) for message in [*sent, *manual.end_turn()]]


def standard(message: dict[str, Any]) -> dict[str, Any]:
    """A message with audio in the usual base64: the vendor writes the URL-safe one."""
    audio = message.get("realtimeInput", {}).get("audio")
    return message if audio is None else {"realtimeInput": {"audio": audio | {"data": audio["data"].translate(USUAL)}}}


def test_vendor_client_reads_messages_as_recorded_and_ours_too(tmp_path: Path) -> None:
    """Its recorded reading is compared with that of our caller in the unit tests."""
    loud, quiet = np.resize(np.array([6000, -6000, -1, -257], "<i2"), 320).tobytes(), bytes(640)
    given, result_file = tmp_path / "given.json", tmp_path / "found.json"
    sent = ours()
    given.write_text(json.dumps({"audio": [base64.b64encode(pcm).decode() for pcm in (loud, quiet)], "ours": sent}))
    with server(tmp_path, delay_ms=20, tone_ms=4, short=True) as peer:
        done = subprocess.run(
            [python_of("vendors"), str(RECORDER), f"https://localhost:{peer.port}", str(given), str(result_file)],
            env={"SSL_CERT_FILE": str(peer.ca), "PATH": os.environ["PATH"], "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=LONGEST_S,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    recorded = json.loads(result_file.read_text())
    read = [standard(message) for message in recorded.pop("ours")]
    assert read == sent, "the vendor's types know every member that our caller sends"
    assert recorded == json.loads(FIXTURE.read_text())


STOPPED = {"setup": {"systemInstruction": {"parts": [{"text": "until it is stopped"}]}}}
TOOL = {
    "tools": {"light": {"state": "on"}},
    "setup": {"systemInstruction": {"parts": [{"text": "after a tool"}]}},
}


@pytest.mark.nightly
def test_tools_and_interruptions_with_automatic_and_manual_turns(tmp_path: Path) -> None:
    with server(tmp_path) as peer:
        calls = [
            gevent.spawn(callers.call)
            for callers in (
                peer.callers(wire_settings=TOOL),
                peer.callers(behavior=interrupting("500ms"), wire_settings=STOPPED),
                peer.callers(behavior=interrupting("500ms"), wire_settings=STOPPED, manual_turns=True),
            )
        ]
        gevent.joinall(calls, raise_error=True)
    values: list[Any] = [call.value for call in calls]
    (with_tool,), (automatic,), (manual,) = values
    assert reasons(with_tool) == [("ok", None)]
    responses = [line["fields"]["toolResponse"] for line in peer.lines("received") if "toolResponse" in line["fields"]]
    assert responses == [{"functionResponses": [{"id": "call-1", "name": "light", "response": {"state": "on"}}]}]
    for turns in (automatic, manual):
        assert reasons(turns) == [("ok", None)] * 2
        assert [turn.turn_kind for turn in turns] == ["question", "barge_in"]
        assert turns[1].asr_final_perf_ns is not None
    stopped: dict[int, list[Bracket]] = {}
    for line in peer.lines("stopped"):
        stopped.setdefault(line["session"], []).append((line["at_ns"], line["done_ns"]))
    assert [len(moments) for moments in stopped.values()] == [2, 2], "interrupted and turnComplete, once in each call"
    stop_ns, began_ns = automatic[1].barge_in_stop_ns, automatic[1].speech_start_perf_ns
    assert stop_ns is not None
    assert began_ns is not None
    # With manual turns the client itself stops playing; here it is the message that does.
    brackets = [(first[0], last[1]) for first, last in stopped.values()]
    stopped_ns = began_ns + stop_ns
    own = min(brackets, key=lambda bracket: abs(stopped_ns - bracket[0]))
    assert_measured([{"stopped": stopped_ns}], [{"stopped": own}])


REFUSALS = {
    "full": ("endpoint_error", "RESOURCE_EXHAUSTED", "Maximum concurrent se"),
    "keyless": ("close_code", "1007", "API key not valid"),
    "none": ("close_code", "1008", "models/none is not found"),
}


def test_a_refusal_is_a_close_frame_with_a_reason(tmp_path: Path) -> None:
    with server(tmp_path) as peer:
        for model, (kind, code, reason) in REFUSALS.items():
            ((turn,),) = peer.callers(model=model).call()
            assert (turn.outcome, turn.failure_kind, turn.failure_code) == ("error", kind, code)
            assert reason in (turn.outcome_reason or "")
