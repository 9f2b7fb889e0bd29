"""Requests of the benchmark of stores: the mix of our own callers, new each time, and accepted unchanged."""

import time

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from telemetry.model import semconv
from tests.benchmarks.bench.sending import BATCH_SPANS, LARGE_RUN, bodies, new_spans, one_turn
from tests.fixtures_sidecar import decode_traces

NOW = 1_790_000_000 * 10**9


@pytest.mark.slow
def test_every_request_is_whole_and_every_span_of_it_is_taken() -> None:
    made = bodies(NOW)
    requests = [ExportTraceServiceRequest.FromString(body).resource_spans[0].scope_spans[0].spans for body in made]
    ids = [(span.trace_id, span.span_id) for spans in requests for span in spans]
    assert len(set(ids)) == len(ids) == BATCH_SPANS * len(made)
    assert {span.name for spans in requests for span in spans} == {
        *(semconv.SPAN_CALL, semconv.SPAN_TURN, semconv.SPAN_ASR, semconv.SPAN_LLM, semconv.SPAN_TTS)
    }
    decoded = decode_traces(made)
    assert [(request.received, request.rejected, request.fault) for request in decoded.requests] == [
        (BATCH_SPANS, 0, None)
    ] * len(made)
    assert all(abs(turn.started_unix_ns - NOW) < 1_000 * 10**9 for turn in decoded.turns)
    assert not decoded.unknown_turn_fields


def test_each_sending_of_body_has_new_ids() -> None:
    body = bodies(NOW)[0]
    traces = [{turn.trace_id for turn in decode_traces([sent]).turns} for sent in (new_spans(body), new_spans(body))]
    assert traces[0]
    assert not traces[0] & traces[1]


def test_one_turn_is_of_the_newest_run() -> None:
    now = time.time_ns()
    body, trace_id = one_turn(now)
    (turn,) = decode_traces([body]).turns
    assert (turn.trace_id, turn.run_id, turn.started_unix_ns) == (trace_id, LARGE_RUN, now)
    assert one_turn(now)[1] != trace_id
