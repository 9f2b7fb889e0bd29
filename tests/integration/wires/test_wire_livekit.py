"""Our callers against a real process of livekit-agents, and against one of ours that answers after known delays."""

import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from loadtest.engine.engine import Engine
from telemetry.model.metrics import METRICS
from telemetry.model.turns import Turn
from tests.integration.calling import Callers, in_order, interrupting, reasons
from tests.integration.peers import processes
from tests.integration.servers.livekit_server import SCRIPT_S
from tests.integration.waiting import wait_for_lines
from tests.integration.wires.brackets import assert_measured

ROOT = Path(__file__).parents[3]
MS = 1_000_000
WORD_MS = 250
CLIPS = 4


def called(tmp_path: Path, environment: Mapping[str, str], **settings: Any) -> tuple[Callers, list[Turn]]:
    """Call an agent that is started when the caller waits for it; the caller, and the turns that it heard."""
    port = processes.free_port()
    command, log = processes.livekit_console(port), tmp_path / "log"
    with ExitStack() as stack:

        def start(engine: Engine) -> None:
            del engine
            stack.enter_context(processes.started(command, log, environment=environment))

        run = console(port, meanwhile=start, **settings)
        (turns,) = run.call()
    return run, turns


def console(port: int, **settings: Any) -> Callers:
    url = f"tcp-listen://127.0.0.1:{port}"
    return Callers(url, 1, protocol="livekit-console", endpointing_ms=None, clips=CLIPS, **settings)


def test_conversation_with_barge_in_has_stages_and_agent_report(tmp_path: Path) -> None:
    words = 16
    environment = {"AGENT_WARMUP_S": "0", "AGENT_WORDS": str(words)}
    run, turns = called(tmp_path, environment, behavior=interrupting("500ms"))
    assert [turn.turn_kind for turn in turns] == ["question", "barge_in"], reasons(turns)
    assert [turn.outcome for turn in turns] == ["ok", "ok"], reasons(turns)
    for turn, exchange in zip(turns, run.exchanges, strict=True):
        assert turn.transcript_pii == "what the caller said"
        assert (turn.unknown_events, turn.duplicate_events) == (0, 0)
        assert_stages(turn)
        reported = exchange.service.latencies_ns
        # By the agent's script: the first token takes 80 ms, and the synthesizer 60 ms.
        assert reported["llm_node_ttft"] >= 79 * MS
        assert reported["tts_node_ttfb"] >= 59 * MS
        # It waits half a second for more words, and counts from where its detector heard the end of speech.
        assert reported["end_of_turn_delay"] >= 400 * MS
        assert reported["e2e_latency"] >= reported["end_of_turn_delay"]
        assert exchange.service.usage["output_tokens"] == words
    stopped_ns = turns[1].barge_in_stop_ns
    # It clears when it has the words. The reply would have gone on for three seconds and a half.
    assert stopped_ns is not None
    assert 0 < stopped_ns < (words * WORD_MS - 500) * MS
    # The second reply is heard to its end; a busy machine can only stretch it.
    reply_ns = (turns[1].reply_end_perf_ns or 0) - (turns[1].first_audio_perf_ns or 0)
    assert reply_ns >= (words * WORD_MS - 15) * MS


def assert_stages(turn: Turn) -> None:
    """Each stage is there, in the order in which the agent's parts work."""
    in_order(
        turn.asr_first_partial_perf_ns,
        turn.asr_final_perf_ns,
        turn.endpoint_perf_ns,
        turn.first_audio_perf_ns,
        turn.reply_end_perf_ns,
    )
    leading = METRICS["leading_silence"].value(turn)
    assert leading is not None
    assert leading >= 89 * MS


@pytest.mark.nightly
def test_agent_in_echo_cancellation_warmup_cannot_be_interrupted(tmp_path: Path) -> None:
    """The trap of a first reply: for three seconds LiveKit hears nothing of what is said into it."""
    run, turns = called(tmp_path, {"AGENT_WORDS": "8"}, behavior=interrupting("200ms"), reply_s=4.0)
    assert turns[1].turn_kind == "barge_in", reasons(turns)
    (heard,) = run.exchanges[0].timeline.replies.values()
    assert (heard.status, heard.cleared) == ("completed", False)
    assert heard.playback is not None
    assert heard.playback.stopped_perf_ns is None, "it was played to its end"
    assert [turn.outcome for turn in turns] == ["ok", "no_reply"], reasons(turns)


@pytest.mark.nightly
def test_failing_language_model_of_agent_is_error(tmp_path: Path) -> None:
    _, turns = called(tmp_path, {"AGENT_FAILS": "1"}, reply_s=3.0)
    assert [turn.outcome for turn in turns] == ["error"], reasons(turns)
    assert (turns[0].failure_kind, turns[0].failure_code) == ("endpoint_error", "llm_error")
    assert "the language model is out of reach" in (turns[0].outcome_reason or "")


def test_a_livekit_server_that_cannot_be_reached() -> None:
    """LiveKit's own SDK runs in its process, and nothing listens."""
    run = Callers(
        f"ws://127.0.0.1:{processes.free_port()}",
        1,
        protocol="livekit",
        endpointing_ms=None,
        token="a secret",
        wire_settings={"api_key": "key"},
    )
    (turns,) = run.call()
    assert [(turn.outcome, turn.failure_kind, turn.failure_code) for turn in turns] == [
        ("error", "tcp", "ECONNREFUSED")
    ]
    assert (turns[0].outcome_reason or "").startswith("the room of the LiveKit server cannot be joined: ")


@pytest.mark.nightly
def test_known_delays_are_measured_within_two_milliseconds(tmp_path: Path) -> None:
    """Each stage of the turn against the moment at which the agent handed its message to the socket."""
    port, log, turns_asked = processes.free_port(), tmp_path / "log", 4
    command = [sys.executable, "-m", "tests.integration.servers.livekit_server", str(port)]
    with processes.started(command, log, environment={"PYTHONPATH": str(ROOT)}):
        (turns,) = console(port, turns_per_call=turns_asked).call()
        assert [turn.outcome for turn in turns] == ["ok"] * turns_asked, reasons(turns)
        sent = wait_for_lines(log, "audio", turns_asked)
    measured = [
        {"final": turn.asr_final_perf_ns, "stopped": turn.endpoint_perf_ns, "audio": turn.first_audio_perf_ns}
        for turn in turns
    ]
    assert_measured(measured, sent)
    for after_s, name, _ in SCRIPT_S:
        assert min(stamps[name][0] - stamps["began"] for stamps in sent) >= after_s * 1e9 - MS
