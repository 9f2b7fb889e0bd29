"""The real exporters against a real sidecar: gRPC and HTTP, traces and metrics."""

import gzip
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpanExporter
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter

from telemetry.model import semconv
from telemetry.model.generator_health import gauge_metric
from telemetry.model.turn_spans import turn_attributes
from telemetry.model.turns import Turn
from telemetry.store.answers import Filter
from telemetry.store.reader import StoreReader
from tests import asking
from tests.fixtures_sidecar import any_value, running_sidecar, turns_request
from tests.fixtures_turns import client_turn


def _export(exporter: SpanExporter, turn: Turn) -> None:
    provider = TracerProvider(resource=Resource({"service.name": "exporter"}), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    provider.get_tracer(semconv.SCOPE).start_span(semconv.SPAN_TURN, attributes=turn_attributes(turn)).end()
    provider.shutdown()


def test_the_real_exporters_are_understood(tmp_path: Path) -> None:
    with running_sidecar(tmp_path) as sidecar:
        _export(GrpcSpanExporter(endpoint=sidecar.grpc, insecure=True), client_turn(1))
        _export(HttpSpanExporter(f"{sidecar.http}/v1/traces"), client_turn(2))
        _export(HttpSpanExporter(f"{sidecar.http}/v1/traces", compression=Compression.Gzip), client_turn(3))
        reader = PeriodicExportingMetricReader(
            OTLPMetricExporter(endpoint=sidecar.grpc, insecure=True), export_interval_millis=3_600_000
        )
        meters = MeterProvider([reader], shutdown_on_exit=False)
        gauge = meters.get_meter("test").create_gauge(gauge_metric("cpu_ratio"))
        gauge.set(0.75, {"run_id": "run-1", "process_id": "worker-1"})
        meters.shutdown()
        assert sidecar.terminate() == 0
    with StoreReader(tmp_path) as store:
        assert [turn.sequence for turn in store.turns(limit=10)] == [1, 2, 3]
        assert store.summary(Filter(run_id="run-1")).generator["cpu_ratio_worst"] == 0.75
        (row,) = store.spans(store.turns()[0].trace_id)
        assert (row.service, row.name) == ("exporter", "voice.turn")


def test_grpc_refuses_what_http_refuses(tmp_path: Path) -> None:
    with (
        running_sidecar(tmp_path, "--keep-transcripts", token="s3cret") as sidecar,
        grpc.insecure_channel(sidecar.grpc) as channel,
    ):
        stub = TraceServiceStub(channel)
        request = turns_request([client_turn(1), client_turn(2)])
        with pytest.raises(grpc.RpcError) as refused:
            stub.Export(request, timeout=60)
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        token = (("authorization", "Bearer s3cret"),)
        request.resource_spans[0].scope_spans[0].spans[0].trace_id = b"short"
        answer = stub.Export(request, timeout=60, metadata=token)
        assert answer.partial_success.rejected_spans == 1
        assert "trace id" in answer.partial_success.error_message
        deep = any_value("bottom")
        for _ in range(40):
            outer = any_value([])
            outer.array_value.values.append(deep)
            deep = outer
        request.resource_spans[0].scope_spans[0].spans[1].attributes.add(key="deep").value.CopyFrom(deep)
        answer = stub.Export(request, timeout=60, metadata=token)
        assert answer.partial_success.rejected_spans == 1
        assert "left out: nested too deeply" in answer.partial_success.error_message
        large = ExportTraceServiceRequest()
        large.resource_spans.add().resource.attributes.add(key="large").value.string_value = "\0" * (21 << 20)
        for compression in (grpc.Compression.NoCompression, grpc.Compression.Gzip):
            with pytest.raises(grpc.RpcError) as refused:
                stub.Export(large, timeout=60, metadata=token, compression=compression)
            assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED, compression
        assert len(gzip.compress(large.SerializeToString(), 1)) < 1 << 20
        assert (
            stub.Export(turns_request([client_turn(5)]), timeout=60, metadata=token).partial_success.rejected_spans == 0
        )


def test_broken_bodies_are_invalid_arguments_with_a_sentence(tmp_path: Path) -> None:
    good = turns_request([client_turn(1)]).SerializeToString()
    with running_sidecar(tmp_path) as sidecar, grpc.insecure_channel(sidecar.grpc) as channel:
        for service in ("trace.v1.TraceService", "metrics.v1.MetricsService"):
            method = f"/opentelemetry.proto.collector.{service}/Export"
            export: Any = channel.stream_unary(method)
            for messages, sentence in (
                ([b"\xff" * 20], "the body is not a protobuf Export"),
                ([b"\x0a\x04\x12\x02\x12\x01"], "the body is not a protobuf Export"),
                ([gzip.compress(good)[:40]], "the message cannot be decompressed"),
                ([], "the call ended before a whole message arrived"),
            ):
                with pytest.raises(grpc.RpcError) as refused:
                    export(iter(messages), timeout=60)
                assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
                assert str(refused.value.details()).startswith(sentence)
        assert asking.get(f"{sidecar.http}/v1/state").json()["bad_requests"] == 8
        answer = TraceServiceStub(channel).Export(turns_request([client_turn(1)]), timeout=60)
        assert answer.ByteSize() == 0, "the connection is as good as before"
