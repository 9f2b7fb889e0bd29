"""Our engine's event stamps while it is busy: `python -m tests.benchmarks.stamps`, with a window's usual orders first.

Behind the orders come the port of an endpoint that knows the truth and the number of callers to it. They are connected
first: the others may be more than the engine can serve. Half of them have the kernel's receive stamps, half only the
moment at which the program saw the data. RECORD gets when the window began and {path: [stamp, …]}, in the order of the
messages, as the turn's timeline has them.
"""

# isort: off
from tests.benchmarks import our_callers  # first: it patches the process

# isort: on
import json
import os
import signal
import sys
import time
import urllib.parse

import gevent

from loadtest.swarm.worker import Worker
from tests.benchmarks.messages import RESPONSE_ID, STAMP_KINDS
from tests.benchmarks.window import CONNECT_S, Orders, parser


def stamps(worker: Worker) -> dict[str, list[int]]:
    """What the timelines of the callers to the truth say, by path."""
    found: dict[str, list[int]] = {}
    for call in our_callers.calls(worker.engine):
        path = urllib.parse.urlsplit(call.plan.call_id).path
        exchange = call.conversation.exchange
        reply = exchange.timeline.replies.get(RESPONSE_ID) if exchange is not None else None
        if path.strip("/") and reply is not None:
            found[path] = list(reply.text_stamps_perf_ns)
    return found


def main() -> None:
    """Connect everybody, be busy for the window, and say how each message was stamped."""
    words = parser()
    words.add_argument("truth_port", type=int)
    words.add_argument("probes", type=int)
    parsed = words.parse_args()
    given = Orders.of(parsed)
    worker = our_callers.make_worker(given.url)
    truth = f"ws://127.0.0.1:{parsed.truth_port}"
    probes = [f"{truth}/{STAMP_KINDS[number % 2]}-{number}" for number in range(parsed.probes)]
    our_callers.start(worker, probes)
    for call in our_callers.calls(worker.engine):
        if "/user-" in call.plan.call_id and call.connection is not None:
            call.connection.stamped = False

    began = list[int]()

    def over(number: int, place: object) -> None:
        del number, place
        if not began:
            began.append(time.perf_counter_ns())
            signal.setitimer(signal.ITIMER_REAL, given.window_s)
            return
        given.record.write_text(json.dumps({"began_perf_ns": began[0], "stamps": stamps(worker)}))
        sys.stdout.write(json.dumps({"calls": worker.engine.calls_in_flight}) + "\n")
        sys.stdout.flush()
        os._exit(0)

    signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, given.warm_up_s)
    our_callers.start(worker, [given.url] * given.callers)
    while True:
        gevent.sleep(CONNECT_S)  # until the alarm ends the process


if __name__ == "__main__":
    main()
