"""A caller's world without sockets: clips, plans, events and a conversation driven by hand."""

from collections.abc import Sequence
from typing import Self

import numpy as np

from corpora.manifest.manifest import Utterance
from corpora.rendering.render import SPEECH_LEVEL_DBOV, Obtained, Profile, Rendered
from loadtest.conversation.conversation import Conversation
from loadtest.conversation.exchange import Action, Exchange, Say
from loadtest.conversation.plan import CallPlan, Limits, PlannedTurn
from loadtest.conversation.playout import PlayoutBuffer
from loadtest.conversation.prepared_clip import PreparedClip, prepare_positions
from loadtest.conversation.wire import EVERY_EVENT, WireTraits
from loadtest.protocols.base import EventKind, VoiceEvent

RATE_HZ = 24_000
FRAME_SAMPLES = 480
MS = 1_000_000


def make_clip(
    speech_ms: int = 1000, lead_ms: int = 100, tail_ms: int = 100, text: str = "turn the light on"
) -> PreparedClip:
    start = lead_ms * RATE_HZ // 1000
    end = start + speech_ms * RATE_HZ // 1000 - 1
    samples = end + 1 + tail_ms * RATE_HZ // 1000
    utterance = Utterance(
        id="u1",
        path="u1.flac",
        text=text,
        speaker="slt",
        language="en-US",
        domain="home",
        license="CC0-1.0",
        source="made for a test",
        sha256="0" * 64,
        sample_rate_hz=RATE_HZ,
        samples=samples,
        speech_start_sample=start,
        speech_end_sample=end,
    )
    rendered = Rendered(
        np.zeros(samples, np.int16), RATE_HZ, start, end, Profile(), Obtained(SPEECH_LEVEL_DBOV), utterance
    )
    first, last = prepare_positions(rendered, FRAME_SAMPLES)
    frames = tuple(f"frame-{index}".encode() for index in range(-(-samples // FRAME_SAMPLES)))
    return PreparedClip(rendered, frames, FRAME_SAMPLES, first, last)


def make_plan(
    turns: int = 1, *, think_ms: int = 500, patience_ms: int | None = None, reply_ms: int = 10_000, manual: bool = False
) -> CallPlan:
    planned = PlannedTurn(make_clip(), think_ms * MS, None if patience_ms is None else patience_ms * MS)
    return CallPlan("call-1", (planned,) * turns, (b"silence",), Limits(reply_ns=reply_ms * MS), manual)


def tone(ms: int, amplitude: int = 8000) -> bytes:
    return np.full(RATE_HZ * ms // 1000, amplitude, "<i2").tobytes()


def silence(ms: int) -> bytes:
    return bytes(2 * (RATE_HZ * ms // 1000))


def audio(pcm: bytes, response_id: str | None = "r1", rate_hz: int = RATE_HZ) -> VoiceEvent:
    return VoiceEvent(
        EventKind.AUDIO,
        "response.output_audio.delta",
        response_id=response_id,
        item_id="i1",
        audio=pcm,
        rate_hz=rate_hz,
    )


def event(kind: EventKind, **fields: object) -> VoiceEvent:
    return VoiceEvent(kind, kind.value, **fields)  # type: ignore[arg-type]


class World:
    """A conversation and the moment it is; its actions are kept in `actions`."""

    def __init__(self, plan: CallPlan, *, begin: bool = True, wire: WireTraits = EVERY_EVENT) -> None:
        self.playout = PlayoutBuffer("rms-10ms")
        self.conversation = Conversation(plan, self.playout, wire)
        self.now = 1_000_000 * MS
        self.actions: list[Action] = list(self.conversation.begin(self.now)) if begin else []

    def do(self, actions: Sequence[Action]) -> Self:
        """Keep the actions that one call returned."""
        self.actions += actions
        return self

    def wind_down(self) -> Self:
        self.conversation.wind_down()
        return self

    def speech_starts(self) -> Self:
        return self.do(self.conversation.on_speech_start(self.now, 0))

    def speech_ends(self) -> Self:
        return self.do(self.conversation.on_speech_end(self.now, 5_000 * MS, 0, 0))

    def after(self, ms: float) -> Self:
        """Let time pass: deadlines are kept as the engine keeps them, looked at every 20 ms."""
        end = self.now + round(ms * MS)
        while self.now < end:
            self.now = min(end, self.now + 20 * MS)
            self.actions += self.conversation.on_time(self.now)
        return self

    def hear(self, *events: VoiceEvent) -> Self:
        for one in events:
            self.actions += self.conversation.on_event(one, self.now)
        return self

    def speak(self, ms: float = 1000) -> Self:
        """Say the utterance: think time, the first and the last speech sample."""
        self.after(500)
        assert isinstance(self.actions[-1], Say)
        self.actions += self.conversation.on_speech_start(self.now, 0)
        self.after(ms)
        self.actions += self.conversation.on_speech_end(self.now, 5_000 * MS, 0, 0)
        return self

    def lose(self, reason: str) -> Self:
        self.actions += self.conversation.on_closed(reason, self.now)
        return self

    @property
    def exchanges(self) -> list[Exchange]:
        return [action for action in self.actions if isinstance(action, Exchange)]

    @property
    def last(self) -> Exchange:
        return self.exchanges[-1]


def reply(ms: int = 300, response_id: str = "r1") -> list[VoiceEvent]:
    return [
        event(EventKind.RESPONSE_STARTED, response_id=response_id),
        audio(tone(ms), response_id),
        event(EventKind.RESPONSE_DONE, response_id=response_id, status="completed"),
    ]
