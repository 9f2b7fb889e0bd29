"""Prometheus pages of model servers, read into the store: the checked `[[scrape]]` tables of the configuration, the
reading of each page at its interval, and its conversion to OTLP metrics.

A target that is slow, dead or endless delays only its own scrape: each has a task, a deadline and a limit of bytes, and
no redirect is followed, as it would send the token elsewhere. Only the families named here are read, and of their
labels only the model and the number of the engine: a page may contain anything.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
    ScopeMetrics,
)
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from telemetry.model.addresses import TOKEN_RULE, is_token, without_credentials
from telemetry.model.durations import Duration, DurationError
from telemetry.model.errors import ConfigError, StoreError
from telemetry.model.foreign_text import one_line
from telemetry.model.semconv import GEN_AI_REQUEST_MODEL, SCRAPE_ENGINE, SCRAPE_SCOPE, SCRAPE_UP
from telemetry.sidecar.otlp.attributes import OtlpDecodeError

if TYPE_CHECKING:
    import httpx

# Family -> unit in UCUM. The names are vLLM's, of its first engine (gpu_…) and its present one.
UNITS: Final[dict[str, str]] = {
    "vllm:prefix_cache_queries": "{token}",
    "vllm:prefix_cache_hits": "{token}",
    "vllm:gpu_prefix_cache_queries": "{token}",
    "vllm:gpu_prefix_cache_hits": "{token}",
    "vllm:request_queue_time_seconds": "s",
    "vllm:time_to_first_token_seconds": "s",
    "vllm:num_requests_running": "{request}",
    "vllm:num_requests_waiting": "{request}",
    "vllm:kv_cache_usage_perc": "1",
    "vllm:gpu_cache_usage_perc": "1",
}
SERIES_MAX: Final = 1000
BUCKETS_MAX: Final = 200
_Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class _When:
    """The time at which a page was read, and the start of each series of a family, if the page states it."""

    unix_ns: int
    began: dict[_Labels, int]


class NotAPage(ValueError):  # noqa: N818 - reads as what it is
    """Raised for a text that is not a Prometheus page, or is too large; the text says why."""


def scraped(text: str, name: str, unix_ns: int) -> bytes:
    """Create an export request with the known series of a page that was read at `unix_ns` of our wall clock. Raises
    NotAPage."""
    request, scope = _request(name)
    try:
        families = list(text_string_to_metric_families(text))
    except (ValueError, KeyError, IndexError) as error:
        raise NotAPage(f"the page is not in Prometheus' text format ({one_line(str(error))})") from error
    series = 0
    began = _began(families)
    for family in families:
        if family.name in UNITS and family.type in _FILLED:
            metric = scope.metrics.add(name=family.name, unit=UNITS[family.name])
            series += _FILLED[family.type](metric, family, _When(unix_ns, began.get(family.name, {})))
        if series > SERIES_MAX:
            raise NotAPage(f"the page has more than {SERIES_MAX} of the series that are read")
    scope.metrics.append(_up(1, unix_ns))
    return request.SerializeToString()


def failed(name: str, unix_ns: int) -> bytes:
    """Create an export request that says that a page could not be read."""
    request, scope = _request(name)
    scope.metrics.append(_up(0, unix_ns))
    return request.SerializeToString()


def _request(name: str) -> tuple[ExportMetricsServiceRequest, ScopeMetrics]:
    request = ExportMetricsServiceRequest()
    resource_metrics = request.resource_metrics.add()
    resource_metrics.resource.attributes.append(KeyValue(key="service.name", value=AnyValue(string_value=name)))
    scope = resource_metrics.scope_metrics.add()
    scope.scope.name = SCRAPE_SCOPE
    return request, scope


def _up(value: int, unix_ns: int) -> Metric:
    metric = Metric(name=SCRAPE_UP, unit="1")
    metric.gauge.data_points.add(time_unix_nano=unix_ns, as_int=value)
    return metric


def _gauge(metric: Metric, family: Family, when: _When) -> int:
    for sample in family.samples:
        _number(metric.gauge.data_points.add(), sample, when.unix_ns)
    return len(family.samples)


def _counter(metric: Metric, family: Family, when: _When) -> int:
    metric.sum.aggregation_temporality = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    metric.sum.is_monotonic = True
    counted = [sample for sample in family.samples if sample.name == f"{family.name}_total"]
    for sample in counted:
        point = metric.sum.data_points.add()
        _number(point, sample, when.unix_ns)
        point.start_time_unix_nano = when.began.get(_labels(sample), 0)
    return len(counted)


def _histogram(metric: Metric, family: Family, when: _When) -> int:
    metric.histogram.aggregation_temporality = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    by_labels: dict[_Labels, list[Sample]] = {}
    for sample in family.samples:
        by_labels.setdefault(_labels(sample), []).append(sample)
    for labels, samples in by_labels.items():
        point = metric.histogram.data_points.add(
            time_unix_nano=when.unix_ns,
            start_time_unix_nano=when.began.get(labels, 0),
            attributes=_attributes(labels),
        )
        _fill(point, family.name, samples)
    return len(by_labels)


def _fill(point: HistogramDataPoint, name: str, samples: Iterable[Sample]) -> None:
    """Fill a point from the samples of one series. A page's buckets are cumulative, those of OTLP are not."""
    until: dict[float, float] = {}
    for sample in samples:
        if sample.name == f"{name}_bucket":
            until[float(sample.labels["le"])] = sample.value
        elif sample.name == f"{name}_sum" and math.isfinite(sample.value):
            point.sum = sample.value
        elif sample.name == f"{name}_count":
            point.count = _whole(sample.value)
    bounds = sorted(until)
    if not bounds or bounds[-1] != math.inf or len(bounds) > BUCKETS_MAX:
        raise NotAPage(f"{name}: a histogram of at most {BUCKETS_MAX} buckets, the last of them +Inf, is expected")
    before = 0
    for bound in bounds:
        count = _whole(until[bound])
        if count < before:
            raise NotAPage(f"{name}: the cumulative count of a bucket is smaller than that of the one before it")
        point.bucket_counts.append(count - before)
        before = count
    point.explicit_bounds.extend(bounds[:-1])
    point.count = before


_FILLED: Final = {"gauge": _gauge, "counter": _counter, "histogram": _histogram}


def _number(point: NumberDataPoint, sample: Sample, unix_ns: int) -> None:
    if not math.isfinite(sample.value):
        raise NotAPage(f"{sample.name}: its value is {sample.value}, and a number is expected")
    point.time_unix_nano = unix_ns
    point.as_double = sample.value
    point.attributes.extend(_attributes(_labels(sample)))


def _began(families: Iterable[Family]) -> dict[str, dict[_Labels, int]]:
    """Return the start of the series of each family: a page has a separate family for it."""
    began: dict[str, dict[_Labels, int]] = {}
    for family in families:
        counted = family.name.removesuffix("_created")
        if counted != family.name and counted in UNITS:
            began[counted] = {
                _labels(sample): round(sample.value * 1e9) for sample in family.samples if 0 < sample.value < 1e10
            }
    return began


def _labels(sample: Sample) -> _Labels:
    return tuple((label, sample.labels[label]) for label in ("model_name", "engine") if label in sample.labels)


def _attributes(labels: _Labels) -> list[KeyValue]:
    attributes: list[KeyValue] = []
    for label, text in labels:
        if label == "model_name":
            attributes.append(KeyValue(key=GEN_AI_REQUEST_MODEL, value=AnyValue(string_value=one_line(text))))
        elif text.isascii() and text.isdigit() and len(text) < 10:
            attributes.append(KeyValue(key=SCRAPE_ENGINE, value=AnyValue(int_value=int(text))))
    return attributes


def _whole(value: float) -> int:
    if not (0 <= value < 2**62 and value == int(value)):
        raise NotAPage(f"a count is {value}, and a whole number is expected")
    return int(value)


INTERVAL_LEAST_S: Final = 1.0
INTERVAL_MOST_S: Final = 3600.0
_INTERVAL: Final = Duration.parse("10s")
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KEYS: Final = ("name", "url", "interval", "token_env")


@dataclass(frozen=True, slots=True)
class ScrapeTarget:
    """A page that is read every `interval_s`. `token_env` is the environment variable that holds a bearer token."""

    name: str
    url: str
    interval_s: float = _INTERVAL.seconds
    token_env: str | None = None


def targets_from(tables: Sequence[Mapping[str, Any]], where: str) -> list[ScrapeTarget]:
    """Read the `[[scrape]]` tables of a configuration. Raises ConfigError with every fault of all of them."""
    faults: list[str] = []
    targets: list[ScrapeTarget] = []
    for number, table in enumerate(tables, 1):
        label = f"[[scrape]] {number}"
        target, own = _target(table)
        if any(target.name == other.name for other in targets):
            own.append(f"name: {target.name!r} is another target's name: each needs its own")
        faults += [f"{label}: {fault}" for fault in own]
        targets.append(target)
    if faults:
        raise ConfigError(where, faults)
    return targets


def _target(table: Mapping[str, Any]) -> tuple[ScrapeTarget, list[str]]:
    faults = [
        f"{one_line(str(key))!r} is not a known key; known are {', '.join(_KEYS)}" for key in table if key not in _KEYS
    ]
    name, url, token_env = (table.get(key) for key in ("name", "url", "token_env"))
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        faults.append("name: a short name in small letters is expected, such as vllm-1")
    fault = _url_fault(url) if isinstance(url, str) else f"an address is expected, such as {_EXAMPLE}"
    if fault is not None:
        faults.append(f"url: {fault}")
    if token_env is not None and not (isinstance(token_env, str) and _VARIABLE.fullmatch(token_env)):
        faults.append("token_env: the name of an environment variable is expected, such as VLLM_API_KEY")
    interval_s, interval_faults = _interval_s(table)
    faults += interval_faults
    return ScrapeTarget(str(name), str(url), interval_s, None if token_env is None else str(token_env)), faults


_EXAMPLE: Final = "http://127.0.0.1:8000/metrics"


def _url_fault(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        named, port = parts.hostname, parts.port
    except ValueError:
        return f"{one_line(without_credentials(url))!r} is not an address; write, for example, {_EXAMPLE}"
    del port  # read only because an invalid one raises
    if parts.scheme not in ("http", "https") or not named:
        return f"{one_line(without_credentials(url))!r} is not an address of HTTP; write, for example, {_EXAMPLE}"
    if parts.username is not None or parts.password is not None:
        return "an address must not hold credentials; put a bearer token into a variable and name it in token_env"
    return None


def _interval_s(table: Mapping[str, Any]) -> tuple[float, list[str]]:
    stated = table.get("interval")
    if stated is None:
        return _INTERVAL.seconds, []
    try:
        interval_s = Duration.parse(str(stated)).seconds
    except DurationError as error:
        return _INTERVAL.seconds, [f"interval: {error}"]
    if not INTERVAL_LEAST_S <= interval_s <= INTERVAL_MOST_S:
        return _INTERVAL.seconds, [f"interval: {one_line(str(stated))} is out of range: 1s to 1h"]
    return interval_s, []


PAGE_BYTES_MAX: Final = 8 << 20
WITHIN_S: Final = 5.0

_log = logging.getLogger(__name__)


class ScrapeError(Exception):
    """Raised if a page could not be read; the text says why."""


class Scraper:
    """Scrapes targets until it is stopped. `take` stores an export request; it raises StoreError or
    OtlpDecodeError if it cannot."""

    def __init__(
        self,
        targets: Sequence[ScrapeTarget],
        take: Callable[[bytes], Awaitable[object]],
        *,
        wall_clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._targets = targets
        self._take = take
        self._wall_clock_ns = wall_clock_ns
        self._faults: dict[str, str] = {}
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def faults(self) -> dict[str, str]:
        """The reasons why targets cannot be read now, by their names."""
        return dict(self._faults)

    def start(self) -> None:
        """Start scraping; to be called in the event loop."""
        self._tasks = [asyncio.create_task(self._repeat(target)) for target in self._targets]

    async def stop(self) -> None:
        """End all scrapes at once."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    async def _repeat(self, target: ScrapeTarget) -> None:
        import httpx  # imported when needed: most sidecars scrape no page

        async with httpx.AsyncClient(follow_redirects=False, trust_env=False, timeout=WITHIN_S) as client:
            due_s = time.monotonic()
            while True:
                await self.scrape(target, client)
                # Intervals missed by a slow scrape are skipped.
                due_s = max(due_s + target.interval_s, time.monotonic())
                await asyncio.sleep(due_s - time.monotonic())

    async def scrape(self, target: ScrapeTarget, client: httpx.AsyncClient) -> None:
        """Read one page and store its content, or that it could not be read."""
        import httpx

        body, fault = b"", None
        try:
            async with asyncio.timeout(WITHIN_S):
                text = await _page(target, client)
            # In a thread: the receivers do not wait for the parsing of a long page.
            body = await asyncio.to_thread(scraped, text, target.name, self._wall_clock_ns())
        except (ScrapeError, NotAPage) as error:
            fault = str(error)
        except TimeoutError:
            fault = f"the page did not arrive within {WITHIN_S:.0f} s"
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            fault = one_line(str(error)) or type(error).__name__
        if fault is not None:
            body = failed(target.name, self._wall_clock_ns())
        self._note(target, fault)
        try:
            await self._take(body)
        except (StoreError, OtlpDecodeError) as error:
            _log.warning("what %s said could not be stored: %s", target.name, error)

    def _note(self, target: ScrapeTarget, fault: str | None) -> None:
        before = self._faults.get(target.name)
        if fault is not None:
            self._faults[target.name] = fault
            if before is None:
                _log.warning("the model server %s (%s) cannot be read: %s", target.name, target.url, fault)
        elif before is not None:
            del self._faults[target.name]
            _log.info("the model server %s can be read again", target.name)


async def _page(target: ScrapeTarget, client: httpx.AsyncClient) -> str:
    headers = {"accept": "text/plain; version=0.0.4", "accept-encoding": "identity"}
    if target.token_env is not None:
        token = os.environ.get(target.token_env, "").strip()
        if not token:
            raise ScrapeError(f"the environment variable {target.token_env} is not set; put the bearer token into it")
        if not is_token(token):
            raise ScrapeError(f"the environment variable {target.token_env} holds no token: {TOKEN_RULE}")
        headers["authorization"] = f"Bearer {token}"
    content = bytearray()
    async with client.stream("GET", target.url, headers=headers) as response:
        if response.status_code != 200:
            raise ScrapeError(f"it answered {response.status_code}, and 200 is expected")
        async for chunk in response.aiter_raw():
            content += chunk
            if len(content) > PAGE_BYTES_MAX:
                raise ScrapeError(f"the page is larger than {PAGE_BYTES_MAX >> 20} MiB")
    return content.decode("utf-8", "replace")
