"""Items that the client retrieves or deletes; the official client's types validate the answers."""

import itertools
import json
from typing import Any

import pytest
from openai.types.realtime import ConversationItemDeletedEvent, RealtimeErrorEvent
from openai.types.realtime.realtime_server_event import ConversationItemRetrieved, OutputAudioBufferCleared

from loadtest.protocols.openai_realtime.service import (
    MAX_ITEMS,
    ClearOutput,
    Command,
    Delete,
    Refused,
    Retrieve,
    ServiceSession,
)


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
def test_an_utterance_is_retrieved_with_its_transcript_once_there_is_one(beta: bool) -> None:
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
