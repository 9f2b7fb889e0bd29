"""Whatever an endpoint sends to a caller who interrupts, backchannels or keeps silent, the state table covers it."""

from collections.abc import Sequence
from dataclasses import dataclass

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
from loadtest.protocols.base import EventKind, VoiceEvent
from tests.unit.loadtest.conversation.world import MS, audio, event, make_clip, reply, silence, tone

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
    """What the engine does around a conversation, every 20 ms."""

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
