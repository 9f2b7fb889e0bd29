"""Sends spans to a sidecar for a while: `python -m ….store.sender URL SECONDS SPANS_PER_S` prints JSON.

Eight connections, each of which waits for the acknowledgment of a request before its next one. With a rate of 0 they
send as fast as they are answered. A refused request is not counted, and is followed by the pause that it asks for.
"""

import http.client
import itertools
import json
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import SplitResult, urlsplit

from tests.benchmarks.bench.store.exports import BATCH_SPANS, Exports, make_exports, new_spans

CONNECTIONS: Final = 8
_TIMEOUT_S: Final = 30.0
_HEADERS: Final = {"content-type": "application/x-protobuf"}


@dataclass(slots=True)
class _Acknowledged:
    spans: int = 0
    refused: int = 0
    acknowledged_s: list[float] = field(default_factory=list[float])


def main(url: str, lasts_s: float, spans_per_s: float) -> None:
    """Print what was sent, once it has been."""
    exports = make_exports(1, time.time_ns())
    sent = [_Acknowledged() for _ in range(CONNECTIONS)]
    pause_s = CONNECTIONS * BATCH_SPANS / spans_per_s if spans_per_s else 0.0
    began_s = time.monotonic()
    threads = [
        threading.Thread(target=_send, args=(urlsplit(url), exports, each, pause_s, began_s + lasts_s)) for each in sent
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    waits = sorted(itertools.chain.from_iterable(each.acknowledged_s for each in sent))
    found = {
        "spans": sum(each.spans for each in sent),
        "refused": sum(each.refused for each in sent),
        "took_s": time.monotonic() - began_s,
        "ack_p50_s": waits[len(waits) // 2] if waits else None,
        "ack_p99_s": waits[len(waits) * 99 // 100] if waits else None,
        "attributes": exports.attributes,
        "span_bytes": exports.span_bytes,
    }
    sys.stdout.write(json.dumps(found) + "\n")


def _send(to: SplitResult, exports: Exports, sent: _Acknowledged, pause_s: float, until_s: float) -> None:
    connection = http.client.HTTPConnection(to.hostname or "", to.port, timeout=_TIMEOUT_S)
    due_s = time.monotonic()
    for body in itertools.cycle(exports.bodies):
        if (now_s := time.monotonic()) >= until_s:
            break
        if now_s < due_s:
            time.sleep(due_s - now_s)
        due_s += pause_s
        content = new_spans(body)
        began_s = time.perf_counter()
        connection.request("POST", "/v1/traces", content, _HEADERS)
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
