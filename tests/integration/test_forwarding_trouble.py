"""What goes wrong with one destination, or with the process that forwards, is nobody else's trouble."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from telemetry.sidecar.forwarding import folders
from tests import asking
from tests.fixtures_forwarding import (
    BlackHole,
    Mood,
    UpstreamServer,
    answer,
    endless_body,
    first,
    forwarding_sidecar,
    span_id,
    spans_request,
    take,
    take_partly,
)
from tests.fixtures_sidecar import running_sidecar, stored_trace_ids, turns_request
from tests.fixtures_turns import client_turn
from tests.integration.test_forwarding import send, state, up
from tests.integration.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def upstream() -> Iterator[UpstreamServer]:
    with closing(UpstreamServer()) as server:
        yield server


@pytest.mark.slow
def test_a_destination_in_trouble_delays_no_other(tmp_path: Path, upstream: UpstreamServer) -> None:
    with closing(BlackHole()) as hole, closing(UpstreamServer(endless_body)) as endless:
        tables = [
            up(hole.url, name="hole"),
            up("http://name.invalid", name="nameless"),
            up(endless.url, name="endless"),
            up(upstream.url),
        ]
        with forwarding_sidecar(tmp_path, tables) as sidecar:
            for number in range(30):
                send(sidecar, spans_request(number))
            wait_until(lambda: len(upstream.span_ids()) == 30)
            wait_until(lambda: state(sidecar, "endless")["forwarded_requests"] == 30)
            wait_until(lambda: "no answer within 10 s" in (state(sidecar, "hole")["failure"] or ""))
            assert state(sidecar, "hole")["backlog_bytes"] > 0
            assert state(sidecar, "nameless")["failure"]
            assert asking.get(f"{sidecar.http}/readyz").status_code == 200
            assert sidecar.terminate() == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "mood", [first(2, answer(429, retry_after="1")), first(2, answer(503)), first(1, answer(401)), take_partly]
)
def test_all_arrives_after_a_while(tmp_path: Path, upstream: UpstreamServer, mood: Mood) -> None:
    upstream.mood = mood
    with forwarding_sidecar(tmp_path, [up(upstream.url)]) as sidecar:
        for number in range(10):
            send(sidecar, spans_request(number))
        wait_until(lambda: len(upstream.span_ids()) >= 10)
        found = wait_until(lambda: (each := state(sidecar))["forwarded_requests"] == 10 and each)
    assert sorted(upstream.span_ids()) == [span_id(number) for number in range(10)]
    assert bool(found["rejected_items"]) == (mood is take_partly)
    assert found["dropped_requests"] == {}


@pytest.mark.slow
def test_a_request_that_is_refused_holds_up_nothing(tmp_path: Path, upstream: UpstreamServer) -> None:
    def picky(server: UpstreamServer, handler: Any, body: bytes) -> None:
        (answer(400) if b"gpt-refused" in body else take)(server, handler, body)

    upstream.mood = picky
    with forwarding_sidecar(tmp_path, [up(upstream.url)]) as sidecar:
        for number in range(20):
            refused = {"gen_ai.request.model": "gpt-refused"} if number in (3, 11) else {}
            send(sidecar, spans_request(number, attributes=refused))
        found = wait_until(lambda: (each := state(sidecar))["forwarded_requests"] == 18 and each)
        assert found["refused_requests"] == 2
        assert found["failure"] is None
        wait_until(lambda: state(sidecar)["backlog_bytes"] == 0)
    assert sorted(upstream.span_ids()) == [span_id(number) for number in range(20) if number not in (3, 11)]


@pytest.mark.slow
def test_our_own_sidecar_takes_and_stores_it(tmp_path: Path) -> None:
    turns = [client_turn(index) for index in range(12)]
    with (
        running_sidecar(tmp_path / "second", token="hush") as second,
        pytest.MonkeyPatch.context() as patched,
    ):
        patched.setenv("TEST_AUTHORIZATION", "Bearer hush")
        table = up(second.http, headers_env={"authorization": "TEST_AUTHORIZATION"})
        with forwarding_sidecar(tmp_path / "first", [table]) as sidecar:
            for turn in turns:
                send(sidecar, turns_request([turn]).SerializeToString())
            wait_until(lambda: state(sidecar)["forwarded_requests"] == 12)
            assert sidecar.terminate() == 0
        assert second.terminate() == 0
    assert sorted(stored_trace_ids(tmp_path / "second")) == sorted(turn.trace_id for turn in turns)


@pytest.mark.slow
def test_json_and_metrics_are_forwarded_in_protobuf(tmp_path: Path, upstream: UpstreamServer) -> None:
    metrics = (
        b'{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"name":"depth","gauge":{"dataPoints":'
        b'[{"timeUnixNano":"1700000000000000000","asDouble":2.5}]}}]}]}]}'
    )
    with forwarding_sidecar(
        tmp_path, [up(upstream.url), up(upstream.url, name="traces", signals=["traces"])]
    ) as sidecar:
        headers = {"content-type": "application/json"}
        assert asking.post(f"{sidecar.http}/v1/metrics", content=metrics, headers=headers).status_code == 200
        wait_until(lambda: upstream.metrics)
        assert sidecar.terminate() == 0
    (request,) = upstream.metrics
    assert request.resource_metrics[0].scope_metrics[0].metrics[0].gauge.data_points[0].as_double == 2.5


@pytest.mark.slow
def test_a_process_that_forwards_and_dies_again_and_again_stops_no_ingestion(
    tmp_path: Path, upstream: UpstreamServer
) -> None:
    with forwarding_sidecar(tmp_path, [up(upstream.url)]) as sidecar:
        for number in range(12):
            if number % 4 == 0:
                for process in wait_until(sidecar.store_process.children):
                    process.kill()
            send(sidecar, spans_request(number))
        wait_until(lambda: len(set(upstream.span_ids())) == 12)
        assert asking.get(f"{sidecar.http}/v1/state").json()["store_process_restarts"] == 0
        assert sidecar.terminate() == 0


@pytest.mark.slow
def test_what_was_in_memory_alone_is_counted_as_lost_with_its_process(tmp_path: Path) -> None:
    with closing(UpstreamServer(answer(503))) as unwilling:
        table = up(unwilling.url, text="keep", in_memory=True)
        with forwarding_sidecar(tmp_path, [table]) as sidecar:
            for number in range(5):
                send(sidecar, spans_request(number))
            wait_until(lambda: state(sidecar)["backlog_bytes"] and unwilling.read)
            for process in sidecar.store_process.children():
                process.kill()
            wait_until(lambda: state(sidecar)["dropped_requests"] == {"restart": 5})
            unwilling.mood = take
            send(sidecar, spans_request(9))
            wait_until(lambda: unwilling.span_ids() == [span_id(9)])
            wait_until(lambda: state(sidecar)["forwarded_requests"] == 1)


def test_a_dead_destination_s_queue_holds_its_limit_on_disk(tmp_path: Path) -> None:
    with closing(UpstreamServer(answer(503))) as unwilling:
        with forwarding_sidecar(tmp_path, [up(unwilling.url, max_mib=32)]) as sidecar:
            for number in range(80):
                send(sidecar, spans_request(number, attributes={"voice.pad": "x" * (1 << 20)}))
            found = wait_until(lambda: (each := state(sidecar))["dropped_requests"].get("size", 0) > 30 and each)
            wait_until(lambda: state(sidecar)["backlog_bytes"] <= 35 << 20)
            wait_until(lambda: log_bytes(tmp_path) <= 64 << 20)
            unwilling.mood = take
            wait_until(lambda: state(sidecar)["backlog_bytes"] == 0)
            found = state(sidecar)
            assert found["forwarded_requests"] + found["dropped_requests"]["size"] == 80
            assert sidecar.terminate() == 0
        newest = sorted(set(unwilling.span_ids()))
        assert newest[-1] == span_id(79), "the oldest were dropped, not the newest"
        assert len(newest) >= 25


def log_bytes(store: Path) -> int:
    return sum(path.stat().st_size for path in folders.ingest(store).glob("*.log"))
