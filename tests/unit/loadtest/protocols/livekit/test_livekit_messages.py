"""LiveKit's messages and metrics by its own classes, and recorded sessions of livekit-agents 1.8.9."""

import base64
import contextlib
import json
import math
from collections import deque
from collections.abc import Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from hypothesis import given
from hypothesis import strategies as st
from livekit.protocol.agent_pb import agent_session as official

from loadtest.protocols.base import CallerOptions, EventKind, SpokenText, VoiceEvent
from loadtest.protocols.json_fields import MalformedError
from loadtest.protocols.livekit import messages
from loadtest.protocols.livekit.session import UsageOfTurns, latencies_ns
from loadtest.protocols.received import seconds_ns
from loadtest.protocols.registry import make_caller

Official: Final[Any] = official.AgentSessionMessage
# An enumeration is declared as a number: both are the same on the wire.
SAME: Final = {FieldDescriptor.TYPE_ENUM: FieldDescriptor.TYPE_INT32}


def declared() -> Descriptor:
    """Return the declaration of AgentSessionMessage."""
    _, fields = messages.decode(Official(audio_playback_flush={}).SerializeToString())
    return fields.DESCRIPTOR.file.message_types_by_name["AgentSessionMessage"]


def test_every_declared_field_is_one_of_livekits() -> None:
    compared: set[tuple[str, str]] = set()

    def compare(ours: Descriptor, theirs: Descriptor) -> None:
        if (ours.full_name, theirs.full_name) in compared:
            return
        compared.add((ours.full_name, theirs.full_name))
        for field in ours.fields:
            other = theirs.fields_by_name[field.name]
            assert field.number == other.number, f"{theirs.full_name}.{field.name}"
            assert field.type == SAME.get(other.type, other.type), f"{theirs.full_name}.{field.name}"
            assert field.is_repeated == other.is_repeated, f"{theirs.full_name}.{field.name}"
            chosen = field.containing_oneof is not None
            # What may be left out is in a choice of its own in LiveKit's declaration.
            assert not chosen or other.containing_oneof.fields[1:], f"{theirs.full_name}.{field.name}"
            if field.message_type is not None:
                compare(field.message_type, other.message_type)

    compare(declared(), Official.DESCRIPTOR)
    assert len(compared) > 25


def test_every_kind_of_message_and_event_of_livekit_is_known() -> None:
    for name in ("AgentSessionMessage", "AgentSessionEvent"):
        ours = declared().file.message_types_by_name[name]
        theirs: Descriptor = getattr(official, name).DESCRIPTOR
        wanted = {field.name for field in theirs.fields if field.containing_oneof is not None}
        assert wanted <= {field.name for field in ours.fields}


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (messages.INITIALIZING, official.AS_INITIALIZING),
        (messages.IDLE, official.AS_IDLE),
        (messages.LISTENING, official.AS_LISTENING),
        (messages.THINKING, official.AS_THINKING),
        (messages.SPEAKING, official.AS_SPEAKING),
        (messages.USER_SPEAKING, official.US_SPEAKING),
        (messages.USER_LISTENING, official.US_LISTENING),
        (messages.USER_AWAY, official.US_AWAY),
        (messages.USER, official.USER),
        (messages.ASSISTANT, official.ASSISTANT),
    ],
)
def test_the_values_of_enumerations(ours: int, theirs: int) -> None:
    assert ours == theirs


def test_a_frame_of_audio() -> None:
    sent = Official.FromString(messages.audio_input(b"\1\2\3\4", 48_000))
    frame = Official.ConsoleIO.AudioFrame(data=b"\1\2\3\4", sample_rate=48_000, num_channels=1, samples_per_channel=2)
    assert sent == Official(audio_input=frame)


@pytest.mark.parametrize("name", ["get_framework_info", "get_session_state"])
def test_a_request(name: str) -> None:
    sent = Official.FromString(messages.request(name))
    assert sent.WhichOneof("message") == "request"
    assert (sent.request.WhichOneof("request"), sent.request.request_id) == (name, name)


def test_that_what_was_flushed_is_played() -> None:
    assert Official.FromString(messages.playback_finished()).WhichOneof("message") == "audio_playback_finished"


@pytest.mark.slow
@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_malformed(data: bytes) -> None:
    with contextlib.suppress(MalformedError):
        kind, fields = messages.decode(data)
        assert (kind is None) == (fields is None)


def test_invalid_message_is_malformed() -> None:
    with pytest.raises(MalformedError, match=r"in protobuf: 3 bytes beginning ffffff$"):
        messages.decode(b"\xff\xff\xff")


def usage(*models: dict[str, Any]) -> Any:
    """An AgentSessionUsage as it is decoded."""
    total = official.AgentSessionUsage(model_usage=[official.ModelUsage(**model) for model in models])
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
    latencies = latencies_ns(
        report(transcription_delay=0.1, end_of_turn_delay=0.5, llm_node_ttft=0.25, llm_node_tps=40.0)
    )
    assert latencies == {
        "transcription_delay": 100_000_000,
        "end_of_turn_delay": 500_000_000,
        "llm_node_ttft": 250_000_000,
    }


@pytest.mark.parametrize("value", [0.0, -0.1, math.nan, math.inf, 86_401.0])
def test_invalid_latency_is_left_out(value: float) -> None:
    assert seconds_ns(value) is None
    assert latencies_ns(report(e2e_latency=value)) == {}


def test_usage_is_per_turn_though_agent_reports_totals() -> None:
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
            received = caller.receive(base64.b64decode(line["binary"]))
            marks.extend(event.text or "" for event in received if event.kind is EventKind.MARK)
            if any(event.kind is EventKind.CLEAR for event in received):
                assert list(caller.played(marks.popleft())) == [FINISHED]
            events += received
    return events


def stages(name: str) -> list[str]:
    return [kind.value for kind, _ in groupby(event.kind for event in session(name) if event.kind not in LEFT_OUT)]


def of_kind(name: str, kind: EventKind) -> list[VoiceEvent]:
    return [event for event in session(name) if event.kind is kind]


def test_stages_of_turns_and_barge_in_come_in_order_sent() -> None:
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


def test_turn_ends_where_agent_ends_it_not_at_its_detector() -> None:
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
