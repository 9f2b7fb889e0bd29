"""gRPC against a real sidecar: the real exporters, each documented answer, and calls that are odd or broken."""

import gzip
import json
from typing import Any

import grpc
import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpanExporter
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter

from telemetry.model import semconv
from telemetry.model.turn_spans import turn_attributes
from tests.fixtures_sidecar import any_value, turns_request
from tests.fixtures_turns import client_turn
from tests.integration.sidecar.raw_clients import GRPC_OPENED, TRACES, AskedSidecar, connections, grpc_call

METRICS = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"


def export_turn(exporter: SpanExporter, sequence: int, run_id: str = "run-1") -> None:
    """Export a turn with OpenTelemetry's own SDK."""
    provider = TracerProvider(resource=Resource({"service.name": "exporter"}), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    attributes = turn_attributes(client_turn(sequence, run_id=run_id))
    provider.get_tracer(semconv.SCOPE).start_span(semconv.SPAN_TURN, attributes=attributes).end()
    provider.shutdown()


def test_the_real_exporters_are_understood(running: AskedSidecar) -> None:
    grpc_address, traces = running.sidecar.grpc, f"{running.sidecar.http}/v1/traces"
    export_turn(GrpcSpanExporter(endpoint=grpc_address, insecure=True), 1, "exporters")
    export_turn(HttpSpanExporter(traces), 2, "exporters")
    export_turn(HttpSpanExporter(traces, compression=Compression.Gzip), 3, "exporters")
    with running.reader() as store:
        turns = [turn for turn in store.turns(limit=10_000) if turn.run_id == "exporters"]
        assert sorted(turn.sequence for turn in turns) == [1, 2, 3]
        (row,) = store.spans(turns[0].trace_id)
        assert (row.service, row.name) == ("exporter", "voice.turn")


def _code(channel: grpc.Channel, message: bytes, **options: object) -> grpc.StatusCode:
    try:
        channel.unary_unary(TRACES)(message, timeout=60, **options)
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def test_grpc_answers_as_the_collector_does(running: AskedSidecar) -> None:
    body = turns_request([client_turn(1)]).SerializeToString()
    before = running.state("received")
    with grpc.insecure_channel(running.sidecar.grpc, [("grpc.max_send_message_length", -1)]) as channel:
        for compression in (grpc.Compression.NoCompression, grpc.Compression.Gzip, grpc.Compression.Deflate):
            assert _code(channel, body, compression=compression) is grpc.StatusCode.OK
            assert _code(channel, b"\xff\xff", compression=compression) is grpc.StatusCode.INVALID_ARGUMENT
            too_large = _code(channel, bytes(21 << 20), compression=compression)
            assert too_large is grpc.StatusCode.RESOURCE_EXHAUSTED, compression
        assert _code(channel, b"") is grpc.StatusCode.OK
        for method, code in (
            ("/opentelemetry.proto.collector.logs.v1.LogsService/Export", grpc.StatusCode.UNIMPLEMENTED),
            ("/unknown.Service/Export", grpc.StatusCode.CANCELLED),
        ):
            with pytest.raises(grpc.RpcError) as refused:
                channel.unary_unary(method)(b"", timeout=60)
            assert refused.value.code() is code
    assert running.state("received") == before + 3


def test_grpc_reports_what_of_a_request_is_not_stored(running: AskedSidecar) -> None:
    request = turns_request([client_turn(1), client_turn(2)])
    first, second = request.resource_spans[0].scope_spans[0].spans
    first.trace_id = b"short"
    with grpc.insecure_channel(running.sidecar.grpc) as channel:
        answer = TraceServiceStub(channel).Export(request, timeout=60)
        assert answer.partial_success.rejected_spans == 1
        assert "trace id" in answer.partial_success.error_message
        deep = any_value(1)
        for _ in range(40):
            outer = any_value([])
            outer.array_value.values.append(deep)
            deep = outer
        second.attributes.add(key="deep").value.CopyFrom(deep)
        answer = TraceServiceStub(channel).Export(request, timeout=60)
    assert answer.partial_success.rejected_spans == 1
    assert "left out: nested too deeply" in answer.partial_success.error_message


def _choosing(address: str, service: str) -> grpc.Channel:
    """A channel on which gRPC itself watches the health of a service, and calls only where it is serving."""
    config = {"loadBalancingConfig": [{"round_robin": {}}], "healthCheckConfig": {"serviceName": service}}
    options = [("grpc.service_config", json.dumps(config)), ("grpc.use_local_subchannel_pool", 1)]
    return grpc.insecure_channel(address, options)


def test_grpc_calls_only_what_says_that_it_serves(running: AskedSidecar) -> None:
    request = turns_request([client_turn(1)])
    with _choosing(running.sidecar.grpc, "opentelemetry.proto.collector.trace.v1.TraceService") as channel:
        assert TraceServiceStub(channel).Export(request, timeout=60).partial_success.rejected_spans == 0
    with _choosing(running.sidecar.grpc, "another") as channel, pytest.raises(grpc.RpcError) as refused:
        TraceServiceStub(channel).Export(request, timeout=60)
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


def test_broken_bodies_are_invalid_arguments_with_a_sentence(running: AskedSidecar) -> None:
    good = turns_request([client_turn(1)])
    before = running.state("bad_requests")
    with grpc.insecure_channel(running.sidecar.grpc) as channel:
        for method in (TRACES, METRICS):
            export: Any = channel.stream_unary(method)
            for messages, sentence in (
                ([b"\xff" * 20], "the body is not a protobuf Export"),
                ([b"\x0a\x04\x12\x02\x12\x01"], "the body is not a protobuf Export"),
                ([gzip.compress(good.SerializeToString())[:40]], "the message cannot be decompressed"),
                ([], "the call ended before a whole message arrived"),
            ):
                with pytest.raises(grpc.RpcError) as refused:
                    export(iter(messages), timeout=60)
                assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
                assert str(refused.value.details()).startswith(sentence)
        assert running.state("bad_requests") == before + 8
        answer = TraceServiceStub(channel).Export(good, timeout=60)
        assert answer.ByteSize() == 0, "the connection is as good as before"


def test_a_method_that_is_no_text_does_not_end_the_grpc_server(running: AskedSidecar) -> None:
    with connections(running.sidecar.grpc, 3, GRPC_OPENED + grpc_call(path="/\udce9\udcff")) as opened:
        for connection in opened:
            connection.setblocking(True)
            received = b""
            while b"\0\0\4\3\0\0\0\0\1" not in received:  # RST_STREAM
                received += (piece := connection.recv(1000))
                assert piece
    with grpc.insecure_channel(running.sidecar.grpc, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        assert _code(channel, turns_request([client_turn(1)]).SerializeToString()) is grpc.StatusCode.OK
