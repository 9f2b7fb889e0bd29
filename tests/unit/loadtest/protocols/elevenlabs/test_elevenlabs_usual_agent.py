"""Conversations with an agent that sends only the usual events: replies end by silence, and texts come whole."""

from collections.abc import Callable
from typing import ClassVar

import pytest

from loadtest.protocols.base import CallerOptions
from tests.unit.loadtest.protocols.contract import test_contract_conversations as conversations
from tests.unit.loadtest.protocols.contract.line import SCRIPTS
from tests.unit.loadtest.protocols.contract.scripts.elevenlabs import ElevenLabsScript, interruption, response
from tests.unit.loadtest.protocols.contract.wire_script import Messages, Stage


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
        conversations.test_a_caller_who_interrupts_is_answered_anew,
        conversations.test_the_end_of_sending_is_not_the_end_of_hearing,
        conversations.test_a_server_that_never_answers_gave_no_reply,
        conversations.test_a_fatal_error_ends_the_call_with_its_cause,
    ],
    ids=lambda conversation: conversation.__name__,
)
def test_a_conversation(conversation: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCRIPTS, "elevenlabs", UsualScript)  # type: ignore[arg-type]  # a dict in truth
    conversation("elevenlabs")
