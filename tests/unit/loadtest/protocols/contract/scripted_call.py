"""A whole conversation over a scripted server, under an injected clock: what the engine does, without sockets."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from loadtest.conversation.conversation import Conversation
from loadtest.conversation.exchange import Action, BeginTurn, EndTurn, Exchange, HangUp, Interrupt, Played, Say
from loadtest.conversation.plan import CallPlan
from loadtest.conversation.playout import PlayoutBuffer
from loadtest.conversation.record import CallInfo, build_turn
from loadtest.conversation.wire import WireTraits
from loadtest.protocols.base import VoiceEvent
from telemetry.model.turns import Turn
from tests.unit.loadtest.conversation.test_conversation_record import CALL, OPTIONS
from tests.unit.loadtest.conversation.world import make_plan
from tests.unit.loadtest.protocols.contract.line import Line, tone
from tests.unit.loadtest.protocols.contract.wire_script import Stage

MS: Final = 1_000_000
STEP_MS: Final = 20
SPEECH_MS: Final = 1_000
# From the end of the speech to the first of the server's steps after it, and from each step to the next.
BETWEEN_STEPS_MS: Final = 100
REPLY_MS: Final = 400


def two_turns(**second: object) -> CallPlan:
    """A plan of two turns, the second of them changed."""
    plan = make_plan(2)
    return replace(plan, turns=(plan.turns[0], replace(plan.turns[1], **second)))  # type: ignore[arg-type]


class ScriptedCall:
    """A caller in conversation with a scripted server. `turns` are those that have ended."""

    def __init__(self, name: str, plan: CallPlan | None = None) -> None:
        self.line = Line(name)
        self.line.open()
        capabilities = self.line.caller.capabilities
        self.manual = self.line.script.options.turn_control == "manual"
        plan = replace(plan or make_plan(), manual_turns=self.manual)
        self.conversation = Conversation(plan, PlayoutBuffer("rms-10ms"), WireTraits.of(capabilities))
        self.now = 1_000_000 * MS
        self.exchanges: list[Exchange] = []
        self.hung_up: list[str] = []
        self.speaking = False
        self._info: CallInfo = replace(CALL, not_observable=capabilities.not_observable)
        self._perform(self.conversation.begin(self.now))

    @property
    def turns(self) -> list[Turn]:
        """The records of the turns that have ended."""
        return [build_turn(exchange, self._info, OPTIONS) for exchange in self.exchanges]

    def _perform(self, actions: Sequence[Action]) -> None:
        caller, before = self.line.caller, len(self.line.events)
        for action in actions:
            match action:
                case BeginTurn():
                    self.line.send(caller.begin_turn(action.words))
                case Say():
                    self.speaking = True
                case EndTurn():
                    self.line.send(caller.end_turn())
                case Interrupt():
                    self.line.send(caller.interrupt(action.played_ms))
                case Played():
                    self.line.send(caller.played(action.mark))
                case HangUp():
                    self.hung_up.append(action.reason)
                case Exchange():
                    self.exchanges.append(action)
        self._hear(self.line.events[before:])

    def _hear(self, events: Sequence[VoiceEvent]) -> None:
        for event in events:
            self._perform(self.conversation.on_event(event, self.now))

    def after(self, ms: int) -> "ScriptedCall":
        """Let time pass."""
        for _ in range(ms // STEP_MS):
            self.now += STEP_MS * MS
            if self.speaking:
                self.line.frame()
            self._perform(self.conversation.on_time(self.now))
        return self

    def until_speaking(self) -> "ScriptedCall":
        """Let time pass until the caller begins to speak: its first speech sample is sent now."""
        for _ in range(500):
            if self.speaking:
                self._perform(self.conversation.on_speech_start(self.now, 0))
                return self
            self.after(STEP_MS)
        raise AssertionError("the caller never speaks")

    def stop_speaking(self) -> int:
        """The last speech sample is sent now: the moment."""
        self.speaking = False
        self._perform(self.conversation.on_speech_end(self.now, 5_000 * MS, 0, 0))
        return self.now

    def step(self, stage: Stage, pcm: bytes | None = None) -> int:
        """The server takes a step now: the moment."""
        before = len(self.line.events)
        self.line.deliver(self.line.step_messages(stage, "", pcm))
        self._hear(self.line.events[before:])
        return self.now

    def deliver(self, messages: Sequence[object] | None) -> None:
        """The server sends messages now."""
        before = len(self.line.events)
        self.line.deliver(messages)
        self._hear(self.line.events[before:])

    def ask(self) -> dict[str, int]:
        """Speak for a second, with what the server sends meanwhile: the moments of its steps, and of the speech."""
        moments = {"speech_start": self.until_speaking().now}
        during = self.line.script.order[: self.line.script.order.index(self.line.script.first_after_speech)]
        for stage in during:
            moments[stage] = self.after(BETWEEN_STEPS_MS).step(stage)
        self.after(SPEECH_MS - BETWEEN_STEPS_MS * len(during))
        moments["speech_end"] = self.stop_speaking()
        return moments

    def answer(self, order: Sequence[Stage] | None = None) -> dict[str, int]:
        """The server's steps after the speech, one after the other: their moments."""
        script = self.line.script
        order = script.order[script.order.index(script.first_after_speech) :] if order is None else order
        moments: dict[str, int] = {}
        for stage in order:
            self.after(BETWEEN_STEPS_MS)
            moments[stage] = self.step(stage, tone(script.reply_rate_hz, REPLY_MS) if stage == "audio" else None)
        return moments
