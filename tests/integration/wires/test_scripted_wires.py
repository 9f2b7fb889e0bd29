"""Measurements of our engine over each wire whose script can be served, compared with the server's own stamps."""

import sys
from pathlib import Path

import pytest

from loadtest.protocols.registry import make_caller
from tests.integration.calling import Callers
from tests.integration.peers.processes import free_port, running
from tests.integration.waiting import wait_for_lines
from tests.integration.wires.brackets import Bracket, assert_measured
from tests.nightly import nightly_after
from tests.unit.loadtest.protocols.contract.line import SCRIPTS

ROOT = Path(__file__).parents[3]
DELAY_MS = 150
TURNS = 7
FRAME_NS = 20_000_000


def served() -> list[str]:
    """The wires over WebSocket on which the caller can say itself that it has finished."""
    texts: list[str] = []
    for name, script in sorted(SCRIPTS.items()):
        capabilities = make_caller(name, script.options).capabilities
        if capabilities.transport == "websocket" and "manual" in capabilities.turn_controls:
            texts.append(name)
    return texts


@pytest.mark.parametrize("name", nightly_after(1, served()))
def test_a_known_delay_is_measured_within_2_ms(name: str, tmp_path: Path) -> None:
    port, log = free_port(), tmp_path / "log.jsonl"
    command = [sys.executable, "-m", "tests.integration.servers.scripted_server", name, str(port), str(log)]
    environment = {"PYTHONPATH": str(ROOT)}  # the server is ours
    with running([*command, str(DELAY_MS)], port, tmp_path / "output", environment=environment):
        callers = Callers(
            f"ws://127.0.0.1:{port}/",
            1,
            turns_per_call=TURNS,
            manual_turns=True,
            endpointing_ms=None,
            protocol=name,
            wire_settings=SCRIPTS[name].options.settings,
            model=SCRIPTS[name].options.model,
        )
        (turns,) = callers.call()
        assert [(turn.outcome, turn.outcome_reason) for turn in turns] == [("ok", None)] * TURNS
        stamps = wait_for_lines(log, "sent_ns", TURNS)
    values: list[dict[str, int | None]] = []
    known: list[dict[str, Bracket]] = []
    for turn, exchange, stamp in zip(turns, callers.exchanges, stamps, strict=True):
        clip = exchange.planned.clip
        assert clip is not None
        assert turn.speech_end_perf_ns is not None
        # The turn ends with its last frame, which also holds what follows the last speech sample.
        end = (clip.speech_end_frame + 1) * clip.frame_samples - clip.rendered.speech_end_sample
        ended_ns = turn.speech_end_perf_ns + end * 1_000_000_000 // clip.rendered.rate_hz
        answer_ns = turn.asr_final_perf_ns if name == "vllm-realtime" else turn.first_audio_perf_ns
        values.append({"end of turn": stamp["read_ns"], "answer": answer_ns})
        # Two Python programs pass the end of a turn on after its last frame: a slow machine takes some milliseconds, a
        # wait for the next frame or for TCP takes more than a frame.
        known.append({"end of turn": (ended_ns, ended_ns + FRAME_NS), "answer": stamp["sent_ns"]})
    assert_measured(values, known)
