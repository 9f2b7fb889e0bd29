"""A turn that is played in memory before the first call, so that what a first turn loads is loaded by then."""

from typing import Final

import numpy as np

from loadtest.audio.pcm import to_bytes
from loadtest.conversation.conversation import Conversation
from loadtest.conversation.exchange import Action, Exchange
from loadtest.conversation.plan import CallPlan
from loadtest.conversation.playout import PlayoutBuffer
from loadtest.protocols.base import EventKind, VoiceEvent

RATE_HZ: Final = 24_000
_TONE: Final = to_bytes((8000 * np.sin(np.arange(RATE_HZ // 10) / 9)).astype(np.int16))
_STEP_NS: Final = 100_000_000
_REPLY: Final = "warmup"
_EVENTS: Final = (
    VoiceEvent(EventKind.SPEECH_STOPPED, "", item_id="item"),
    VoiceEvent(EventKind.ASR_PARTIAL, "", item_id="item", text="one"),
    VoiceEvent(EventKind.ASR_FINAL, "", item_id="item", text="one two"),
    VoiceEvent(EventKind.RESPONSE_STARTED, "", response_id=_REPLY),
    VoiceEvent(EventKind.LLM_TEXT, "", response_id=_REPLY, text="Yes."),
    *(VoiceEvent(EventKind.AUDIO, "", response_id=_REPLY, audio=_TONE, rate_hz=RATE_HZ) for _ in range(4)),
    VoiceEvent(EventKind.RESPONSE_DONE, "", response_id=_REPLY, status="completed"),
)


def warm_up(plan: CallPlan, now_perf_ns: int, onset_preset: str) -> Exchange:
    """The one exchange of a plan with one turn, answered at once. Raises RuntimeError if it comes to no end."""
    conversation = Conversation(plan, PlayoutBuffer(onset_preset))
    actions: list[Action] = [
        *conversation.begin(now_perf_ns),
        *conversation.on_time(now_perf_ns),
        *conversation.on_speech_start(now_perf_ns, 0),
        *conversation.on_speech_end(now_perf_ns + _STEP_NS, _STEP_NS, 0, 0),
    ]
    moment = now_perf_ns + _STEP_NS
    for event in _EVENTS:
        moment += _STEP_NS
        actions += conversation.on_event(event, moment)
        actions += conversation.on_time(moment)
    for action in actions:
        if isinstance(action, Exchange):
            return action
    raise RuntimeError("the warmup turn did not come to its end")
