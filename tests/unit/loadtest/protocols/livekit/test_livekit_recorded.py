"""Recorded sessions of a real process of livekit-agents 1.8.9 over its console link."""

import base64
import json
from collections import deque
from collections.abc import Sequence
from functools import cache
from itertools import groupby
from pathlib import Path

import pytest

from loadtest.protocols.base import CallerOptions, EventKind, SpokenText, VoiceEvent
from loadtest.protocols.livekit import messages
from loadtest.protocols.registry import make_caller

FIXTURES = Path(__file__).parents[4] / "fixtures" / "livekit"
LEFT_OUT = (EventKind.OTHER, EventKind.SERVICE_REPORT)
FINISHED = messages.playback_finished()

# The detector sees the end of speech first; then the agent closes the turn.
QUESTION = ["speech_started", "asr_partial", "asr_final", "speech_stopped"]
REPLY = ["response_started", "audio", "speech_synthesis_started", "audio", "mark"]


@cache
def session(name: str) -> Sequence[VoiceEvent]:
    """The events of a recorded session, with the answers to the agent's flushes when they were played."""
    lines = [json.loads(line) for line in (FIXTURES / f"{name}-1.8.9.jsonl").read_text().splitlines()]
    assert lines[0]["recorded"] == {"peer": "livekit-agents", "version": "1.8.9", "session": name}
    caller = make_caller("livekit-console", CallerOptions())
    marks: deque[str] = deque()
    events: list[VoiceEvent] = []
    for line in lines[1:]:
        if "asked" in line:
            assert not caller.begin_turn(SpokenText("hello"))
        elif "played" in line:
            assert list(caller.played(marks.popleft())) == [FINISHED]
        else:
            found = caller.receive(base64.b64decode(line["binary"]))
            marks.extend(event.text or "" for event in found if event.kind is EventKind.MARK)
            if any(event.kind is EventKind.CLEAR for event in found):
                assert list(caller.played(marks.popleft())) == [FINISHED]
            events += found
    return events


def stages(name: str) -> list[str]:
    return [kind.value for kind, _ in groupby(event.kind for event in session(name) if event.kind not in LEFT_OUT)]


def of_kind(name: str, kind: EventKind) -> list[VoiceEvent]:
    return [event for event in session(name) if event.kind is kind]


def test_the_stages_of_turns_and_of_a_barge_in_come_in_the_order_in_which_they_were_sent() -> None:
    answered = [*QUESTION, *REPLY, "response_done"]
    # While the agent speaks its detector is not believed; it clears when it knows what the caller said.
    broken_in = ["asr_partial", "asr_final", "clear", "response_done", "speech_stopped"]
    assert stages("agent") == ["ready", *answered, *QUESTION, *REPLY, *broken_in, *REPLY, "response_done"]


@pytest.mark.parametrize("name", ["agent", "tool", "fails"])
def test_everything_is_known_and_the_framework_is_named(name: str) -> None:
    assert not of_kind(name, EventKind.UNKNOWN)
    (ready,) = of_kind(name, EventKind.READY)
    assert ready.metadata == {"livekit.sdk": "python", "livekit.version": "1.8.9"}


def test_replies_end_as_they_ended() -> None:
    done = of_kind("agent", EventKind.RESPONSE_DONE)
    assert [event.status for event in done] == ["completed", "cancelled", "completed"]
    assert {event.carried for event in done} == {frozenset({"audio", "text"})}
    assert len({event.response_id for event in done}) == 3
    assert not any(event.owes_response for event in done)


def test_a_turn_is_closed_where_the_agent_closes_it_not_where_its_detector_hears_the_end() -> None:
    names = [event.raw_type for event in of_kind("agent", EventKind.SPEECH_STOPPED)]
    assert names == ["user_state_changed", "conversation_item_added"] * 3


def test_the_agents_own_latencies() -> None:
    reported = [event for event in of_kind("agent", EventKind.SERVICE_REPORT) if event.service_ns]
    users, agents = reported[0::2], reported[1::2]
    for event in users[:1]:
        assert set(event.service_ns) == {"transcription_delay", "end_of_turn_delay", "on_user_turn_completed_delay"}
        assert event.response_id is None
        assert event.service_ns["end_of_turn_delay"] > 400_000_000
    for event in agents[:1]:
        # The first token takes 80 ms, and the synthesizer 60 ms, by the agent's script.
        assert 79_000_000 < event.service_ns["llm_node_ttft"] < 200_000_000
        assert 59_000_000 < event.service_ns["tts_node_ttfb"] < 200_000_000
        assert event.service_ns["e2e_latency"] > event.service_ns["tts_node_ttfb"]
        assert event.response_id == "reply-1"


def test_usage_is_that_of_each_turn() -> None:
    counted = [event.usage for event in of_kind("agent", EventKind.SERVICE_REPORT) if event.usage]
    assert max(usage.get("output_tokens", 0) for usage in counted) == 12
    assert {usage["cached_tokens"] for usage in counted if "cached_tokens" in usage} == {0, 32}


def test_a_reply_before_a_tools_answer_says_that_another_follows() -> None:
    done = of_kind("tool", EventKind.RESPONSE_DONE)
    assert [(event.status, event.owes_response) for event in done] == [("completed", True), ("completed", False)]
    assert stages("tool")[-2 * len(REPLY) - 2 :] == [*REPLY, "response_done"] * 2


def test_an_error_of_a_part_of_the_agent() -> None:
    (error,) = of_kind("fails", EventKind.ERROR)
    assert error.failure is not None
    assert (error.failure.kind, error.failure.code) == ("endpoint_error", "llm_error")
    assert "the language model is out of reach" in (error.message or "")
    assert not error.fatal
