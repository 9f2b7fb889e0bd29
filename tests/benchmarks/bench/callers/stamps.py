"""Our engine's event stamps while it is busy: `python -m ….callers.stamps`, with a window's orders first.

Behind the orders come the port of the ground-truth endpoint and the number of callers to it. They are connected first:
the others may be more than the engine can serve. Half of them have the kernel's receive stamps, half only the moment at
which the program saw the data. RECORD gets when the window began and {path: [stamp, …]}, in the order of the messages,
as the turn's timeline has them.
"""

# isort: off
from tests.benchmarks.bench.callers.our_callers import OurCallers, make_worker  # first: it patches the process

# isort: on
import json
import os
import signal
import sys
import time
import urllib.parse

import gevent

from loadtest.engine.transports.stream import StreamTransport
from tests.benchmarks.bench.messages import RESPONSE_ID, STAMP_KINDS
from tests.benchmarks.bench.window import CONNECT_S, Orders, parser


def stamps(callers: OurCallers) -> dict[str, list[int]]:
    """The stamps in the timelines of the callers to the ground-truth endpoint, by path."""
    found: dict[str, list[int]] = {}
    for call in callers.calls():
        path = urllib.parse.urlsplit(call.plan.call_id).path
        exchange = call.conversation.exchange
        reply = exchange.timeline.replies.get(RESPONSE_ID) if exchange is not None else None
        if path.strip("/") and reply is not None:
            found[path] = list(reply.text_stamps_perf_ns)
    return found


def main() -> None:
    """Connect everybody, be busy for the window, and write down how each message was stamped."""
    words = parser()
    words.add_argument("truth_port", type=int)
    words.add_argument("probes", type=int)
    parsed = words.parse_args()
    given = Orders.of(parsed)
    callers = OurCallers(make_worker(given.url))
    truth = f"ws://127.0.0.1:{parsed.truth_port}"
    callers.start([f"{truth}/{STAMP_KINDS[number % 2]}-{number}" for number in range(parsed.probes)])
    for call in callers.calls():
        if "/user-" in call.plan.call_id and isinstance(call.transport, StreamTransport):
            assert call.transport.connection is not None
            call.transport.connection.stamped = False

    began = list[int]()

    def over(number: int, place: object) -> None:
        del number, place
        if not began:
            began.append(time.perf_counter_ns())
            signal.setitimer(signal.ITIMER_REAL, given.window_s)
            return
        given.record.write_text(json.dumps({"began_perf_ns": began[0], "stamps": stamps(callers)}))
        sys.stdout.write(json.dumps({"calls": len(callers.calls())}) + "\n")
        sys.stdout.flush()
        os._exit(0)

    signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, given.warm_up_s)
    callers.start([given.url] * given.callers)
    while True:
        gevent.sleep(CONNECT_S)  # until the alarm ends the process


if __name__ == "__main__":
    main()
