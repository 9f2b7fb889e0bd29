"""Sends spans to a sidecar for a while: `python -m ….sending URL SECONDS SPANS_PER_S` prints JSON.

The spans are those of the callers of the golden answers, with their stages and calls, as new ones each time: 64 in a
request on each of eight connections, which wait for the acknowledgment before their next one. With a rate of 0 they
send as fast as they are answered. A refused request is not counted, and is followed by the pause that it asks for.
"""

import http.client
import itertools
import json
import secrets
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import SplitResult, urlsplit

import msgspec

from telemetry.model import semconv
from tests.fixtures_sidecar import turns_request
from tests.goldens.calls import RUNS, turns_of
from tests.goldens.exports import call_spans, traces_request

CONNECTIONS: Final = 8
BATCH_SPANS: Final = 64
# The newest run of a store that `tests.goldens` filled, and the one with the most turns.
LARGE_RUN: Final = "large"
# The first half of every trace id of a request, which makes its spans new when it is replaced.
_PREFIX: Final = bytes.fromhex("f00dfeedf00dfeed")
_TIMEOUT_S: Final = 30.0
HEADERS: Final = {"content-type": "application/x-protobuf"}


def bodies(now_unix_ns: int) -> list[bytes]:
    """Requests of the spans of a run's callers, each whole, which end about now."""
    run = RUNS[0]
    later_ns = now_unix_ns - run.ends_unix_ns
    calls = [
        [
            msgspec.structs.replace(
                turn,
                run_id="sent",
                trace_id=f"{_PREFIX.hex()}{number:016x}",
                started_unix_ns=turn.started_unix_ns + later_ns,
                process_id="bench",
                sequence=None,
            )
            for turn in call
        ]
        for number, call in enumerate(turns_of(run))
    ]
    spans = [span for number, call in enumerate(calls) for span in call_spans(run, number, call)]
    batches = [spans[first : first + BATCH_SPANS] for first in range(0, len(spans) - BATCH_SPANS, BATCH_SPANS)]
    return [traces_request("voiceprobe", semconv.SCOPE, batch) for batch in batches]


def new_spans(body: bytes) -> bytes:
    """The same request with trace ids that were never sent before."""
    return body.replace(_PREFIX, secrets.token_bytes(len(_PREFIX)))


def one_turn(now_unix_ns: int) -> tuple[bytes, str]:
    """A request with one turn of the largest run, begun now, and its trace id."""
    trace_id, span_id = secrets.token_hex(16), secrets.token_hex(8)
    every = (turn for call in turns_of(RUNS[0]) for turn in call)
    turn = msgspec.structs.replace(
        next(turn for turn in every if (turn.phase_kind, turn.outcome, turn.noise_profile) == ("hold", "ok", "babble")),
        run_id=LARGE_RUN,
        call_id=trace_id,
        trace_id=trace_id,
        span_id=span_id,
        started_unix_ns=now_unix_ns,
        process_id="bench",
        sequence=None,
    )
    return turns_request([turn]).SerializeToString(), trace_id


@dataclass(slots=True)
class _Acknowledged:
    spans: int = 0
    refused: int = 0
    acknowledged_s: list[float] = field(default_factory=list[float])


def main(url: str, lasts_s: float, spans_per_s: float) -> None:
    """Print what was sent, once it has been."""
    requests = bodies(time.time_ns())
    sent = [_Acknowledged() for _ in range(CONNECTIONS)]
    pause_s = CONNECTIONS * BATCH_SPANS / spans_per_s if spans_per_s else 0.0
    began_s = time.monotonic()
    threads = [
        threading.Thread(target=_send, args=(urlsplit(url), requests, sender, pause_s, began_s + lasts_s))
        for sender in sent
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    waits = sorted(itertools.chain.from_iterable(sender.acknowledged_s for sender in sent))
    result = {
        "spans": sum(sender.spans for sender in sent),
        "refused": sum(sender.refused for sender in sent),
        "took_s": time.monotonic() - began_s,
        "ack_p50_s": waits[len(waits) // 2] if waits else None,
        "ack_p99_s": waits[len(waits) * 99 // 100] if waits else None,
        "span_bytes": sum(map(len, requests)) / (BATCH_SPANS * len(requests)),
    }
    sys.stdout.write(json.dumps(result) + "\n")


def _send(to: SplitResult, requests: list[bytes], sent: _Acknowledged, pause_s: float, until_s: float) -> None:
    connection = http.client.HTTPConnection(to.hostname or "", to.port, timeout=_TIMEOUT_S)
    due_s = time.monotonic()
    for body in itertools.cycle(requests):
        if (now_s := time.monotonic()) >= until_s:
            break
        if now_s < due_s:
            time.sleep(due_s - now_s)
        due_s += pause_s
        content = new_spans(body)
        began_s = time.perf_counter()
        connection.request("POST", "/v1/traces", content, HEADERS)
        answer = connection.getresponse()
        answer.read()
        if answer.status == http.client.OK:
            sent.spans += BATCH_SPANS
            sent.acknowledged_s.append(time.perf_counter() - began_s)
        else:
            sent.refused += 1
            time.sleep(float(answer.headers.get("retry-after", "1")))
    connection.close()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), float(sys.argv[3]))
