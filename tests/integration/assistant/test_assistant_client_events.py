"""Every client event that the official client knows, against our assistant: answered, or refused by name.

The answers are read by the official client's own types, strictly.
"""

import asyncio
import typing
from collections.abc import Iterator
from typing import Any

import pytest
from openai.types.realtime.realtime_client_event import RealtimeClientEvent
from openai.types.realtime.realtime_server_event import RealtimeServerEvent
from pydantic import TypeAdapter

from tests.integration.assistant.assistant_process import Caller, call, clip, hosted, silence

TEXT = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]}
# By client event: (fields, the server event that answers it). A name in braces is an id from the call so far.
ANSWERED: dict[str, tuple[dict[str, Any], str]] = {
    "session.update": ({"session": {"type": "realtime", "instructions": "short"}}, "session.updated"),
    "input_audio_buffer.append": ({"audio": "AAAA" * 160}, ""),  # nothing answers it on this wire
    "input_audio_buffer.commit": ({}, "input_audio_buffer.committed"),
    "input_audio_buffer.clear": ({}, "input_audio_buffer.cleared"),
    "conversation.item.create": ({"item": TEXT}, "conversation.item.added"),
    "conversation.item.retrieve": ({"item_id": "{item}"}, "conversation.item.retrieved"),
    "response.create": ({}, "response.created"),
    "response.cancel": ({}, "response.done"),
    "output_audio_buffer.clear": ({}, "output_audio_buffer.cleared"),
    "conversation.item.truncate": (
        {"item_id": "{reply}", "content_index": 0, "audio_end_ms": 0},
        "conversation.item.truncated",
    ),
    "conversation.item.delete": ({"item_id": "{item}"}, "conversation.item.deleted"),
}
# What of them is refused, by which code.
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("session.update", {"session": {"type": "transcription"}}, "invalid_value"),
    ("input_audio_buffer.append", {"audio": "!"}, "invalid_event"),
    ("input_audio_buffer.commit", {}, "input_audio_buffer_commit_empty"),
    (
        "conversation.item.create",
        {"item": {"type": "function_call_output", "call_id": "c", "output": ""}},
        "invalid_event",
    ),
    ("conversation.item.retrieve", {"item_id": "item_none"}, "item_not_found"),
    ("conversation.item.delete", {"item_id": "item_none"}, "item_not_found"),
    ("conversation.item.truncate", {"item_id": "item_none", "content_index": 0, "audio_end_ms": 0}, "item_not_found"),
    ("response.cancel", {}, "response_cancel_not_active"),
    ("output_audio_buffer.clear", {}, "no_response"),
]
READ: TypeAdapter[Any] = TypeAdapter(RealtimeServerEvent)
CLIENT_EVENTS: TypeAdapter[Any] = TypeAdapter(RealtimeClientEvent)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with hosted() as running:
        yield running


def _known_client_events() -> set[str]:
    (union, *_) = typing.get_args(RealtimeClientEvent)
    return {typing.get_args(member.model_fields["type"].annotation)[0] for member in typing.get_args(union)}


def test_every_event_of_the_official_client_is_in_the_table() -> None:
    assert set(ANSWERED) == _known_client_events()


def _check(event: dict[str, Any]) -> None:
    """Check a message with the official client: its type, and every field of ours among those it knows."""
    read = READ.validate_python(event)
    assert read.type == event["type"]


async def _ask(caller: Caller, kind: str, fields: dict[str, Any]) -> None:
    message = {"type": kind, **fields}
    CLIENT_EVENTS.validate_python(message)  # else the official client would not have sent it
    await caller.send(**message)


async def _answers(url: str) -> dict[str, dict[str, Any]]:
    """Each client event once, in an order that makes sense; what answered it."""
    answers: dict[str, dict[str, Any]] = {}
    async with call(url) as caller:
        await caller.update(turn_detection=None)
        ids: dict[str, str] = {}

        async def ask(kind: str) -> dict[str, Any]:
            fields, answer = ANSWERED[kind]
            filled = {key: value.format(**ids) if isinstance(value, str) else value for key, value in fields.items()}
            await _ask(caller, kind, filled)
            if answer:
                answers[kind] = await caller.until(lambda event: event["type"] in (answer, "error"))
            return answers.get(kind, {})

        await ask("session.update")
        await ask("input_audio_buffer.append")
        await ask("input_audio_buffer.clear")
        await caller.speak(silence(0.2), clip("travel-gate")[0])
        await ask("input_audio_buffer.commit")
        await caller.until("conversation.item.input_audio_transcription.completed")
        await ask("conversation.item.create")
        ids["item"] = answers["conversation.item.create"]["item"]["id"]
        await ask("conversation.item.retrieve")
        await ask("response.create")
        await ask("response.cancel")
        await ask("output_audio_buffer.clear")
        await _ask(caller, "response.create", {})
        done = await caller.until("response.done")
        ids["reply"] = done["response"]["output"][0]["id"]
        await ask("conversation.item.truncate")
        await ask("conversation.item.delete")
        await _ask(caller, "conversation.item.retrieve", {"item_id": ids["item"]})
        assert (await caller.until("error"))["error"]["code"] == "item_not_found"
        for event in caller.events:
            _check(event)
    return answers


def test_every_event_of_the_official_client_is_answered(url: str) -> None:
    result = asyncio.run(_answers(url))
    for kind, (_, answer) in ANSWERED.items():
        assert result.get(kind, {}).get("type", "") == answer, (kind, result.get(kind))
    asked, retrieved = result["conversation.item.create"]["item"], result["conversation.item.retrieve"]["item"]
    assert retrieved == asked
    assert retrieved["content"] == TEXT["content"]
    assert result["conversation.item.delete"]["item_id"] == asked["id"]
    created, cleared = result["response.create"], result["output_audio_buffer.clear"]
    assert cleared["response_id"] == created["response"]["id"]


def test_impossible_event_is_refused_with_error_that_names_it(url: str) -> None:
    async def refusals() -> list[dict[str, Any]]:
        async with call(url) as caller:
            values: list[dict[str, Any]] = []
            for number, (kind, fields, _) in enumerate(REFUSED):
                await _ask(caller, kind, fields | {"event_id": f"mine_{number}"})
                values.append(await caller.until("error"))
            for event in caller.events:
                _check(event)
            return values

    errors = [event["error"] for event in asyncio.run(refusals())]
    assert [(error["event_id"], error["code"]) for error in errors] == [
        (f"mine_{number}", code) for number, (_, _, code) in enumerate(REFUSED)
    ]


def test_clearing_the_output_ends_a_reply_that_is_being_spoken(url: str) -> None:
    async def events() -> list[dict[str, Any]]:
        async with call(url) as caller:
            await caller.update(turn_detection=None)
            await _ask(caller, "conversation.item.create", {"item": TEXT})
            await _ask(caller, "response.create", {})
            await caller.until("response.created")
            await _ask(caller, "output_audio_buffer.clear", {})
            await caller.until("output_audio_buffer.cleared")
            return caller.events

    (done,) = [event for event in asyncio.run(events()) if event["type"] == "response.done"]
    assert (done["response"]["status"], done["response"]["status_details"]["reason"]) == (
        "cancelled",
        "client_cancelled",
    )
