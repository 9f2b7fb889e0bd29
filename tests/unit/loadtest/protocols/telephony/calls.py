"""One short call over each provider's wire, always with the same bytes: `python -m …calls OUT.json` writes them.

`tests/integration/recorders/record_telephony.py` gives them to Pipecat and records what it made of them.
"""

import base64
import json
import sys
from pathlib import Path
from typing import Final

import numpy as np

from loadtest.audio.pcm import Pcm16
from loadtest.protocols.base import CallerOptions, Message, SpokenText
from loadtest.protocols.telephony.caller import TelephonyCaller
from loadtest.protocols.telephony.wires import WIRES

TRACE_ID: Final = "0af7651916cd43dd8448eb211c80319c"
TRACEPARENT: Final = f"00-{TRACE_ID}-b7ad6b7169203331-01"
PARAMETERS: Final = {"customer": "Ada 7%"}
FRAMES: Final = 5
# Further ways to set up a wire that its serializers know, by a name of our own.
VARIANTS: Final[dict[str, tuple[str, dict[str, object]]]] = {
    **{name: (name, {}) for name in WIRES},
    "telnyx-alaw": ("telnyx", {"encoding": "PCMA"}),
    "exotel-16k": ("exotel", {"rate_hz": 16000}),
}


def make(variant: str, **settings: object) -> TelephonyCaller:
    """A caller whose call has begun."""
    wire, own = VARIANTS[variant]
    options = CallerOptions(settings={"parameters": PARAMETERS, "dtmf": "5", **own, **settings})
    caller = TelephonyCaller(WIRES[wire], options)
    caller.upgrade("wss://agent.example/ws", TRACEPARENT)
    return caller


def tone(rate_hz: int, ms: int) -> Pcm16:
    """A tone, at half of full scale."""
    positions = np.arange(rate_hz * ms // 1000)
    return (16_000 * np.sin(2 * np.pi * 440 * positions / rate_hz)).astype(np.int16)


def spoken(caller: TelephonyCaller) -> Pcm16:
    """Return the caller's audio in the call."""
    return tone(caller.capabilities.input_rate_hz, FRAMES * caller.capabilities.frame_ms)


def messages(caller: TelephonyCaller) -> list[Message]:
    """All that the caller sends: it connects, presses a key, speaks, and hangs up."""
    sent: list[Message] = [*caller.opened(), *caller.begin_turn(SpokenText("hello"))]
    for frame in np.split(spoken(caller), FRAMES):
        whole = (caller.audio_head() or b"") + caller.audio_message(frame)
        sent.append(whole.decode() if caller.capabilities.audio_is_text else whole)
    return [*sent, *caller.goodbye()]


def as_json(message: Message) -> object:
    """Return a message as it can be written to a JSON file."""
    return message if isinstance(message, str) else {"binary": base64.b64encode(message).decode()}


if __name__ == "__main__":
    calls = {variant: [as_json(message) for message in messages(make(variant))] for variant in VARIANTS}
    Path(sys.argv[1]).write_text(json.dumps(calls))
