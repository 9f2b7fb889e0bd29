"""The conversation history that the language model of a session gets."""

import json
from collections.abc import AsyncGenerator
from typing import Any

from loadtest.protocols.openai_realtime.service import ServiceSession
from loadtest.targets.assistant.faults import FaultySender
from loadtest.targets.assistant.interfaces import Question, TextDelta
from loadtest.targets.assistant.session import HISTORY_TURNS, CallParts, Session, make_id
from tests.unit.loadtest.targets.virtual_clock import VirtualClock, served


class Counter:
    """A model that answers with the number of the question, and a caller's connection that keeps what it receives."""

    model, route = "counter", "local"

    def __init__(self) -> None:
        self.histories: list[tuple[tuple[str, str], ...]] = []
        self.events: list[dict[str, Any]] = []

    async def answer(self, question: Question) -> AsyncGenerator[TextDelta]:
        self.histories.append(question.history)
        yield TextDelta(str(len(self.histories)))

    async def send(self, message: str, *, text: bool) -> None:
        self.events.append(json.loads(message))


def test_the_model_gets_the_last_turns_without_deleted_items() -> None:
    clock, fake = VirtualClock(), Counter()
    faults: list[BaseException] = []
    call = CallParts("call", ServiceSession(make_id), FaultySender(fake, None), None, faults.append)  # type: ignore[arg-type] - fake
    session = Session(served(clock, fake), call)

    async def receive(**event: Any) -> None:
        await session.receive(json.dumps(event), clock.now_ns)

    async def ask(number: int) -> None:
        content = [{"type": "input_text", "text": f"question {number}"}]
        item = {"id": f"q{number}", "type": "message", "role": "user", "content": content}
        await receive(type="conversation.item.create", item=item)
        await receive(type="response.create", response={"output_modalities": ["text"]})
        while sum(event["type"] == "response.done" for event in fake.events) < number:
            await clock.until(clock.now_ns + 1)

    async def work() -> None:
        await session.begin()
        await ask(1)
        await receive(type="conversation.item.delete", item_id="q1")
        for number in range(2, 2 * HISTORY_TURNS):
            await ask(number)
        await session.close()

    clock.run(work())
    assert faults == []
    assert fake.histories[:3] == [
        (),
        (("assistant", "1"),),
        (("assistant", "1"), ("user", "question 2"), ("assistant", "2")),
    ]
    assert len(fake.histories[-1]) == 2 * HISTORY_TURNS
    assert fake.histories[-1][-1] == ("assistant", str(2 * HISTORY_TURNS - 2))
