"""Our callers on telephone wires, against an agent of its own process that answers after a known delay."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.integration.calling import Callers, interrupting
from tests.integration.peers.processes import free_port, running
from tests.integration.wires.brackets import Bracket, assert_measured

AGENT = Path(__file__).parents[1] / "servers" / "telephony_agent.py"
MS = 1_000_000
FRAME_MS = 20
SILENCE_MS, REPLY_MS = 100, 600  # of the agent's reply, before the tone and in all
# Recorded by the vendor's package `twilio` for this token: see tests/fixtures/telephony.
TOKEN = "12345"


@dataclass
class Agent:
    """A running agent, and what it has written down."""

    url: str
    log: Path

    def lines(self, call_id: str, what: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [line for line in lines if line["call"] == call_id and line["what"] == what]

    def opened(self) -> list[dict[str, str]]:
        return [line["headers"] for line in self.lines("", "opened")]


@contextmanager
def agent(folder: Path, **options: Any) -> Iterator[Agent]:
    port, log = free_port(), folder / "log.jsonl"
    command = [sys.executable, "-W", "ignore", str(AGENT), str(port), str(log), json.dumps(options)]
    with running(command, port, folder / "output"):
        yield Agent(f"ws://127.0.0.1:{port}/media", log)


def call_id(number: int) -> str:
    """The provider's id of a caller's call: its trace's id."""
    return f"CA{number + 1:032x}"


def numbers(agent: Agent, call: str, key: str) -> list[int]:
    """The sequence numbers of all messages of a call, in the order in which they arrived."""
    lines = [json.loads(line) for line in agent.log.read_text().splitlines()]
    fields = [line["fields"] for line in lines if line["call"] == call and line["what"] in ("media", "message")]
    return [int(field[key]) for field in fields]


def assert_gapless(agent: Agent, call: str, key: str, step_ms: int) -> int:
    """Every message has the next number and every frame its place; returns how many frames there were."""
    sequence = numbers(agent, call, key)
    assert sequence == list(range(1, len(sequence) + 1))
    media = [line["media"] for line in agent.lines(call, "media")]
    assert [int(message["chunk"]) for message in media] == list(range(1, len(media) + 1))
    assert [int(message["timestamp"]) for message in media] == [step_ms * at for at in range(len(media))]
    return len(media)


def test_a_conversation_with_known_delays(tmp_path: Path) -> None:
    with agent(tmp_path, wire="twilio", delay_ms=200) as peer:
        settings = {"parameters": {"customer": "Ada"}}
        callers = Callers(
            peer.url, 2, turns_per_call=2, endpointing_ms=None, protocol="twilio", wire_settings=settings, token=TOKEN
        )
        calls = callers.call()
    assert [[(turn.outcome, turn.outcome_reason) for turn in turns] for turns in calls] == [[("ok", None)] * 2] * 2
    measured: list[dict[str, int | None]] = []
    known: list[dict[str, Bracket]] = []
    for number, turns in enumerate(calls):
        call = call_id(number)
        start, *echoes, stop = [line["fields"] for line in peer.lines(call, "message")]
        trace = f"00-{number + 1:032x}-{1:016x}-01"
        assert start["start"]["customParameters"] == {"customer": "Ada", "traceparent": trace}
        assert [echo["mark"] for echo in echoes] == [{"name": f"reply-{at}"} for at in (1, 2)]
        assert (stop["event"], stop["stop"]["callSid"]) == ("stop", call)
        assert_gapless(peer, call, "sequenceNumber", 20)
        sent = [(line["at_ns"], line["done_ns"]) for line in peer.lines(call, "audio")]
        played = [line["at_ns"] for line in peer.lines(call, "message")[1:-1]]
        first_pieces = sent[:: len(sent) // len(turns)]
        for turn, (before_ns, after_ns), played_ns in zip(turns, first_pieces, played, strict=True):
            moments = {"arrived": turn.tts_first_chunk_perf_ns, "audible": turn.first_audio_perf_ns, "mark": played_ns}
            measured.append(moments)
            audible_ns, played_out_ns = SILENCE_MS * MS, REPLY_MS * MS
            known.append(
                {
                    "arrived": (before_ns, after_ns),
                    "audible": (before_ns + audible_ns, after_ns + audible_ns),
                    # Answered with the caller's next frame after its audio, never before that has been played.
                    "mark": (before_ns + played_out_ns, after_ns + played_out_ns + FRAME_MS * MS),
                }
            )
            assert turn.leading_silence_ns == SILENCE_MS * MS
            assert "asr_final_latency" in turn.withheld_metrics
    assert_measured(measured, known)
    assert all("X-Twilio-Signature" in headers for headers in peer.opened())


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("wire", "key", "step_ms", "settings"),
    [("twilio", "sequenceNumber", 20, {}), ("exotel", "sequence_number", 100, {"rate_hz": 24000})],
)
def test_nothing_is_lost_or_repeated_when_the_agent_stalls(
    tmp_path: Path, wire: str, key: str, step_ms: int, settings: dict[str, Any]
) -> None:
    """Many calls, thousands of frames, and a buffer so small that the kernel takes only parts of what is sent."""
    with agent(tmp_path, wire=wire, delay_ms=50, stall_after=40, stall_s=3.0, receive_bytes=2048) as peer:
        callers = Callers(
            peer.url,
            12,
            turns_per_call=2,
            endpointing_ms=None,
            protocol=wire,
            wire_settings=settings,
        )
        calls = callers.call()
    outcomes = {(turn.outcome, turn.outcome_reason) for turns in calls for turn in turns}
    prefix = "CA" if wire == "twilio" else ""
    frames = [assert_gapless(peer, f"{prefix}{number + 1:032x}", key, step_ms) for number in range(12)]
    assert sum(frames) > (2000 if wire == "twilio" else 400), outcomes
    held_up = [exchange.evidence.blocked_worst_ns for exchange in callers.exchanges]
    assert wire == "twilio" or any(held_up), "six times as much audio does not fit into the buffers"
    print(wire, sum(frames), "frames;", sum(held_ns > 0 for held_ns in held_up), "turns with frames held up;", outcomes)


@pytest.mark.nightly
def test_interrupting_caller_is_cleared_and_marks_are_answered(tmp_path: Path) -> None:
    with agent(tmp_path, wire="twilio", delay_ms=100, clear=True, tone_ms=5000) as peer:
        (turns,) = Callers(peer.url, 1, endpointing_ms=None, protocol="twilio", behavior=interrupting("500ms")).call()
    cleared = peer.lines(call_id(0), "clear")
    assert cleared, "the agent interrupted its reply"
    answers = [line for line in peer.lines(call_id(0), "message") if line["fields"]["event"] == "mark"]
    assert len(answers) >= len(cleared)
    # The reply would have been playing for seconds: its mark comes before that.
    sent = peer.lines(call_id(0), "mark")
    waits = [answer["at_ns"] - line["at_ns"] for line, answer in zip(sent, answers, strict=False)]
    assert min(waits) < 5_000 * MS, waits
    assert_gapless(peer, call_id(0), "sequenceNumber", 20)
    stops = [turn.barge_in_stop_ns for turn in turns if turn.turn_kind == "barge_in"]
    assert stops
    assert all(stop is not None and stop > 0 for stop in stops), [turn.barge_in_reason for turn in turns]
