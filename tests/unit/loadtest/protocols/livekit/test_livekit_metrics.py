"""What an agent reports of itself, from messages by LiveKit's own classes."""

import math
from typing import Any

import pytest
from livekit.protocol.agent_pb import agent_session as official

from loadtest.protocols.livekit import messages
from loadtest.protocols.livekit.session import UsageOfTurns, latencies_ns
from loadtest.protocols.received import seconds_ns


def usage(*models: dict[str, Any]) -> Any:
    """An AgentSessionUsage as it is decoded."""
    total = official.AgentSessionUsage(model_usage=[official.ModelUsage(**each) for each in models])
    updated = official.AgentSessionEvent.SessionUsageUpdated(usage=total)
    sent = official.AgentSessionMessage(event=official.AgentSessionEvent(session_usage_updated=updated))
    _, event = messages.decode(sent.SerializeToString())
    return event.session_usage_updated.usage


def report(**values: float) -> Any:
    """A MetricsReport as it is decoded."""
    message = official.ChatMessage(metrics=official.MetricsReport(**values))
    item = official.ChatContext.ChatItem(message=message)
    added = official.AgentSessionEvent.ConversationItemAdded(item=item)
    sent = official.AgentSessionMessage(event=official.AgentSessionEvent(conversation_item_added=added))
    _, event = messages.decode(sent.SerializeToString())
    return event.conversation_item_added.item.message.metrics


def test_latencies_are_by_livekits_names_in_ns() -> None:
    found = latencies_ns(report(transcription_delay=0.1, end_of_turn_delay=0.5, llm_node_ttft=0.25, llm_node_tps=40.0))
    assert found == {"transcription_delay": 100_000_000, "end_of_turn_delay": 500_000_000, "llm_node_ttft": 250_000_000}


@pytest.mark.parametrize("value", [0.0, -0.1, math.nan, math.inf, 86_401.0])
def test_what_is_no_latency_is_left_out(value: float) -> None:
    assert seconds_ns(value) is None
    assert latencies_ns(report(e2e_latency=value)) == {}


def test_usage_is_that_of_the_turn_though_the_agent_reports_totals() -> None:
    turns = UsageOfTurns()
    first = {"llm": {"input_tokens": 40, "output_tokens": 6}}
    assert turns.update(usage(first)) == {"input_tokens": 40, "output_tokens": 6, "cached_tokens": 0}
    assert turns.update(usage(first)) == {}, "nothing was added"
    spoken = {"tts": {"characters_count": 30, "audio_duration": 1.6}}
    assert turns.update(usage(first, spoken)) == {
        "input_tokens": 40,
        "output_tokens": 6,
        "cached_tokens": 0,
        "tts_characters": 30,
        "tts_audio_ms": 1600,
    }
    turns.begin_turn()
    second = {"llm": {"input_tokens": 90, "input_cached_tokens": 32, "output_tokens": 6}}
    heard = {"stt": {"audio_duration": 2.5}}
    assert turns.update(usage(second, spoken, heard)) == {
        "input_tokens": 50,
        "cached_tokens": 32,
        "stt_audio_ms": 2500,
    }


def test_models_of_one_kind_are_added_up_and_other_kinds_ignored() -> None:
    counted = UsageOfTurns().update(
        usage({"llm": {"output_tokens": 6}}, {"llm": {"output_tokens": 7}}, {"eot": {"total_requests": 3}})
    )
    assert counted == {"output_tokens": 13}
