"""A server that plays a wire's script of the contract suite over a real WebSocket, with a known delay.

`python -m ….scripted_server NAME PORT LOG DELAY_MS`. The caller says when it has finished (manual
turns). Each turn adds one line to LOG: when the end of the turn was read, and the moments right before the first audio,
on a wire without audio the transcript, was handed to the socket and right after, on the monotonic clock that all
processes of a machine share.
"""

import json
import sys
import time
from pathlib import Path

from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve

from tests.unit.loadtest.protocols.contract.line import SCRIPTS, TEXT, tone
from tests.unit.loadtest.protocols.contract.wire_script import UTTERANCE, Messages, WireScript

# A message that is longer is audio; whatever ends a turn is shorter.
LONGEST_COMMAND = 250
FEWEST_FRAMES = 10  # of a turn: what comes before them opens the session
REPLY_MS = 300


class ScriptedTurns:
    """One connection, turn after turn."""

    def __init__(self, connection: ServerConnection, script: WireScript, log: Path, delay_s: float) -> None:
        self._connection = connection
        self._script = script
        self._log = log
        self._delay_s = delay_s

    def run(self) -> None:
        """Serve until the caller hangs up."""
        self._send(self._script.greets())
        frames = 0
        for message in self._connection:
            read_ns = time.perf_counter_ns()
            self._send(self._script.answers(message))
            if len(message) > LONGEST_COMMAND:
                frames += 1
            elif frames >= FEWEST_FRAMES and self._script.ends_turn(message):
                frames = 0
                self._answer(read_ns)

    def _send(self, messages: Messages | None) -> None:
        for message in messages or ():
            self._connection.send(message)

    def _answer(self, read_ns: int) -> None:
        script = self._script
        self._send(script.speech_stopped())
        if type(script).audio is WireScript.audio:
            sent_ns = self._send_when_due(read_ns, script.final(UTTERANCE.text))
        else:
            self._send(script.final(UTTERANCE.text))
            self._send(script.reply_started())
            self._send(script.text(TEXT))
            sent_ns = self._send_when_due(read_ns, script.audio(tone(script.reply_rate_hz, REPLY_MS)))
            self._send(script.reply_done())
        with self._log.open("a") as log:
            log.write(json.dumps({"read_ns": read_ns, "sent_ns": sent_ns}) + "\n")

    def _send_when_due(self, read_ns: int, messages: Messages | None) -> tuple[int, int]:
        time.sleep(max(0.0, read_ns / 1e9 + self._delay_s - time.perf_counter()))
        before_ns = time.perf_counter_ns()
        self._send(messages)
        return before_ns, time.perf_counter_ns()


def main() -> None:
    """Serve on a port of this machine until the process is ended."""
    name, port, log, delay_ms = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), float(sys.argv[4])

    def answer(connection: ServerConnection) -> None:
        try:
            ScriptedTurns(connection, SCRIPTS[name](), log, delay_ms / 1000).run()
        except ConnectionClosed:
            return

    with serve(answer, "127.0.0.1", port, compression=None) as server:
        server.serve_forever()


if __name__ == "__main__":
    main()
