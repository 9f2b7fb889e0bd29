"""What the benchmark of stores sends is our own mix of spans, new each time."""

import time
from collections import Counter

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from telemetry.model import semconv
from tests.benchmarks.bench.store.exports import BATCH_SPANS, make_exports, new_spans, one_turn
from tests.benchmarks.bench.store.templates import LARGE_RUN
from tests.fixtures_sidecar import decode_traces

NOW = 1_790_000_000 * 10**9


def test_the_mix_is_that_of_our_callers() -> None:
    exports = make_exports(1, NOW)
    names: Counter[str] = Counter()
    ids: set[tuple[bytes, bytes]] = set()
    parents: set[tuple[bytes, bytes]] = set()
    for body in exports.bodies:
        request = ExportTraceServiceRequest.FromString(body)
        spans = request.resource_spans[0].scope_spans[0].spans
        assert len(spans) == BATCH_SPANS
        names.update(span.name for span in spans)
        ids |= {(span.trace_id, span.span_id) for span in spans}
        parents |= {(span.trace_id, span.parent_span_id) for span in spans if span.parent_span_id}
    calls = names[semconv.SPAN_CALL]
    stages = dict.fromkeys((semconv.SPAN_TURN, semconv.SPAN_ASR, semconv.SPAN_LLM, semconv.SPAN_TTS), 3 * calls)
    assert names == {semconv.SPAN_CALL: calls, **stages}
    assert len(ids) == names.total()
    assert parents <= ids
    assert exports.attributes > 60
    assert exports.span_bytes == sum(map(len, exports.bodies)) / names.total()


def test_every_span_of_it_is_taken() -> None:
    exports = make_exports(1, NOW)
    decoded = decode_traces(exports.bodies)
    assert [(each.received, each.rejected, each.fault) for each in decoded.requests] == [
        (BATCH_SPANS, 0, None) for _ in exports.bodies
    ]
    assert len(decoded.turns) == len(exports.bodies) * BATCH_SPANS * 3 // 13
    assert not decoded.unknown_turn_fields


def test_what_is_sent_again_is_new() -> None:
    (body, *_) = make_exports(1, NOW).bodies
    traces = [{turn.trace_id for turn in decode_traces([sent]).turns} for sent in (new_spans(body), new_spans(body))]
    assert not traces[0] & traces[1]


def test_one_turn_is_of_the_newest_run() -> None:
    now = time.time_ns()
    body, trace_id = one_turn(now)
    (turn,) = decode_traces([body]).turns
    assert (turn.trace_id, turn.run_id, turn.started_unix_ns) == (trace_id, LARGE_RUN, now)
    assert one_turn(now)[1] != trace_id
