"""Reports of model servers around a run, against sums by hand."""

from pathlib import Path

import pytest

from telemetry.model.semconv import SCRAPE_ENGINE, SCRAPE_SCOPE, SCRAPE_UP
from telemetry.store.questions.caches import ModelServer, RequestTimes
from telemetry.store.schema import PointRow
from tests.unit.telemetry.store.opened_stores import reader_of

S = 1_000_000_000
START = 1_800_000_000 * S


def counter(name: str, at_s: float, value: float, engine: int = 0, model: str = "m") -> PointRow:
    return PointRow(
        name,
        START + round(at_s * S),
        value,
        {"gen_ai.request.model": model, SCRAPE_ENGINE: engine},
        "vllm-1",
        kind="sum",
        scope_name=SCRAPE_SCOPE,
    )


def histogram(name: str, at_s: float, seconds: float, counts: list[int], engine: int = 0) -> PointRow:
    return PointRow(
        name,
        START + round(at_s * S),
        None,
        {"gen_ai.request.model": "m", SCRAPE_ENGINE: engine},
        "vllm-1",
        kind="histogram",
        scope_name=SCRAPE_SCOPE,
        count=sum(counts),
        sum=seconds,
        explicit_bounds=[0.1, 0.5, 1.0],
        bucket_counts=counts,
    )


def up(at_s: float, value: float, name: str = "vllm-1") -> PointRow:
    return PointRow(SCRAPE_UP, START + round(at_s * S), value, {}, name, kind="gauge", scope_name=SCRAPE_SCOPE)


def asked(folder: Path, *points: PointRow, since_s: float = 0.0, until_s: float = 60.0) -> tuple[ModelServer, ...]:
    with reader_of(folder, points=points) as reader:
        return reader.model_servers(START + round(since_s * S), START + round(until_s * S))


def test_tokens_of_all_engines_from_the_last_reading_before(tmp_path: Path) -> None:
    queries, hits = "vllm:prefix_cache_queries", "vllm:prefix_cache_hits"
    points = [
        *(counter(queries, at_s, value) for at_s, value in ((-20, 100), (-5, 1_000), (5, 1_400), (15, 2_000))),
        *(counter(hits, at_s, value) for at_s, value in ((-20, 90), (-5, 500), (5, 600), (15, 750))),
        *(counter(queries, at_s, value, engine=1) for at_s, value in ((-5, 0), (15, 500))),
        *(counter(hits, at_s, value, engine=1) for at_s, value in ((-5, 0), (15, 0))),
        counter(queries, 70, 9_000_000),
        up(5, 1),
        up(10, 0),
        up(15, 1),
    ]
    (server,) = asked(tmp_path, *points)
    assert (server.name, server.model, server.readings, server.failed_readings) == ("vllm-1", "m", 2, 1)
    assert server.prefix_tokens == 1_500
    assert server.prefix_hits_per_token == pytest.approx(250 / 1_500)
    assert (server.queue, server.first_token, server.waiting_most) == (None, None, None)


def test_restarted_server_counts_from_zero(tmp_path: Path) -> None:
    name = "vllm:gpu_prefix_cache_queries"  # the former name
    (server,) = asked(tmp_path, counter(name, 1, 900), counter(name, 2, 1_000), counter(name, 3, 40))
    assert server.prefix_tokens == 140
    assert server.prefix_hits_per_token is None


def test_times_of_waiting_lie_between_bounds(tmp_path: Path) -> None:
    name = "vllm:request_queue_time_seconds"
    points = [
        histogram(name, -5, 100.0, [1_000, 0, 0, 0]),
        histogram(name, 5, 103.0, [1_010, 5, 0, 0]),
        histogram(name, 15, 110.0, [1_018, 6, 1, 0]),  # 25 in all, of which 6 above 0.1 s and 1 above 0.5 s
        counter("vllm:num_requests_waiting", 5, 3),
        counter("vllm:num_requests_waiting", 15, 1),
    ]
    (server,) = asked(tmp_path, *points)
    assert server.queue == RequestTimes(25, pytest.approx(0.4), 0.1, 0.5)
    assert server.waiting_most == 3


def test_histogram_reset_and_value_beyond_last_bucket_are_read(tmp_path: Path) -> None:
    name = "vllm:time_to_first_token_seconds"
    points = [
        histogram(name, 1, 500.0, [500, 0, 0, 0]),
        histogram(name, 2, 4.0, [3, 0, 0, 1]),
        histogram(name, 3, 60.0, [3, 0, 0, 29]),
    ]
    (server,) = asked(tmp_path, *points)
    assert server.first_token == RequestTimes(32, pytest.approx(60.0 / 32), 1.0, None)


def test_few_requests_have_no_p95_and_one_reading_has_nothing(tmp_path: Path) -> None:
    name = "vllm:time_to_first_token_seconds"
    (few,) = asked(tmp_path / "few", histogram(name, 1, 0.0, [0, 0, 0, 0]), histogram(name, 2, 1.0, [19, 0, 0, 0]))
    assert few.first_token == RequestTimes(19, pytest.approx(1 / 19), None, None)
    (one,) = asked(tmp_path / "one", histogram(name, 1, 1.0, [19, 0, 0, 0]), up(1, 1))
    assert (one.readings, one.first_token, one.prefix_tokens) == (1, None, None)


def test_a_server_that_was_never_read_is_named(tmp_path: Path) -> None:
    assert asked(tmp_path, up(1, 0), up(11, 0)) == (ModelServer("vllm-1", None, 0, 2, None, None, None, None, None),)


def test_points_of_others_are_no_model_server(tmp_path: Path) -> None:
    assert asked(tmp_path / "none") == ()
    theirs = PointRow("vllm:prefix_cache_queries", START + S, 5.0, {}, "app", kind="sum", scope_name="app")
    assert asked(tmp_path / "theirs", theirs) == ()
