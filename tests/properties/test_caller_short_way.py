"""The short way of a reply's audio accounts for it exactly as the long way does, whatever comes in which order."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from loadtest.conversation.conversation import Conversation
from loadtest.conversation.hearing import Hearing
from loadtest.conversation.plan import CallPlan, ReplyPoint
from loadtest.conversation.record import build_turn
from loadtest.conversation.state import State
from loadtest.conversation.wire import WireTraits
from loadtest.protocols.base import EventKind, VoiceEvent
from telemetry.model.semconv import META_COHORT
from tests.properties.test_caller_states import Engine, plans, replace_id, steps
from tests.unit.loadtest.conversation.test_conversation_record import CALL, OPTIONS
from tests.unit.loadtest.conversation.world import MS, audio, event, silence, tone
from tests.unit.loadtest.protocols.contract.line import SCRIPTS
from tests.unit.loadtest.protocols.contract.line import tone as tone_at
from tests.unit.loadtest.protocols.contract.scripted_call import ScriptedCall, two_turns
from tests.unit.loadtest.protocols.contract.test_contract_conversations import every_voice, speaks

BETWEEN_SOUNDS = [
    "text",
    "started",
    "another",
    "another_text",
    "done",
    "cancelled",
    "cut_off",
    "clear",
    "asked",
    "failed",
    "end_by_silence",
]
SOUNDS = {
    "syllable": tone(20),
    "word": tone(300),
    "click": tone(7)[:-2],
    "breath": silence(20),
    "pause": silence(700),
    "nothing": b"",
}
FIELDS: dict[str, dict[str, Any]] = {
    "as usual": {},
    "item": {"item_id": "other"},
    "rate": {"rate_hz": None},
    "metadata": {"metadata": {META_COHORT: "b"}},
    "service": {"service_ns": {"tts": 5}},
    "latency": {"reports_latency": True},
}
# Each so long after the one before, ms (negative: its stamp is earlier), its sound, what is odd about its event, and
# what follows it.
gap_ms = st.sampled_from([20, 20, 20, 0, -5, 60, 400, 1_100])
fields_of = st.sampled_from(["as usual", "as usual", "as usual", *FIELDS])
between_of = st.sampled_from([*["nothing"] * 12, *BETWEEN_SOUNDS])
sounding = st.tuples(gap_ms, st.sampled_from(["syllable", *SOUNDS]), fields_of, between_of)
silent = st.tuples(gap_ms, st.sampled_from(["breath", "breath", "pause", "nothing"]), fields_of, between_of)
pieces = st.tuples(st.just([]) | st.lists(silent, max_size=8), st.lists(sounding, min_size=8, max_size=25)).map(
    lambda leading_and_rest: leading_and_rest[0] + leading_and_rest[1]
)
names = st.sampled_from(["r1", "r1", None, None, ""])
wires = st.builds(WireTraits, st.booleans(), st.booleans())


def take_the_long_way(conversation: Conversation) -> None:
    """Let every event take the long way of `on_event`."""
    conversation._hearing = LongHearing(conversation._hearing)  # type: ignore[assignment]


class LongHearing:
    """A `Hearing` whose short ways are closed."""

    def __init__(self, hearing: Hearing) -> None:
        self._hearing = hearing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._hearing, name)

    def __setattr__(self, name: str, value: object) -> None:
        if name == "_hearing":
            super().__setattr__(name, value)
        else:
            setattr(self._hearing, name, value)

    def hear_awaited(self, *_: object) -> bool:
        return False


class Listener(Engine):
    """Takes the short way where there is one, unless it is told not to. `short` counts how often there was."""

    def __init__(self, plan: CallPlan, wire: WireTraits, *, shortened: bool) -> None:
        self.shortened = shortened
        self.short = 0
        self.deadlines: list[tuple[State, int]] = []
        super().__init__(plan, wire)
        if not shortened:
            take_the_long_way(self.conversation)

    def hear(self, one: VoiceEvent, arrival_perf_ns: int) -> None:
        if self.shortened and self.conversation.hear_more(one, arrival_perf_ns):
            self.short += 1
        else:
            self.perform(self.conversation.on_event(one, arrival_perf_ns))
        self.deadlines.append((self.conversation.state, self.conversation.deadline_perf_ns))

    def step(self, what: VoiceEvent | str) -> None:
        if isinstance(what, VoiceEvent):
            self.hear(what, self.now)
        else:
            super().step(what)

    def stream(self, name: str | None, sent: Sequence[tuple[int, str, str, str]]) -> None:
        """A reply arrives in pieces, with what comes between them."""
        arrival = self.now
        for gap_ms, sound, fields, between in sent:
            arrival += gap_ms * MS
            if arrival - self.now >= 20 * MS:
                self.pass_time((arrival - self.now) // MS)
            self.hear(replace(audio(SOUNDS[sound], name), **FIELDS[fields]), arrival)
            for one in between_pieces(between, name):
                self.hear(one, arrival)
            if between == "end_by_silence":
                self.pass_time(1_200)
                arrival = self.now


def between_pieces(between: str, name: str | None) -> list[VoiceEvent]:
    """What arrives between two pieces of a reply."""
    done = event(EventKind.RESPONSE_DONE, response_id=name, status="completed")
    return {
        "text": [event(EventKind.LLM_TEXT, response_id=name, text="Yes.")],
        "started": [event(EventKind.RESPONSE_STARTED, response_id=name)],
        "another": [replace_id(audio(tone(40)), "r9")],
        "another_text": [event(EventKind.LLM_TEXT, response_id="r9", text="No.")],
        "done": [done],
        "cancelled": [replace(done, status="cancelled")],
        "cut_off": [event(EventKind.SPEECH_STARTED, item_id="u9")],
        "clear": [event(EventKind.CLEAR)],
        "asked": [event(EventKind.SPEECH_STOPPED, item_id="u1"), event(EventKind.ASR_FINAL, item_id="u1", text="one")],
        "failed": [event(EventKind.ERROR, message="odd")],
    }.get(between, [])


def records(engine: Listener) -> list[Any]:
    return [build_turn(exchange, CALL, OPTIONS) for exchange in engine.finished]


def assert_same(short: Listener, long: Listener) -> None:
    assert short.deadlines == long.deadlines
    assert short.hung_up == long.hung_up
    assert records(short) == records(long)


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(names, pieces, st.booleans(), wires, st.sampled_from([None, "barge-in", "manual", "silent"]), st.integers(0, 9))
def test_both_ways_of_one_reply_give_the_same_turns(
    name: str | None, sent: Any, leads: bool, wire: WireTraits, kind: str | None, early: int
) -> None:
    plan = two_turns(barge_in=ReplyPoint(after_ns=300 * MS)) if kind == "barge-in" else two_turns()
    plan = dataclasses.replace(plan, manual_turns=kind == "manual")
    if kind == "silent":
        quiet = dataclasses.replace(plan.turns[0], clip=None, silence_ns=5_000 * MS)
        plan = dataclasses.replace(plan, turns=(quiet, *plan.turns))
    both = [Listener(plan, wire, shortened=shortened) for shortened in (True, False)]
    for engine in both:
        engine.pass_time(1_500 if early == 0 else 2_000)
        if leads:
            engine.hear(event(EventKind.RESPONSE_STARTED, response_id=name), engine.now)
        engine.stream(name, sent)
        engine.pass_time(3_000)
        engine.stream(name if leads else "r2", sent)
        engine.pass_time(60_000)
    assert_same(*both)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(plans, st.lists(st.tuples(steps, names, pieces), min_size=1, max_size=3), wires)
def test_both_ways_give_the_same_turns(plan: CallPlan, order: list[Any], wire: WireTraits) -> None:
    both = [Listener(plan, wire, shortened=shortened) for shortened in (True, False)]
    for engine in both:
        for happenings, name, sent in order:
            for passes_ms, what in happenings:
                engine.pass_time(passes_ms)
                engine.step(what)
            engine.stream(name, sent)
        engine.pass_time(60_000)
    assert_same(*both)


@pytest.mark.parametrize(("name", "silent"), [("r1", False), (None, False), (None, True), ("r1", True)])
def test_nearly_all_of_a_reply_takes_the_short_way(name: str | None, silent: bool) -> None:
    plan = two_turns()
    both = [Listener(plan, WireTraits(closes_replies=not silent), shortened=shortened) for shortened in (True, False)]
    for engine in both:
        engine.pass_time(2_000)
        engine.stream(
            name, [(20, "syllable", "as usual", "text" if number % 5 == 0 else "nothing") for number in range(100)]
        )
        engine.pass_time(20_000)
    short, long = both
    assert short.short >= 97
    assert long.short == 0
    assert records(short) == records(long) != []


@pytest.mark.parametrize("name", ["r1", None])
@pytest.mark.parametrize("silent", [False, True])
def test_a_reply_that_comes_at_once_takes_the_short_way_also_before_it_is_heard(name: str | None, silent: bool) -> None:
    both = [Listener(two_turns(), WireTraits(closes_replies=not silent), shortened=way) for way in (True, False)]
    for engine in both:
        engine.pass_time(2_000)
        engine.stream(name, [(0, sound, "as usual", "nothing") for sound in ["pause", *["word"] * 20]])
        assert engine.conversation.state is State.WAITING
        engine.pass_time(20_000)
    assert both[0].short == 18, "all but the silence and the first two words, of which only one is known to be heard"
    assert_same(*both)


class ShortCall(ScriptedCall):
    """A scripted call that takes the short way where there is one."""

    short = 0

    def _hear(self, events: Sequence[VoiceEvent]) -> None:
        for one in events:
            if self.conversation.hear_more(one, self.now):
                self.short += 1
            else:
                super()._hear([one])


gaps = st.sampled_from([0, 20, 20, 40, 100, 800, 2_500])
# Of a reply: how long each sound is, ms, whether it is loud, and how long after the one before it comes.
sounds = st.lists(
    st.tuples(
        st.sampled_from([20, 20, 40, 100, 260]), st.booleans(), st.sampled_from([0, 20, 20, 40, 100, 800, 2_500])
    ),
    min_size=1,
    max_size=12,
)


def spoken(call: ScriptedCall, sent: Sequence[tuple[int, bool, int]], more: Sequence[tuple[int, bool, int]]) -> Any:
    """The turns of a conversation in which the reply comes in these pieces, and the next one in others."""
    script = call.line.script
    after = script.order[script.order.index(script.first_after_speech) :]
    for each in (sent, more):
        if call.hung_up:
            break
        call.ask()
        for stage in after:
            if stage != "audio":
                call.after(100).step(stage)
                continue
            for ms, loud, gap_ms in each:
                pcm = tone_at(script.reply_rate_hz, ms)
                call.after(gap_ms).step("audio", pcm if loud else bytes(len(pcm)))
        call.after(12_000)
    return call.turns


@settings(max_examples=12, deadline=None)
@given(sent=sounds, more=sounds, breaks_in=st.booleans())
@every_voice
def test_over_every_wire_both_ways_give_the_same_turns(name: str, sent: Any, more: Any, breaks_in: bool) -> None:
    plan = two_turns(barge_in=ReplyPoint(after_ns=300 * MS)) if breaks_in else two_turns()
    long = spoken(ScriptedCall(name, plan), sent, more) if not breaks_in else broken(ScriptedCall(name, plan), sent)
    short = spoken(ShortCall(name, plan), sent, more) if not breaks_in else broken(ShortCall(name, plan), sent)
    assert short == long


def broken(call: ScriptedCall, sent: Sequence[tuple[int, bool, int]]) -> Any:
    """The turns of a conversation in which the caller speaks into the reply, which goes on all the same."""
    script = call.line.script
    call.ask()
    for stage in script.order[script.order.index(script.first_after_speech) :]:
        if stage == "audio":
            for ms, loud, gap_ms in [(600, True, 20), *sent, *sent]:
                pcm = tone_at(script.reply_rate_hz, ms)
                call.after(gap_ms).step("audio", pcm if loud else bytes(len(pcm)))
                if call.speaking and call.conversation.state is State.SPEAKING:
                    call.until_speaking()
        elif stage != "reply_done":
            call.after(100).step(stage)
    if call.speaking:
        call.stop_speaking()
    call.after(30_000)
    return call.turns


@pytest.mark.parametrize("name", [name for name in sorted(SCRIPTS) if speaks(name)])
def test_over_every_wire_a_reply_takes_the_short_way(name: str) -> None:
    call = ShortCall(name)
    call.ask()
    script = call.line.script
    for stage in script.order[script.order.index(script.first_after_speech) :]:
        for _ in range(50 if stage == "audio" else 1):
            call.after(20).step(stage, tone_at(script.reply_rate_hz, 20) if stage == "audio" else None)
    assert call.short >= 45
