"""What it costs to decode spans, in µs of CPU a span: `python -m tests.benchmarks.decoding [TURNS]`.

Side by side and in turns, over the same requests of 64 spans: Google's parser alone, `decode_traces`, the same with the
redaction that every store has, and the same again with the writer's last look for texts, for groups of 1, 10 and 30
requests. The least of five rounds counts.
"""

import sys
import time
from collections.abc import Callable, Sequence

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue

from telemetry.model import semconv
from telemetry.model.turn_spans import turn_attributes
from telemetry.sidecar.privacy.requests import Redactor
from telemetry.sidecar.privacy.rules import PrivacyRules
from telemetry.store.schema import turns_table
from telemetry.store.table_redaction import table_without_text
from tests.fixtures_sidecar import any_value, decode_traces
from tests.fixtures_turns import exchange, stage_spans

BATCH = 64
ROUNDS = 5
GROUPS = (1, 10, 30)
REDACTOR = Redactor(PrivacyRules(b"k" * 32))


def turn_mix(turns: int) -> list[bytes]:
    """1 turn of our callers (52 to 66 attributes) and its 3 stages with 1 attribute and 2 events each."""
    spans: list[tuple[str, str, str, dict[str, object]]] = []
    for index in range(turns):
        turn = exchange(index)[0]
        spans.append((semconv.SPAN_TURN, turn.trace_id, turn.span_id, dict(turn_attributes(turn))))
        spans += [(stage.name, turn.trace_id, stage.span_id, dict(stage.attributes)) for stage in stage_spans(turn)]
    return _requests(spans)


def small_spans(count: int) -> list[bytes]:
    """Spans of a framework: 8 attributes, 2 events."""
    pairs = {**{f"gen_ai.usage.n{i}": i for i in range(5)}, "gen_ai.request.model": "m", "ok": True, "s": 0.5}
    return _requests([("llm_request", f"{i + 1:032x}", f"{i + 1:016x}", dict(pairs)) for i in range(count)])


def _requests(spans: Sequence[tuple[str, str, str, dict[str, object]]]) -> list[bytes]:
    found: list[bytes] = []
    for first in range(0, len(spans), BATCH):
        request = ExportTraceServiceRequest()
        of_resource = request.resource_spans.add()
        for key in ("service.name", "service.version", "host.name"):
            of_resource.resource.attributes.append(KeyValue(key=key, value=any_value(key)))
        of_scope = of_resource.scope_spans.add()
        for number, (name, trace_id, span_id, pairs) in enumerate(spans[first : first + BATCH]):
            span = of_scope.spans.add(name=name, start_time_unix_nano=number, end_time_unix_nano=number + 5)
            span.trace_id, span.span_id = bytes.fromhex(trace_id), bytes.fromhex(span_id)
            span.attributes.extend(KeyValue(key=key, value=any_value(value)) for key, value in pairs.items())
            if name != semconv.SPAN_TURN:
                span.events.add(name="first", time_unix_nano=number)
                span.events.add(name="second", time_unix_nano=number)
        found.append(request.SerializeToString())
    return found


def _parse(bodies: Sequence[bytes]) -> None:
    for body in bodies:
        ExportTraceServiceRequest.FromString(body)


def _redacted(bodies: Sequence[bytes]) -> None:
    decode_traces(bodies, REDACTOR)


def _stored(bodies: Sequence[bytes]) -> None:
    found = decode_traces(bodies, REDACTOR)
    table_without_text("turns", turns_table(found.turns))
    table_without_text("spans", found.spans)


def _cost_us(work: Callable[[Sequence[bytes]], object], bodies: Sequence[bytes], group: int, spans: int) -> float:
    begin = time.process_time()
    for first in range(0, len(bodies), group):
        work(bodies[first : first + group])
    return (time.process_time() - begin) / spans * 1e6


def main() -> None:
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    works = {"Google's parser": _parse, "tables": decode_traces, "redacted": _redacted, "stored": _stored}
    for make, count in ((turn_mix, turns), (small_spans, turns * 4)):
        bodies = make(count)
        spans = sum(each.received for each in decode_traces(bodies).requests)
        least = {(name, group): float("inf") for name in works for group in GROUPS}
        for _ in range(ROUNDS):
            for name, group in list(least):
                least[name, group] = min(least[name, group], _cost_us(works[name], bodies, group, spans))
        print(f"\n{make.__doc__} {sum(map(len, bodies)) / spans:.0f} bytes a span. µs a span by requests in a group:")
        print("".join([f"{'':16}", *(f"{group:>8}" for group in GROUPS)]))
        for name in works:
            print("".join([f"{name:16}", *(f"{least[name, group]:8.1f}" for group in GROUPS)]))


if __name__ == "__main__":
    main()
