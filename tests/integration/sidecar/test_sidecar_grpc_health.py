"""gRPC's health service of a real sidecar, asked by gRPC's own client: Check, Watch, and its choice of backends."""

import json
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub

from tests import asking
from tests.fixtures_sidecar import disk_that_takes_nothing, running_sidecar, turns_request
from tests.fixtures_turns import client_turn

SERVING, NOT_SERVING, UNKNOWN = b"\x08\1", b"\x08\2", b"\x08\3"
TRACES = "opentelemetry.proto.collector.trace.v1.TraceService"


def _choosing(address: str, service: str) -> grpc.Channel:
    """A channel on which gRPC itself watches the health of a service, and calls only where it is serving."""
    config = {"loadBalancingConfig": [{"round_robin": {}}], "healthCheckConfig": {"serviceName": service}}
    options = [("grpc.service_config", json.dumps(config)), ("grpc.use_local_subchannel_pool", 1)]
    return grpc.insecure_channel(address, options)


def test_readiness_is_seen_by_check_and_watch(tmp_path: Path) -> None:
    with running_sidecar(tmp_path, token="s3cret") as sidecar, grpc.insecure_channel(sidecar.grpc) as channel:
        check: Any = channel.unary_unary("/grpc.health.v1.Health/Check")
        watch: Any = channel.unary_stream("/grpc.health.v1.Health/Watch")
        assert check(b"", timeout=60) == SERVING
        with pytest.raises(grpc.RpcError) as refused:
            check(b"\x0a\1x", timeout=60)
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND
        answers, unknown = watch(b"", timeout=300), watch(b"\x0a\1x", timeout=300)
        assert (next(answers), next(unknown)) == (SERVING, UNKNOWN)
        with disk_that_takes_nothing(sidecar):
            sent = asking.post(
                f"{sidecar.http}/v1/traces",
                content=turns_request([client_turn(1)]).SerializeToString(),
                headers={"content-type": "application/x-protobuf", "authorization": "Bearer s3cret"},
            )
            assert sent.status_code == 503
            assert next(answers) == NOT_SERVING
            assert check(b"", timeout=60) == NOT_SERVING
        assert next(answers) == SERVING
        assert sidecar.terminate() == 0
        assert list(answers) == [NOT_SERVING], "the call ends with the sidecar, and says so"


def test_grpc_calls_only_what_says_that_it_serves(tmp_path: Path) -> None:
    request = turns_request([client_turn(1)])
    with running_sidecar(tmp_path) as sidecar:
        with _choosing(sidecar.grpc, TRACES) as channel:
            assert TraceServiceStub(channel).Export(request, timeout=60).partial_success.rejected_spans == 0
        with _choosing(sidecar.grpc, "another") as channel, pytest.raises(grpc.RpcError) as refused:
            TraceServiceStub(channel).Export(request, timeout=60)
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
