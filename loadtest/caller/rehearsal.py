"""A turn that happens in memory, before anybody calls: whatever the first one loads is loaded by it."""

from typing import Final

import numpy as np

from loadtest.audio.pcm import to_bytes
from loadtest.caller.exchange import Action, Exchange
from loadtest.caller.plan import CallPlan
from loadtest.caller.playout import Speaker
from loadtest.caller.session import Session
from loadtest.protocols.base import EventKind, VoiceEvent

RATE_HZ: Final = 24_000
_TONE: Final = to_bytes((8000 * np.sin(np.arange(RATE_HZ // 10) / 9)).astype(np.int16))
_STEP_NS: Final = 100_000_000
_REPLY: Final = "rehearsal"
_EVENTS: Final = (
    VoiceEvent(EventKind.SPEECH_STOPPED, "", item_id="item"),
    VoiceEvent(EventKind.ASR_PARTIAL, "", item_id="item", text="one"),
    VoiceEvent(EventKind.ASR_FINAL, "", item_id="item", text="one two"),
    VoiceEvent(EventKind.RESPONSE_STARTED, "", response_id=_REPLY),
    VoiceEvent(EventKind.LLM_TEXT, "", response_id=_REPLY, text="Yes."),
    *(VoiceEvent(EventKind.AUDIO, "", response_id=_REPLY, audio=_TONE, rate_hz=RATE_HZ) for _ in range(4)),
    VoiceEvent(EventKind.RESPONSE_DONE, "", response_id=_REPLY, status="completed"),
)


def rehearse(plan: CallPlan, now_perf_ns: int, onset_preset: str) -> Exchange:
    """The one exchange of a plan with one turn, answered at once. Raises RuntimeError if it comes to no end."""
    session = Session(plan, Speaker(onset_preset))
    actions: list[Action] = [
        *session.begin(now_perf_ns),
        *session.on_time(now_perf_ns),
        *session.on_speech_start(now_perf_ns, 0),
        *session.on_speech_end(now_perf_ns + _STEP_NS, _STEP_NS, 0, 0),
    ]
    moment = now_perf_ns + _STEP_NS
    for event in _EVENTS:
        moment += _STEP_NS
        actions += session.on_event(event, moment)
        actions += session.on_time(moment)
    for action in actions:
        if isinstance(action, Exchange):
            return action
    raise RuntimeError("the rehearsal of a turn did not come to its end")
