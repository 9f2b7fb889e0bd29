"""A reply that ends by silence is measured like its twin that an event ends, however its audio is split."""

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtest.conversation.exchange import Played
from loadtest.conversation.record import build_turn
from loadtest.conversation.wire import EVERY_EVENT, WireTraits
from loadtest.protocols.base import EventKind, VoiceEvent
from telemetry.model.turns import Turn
from tests.unit.loadtest.conversation.test_conversation_record import CALL, OPTIONS
from tests.unit.loadtest.conversation.world import MS, RATE_HZ, World, audio, event, make_plan, silence, tone

SILENT = WireTraits(closes_replies=False, closes_questions=False)
SILENCE_MS = 1_000


@dataclass(frozen=True)
class Chunk:
    """Silence and then a tone, how long nothing had arrived before them, and where they are split into pieces that
    arrive together, all in ms."""

    silence_ms: int
    tone_ms: int
    gap_ms: int
    cuts: tuple[int, ...]

    @property
    def pcm(self) -> bytes:
        return silence(self.silence_ms) + tone(self.tone_ms)

    def pieces(self) -> list[bytes]:
        whole = self.silence_ms + self.tone_ms
        edges = [2 * cut * RATE_HZ // 1000 for cut in sorted({0, whole, *(cut % whole for cut in self.cuts)})]
        return [self.pcm[begin:end] for begin, end in pairwise(edges)]


chunks = st.lists(
    st.builds(
        Chunk,
        st.sampled_from([0, 20, 300]),
        st.sampled_from([0, 40, 200, 700]),
        st.sampled_from([0, 0, 0, 20, 200, 640, 960]),
        st.lists(st.integers(0, 1_000), max_size=4).map(tuple),
    ).filter(lambda chunk: chunk.silence_ms + chunk.tone_ms > 0),
    min_size=1,
    max_size=8,
)
FINAL = event(EventKind.ASR_FINAL, item_id="u1", text="turn the light on")


def heard(sent: list[Chunk], *, closed: bool, split: bool, final_at: int, latency_ms: int = 300) -> Turn:
    """The turn that these chunks answer."""
    world = World(make_plan(), wire=EVERY_EVENT if closed else SILENT).speak().after(latency_ms)
    name = "r1" if closed else None
    for index, chunk in enumerate(sent):
        world.after(chunk.gap_ms)
        if index == final_at:
            world.hear(FINAL)
        for pcm in chunk.pieces() if split else [chunk.pcm]:
            world.hear(audio(pcm, name))
    if final_at >= len(sent):
        world.hear(FINAL)
    if closed:
        world.hear(event(EventKind.RESPONSE_DONE, response_id=name, status="completed"))
    world.after(20_000)
    return build_turn(world.last, CALL, OPTIONS)


def figures(turn: Turn) -> dict[str, Any]:
    """All that is measured of a turn, whatever ended its reply."""
    names = (
        "outcome speech_start_perf_ns speech_end_perf_ns asr_final_perf_ns tts_first_chunk_perf_ns first_audio_perf_ns "
        "tts_last_chunk_perf_ns reply_end_perf_ns leading_silence_ns reply_audio_ns underrun_count underrun_total_ns "
        "underrun_worst_ns"
    )
    return {name: getattr(turn, name) for name in names.split()}


def audible(sent: list[Chunk]) -> bool:
    return any(chunk.tone_ms for chunk in sent)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(chunks.filter(audible), st.integers(0, 8))
def test_reply_ended_by_silence_is_measured_as_if_by_event(sent: list[Chunk], final_at: int) -> None:
    by_event = heard(sent, closed=True, split=False, final_at=final_at)
    by_silence = heard(sent, closed=False, split=False, final_at=final_at)
    assert by_event.outcome == "ok"
    assert figures(by_silence) == figures(by_event)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(chunks, st.integers(0, 8), st.booleans())
def test_however_the_same_audio_is_split_the_turn_is_the_same(sent: list[Chunk], final_at: int, closed: bool) -> None:
    whole = heard(sent, closed=closed, split=False, final_at=final_at)
    assert heard(sent, closed=closed, split=True, final_at=final_at) == whole


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(chunks.filter(audible), chunks.filter(audible), st.sampled_from([200, 1_000]), st.sampled_from([0, 300, 1_500]))
def test_audio_before_question_never_answers_it(
    greeting: list[Chunk], answer: list[Chunk], speech_ms: int, think_ms: int
) -> None:
    plan = make_plan(think_ms=think_ms)
    world = World(replace(plan, limits=replace(plan.limits, reply_silence_ns=SILENCE_MS * MS)), wire=SILENT)
    for chunk in greeting:
        world.hear(audio(chunk.pcm, None))  # all at once: nothing of it comes later
    while world.conversation.exchange is None:
        world.after(20)
    asked = world.speech_starts().after(speech_ms).speech_ends().now
    world.after(280)
    for chunk in answer:
        world.hear(audio(chunk.pcm, None))
    world.after(8_000)
    first = world.last.timeline.first_audio_perf_ns
    assert world.last.outcome == "ok"
    assert first is not None
    assert first >= asked + 280 * MS
    assert world.last.timeline.early_replies == 0


marks = st.lists(
    st.tuples(st.sampled_from(["audio", "mark", "mark", "clear", "started"]), st.integers(0, 600)), max_size=12
)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(marks, st.booleans())
def test_every_mark_is_answered_once_in_order_after_its_audio(order: list[tuple[str, int]], closed: bool) -> None:
    world = World(make_plan(2), wire=EVERY_EVENT if closed else SILENT)
    due: dict[str, int] = {}
    answered: dict[str, int] = {}
    until = 0
    for number, (what, passes_ms) in enumerate(order):
        for _ in range(passes_ms // 20):
            _note_answers(world.after(20), answered)
        if what == "audio":
            world.hear(audio(tone(300), None))
            until = max(until, world.now) + 300 * MS
        elif what == "mark":
            due[f"m{number}"] = max(until, world.now)
            world.hear(_mark(f"m{number}"))
        else:
            kind = EventKind.CLEAR if what == "clear" else EventKind.SPEECH_STARTED
            world.hear(event(kind))
        _note_answers(world, answered)
    for _ in range(500):
        _note_answers(world.after(20), answered)
    names = [action.mark for action in world.actions if isinstance(action, Played)]
    assert names == list(due), "each once, in the order in which they came"
    stopped = any(what in ("clear", "started") for what, _ in order)
    assert all(0 <= answered[name] - at <= 20 * MS for name, at in due.items() if not stopped)
    assert all(answered[name] - at <= 20 * MS for name, at in due.items())


def _mark(name: str) -> VoiceEvent:
    return event(EventKind.MARK, text=name)


def _note_answers(world: World, answered: dict[str, int]) -> None:
    for action in world.actions:
        if isinstance(action, Played):
            answered.setdefault(action.mark, world.now)
