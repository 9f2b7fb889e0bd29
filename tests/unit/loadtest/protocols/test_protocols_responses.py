"""Responses and items of OpenAI Realtime: contents, ends, retrieval, deletion, and unknown messages."""

import base64
import itertools
import json
from typing import Any

import pytest
from openai.types.realtime import ConversationItemDeletedEvent, RealtimeErrorEvent
from openai.types.realtime.realtime_server_event import ConversationItemRetrieved, OutputAudioBufferCleared

from loadtest.protocols.base import SUPERSEDED, CallerOptions, EventKind, VoiceEvent
from loadtest.protocols.openai_realtime.caller import OpenAIRealtimeCaller
from loadtest.protocols.openai_realtime.service import (
    MAX_ITEMS,
    ClearOutput,
    Command,
    Delete,
    Refused,
    Retrieve,
    ServiceSession,
)
from loadtest.protocols.received import REMEMBERED_EVENTS

PCM = bytes([1, 0, 2, 0])
NAMED = {"conversation_id": "conv_1"}


def caller() -> OpenAIRealtimeCaller:
    made = OpenAIRealtimeCaller(CallerOptions())
    receive(made, "session.created", session={})
    receive(made, "session.updated", session={})
    return made


def receive(made: OpenAIRealtimeCaller, kind: str, **fields: Any) -> list[VoiceEvent]:
    return list(made.receive(json.dumps({"type": kind} | fields)))


def began(made: OpenAIRealtimeCaller, response_id: str | None, **fields: Any) -> list[VoiceEvent]:
    named = {} if response_id is None else {"id": response_id}
    return receive(made, "response.created", response=named | fields)


def ended(made: OpenAIRealtimeCaller, response_id: str | None, status: str = "completed", **fields: Any) -> VoiceEvent:
    named = {} if response_id is None else {"id": response_id}
    return receive(made, "response.done", response=named | {"status": status} | fields)[-1]


def spoke(made: OpenAIRealtimeCaller, response_id: str, **fields: Any) -> VoiceEvent:
    delta = base64.b64encode(PCM).decode()
    return receive(made, "response.output_audio.delta", response_id=response_id, item_id="i", delta=delta, **fields)[0]


def wrote(made: OpenAIRealtimeCaller, response_id: str) -> VoiceEvent:
    return receive(made, "response.output_text.delta", response_id=response_id, item_id="i", delta="Yes.")[0]


CALL = {"type": "function_call", "name": "weather", "arguments": "{}"}


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("response.output_item.added", {"item": CALL}),
        ("response.output_item.done", {"item": CALL | {"type": "mcp_call"}}),
        ("response.function_call_arguments.delta", {"delta": "{"}),
        ("response.function_call_arguments.done", {"arguments": "{}"}),
        ("response.mcp_call_arguments.delta", {"delta": "{"}),
        ("response.mcp_call.in_progress", {}),
    ],
)
def test_a_response_with_a_tool_call_owes_another_one(kind: str, fields: dict[str, Any]) -> None:
    made = caller()
    began(made, "r1")
    assert [event.kind for event in receive(made, kind, response_id="r1", **fields)] == [EventKind.OTHER]
    done = ended(made, "r1")
    assert (done.carried, done.owes_response) == (frozenset({"tool_call"}), True)
    began(made, "r2")
    spoke(made, "r2")
    done = ended(made, "r2")
    assert (done.carried, done.owes_response) == (frozenset({"audio"}), False)


def test_response_output_shows_unannounced_tool_calls_and_text() -> None:
    made = caller()
    began(made, "r1")
    done = ended(made, "r1", output=[CALL])
    assert (done.carried, done.owes_response) == (frozenset({"tool_call"}), True)
    message = {"type": "message", "content": [{"type": "output_text", "text": "Yes."}]}
    assert ended(made, "r2", output=[message]).carried == {"text"}


def test_text_and_audio_differ_and_canceled_tool_call_owes_none() -> None:
    made = caller()
    began(made, "r1")
    wrote(made, "r1")
    assert ended(made, "r1").carried == {"text"}
    began(made, "r2")
    wrote(made, "r2")
    spoke(made, "r2")
    assert ended(made, "r2").carried == {"text", "audio"}
    began(made, "r3")
    assert not ended(made, "r3", "cancelled", output=[CALL]).owes_response


@pytest.mark.parametrize("output", [None, [], [None, 7, "x"], [{"content": 5}], [{"content": [None, {"text": ""}]}]])
def test_an_empty_output_is_not_an_error(output: Any) -> None:
    made = caller()
    began(made, "r1")
    done = ended(made, "r1", output=output)
    assert (done.kind, done.carried) == (EventKind.RESPONSE_DONE, frozenset())


def test_a_newer_response_supersedes_the_one_before_it() -> None:
    made = caller()
    began(made, "r1")
    wrote(made, "r1")
    over, started = began(made, "r2")
    assert (over.kind, over.response_id, over.status) == (EventKind.RESPONSE_DONE, "r1", SUPERSEDED)
    assert (over.carried, over.owes_response) == (frozenset({"text"}), False)
    assert (started.kind, started.response_id) == (EventKind.RESPONSE_STARTED, "r2")
    assert ended(made, "r1", "cancelled").status == "cancelled", "its own response.done may still come"
    (cancel,) = made.interrupt(0)
    assert json.loads(cancel)["response_id"] == "r2", "and does not end the newer one"


def test_responses_without_ids_supersede_one_another_too() -> None:
    made = caller()
    began(made, None)
    assert [event.kind for event in began(made, None)] == [EventKind.RESPONSE_DONE, EventKind.RESPONSE_STARTED]
    ended(made, None)
    assert [event.kind for event in began(made, None)] == [EventKind.RESPONSE_STARTED]


def test_response_announced_twice_or_after_end_supersedes_none() -> None:
    made = caller()
    began(made, "r1")
    assert [event.kind for event in began(made, "r1")] == [EventKind.RESPONSE_STARTED]
    ended(made, "r1")
    assert [event.kind for event in began(made, "r2")] == [EventKind.RESPONSE_STARTED]


def test_a_response_outside_the_conversation_is_ignored() -> None:
    made = caller()
    began(made, "r1", **NAMED)
    assert [event.kind for event in began(made, "outside", conversation_id=None)] == [EventKind.OTHER]
    assert wrote(made, "outside").kind is EventKind.OTHER
    assert ended(made, "outside").kind is EventKind.OTHER
    assert spoke(made, "r1").kind is EventKind.AUDIO
    (cancel, _) = made.interrupt(0)
    assert json.loads(cancel)["response_id"] == "r1"
    assert ended(made, "r1").status == "completed"


def test_audio_of_a_response_outside_the_conversation_counts() -> None:
    made = caller()
    began(made, "r1", **NAMED)
    began(made, "outside", conversation_id=None)
    assert spoke(made, "outside").kind is EventKind.AUDIO
    assert ended(made, "outside").kind is EventKind.RESPONSE_DONE


def test_a_null_conversation_is_ignored_if_no_response_names_one() -> None:
    made = caller()
    assert [event.kind for event in began(made, "r1", conversation_id=None)] == [EventKind.RESPONSE_STARTED]
    assert wrote(made, "r1").kind is EventKind.LLM_TEXT


def test_latency_reported_by_service_is_detected() -> None:
    made = caller()
    began(made, "r1")
    assert ended(made, "r1", metadata={"speech_to_speech.turn_latency": "{}"}).reports_latency
    assert not ended(made, "r2", metadata={"voice.cohort": "a"}).reports_latency


def test_events_of_this_protocol_are_known_even_if_unused() -> None:
    made = caller()
    for kind in ("rate_limits.updated", "output_audio_buffer.started", "response.mcp_call.completed", "ping"):
        assert receive(made, kind)[0].kind is EventKind.OTHER, kind
    for kind in ("vendor.turn_latency", "response.output_video.delta", ""):
        assert receive(made, kind)[0].kind is EventKind.UNKNOWN, kind


def test_a_message_that_is_sent_twice_counts_once() -> None:
    made = caller()
    began(made, "r1", event_id="unused")
    assert spoke(made, "r1", event_id="e1").kind is EventKind.AUDIO
    assert spoke(made, "r1", event_id="e1").kind is EventKind.DUPLICATE
    assert spoke(made, "r1", event_id="e2").kind is EventKind.AUDIO
    assert made.interrupt(0)


def test_a_repeat_is_detected_among_the_events_of_a_long_reply() -> None:
    made = caller()
    began(made, "r1")
    for number in range(REMEMBERED_EVENTS):
        assert spoke(made, "r1", event_id=f"e{number:05}").kind is EventKind.AUDIO
    assert spoke(made, "r1", event_id="e00000").kind is EventKind.DUPLICATE
    assert spoke(made, "r1", event_id="another").kind is EventKind.AUDIO
    assert spoke(made, "r1", event_id="e00000").kind is EventKind.DUPLICATE


@pytest.mark.parametrize("event_id", ["always", "", None])
def test_ids_that_are_not_unique_make_no_message_a_repeat(event_id: str | None) -> None:
    made = OpenAIRealtimeCaller(CallerOptions())
    receive(made, "session.created", session={}, event_id=event_id)
    assert receive(made, "session.updated", session={}, event_id=event_id)[0].kind is EventKind.READY
    receive(made, "response.created", response={"id": "r1"}, event_id=event_id)
    assert [spoke(made, "r1", event_id=event_id).kind for _ in range(3)] == [EventKind.AUDIO] * 3


def _new(*, beta: bool = False) -> ServiceSession:
    count = itertools.count()
    return ServiceSession(lambda prefix: f"{prefix}_{next(count)}", beta=beta)


def _command(of: ServiceSession, kind: str, **fields: Any) -> Command:
    (decoded,) = of.receive(json.dumps({"type": kind} | fields))
    return decoded


def _item(of: ServiceSession, item_id: str) -> dict[str, Any]:
    decoded = _command(of, "conversation.item.retrieve", item_id=item_id)
    assert isinstance(decoded, Retrieve), decoded
    return json.loads(decoded.reply)["item"]


def _retrieved(of: ServiceSession, item_id: str) -> dict[str, Any]:
    item = _item(of, item_id)
    event = {"type": "conversation.item.retrieved", "event_id": "event_1", "item": item}
    assert ConversationItemRetrieved.model_validate(event).item.id == item_id  # GA only: the beta has other part types
    return item


def _refused(of: ServiceSession, kind: str, **fields: Any) -> dict[str, Any]:
    decoded = _command(of, kind, **fields)
    assert isinstance(decoded, Refused), decoded
    event = json.loads(decoded.reply)
    RealtimeErrorEvent.model_validate(event)
    return event["error"]


@pytest.mark.parametrize("beta", [False, True], ids=["ga", "beta"])
def test_utterance_is_retrieved_with_transcript_once_it_exists(beta: bool) -> None:
    service = _new(beta=beta)
    service.user_audio_item("item_a", None)
    assert _retrieved(service, "item_a")["content"] == [{"type": "input_audio", "transcript": None}]
    service.transcription_completed("item_a", "turn on the light", 1.0)
    item = _retrieved(service, "item_a")
    assert (item["role"], item["status"]) == ("user", "completed")
    assert item["content"] == [{"type": "input_audio", "transcript": "turn on the light"}]


@pytest.mark.parametrize(("beta", "kind"), [(False, "output_audio"), (True, "audio")], ids=["ga", "beta"])
def test_a_reply_is_retrieved_in_its_current_state(beta: bool, kind: str) -> None:
    service = _new(beta=beta)
    reply = service.reply()
    reply.text_delta("Good ")
    assert _item(service, reply.item_id)["status"] == "in_progress"
    reply.text_delta("morning")
    reply.done()
    item = _item(service, reply.item_id)
    assert (item["role"], item["status"]) == ("assistant", "completed")
    assert item["content"] == [{"type": kind, "transcript": "Good morning"}]


def test_a_truncated_reply_loses_its_transcript() -> None:
    service = _new()
    reply = service.reply()
    reply.text_delta("Good morning")
    reply.done()
    service.truncated(reply.item_id, 0, 120)
    assert _retrieved(service, reply.item_id)["content"] == [{"type": "output_audio", "transcript": None}]


def test_retrieving_does_not_change_what_was_sent_before() -> None:
    service = _new()
    shown = json.loads(service.user_text_item("item_t", None, "hello")[0])["item"]
    service.transcription_completed("item_x", "unrelated", 1.0)  # an item that does not exist
    assert _retrieved(service, "item_t") == shown


def test_a_deleted_item_is_gone() -> None:
    service = _new()
    service.user_text_item("item_a", None, "one")
    service.user_text_item("item_b", "item_a", "two")
    assert _command(service, "conversation.item.delete", item_id="item_b", event_id="e") == Delete("item_b", "e")
    assert ConversationItemDeletedEvent.model_validate(json.loads(service.deleted("item_b"))).item_id == "item_b"
    assert service.last_item_id == "item_a"
    assert not service.has_item("item_b")
    assert _refused(service, "conversation.item.retrieve", item_id="item_b")["code"] == "item_not_found"
    service.deleted("item_a")
    assert service.last_item_id is None


@pytest.mark.parametrize("kind", ["conversation.item.retrieve", "conversation.item.delete"])
def test_a_missing_item_is_an_error_that_names_it(kind: str) -> None:
    error = _refused(_new(), kind, item_id="item_x", event_id="e")
    assert (error["code"], error["param"], error["event_id"]) == ("item_not_found", "item_id", "e")
    assert "'item_x'" in error["message"]
    assert "'item_id' is missing" in _refused(_new(), kind)["message"]
    assert "it should be a string" in _refused(_new(), kind, item_id=["item_x"])["message"]


def test_the_number_of_items_is_limited() -> None:
    service = _new()
    for number in range(MAX_ITEMS + 1):
        service.user_text_item(f"item_{number}", None, "x")
    assert _refused(service, "conversation.item.retrieve", item_id="item_0")["code"] == "item_not_found"
    assert _retrieved(service, f"item_{MAX_ITEMS}")["id"] == f"item_{MAX_ITEMS}"


def test_the_output_is_cleared() -> None:
    service = _new()
    assert _command(service, "output_audio_buffer.clear", event_id="e") == ClearOutput("e")
    event = OutputAudioBufferCleared.model_validate(json.loads(service.output_cleared("resp_1")))
    assert (event.type, event.response_id) == ("output_audio_buffer.cleared", "resp_1")
