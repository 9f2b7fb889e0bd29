"""Pages as prometheus_client writes them (vLLM exposes its metrics with it), and pages that are no such thing."""

import contextlib
import time
from collections.abc import Iterator
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    enable_created_metrics,
    generate_latest,
)

from telemetry.model.semconv import SCRAPE_ENGINE, SCRAPE_SCOPE, SCRAPE_UP
from telemetry.sidecar.otlp.points import read_points
from telemetry.sidecar.scraping import NotAPage, failed, scraped
from telemetry.store.schema import PointRow

NOW = 1_800_000_000_000_000_000
# A value of a counter that is taken for a time in seconds lies before it.
EARLIEST_NS = 1_700_000_000_000_000_000
LABELS = ("model_name", "engine")


@pytest.fixture(autouse=True)
def created_metrics() -> Iterator[None]:
    """Other servers say when they began to count, which ours leaves out."""
    enable_created_metrics()
    yield
    disable_created_metrics()


@cache
def page() -> str:
    """A page of a server with two engines, and metrics of others on it."""
    registry = CollectorRegistry()
    queries = Counter("vllm:prefix_cache_queries", "Queried tokens.", LABELS, registry=registry)
    running = Gauge("vllm:num_requests_running", "Running.", LABELS, registry=registry)
    queue = Histogram("vllm:request_queue_time_seconds", "Waiting.", LABELS, buckets=(0.3, 0.5, 1.0), registry=registry)
    for engine in ("0", "1"):
        labels = ("a/model", engine)
        queries.labels(*labels).inc(100 + int(engine))
        running.labels(*labels).set(2)
        for seconds in (0.1, 0.1, 0.4, 5.0):
            queue.labels(*labels).observe(seconds)
    Counter("http_requests", "Of others.", ("path",), registry=registry).labels("/secret").inc()
    return generate_latest(registry).decode()


def points(text: str) -> dict[str, list[PointRow]]:
    """The points that a page becomes, as the receiver reads them."""
    result = read_points(scraped(text, "vllm-1", NOW))
    assert not result.rejected
    by_name: dict[str, list[PointRow]] = {}
    for point in result.points:
        assert (point.service, point.scope_name, point.unix_ns) == ("vllm-1", SCRAPE_SCOPE, NOW)
        by_name.setdefault(point.name, []).append(point)
    return by_name


def test_a_page_becomes_points() -> None:
    by_name = points(page())
    assert set(by_name) == {
        "vllm:prefix_cache_queries",
        "vllm:num_requests_running",
        "vllm:request_queue_time_seconds",
        SCRAPE_UP,
    }
    queries = by_name["vllm:prefix_cache_queries"]
    assert [point.value for point in queries] == [100, 101]
    assert [point.attributes for point in queries] == [
        {"gen_ai.request.model": "a/model", SCRAPE_ENGINE: 0},
        {"gen_ai.request.model": "a/model", SCRAPE_ENGINE: 1},
    ]
    assert {(point.kind, point.unit, point.temporality, point.is_monotonic) for point in queries} == {
        ("sum", "{token}", "cumulative", True)
    }
    queue = by_name["vllm:request_queue_time_seconds"][0]
    assert all(EARLIEST_NS < (point.start_unix_ns or 0) < time.time_ns() for point in (*queries, queue))
    assert (queue.count, queue.sum) == (4, pytest.approx(5.6))
    assert list(queue.explicit_bounds or ()) == [0.3, 0.5, 1.0]
    assert list(queue.bucket_counts or ()) == [2, 1, 0, 1]
    assert [point.value for point in by_name[SCRAPE_UP]] == [1]


def test_a_page_that_could_not_be_read_becomes_one_point() -> None:
    (point,) = read_points(failed("vllm-1", NOW)).points
    assert (point.name, point.value, point.service) == (SCRAPE_UP, 0, "vllm-1")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("<html>not found</html>", "not in Prometheus' text format"),
        ("# TYPE vllm:prefix_cache_queries counter\nvllm:prefix_cache_queries_total{ 5\n", "text format"),
        ("# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running NaN\n", "a number is expected"),
        (
            '# TYPE vllm:request_queue_time_seconds histogram\nvllm:request_queue_time_seconds_bucket{le="1"} 5\n'
            "vllm:request_queue_time_seconds_count 5\nvllm:request_queue_time_seconds_sum 1\n",
            "the last of them +Inf",
        ),
        (
            '# TYPE vllm:request_queue_time_seconds histogram\nvllm:request_queue_time_seconds_bucket{le="1"} 5\n'
            'vllm:request_queue_time_seconds_bucket{le="+Inf"} 4\n',
            "smaller than that of the one before",
        ),
        (
            '# TYPE vllm:request_queue_time_seconds histogram\nvllm:request_queue_time_seconds_bucket{le="+Inf"} 4.5\n',
            "a whole number is expected",
        ),
        (
            "# TYPE vllm:num_requests_running gauge\n"
            + "".join(f'vllm:num_requests_running{{engine="{n}"}} 1\n' for n in range(1_001)),
            "more than 1000",
        ),
    ],
)
def test_invalid_page_gives_reason(text: str, why: str) -> None:
    with pytest.raises(NotAPage, match=why.replace("+", r"\+")):
        scraped(text, "vllm-1", NOW)


def test_a_page_without_such_series_says_only_that_it_was_read() -> None:
    assert set(points("")) == {SCRAPE_UP}
    assert set(points("# TYPE up gauge\nup 1\n")) == {SCRAPE_UP}


@pytest.mark.slow
@given(st.text(max_size=300) | st.binary(max_size=300).map(lambda raw: page()[:200] + raw.decode("latin-1")))
def test_any_text_is_a_page_or_is_refused(text: str) -> None:
    with contextlib.suppress(NotAPage):
        points(text)
