"""What a sidecar stores in a second, and what that costs: `python -m tests.benchmarks.ingest [SPANS_PER_S [SECONDS]]`.

The mix is that of our own calls: 1 turn of some 66 attributes, 3 stages, and a call for every 3 turns; 64 spans a
request, from 32 senders that send at a fixed rate (0: as fast as they are answered). CPU is that of the front and of
the store process, per span that was acknowledged. Beside it stands how late an idle process woke meanwhile, and how
long iterations of the front's event loop took, in CPU time of their thread and in all.
"""

import os
import secrets
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

import psutil
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue

from telemetry.model import semconv
from telemetry.model.turn_spans import turn_attributes
from tests.benchmarks.pauses import instrument_loops, iterations_of, pauses_of_the_machine
from tests.fixtures_sidecar import any_value, running_sidecar
from tests.fixtures_turns import exchange

SENDERS = 32
BATCH = 64
_PREFIX = bytes.fromhex("f00dfeedf00dfeed")  # the first half of every trace id; replaced for each request


@dataclass
class Sent:
    """What one sender saw."""

    spans: int = 0
    refused: int = 0
    acknowledged_s: list[float] = field(default_factory=list)


def mixed_request() -> bytes:
    """A request of BATCH spans of our own mix."""
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    resource.resource.attributes.append(KeyValue(key="service.name", value=any_value("voiceprobe")))
    scope = resource.scope_spans.add()
    scope.scope.name = semconv.SCOPE
    index = 0
    while len(scope.spans) < BATCH:
        kinds = [(semconv.SPAN_TURN, turn_attributes(exchange(index)[0]))]
        kinds += [
            (name, {"gen_ai.system": "x", "voice.stage": name})
            for name in (semconv.SPAN_ASR, semconv.SPAN_LLM, semconv.SPAN_TTS)
        ]
        if index % 3 == 0:
            kinds.append((semconv.SPAN_CALL, {"voice.call_id": f"call-{index}", "voice.run_id": "run"}))
        index += 1
        for name, attributes in kinds[: BATCH - len(scope.spans)]:
            span = scope.spans.add()
            span.trace_id = _PREFIX + index.to_bytes(8, "big")
            span.span_id = len(scope.spans).to_bytes(8, "big")
            span.name = name
            span.start_time_unix_nano = time.time_ns()
            span.end_time_unix_nano = span.start_time_unix_nano + 1_000_000
            for key, value in attributes.items():
                span.attributes.append(KeyValue(key=key, value=any_value(value)))
    return request.SerializeToString()


def send(
    address: tuple[str, int], body: bytes | Sequence[bytes], sent: Sent, rate_per_s: float, until_s: float
) -> None:
    """Send a body, or several in turn, at a rate (0: as fast as it is answered) until a moment of the monotonic
    clock."""
    bodies = cycle([body] if isinstance(body, bytes) else body)
    head = b"POST /v1/traces HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-protobuf\r\ncontent-length: %d\r\n\r\n"
    with socket.create_connection(address) as connection:
        due_s = time.monotonic()
        while (now_s := time.monotonic()) < until_s:
            if rate_per_s and now_s < due_s:
                time.sleep(due_s - now_s)
            due_s += 1 / rate_per_s if rate_per_s else 0.0
            content = next(bodies).replace(_PREFIX, secrets.token_bytes(8))
            began_s = time.perf_counter()
            connection.sendall(head % len(content) + content)
            answer = connection.recv(65536)
            if answer.startswith(b"HTTP/1.1 200"):
                sent.spans += BATCH
                sent.acknowledged_s.append(time.perf_counter() - began_s)
            else:
                sent.refused += 1
                time.sleep(0.2)


def cpu_s(process: psutil.Process) -> float:
    """The CPU time of a process so far."""
    times = process.cpu_times()
    return times.user + times.system


def main() -> None:
    """Print the figures of one run."""
    spans_per_s = float(sys.argv[1]) if len(sys.argv) > 1 else 20_000.0
    lasts_s = float(sys.argv[2]) if len(sys.argv) > 2 else 20.0
    body = mixed_request()
    folder = Path(tempfile.mkdtemp(dir=os.environ.get("BENCHMARK_FOLDER")))
    found: dict[str, Any] = {}
    loops = instrument_loops(folder / "before")
    with running_sidecar(folder / "store", before=loops) as sidecar, pauses_of_the_machine(found):
        host, port = sidecar.http.removeprefix("http://").rsplit(":", 1)
        processes = {"sidecar": psutil.Process(sidecar.process.pid)}
        for lasting_s in (3.0, lasts_s):  # the first warms it up
            sent = [Sent() for _ in range(SENDERS)]
            before = {name: cpu_s(process) for name, process in processes.items()}
            began_s = time.monotonic()
            threads = [
                threading.Thread(
                    target=send,
                    args=((host, int(port)), body, each, spans_per_s / BATCH / SENDERS, began_s + lasting_s),
                )
                for each in sent
            ]
            for thread in threads:
                thread.start()
            sizes: list[int] = []
            while any(thread.is_alive() for thread in threads):
                time.sleep(1)
                sizes.append(sum(process.memory_info().rss for process in processes.values()) >> 20)
            took_s = time.monotonic() - began_s
        spans = sum(each.spans for each in sent)
        waits = sorted(wait for each in sent for wait in each.acknowledged_s)
        print(f"{len(body) / BATCH:.0f} bytes a span, {spans:,} spans in {took_s:.1f} s: {spans / took_s:,.0f} spans/s")
        print(f"refused requests: {sum(each.refused for each in sent)}")
        print(
            f"acknowledged in p50 {waits[len(waits) // 2] * 1e3:.0f} ms, "
            f"p99 {waits[len(waits) * 99 // 100] * 1e3:.0f} ms"
        )
        for name, process in processes.items():
            used_s = cpu_s(process) - before[name]
            print(f"CPU of {name}: {used_s / spans * 1e6:.1f} us a span, {used_s / took_s:.2f} cores")
            by_thread = sorted((thread.user_time + thread.system_time for thread in process.threads()), reverse=True)
            print(f"  of its threads since the start, in s: {[round(each, 1) for each in by_thread[:5]]}")
        print(f"RSS of both in MiB, second by second: {sizes}")
        sidecar.terminate()
        print(f"iterations of the front's loop: {iterations_of(loops, sidecar.process.pid)}")
    print(f"an idle process woke later than asked: {found['machine_pauses']}")


if __name__ == "__main__":
    main()
