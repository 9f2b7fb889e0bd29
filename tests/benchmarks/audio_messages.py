"""What it costs to decode a reply's audio, in µs of CPU a message: `python -m tests.benchmarks.audio_messages [WIRES]`.

For every wire whose messages carry audio, as the contract suite's scripted servers send it: the way of the usual
message ("short") and the way of any message ("long"), side by side and in turns. The least of the rounds counts.
"""

import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext

from loadtest.protocols.base import CallerProtocol, EventKind, Message
from tests.unit.loadtest.protocols.contract.line import Line, tone
from tests.unit.loadtest.protocols.contract.two_ways import AUDIO_MS, WIRES, without_readers

MESSAGES = 2000
ROUNDS = 15


def replying(name: str) -> tuple[CallerProtocol, list[Message]]:
    """A caller who hears a reply, and the messages with which it goes on."""
    line = Line(name)
    line.open()
    line.turn(until="audio")
    script = line.script
    pcm = tone(script.reply_rate_hz, AUDIO_MS)
    messages: list[Message] = []
    while len(messages) < MESSAGES:
        # The scripts of telephone calls also send empty pieces, to show that an agent may.
        messages += [each for each in script.audio(pcm) or () if len(each) > 200]
    return line.caller, messages


def cost_us(caller: CallerProtocol, messages: Sequence[Message]) -> float:
    """The µs of CPU a message."""
    receive = caller.receive
    begin = time.process_time()
    for message in messages:
        receive(message)
    return (time.process_time() - begin) / len(messages) * 1e6


def main() -> None:
    print(f"{'wire':22}{'ms':>6}{'bytes':>7}{'long':>8}{'short':>8}{'short/long':>12}")
    for name in sys.argv[1:] or WIRES:
        least = {"long": float("inf"), "short": float("inf")}
        for _ in range(ROUNDS):
            for way, before in least.items():
                caller, messages = replying(name)
                with without_readers() if way == "long" else nullcontext():
                    least[way] = min(before, cost_us(caller, messages))
        caller, messages = replying(name)
        events = [event for message in messages for event in caller.receive(message)]
        audio = [event for event in events if event.kind is EventKind.AUDIO]
        assert len(audio) == len(events), f"{name}: other events than audio"
        heard_ms = sum(len(each.audio or b"") / 2 / (each.rate_hz or 1) for each in audio) * 1000 / len(messages)
        size = sum(map(len, messages)) / len(messages)
        figures = f"{least['long']:8.2f}{least['short']:8.2f}{least['short'] / least['long']:12.2f}"
        print(f"{name:22}{heard_ms:6.1f}{size:7.0f}{figures}")


if __name__ == "__main__":
    main()
