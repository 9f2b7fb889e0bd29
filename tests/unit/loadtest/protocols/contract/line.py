"""A caller's protocol and a scripted server, joined without a network and without a clock."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np

from loadtest.protocols.base import CallerProtocol, EventKind, Incoming, Outgoing, SpokenText, VoiceEvent
from loadtest.protocols.registry import make_caller
from tests.unit.loadtest.protocols.contract.wire_script import UTTERANCE, Messages, Scripts, Stage, WireScript

HERE: Final = Path(__file__).parent
# How often a server may answer an answer before the two are taken to repeat themselves for ever.
MOST_ROUNDS: Final = 50
# One for every call, so that a session can be played again to another caller.
TRACEPARENT: Final = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TEXT: Final = "It is on. "


def scripts() -> Scripts:
    """Every script of the folder `scripts`, by the registered name of its protocol."""
    by_name: dict[str, type[WireScript]] = {}
    for path in sorted((HERE / "scripts").glob("*.py")):
        module: Any = import_module(f"tests.unit.loadtest.protocols.contract.scripts.{path.stem}")
        for name, script in module.SCRIPTS.items():
            assert name not in by_name, f"{name} has two scripts"
            by_name[name] = script
    return by_name


SCRIPTS: Final = scripts()


def having(step: str) -> list[str]:
    """The protocols whose wire has this step: those whose script defines it."""
    return [name for name in sorted(SCRIPTS) if getattr(SCRIPTS[name], step) is not getattr(WireScript, step)]


def tone(rate_hz: int, ms: int = 200) -> bytes:
    """A tone that is audible from its first samples on, 16-bit little-endian."""
    positions = np.arange(rate_hz * ms // 1000)
    return (8000 * np.cos(2 * np.pi * 400 * positions / rate_hz)).astype("<i2").tobytes()


def opening_events(caller: CallerProtocol) -> list[VoiceEvent]:
    """Return the events of the open connection alone: the session is ready, if no message says so."""
    return [VoiceEvent(EventKind.READY, "opened")] if caller.capabilities.ready_when_open else []


@dataclass(frozen=True)
class Call:
    """A method of the caller was called."""

    method: str
    args: tuple[Any, ...]


@dataclass(frozen=True)
class Received:
    """The caller received a message."""

    message: Incoming


class Line:
    """One caller and its server. `events` are all that the server's messages made so far, in order.

    `log` holds what happened to the caller: a `Call` of one of its methods, or a message that it received.
    """

    def __init__(self, name: str, script: WireScript | None = None) -> None:
        self.script = SCRIPTS[name]() if script is None else script
        self.caller: CallerProtocol = make_caller(name, self.script.options)
        self.events: list[VoiceEvent] = []
        self.log: list[Call | Received] = []
        self.sent: list[Outgoing] = []
        self.upgrade = self._call("upgrade", self.script.url, TRACEPARENT)

    def _call(self, method: str, *args: Any) -> Any:
        self.log.append(Call(method, args))
        return getattr(self.caller, method)(*args)

    def open(self) -> list[VoiceEvent]:
        """Open the session: what the caller sends first, what the server says on its own, and all that follows."""
        before = len(self.events)
        self.send(self._call("opened"))
        self.events += opening_events(self.caller)
        self.deliver(self.script.greets())
        return self.events[before:]

    def send(self, messages: Sequence[Outgoing], rounds: int = 0) -> None:
        """Pass the caller's messages to the server, and its answers back."""
        assert rounds < MOST_ROUNDS, "the caller and the server answer each other for ever"
        for message in messages:
            self.sent.append(message)
            self.deliver(self.script.answers(message), rounds + 1)

    def deliver(self, messages: Messages | None, rounds: int = 0) -> list[VoiceEvent]:
        """Pass the server's messages to the caller, and the caller's own answers back. Returns their events."""
        collected: list[VoiceEvent] = []
        for message in messages or ():
            self.log.append(Received(message))
            events = list(self.caller.receive(message))
            self.events += events
            collected += events
            self.send(self.caller.pending(), rounds)
        return collected

    def say(self, utterance: SpokenText = UTTERANCE, frames: int = 5) -> None:
        """Say a few frames of silence as a turn, up to the end of its speech; `finish` ends the turn."""
        self.send(self._call("begin_turn", utterance))
        for _ in range(frames):
            self.frame()

    def frame(self) -> bytes:
        """Send one frame, and return the whole message."""
        capabilities = self.caller.capabilities
        pcm = np.zeros(capabilities.input_rate_hz * capabilities.frame_ms // 1000, np.int16)
        message = self.caller.audio_message(pcm)
        if capabilities.transport == "http":
            self._call("keep_audio", message)
            return message
        head = self._call("audio_head")
        whole = message if head is None else head + message
        self.send([whole.decode() if capabilities.audio_is_text else whole])
        return whole

    def finish(self) -> None:
        """End the caller's turn."""
        self.send(self._call("end_turn"))

    def step(self, stage: Stage, text: str = "", pcm: bytes | None = None) -> list[VoiceEvent]:
        """Take one step of a turn; the events that it caused, those of the server's further answers included."""
        before = len(self.events)
        self.deliver(self.step_messages(stage, text, pcm))
        return self.events[before:]

    def step_messages(self, stage: Stage, text: str = "", pcm: bytes | None = None) -> Messages | None:
        """Return the server's messages for a stage."""
        script = self.script
        match stage:
            case "partial" | "final":
                return getattr(script, stage)(text or UTTERANCE.text)
            case "text":
                return script.text(text or TEXT)
            case "audio":
                return script.audio(tone(script.reply_rate_hz) if pcm is None else pcm)
            case _:
                return getattr(script, stage)()

    def turn(self, *, until: Stage | None = None) -> list[VoiceEvent]:
        """A whole turn in the server's order, or as far as `until`, which is the last stage taken."""
        before = len(self.events)
        self.say()
        order = self.script.order
        finished = False
        for stage in order:
            if stage == self.script.first_after_speech:
                finished = True
                self.finish()
            self.step(stage)
            if stage == until:
                break
        assert finished or until is not None, "first_after_speech is one of the stages of `order`"
        return self.events[before:]


def kinds(events: Sequence[VoiceEvent]) -> list[EventKind]:
    """The kinds of events in order, without what no caller needs."""
    return [event.kind for event in events if event.kind is not EventKind.OTHER]


def lines(events: Sequence[VoiceEvent]) -> list[str]:
    """Events in words, without what no caller needs: their kind, status and content, then sentence and cause."""
    texts: list[str] = []
    for event in events:
        if event.kind is EventKind.OTHER:
            continue
        code = None if event.failure is None else event.failure.code
        words = [
            event.kind.value,
            "" if event.text is None else repr(event.text),
            f"{len(event.audio)}@{event.rate_hz}" if event.audio else "",
            event.status or "",
            "+".join(sorted(event.carried)),
            "owes" if event.owes_response else "",
            "fatal" if event.fatal else "",
            code or "" if event.kind is EventKind.ERROR else "",
        ]
        line = " ".join(word for word in words if word)
        if event.message and event.kind is not EventKind.ERROR:
            line += f": {event.message}{f' [{code}]' if code else ''}"
        texts.append(line)
    return texts


def only(events: Sequence[VoiceEvent], kind: EventKind) -> VoiceEvent:
    """The one event of a kind."""
    (match,) = [event for event in events if event.kind is kind]
    return match


def joined(events: Sequence[VoiceEvent]) -> list[tuple[Any, ...]]:
    """Events as tuples, adjacent audio and text of one response as one: how a body is cut is no part of a session."""
    merged: list[tuple[Any, ...]] = []
    for event in events:
        if event.kind is EventKind.OTHER:
            continue
        head = (event.kind, event.response_id, event.item_id, event.rate_hz, event.status, event.message)
        head += (event.fatal, event.failure, event.carried, dict(event.metadata), dict(event.usage))
        audio, text = event.audio or b"", event.text or ""
        mergeable = event.kind in (EventKind.AUDIO, EventKind.LLM_TEXT)
        if mergeable and merged and merged[-1][:-2] == head:
            merged[-1] = (*head, merged[-1][-2] + audio, merged[-1][-1] + text)
        else:
            merged.append((*head, audio, text))
    return merged
