"""A session of the vendor's own client (elevenlabs 2.78.0), and an agent that sends only the usual events."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import pytest

from loadtest.protocols.base import CallerOptions, EventKind
from loadtest.protocols.elevenlabs.settings import CLIENT_EVENTS
from loadtest.protocols.registry import make_caller
from tests.unit.loadtest.protocols.contract import test_contract_conversations as conversations
from tests.unit.loadtest.protocols.contract.line import SCRIPTS
from tests.unit.loadtest.protocols.contract.scripts.elevenlabs import (
    EVERY_EVENT,
    ElevenLabsScript,
    interruption,
    response,
)
from tests.unit.loadtest.protocols.contract.wire_script import Messages, Stage
from tests.unit.loadtest.protocols.elevenlabs.vendors_client import TOOLS, assert_same, first_message

RECORDED = Path(__file__).parents[4] / "fixtures" / "elevenlabs" / "client-2.78.0.json"


@cache
def session() -> dict[str, Any]:
    recording = json.loads(RECORDED.read_text())
    assert recording["recorded"] == {"peer": "elevenlabs", "version": "2.78.0"}
    return recording


def test_each_message_means_what_the_vendors_client_made_of_it() -> None:
    assert_same(session())


def test_every_client_event_of_the_vendors_package_is_known() -> None:
    assert set(session()["client_events"]) <= CLIENT_EVENTS


def test_only_events_unknown_to_vendor_client_are_unknown() -> None:
    caller = make_caller("elevenlabs", CallerOptions(settings={"client_events": EVERY_EVENT, "tools": TOOLS}))
    events = [event for message in session()["messages"] for event in caller.receive(json.dumps(message["message"]))]
    assert [event.raw_type for event in events if event.kind is EventKind.UNKNOWN] == ["agent_mood"]
    ready = next(event for event in events if event.kind is EventKind.READY)
    assert ready.metadata == {"session.id": session()["conversation_id"]}


def test_vendor_models_understand_all_members_of_first_message() -> None:
    initiation = session()["initiation"]
    assert first_message() == initiation["given"], "record it again: tests/integration/recorders/record_elevenlabs.py"
    # The models are those of the HTTP API, in which the message has no type.
    assert initiation["unknown_members"] == ["type"]
    assert initiation["fields"] == initiation["given"]


class UsualScript(ElevenLabsScript):
    """An agent with the client events that the settings take for usual."""

    options: ClassVar[CallerOptions] = CallerOptions()
    order: ClassVar[tuple[Stage, ...]] = ("final", "text", "audio")

    def partial(self, text: str) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        del text

    def reply_started(self) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        return None

    def text(self, text: str) -> Messages:
        return [response(text, self.next_id())]

    def reply_done(self) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        return None

    def broken_off(self) -> Messages:
        return [interruption(self.event_id)]


@pytest.mark.parametrize(
    "conversation",
    [
        conversations.test_two_turns_have_the_moments_of_their_scripts,
        conversations.test_interrupting_caller_is_answered_again,
        conversations.test_the_end_of_sending_is_not_the_end_of_hearing,
        conversations.test_a_server_that_never_answers_gave_no_reply,
        conversations.test_a_fatal_error_ends_the_call_with_its_cause,
    ],
    ids=lambda conversation: conversation.__name__,
)
def test_a_conversation(conversation: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCRIPTS, "elevenlabs", UsualScript)  # type: ignore[arg-type]  # a dict in truth
    conversation("elevenlabs")
