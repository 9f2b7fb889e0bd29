"""More audio of a reply that is heard is accounted for at once, exactly as any other event is, over every wire."""

from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from loadtest.conversation.plan import CallPlan, ReplyPoint
from loadtest.conversation.state import State
from tests.unit.loadtest.conversation.world import MS
from tests.unit.loadtest.protocols.contract.line import tone
from tests.unit.loadtest.protocols.contract.scripted_call import ScriptedCall, two_turns
from tests.unit.loadtest.protocols.contract.test_contract_conversations import every_voice

# Of a reply: how long each sound is, ms, whether it is loud, and how long after the one before it comes.
Sounds = Sequence[tuple[int, bool, int]]
sounds = st.lists(
    st.tuples(
        st.sampled_from([20, 20, 40, 100, 260]), st.booleans(), st.sampled_from([0, 20, 20, 40, 100, 800, 2_500])
    ),
    min_size=1,
    max_size=12,
)


class OneByOne(ScriptedCall):
    """A scripted call in which audio that continues a reply is an event like any other."""

    def __init__(self, name: str, plan: CallPlan) -> None:
        super().__init__(name, plan)
        self.conversation._is_more_of_a_reply = lambda *_: False  # type: ignore[method-assign]


def spoken(call: ScriptedCall, sent: Sounds, more: Sounds) -> Any:
    """The turns of a conversation in which the reply comes in these pieces, and the next one in others."""
    script = call.line.script
    after = script.order[script.order.index(script.first_after_speech) :]
    for chunks in (sent, more):
        if call.hung_up:
            break
        call.ask()
        for stage in after:
            if stage != "audio":
                call.after(100).step(stage)
                continue
            for ms, loud, gap_ms in chunks:
                pcm = tone(script.reply_rate_hz, ms)
                call.after(gap_ms).step("audio", pcm if loud else bytes(len(pcm)))
        call.after(12_000)
    return call.turns


def broken(call: ScriptedCall, sent: Sounds) -> Any:
    """The turns of a conversation in which the caller speaks into the reply, which goes on all the same."""
    script = call.line.script
    call.ask()
    for stage in script.order[script.order.index(script.first_after_speech) :]:
        if stage == "audio":
            for ms, loud, gap_ms in [(600, True, 20), *sent, *sent]:
                pcm = tone(script.reply_rate_hz, ms)
                call.after(gap_ms).step("audio", pcm if loud else bytes(len(pcm)))
                if call.speaking and call.conversation.state is State.SPEAKING:
                    call.until_speaking()
        elif stage != "reply_done":
            call.after(100).step(stage)
    if call.speaking:
        call.stop_speaking()
    call.after(30_000)
    return call.turns


@settings(max_examples=12, deadline=None)
@given(sent=sounds, more=sounds, breaks_in=st.booleans())
@every_voice
def test_over_every_wire_continued_audio_gives_the_same_turns(name: str, sent: Any, more: Any, breaks_in: bool) -> None:
    plan = two_turns(barge_in=ReplyPoint(after_ns=300 * MS)) if breaks_in else two_turns()
    one_by_one, at_once = (
        broken(kind(name, plan), sent) if breaks_in else spoken(kind(name, plan), sent, more)
        for kind in (OneByOne, ScriptedCall)
    )
    assert at_once == one_by_one
