"""However late a transcript comes that names its question, it is that of its own turn and of no other."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtest.conversation.state import State
from loadtest.conversation.wire import WireTraits
from loadtest.protocols.base import EventKind, VoiceEvent
from tests.unit.loadtest.conversation.world import MS, World, event, make_clip, make_plan, reply

pytestmark = pytest.mark.slow

TURNS = 4
delays_ms = st.lists(st.integers(0, 400).map(lambda steps: 20 * steps), min_size=TURNS, max_size=TURNS)
kinds = st.lists(st.sampled_from([EventKind.ASR_FINAL] * 3 + [EventKind.ASR_FAILED]), min_size=TURNS, max_size=TURNS)


class Late(World):
    """A conversation to which each turn's transcript comes so long after its speech has ended."""

    def __init__(self, delays: list[int], transcripts: list[EventKind], *, starts: bool) -> None:
        plan = make_plan(turns=TURNS)
        turns = tuple(replace(each, clip=make_clip(text=f"text {n}")) for n, each in enumerate(plan.turns))
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
    assert [each.index for each in world.exchanges] == list(range(TURNS))
    for turn, exchange in enumerate(world.exchanges):
        timeline = exchange.timeline
        failed = transcripts[turn] is EventKind.ASR_FAILED
        expected = [(f"u{turn}", f"text {turn}", world.came[turn])] if turn in world.came and not failed else []
        assert timeline.finals == expected
        assert (timeline.asr_failure is not None) == (turn in world.came and failed)
        assert exchange.awaits_more == (turn not in world.came)
