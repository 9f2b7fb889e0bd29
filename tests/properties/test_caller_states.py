"""Whatever an endpoint sends, in whichever order: states stay whole, a turn ends once, late transcripts find theirs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtest.conversation.conversation import Conversation
from loadtest.conversation.exchange import Action, EndTurn, Exchange, HangUp, Say
from loadtest.conversation.plan import Backchannel, CallPlan, Limits, PlannedTurn, ReplyPoint
from loadtest.conversation.playout import PlayoutBuffer
from loadtest.conversation.prepared_clip import PreparedClip
from loadtest.conversation.state import State
from loadtest.conversation.wire import WireTraits
from loadtest.protocols.base import SUPERSEDED, EventKind, VoiceEvent
from tests.unit.loadtest.conversation.world import MS, World, audio, event, make_clip, make_plan, reply, silence, tone

pytestmark = pytest.mark.slow

LONG, SHORT = make_clip(speech_ms=600, lead_ms=60), make_clip(speech_ms=200, lead_ms=0)
IN_A_TURN = {State.SPEAKING, State.WAITING, State.HEARING, State.BACKCHANNELING}

points = st.builds(lambda ms: ReplyPoint(after_ns=ms * MS), st.sampled_from([0, 100, 400])) | st.builds(
    lambda share: ReplyPoint(share=share), st.sampled_from([0.0, 0.5])
)
turns = st.builds(
    PlannedTurn,
    clip=st.sampled_from([LONG, LONG, LONG, SHORT, None]),
    think_ns=st.sampled_from([0, 100 * MS]),
    patience_ns=st.sampled_from([None, None, None, 800 * MS]),
    silence_ns=st.just(500 * MS),
    barge_in=points | points | st.none(),
    backchannel=st.builds(Backchannel, st.just(SHORT), points) | st.none(),
)
plans = st.builds(
    lambda turns, reply_ms, longest_ms, manual: CallPlan(
        "call", tuple(turns), (b"",), Limits(reply_ns=reply_ms * MS, longest_reply_ns=longest_ms * MS), manual
    ),
    st.lists(turns, min_size=1, max_size=4),
    st.sampled_from([2_000, 4_000, 150]),
    st.sampled_from([20_000, 20_000, 900]),
    st.booleans(),
)
names = st.sampled_from(["r1", "r2", "r3", None])
items = st.sampled_from(["u1", "u2", None])
events = st.one_of(
    st.builds(lambda name: event(EventKind.RESPONSE_STARTED, response_id=name), names),
    st.builds(lambda name, pcm: replace_id(audio(pcm), name), names, st.sampled_from([tone(300), silence(200)])),
    st.builds(lambda name, pcm: replace_id(audio(pcm), name), names, st.sampled_from([tone(300), tone(1_000)])),
    st.builds(
        lambda name, status, owes: event(
            EventKind.RESPONSE_DONE, response_id=name, status=status, owes_response=owes, message="why"
        ),
        names,
        st.sampled_from(["completed", "completed", "cancelled", "failed"]),
        st.sampled_from([False, False, True]),
    ),
    st.builds(lambda item: event(EventKind.SPEECH_STARTED, item_id=item), items),
    st.builds(lambda item: event(EventKind.SPEECH_STOPPED, item_id=item), items),
    st.builds(lambda item: event(EventKind.ASR_FINAL, item_id=item, text="one"), items),
    st.builds(lambda name: event(EventKind.LLM_TEXT, response_id=name, text="Yes."), names),
    st.sampled_from([event(EventKind.MARK, text="mark"), event(EventKind.CLEAR), event(EventKind.CLEAR)]),
    st.builds(lambda fatal: event(EventKind.ERROR, message="odd", fatal=fatal), st.sampled_from([False] * 9 + [True])),
)
ends = st.sampled_from(["nothing", "nothing", "wind down", "lose", "cut"])
WHAT_HAPPENS = ["reply", "reply", "whole reply", "whole reply", "event", "event", "event", "nothing", "end"]
steps = st.lists(
    st.tuples(
        st.sampled_from([400, 800, 100, 20, 0]),
        st.sampled_from(WHAT_HAPPENS).flatmap(
            lambda what: events if what == "event" else ends if what == "end" else st.just(what)
        ),
    ),
    min_size=8,
    max_size=30,
)


def replace_id(one: VoiceEvent, response_id: str | None) -> VoiceEvent:
    return VoiceEvent(one.kind, one.raw_type, response_id=response_id, audio=one.audio, rate_hz=one.rate_hz)


@dataclass
class Sent:
    """A clip on its way, as the engine sends it."""

    clip: PreparedClip
    began_perf_ns: int
    started: bool = False

    @property
    def starts_perf_ns(self) -> int:
        return self.began_perf_ns + self.clip.lead_ns

    @property
    def ends_perf_ns(self) -> int:
        rendered = self.clip.rendered
        return self.began_perf_ns + rendered.speech_end_sample * 1_000_000_000 // rendered.rate_hz


class Engine:
    """The engine around a conversation, every 20 ms."""

    def __init__(self, plan: CallPlan, wire: WireTraits) -> None:
        self.conversation = Conversation(plan, PlayoutBuffer("rms-10ms"), wire)
        self.now = 1_000_000 * MS
        self.sent: Sent | None = None
        self.finished: list[Exchange] = []
        self.hung_up = 0
        self.replies = 0
        self.perform(self.conversation.begin(self.now))

    def perform(self, actions: Sequence[Action]) -> None:
        for action in actions:
            if isinstance(action, Say):
                self.sent = Sent(action.clip, self.now)
            elif isinstance(action, EndTurn):
                self.sent = None
            elif isinstance(action, Exchange):
                self.finished.append(action)
            elif isinstance(action, HangUp):
                self.hung_up += 1
        caller = self.conversation
        assert (caller.exchange is not None) == (caller.state in IN_A_TURN)

    def pass_time(self, ms: int) -> None:
        for _ in range(ms // 20):
            self.now += 20 * MS
            sent = self.sent
            if sent is not None and not sent.started and self.now >= sent.starts_perf_ns:
                sent.started = True
                self.perform(self.conversation.on_speech_start(self.now, 0))
            elif sent is not None and sent.started and self.now >= sent.ends_perf_ns:
                self.sent = None
                self.perform(self.conversation.on_speech_end(self.now, 0, 0, 0))
            self.perform(self.conversation.on_time(self.now))

    def step(self, what: VoiceEvent | str) -> None:
        caller = self.conversation
        if isinstance(what, VoiceEvent):
            self.perform(caller.on_event(what, self.now))
        elif what in ("reply", "whole reply"):
            self.replies += 1
            for one in reply(1_200, f"answer-{self.replies}")[: 3 if what == "whole reply" else 2]:
                self.perform(caller.on_event(one, self.now))
        elif what == "wind down":
            caller.wind_down()
        elif what == "lose":
            self.perform(caller.on_closed("dropped", self.now))
        elif what == "cut":
            self.perform(caller.break_off("the end of the test", self.now))


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(plans, steps, st.builds(WireTraits, st.booleans(), st.booleans()))
def test_a_call_stays_within_its_table_and_comes_to_its_end(
    plan: CallPlan, order: list[tuple[int, VoiceEvent | str]], wire: WireTraits
) -> None:
    engine = Engine(plan, wire)
    for passes_ms, what in order:
        engine.pass_time(passes_ms)
        engine.step(what)
    engine.pass_time(60_000 if engine.conversation.state is not State.OVER else 0)
    assert engine.conversation.state is State.OVER, "it comes to an end, whatever the endpoint does"
    assert engine.hung_up == 1
    assert [exchange.index for exchange in engine.finished] == list(range(len(engine.finished)))
    assert all(exchange.outcome == "ok" for exchange in engine.finished[:-1]), "a failed turn is the last"
    assert all(exchange.ended_perf_ns is not None for exchange in engine.finished)


PIECES = st.lists(st.sampled_from(["text", "tone", "silence", "audio_done"]), max_size=4)
ENDS = st.sampled_from([None, "completed", "cancelled", "failed", "incomplete", SUPERSEDED, "tool_call"])
RESPONSES = st.lists(st.tuples(st.booleans(), PIECES, ENDS), min_size=1, max_size=4)


def events_of(response_id: str, announced: bool, pieces: list[str], end: str | None) -> list[VoiceEvent]:
    made = {
        "text": event(EventKind.LLM_TEXT, response_id=response_id, text="Yes."),
        "tone": audio(tone(150), response_id),
        "silence": audio(silence(150), response_id),
        "audio_done": event(EventKind.AUDIO_DONE, response_id=response_id),
    }
    events = [event(EventKind.RESPONSE_STARTED, response_id=response_id)] if announced else []
    events += [made[piece] for piece in pieces]
    if end == "tool_call":
        events.append(event(EventKind.RESPONSE_DONE, response_id=response_id, status="completed", owes_response=True))
    elif end is not None:
        events.append(event(EventKind.RESPONSE_DONE, response_id=response_id, status=end))
    return events


@st.composite
def interleaved(draw: st.DrawFn) -> list[tuple[int, VoiceEvent]]:
    """Events of several responses, each in its own order, with what passes before each, ms."""
    waiting = [events_of(f"r{number}", *drawn) for number, drawn in enumerate(draw(RESPONSES))]
    order: list[tuple[int, VoiceEvent]] = []
    while any(waiting):
        mine = draw(st.sampled_from([events for events in waiting if events]))
        order.append((draw(st.sampled_from([0, 0, 20, 400, 1_500, 5_000])), mine.pop(0)))
    return order


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(interleaved())
def test_first_audible_uncanceled_response_answers_the_turn(
    order: list[tuple[int, VoiceEvent]],
) -> None:
    plan = make_plan(reply_ms=4_000)
    world = World(replace(plan, limits=replace(plan.limits, longest_reply_ns=20_000 * MS))).speak()
    heard: list[str] = []
    cancelled: set[str] = set()
    for passes_ms, one in order:
        world.after(passes_ms)
        if world.conversation.state is State.OVER:
            break
        response_id = one.response_id or ""
        known = world.conversation.exchange is not None and response_id in world.conversation.exchange.timeline.replies
        if one.kind is EventKind.AUDIO and one.audio == tone(150) and response_id not in cancelled:
            heard.append(response_id)
        # An end that comes before anything else of its response says nothing: it belongs to an earlier one.
        if one.kind is EventKind.RESPONSE_DONE and one.status == "cancelled" and known:
            cancelled.add(response_id)
        if one.kind is EventKind.RESPONSE_DONE and not known:
            cancelled.add(response_id)
        world.hear(one)
    world.after(30_000)
    assert world.conversation.state is State.OVER, "it comes to an end, whatever the endpoint does"
    assert len(world.exchanges) == 1
    exchange = world.last
    answer = exchange.timeline.answer
    audible = [response_id for response_id in heard if response_id not in cancelled]
    assert (None if answer is None else answer.response_id) == (audible[0] if audible else None)
    if exchange.outcome == "ok":
        assert answer is not None
    if answer is not None:
        assert exchange.outcome in ("ok", "error", "timeout")


TURNS = 4
delays_ms = st.lists(st.integers(0, 400).map(lambda steps: 20 * steps), min_size=TURNS, max_size=TURNS)
kinds = st.lists(st.sampled_from([EventKind.ASR_FINAL] * 3 + [EventKind.ASR_FAILED]), min_size=TURNS, max_size=TURNS)


class Late(World):
    """A conversation to which each turn's transcript comes so long after its speech has ended."""

    def __init__(self, delays: list[int], transcripts: list[EventKind], *, starts: bool) -> None:
        plan = make_plan(turns=TURNS)
        turns = tuple(replace(turn, clip=make_clip(text=f"text {n}")) for n, turn in enumerate(plan.turns))
        super().__init__(replace(plan, turns=turns), wire=WireTraits(sends_text=False))
        self.delays, self.transcripts, self.starts = delays, transcripts, starts
        self.due: dict[int, int] = {}  # when the transcript of each turn is sent
        self.came: dict[int, int] = {}  # when it was, if the call went on

    def pass_time(self, ms: int) -> None:
        for _ in range(ms // 20):
            for turn, due in list(self.due.items()):
                if due <= self.now and self.conversation.state is not State.OVER:
                    del self.due[turn]
                    self.came[turn] = self.now
                    self.hear(self.transcript(turn))
            self.after(20)

    def transcript(self, turn: int) -> VoiceEvent:
        return event(self.transcripts[turn], item_id=f"u{turn}", text=f"text {turn}", message="failed")

    def converse(self) -> None:
        for turn in range(TURNS):
            self.pass_time(500)
            self.speech_starts()
            if self.starts:
                self.hear(event(EventKind.SPEECH_STARTED, item_id=f"u{turn}"))
            self.pass_time(1_000)
            self.speech_ends()
            kind = EventKind.SPEECH_STOPPED if self.starts else EventKind.QUESTION_NAMED
            self.hear(event(kind, item_id=f"u{turn}"))
            self.due[turn] = self.now + self.delays[turn] * MS
            self.pass_time(100)
            self.hear(*reply(200, f"r{turn}"))
            self.pass_time(240)
        self.pass_time(3_000)


@settings(max_examples=150, deadline=None)
@given(delays_ms, kinds, st.booleans())
def test_each_turn_has_its_own_transcript_or_none(
    delays: list[int], transcripts: list[EventKind], starts: bool
) -> None:
    world = Late(delays, transcripts, starts=starts)
    world.converse()
    assert [ended.index for ended in world.exchanges] == list(range(TURNS))
    for turn, exchange in enumerate(world.exchanges):
        timeline = exchange.timeline
        failed = transcripts[turn] is EventKind.ASR_FAILED
        expected = [(f"u{turn}", f"text {turn}", world.came[turn])] if turn in world.came and not failed else []
        assert timeline.finals == expected
        assert (timeline.asr_failure is not None) == (turn in world.came and failed)
        assert exchange.awaits_more == (turn not in world.came)
