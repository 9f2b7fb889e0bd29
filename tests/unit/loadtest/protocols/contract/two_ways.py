"""Every wire that carries audio in messages, with and without the reader of its usual messages."""

from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from types import BuiltinFunctionType, FunctionType
from typing import Any, Final
from unittest import mock

from loadtest.protocols.base import CallerProtocol, EventKind, VoiceEvent
from loadtest.protocols.exact_messages import ExactReader
from loadtest.protocols.openai_realtime.caller import OpenAIRealtimeCaller
from loadtest.protocols.wyoming import events
from tests.unit.loadtest.protocols.contract.line import SCRIPTS, Line, Received, tone
from tests.unit.loadtest.protocols.contract.wire_script import WireScript

# A step: a message, or a method of the caller and its arguments.
Step = str | bytes | tuple[str, tuple[Any, ...]]
AUDIO_MS: Final = 20


def speaks(name: str) -> bool:
    """Whether the wire's messages are text or bytes, and some of them carry audio."""
    line = Line(name)
    transport = line.caller.capabilities.transport
    return transport in ("websocket", "tcp", "tcp-listen") and type(line.script).audio is not WireScript.audio


WIRES: Final = [name for name in sorted(SCRIPTS) if speaks(name)]

# The wires whose callers have such a reader.
READ: Final = (
    "elevenlabs",
    "exotel",
    "gemini-live",
    "openai-realtime",
    "openai-realtime-beta",
    "pipecat-eval",
    "plivo",
    "telnyx",
    "twilio",
)


@cache
def conversation(name: str) -> tuple[Step, ...]:
    """Two turns with several pieces of audio each, the second broken off: what happened to the caller."""
    line = Line(name)
    line.open()
    line.turn(until="audio")
    script = line.script
    for ms in (AUDIO_MS, AUDIO_MS, 2 * AUDIO_MS, AUDIO_MS):
        line.step("audio", pcm=tone(script.reply_rate_hz, ms))
    if "reply_done" in script.order:
        line.step("reply_done")
    line.turn(until="audio")
    odd = tone(script.reply_rate_hz, AUDIO_MS) + (b"\1" if script.exact_audio else b"")
    line.step("audio", pcm=odd)
    line.deliver(script.broken_off())
    line.step("audio", pcm=odd)
    for more in (script.repeated, script.unknown, script.error, script.malformed):
        line.deliver(more())
    return tuple(entry.message if isinstance(entry, Received) else (entry.method, entry.args) for entry in line.log)


@cache
def audible_steps(name: str) -> tuple[int, ...]:
    """Which of the steps of `conversation` made audio."""
    steps, (made, _) = conversation(name), outcome(Line(name).caller, conversation(name))
    found = [at for at, step in enumerate(steps) if not isinstance(step, tuple) and _is_audible(made[at][0])]
    assert len(found) > 4
    return tuple(found)


def _is_audible(events: Sequence[VoiceEvent]) -> bool:
    return any(event.kind is EventKind.AUDIO for event in events)


def snapshot(value: Any) -> Any:
    """All that an object holds, in order and in depth, without the readers: they only decide which way is taken."""
    if isinstance(value, ExactReader):
        return "a reader"
    if value is None or isinstance(value, str | bytes | int | float | FunctionType | BuiltinFunctionType | type):
        return value
    if isinstance(value, dict):
        return [(snapshot(key), snapshot(each)) for key, each in value.items()]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list | tuple):
        return [snapshot(each) for each in value]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, set | frozenset):
        return frozenset(value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    names = [
        *getattr(value, "__dict__", ()),
        *(n for kind in type(value).__mro__ for n in getattr(kind, "__slots__", ())),
    ]
    return type(value).__name__, [(each, snapshot(getattr(value, each, None))) for each in names]


def outcome(caller: CallerProtocol, steps: Sequence[Step]) -> tuple[list[Any], Any]:
    """What a caller makes of the steps: the events and messages of each, and its state in the end."""
    found: list[Any] = []
    for step in steps:
        if isinstance(step, tuple):
            method, args = step
            found.append(getattr(caller, method)(*args) if method != "audio_message" else None)
        else:
            found.append((list(caller.receive(step)), list(caller.pending())))
    if isinstance(caller, OpenAIRealtimeCaller):
        caller._running.settle()
    return found, snapshot(caller)


@contextmanager
def without_readers() -> Generator[None]:
    """Every reader reads nothing, and nothing is remembered of a message: each goes the way of any message."""

    def unread(self: ExactReader[Any], message: str | bytes) -> None:
        del self, message

    with ExitStack() as patches:
        patches.enter_context(mock.patch.object(ExactReader, "read", unread))
        for name in ("_known_lengths", "_known_content"):
            patches.enter_context(mock.patch.object(events, name, getattr(events, name).__wrapped__))
        yield


def assert_same(make: Callable[[], CallerProtocol], steps: Sequence[Step]) -> None:
    """Two callers, one without readers, do the same with the steps."""
    with without_readers():
        wanted = outcome(make(), steps)
    found = outcome(make(), steps)
    assert found[0] == wanted[0]
    assert found[1] == wanted[1]
