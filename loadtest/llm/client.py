"""Asks models and takes the times: one pool of connections a target, one request at a time on each.

    async with LlmClient() as client:
        await client.learn(target)
        answer = await client.ask(target, request)

`run` runs such a coroutine in the loop that gives the tightest bounds.
"""

import asyncio
import contextlib
import gc
from collections.abc import Coroutine
from itertools import count, pairwise
from typing import Any, Final, Self, TypeVar

import msgspec
import orjson
from prometheus_client.parser import text_string_to_metric_families

from loadtest.engine.clock import Clocks
from loadtest.engine.tls import TlsClient
from loadtest.llm import bodies
from loadtest.llm.answers import (
    SECOND_NS,
    CacheCounters,
    FaultKind,
    LlmAnswer,
    LlmFault,
    LlmRequest,
    LlmUsage,
    Message,
    NetworkPath,
)
from loadtest.llm.bodies import LlmTarget
from loadtest.llm.connection import ModelConnection, NotConnected, PollingLoop, Stamp, opened
from loadtest.llm.exchange import ModelExchange, Times
from loadtest.protocols.http_items import HttpAnswer, HttpData, HttpEnd, HttpFailed, HttpHead, HttpItem, HttpRequest

CONNECT_S: Final = 10.0
# So often the loop looks at its sockets at least: what one read finds has come since.
_LOOK_S: Final = 0.01
_LOOKS_A_SECOND: Final = 100
_END_OF_BODY_S: Final = 1.0
_MOST_REFUSALS: Final = 8
_STILL_WRITING_S: Final = 1.0
_Result = TypeVar("_Result")


def run(main: Coroutine[Any, Any, _Result]) -> _Result:
    """Run a coroutine that asks models.

    What was imported is left out of garbage collections, which would make many streams wait.
    """
    gc.collect()
    gc.freeze()
    try:
        with asyncio.Runner(loop_factory=PollingLoop) as runner:
            return runner.run(main)
    finally:
        gc.unfreeze()  # modules in C report what is never collected as leaked, at the end of the process


class LlmClient:
    """Asks any number of targets at the same time. `limit_s` is how long one answer may take."""

    def __init__(self, tls: TlsClient | None = None, *, limit_s: float = 120.0, clocks: Clocks | None = None) -> None:
        self._tls = tls or TlsClient()
        self._limit_s = limit_s
        self._clocks = clocks or Clocks()
        self._idle: dict[tuple[str, int, bool], list[ModelConnection]] = {}
        self._looking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._looking = asyncio.create_task(self._look())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._looking is not None:
            self._looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._looking
        for connections in self._idle.values():
            for connection in connections:
                connection.close()
        self._idle.clear()

    async def ask(self, target: LlmTarget, request: LlmRequest) -> LlmAnswer:
        """Ask for one answer, on an open connection where there is one. A fault is part of the answer, never raised.

        Raises UsageError for a request that the wire cannot carry.
        """
        exchange, times = await self._exchange(target, bodies.http_request(target, request))
        return exchange.answer(times)

    async def learn(self, target: LlmTarget) -> LlmFault | None:
        """Find the target's model where none is named, and what of a request it refuses; return why it cannot be asked.

        Each field that the server names as wrong is left out of all requests; where it names none, all go.
        """
        target.model = target.model or await self._only_model(target)
        asked = (Message("user", "Say yes."),)
        request = LlmRequest(messages=asked, max_tokens=4, exact_length=True, temperature=0.0, seed=1)
        fault = None
        for _ in range(_MOST_REFUSALS):
            fault = (await self.ask(target, request)).fault
            if fault is None or fault.kind not in ("http_status", "unknown_model") or fault.status not in (400, 422):
                return fault
            fields = frozenset(bodies.OPTIONAL[target.wire]) - target.refused
            named = frozenset(name for name in fields if name in fault.sentence)
            if not fields or (fault.kind == "unknown_model" and not named):
                return fault
            target.refused |= named or fields - {"max_tokens", "stream_options"} or fields
        return fault

    async def count_tokens(self, target: LlmTarget, answer: LlmAnswer) -> LlmAnswer:
        """Count the tokens of an answer with the server's own tokenizer, where its usage does not; else as it was."""
        if answer.fault is not None or (answer.usage is not None and answer.usage.completion is not None):
            return answer
        written = "".join(chunk.reasoning + chunk.text + chunk.arguments for chunk in answer.chunks)
        if target.wire == "gemini":
            url = bodies.sibling_url(target, f"/models/{(target.model or '').removeprefix('models/')}:countTokens")
            body: dict[str, Any] = {"contents": [{"parts": [{"text": written}]}]}
        elif target.wire == "openai":
            url = bodies.sibling_url(target, "/tokenize").replace("/v1/tokenize", "/tokenize")
            body = {"content": written, "prompt": written, "add_special_tokens": False}
            body |= {} if target.model is None else {"model": target.model}
        else:
            return answer
        fields = await self._fields(target, "POST", url, orjson.dumps(body))
        counted: Any = fields.get("count", fields.get("totalTokens", fields.get("tokens")))
        tokens = len(counted) if isinstance(counted, list) else counted
        if not isinstance(tokens, int):
            return answer
        usage = msgspec.structs.replace(answer.usage or LlmUsage(), completion=tokens, counted_by="tokenizer")
        return msgspec.structs.replace(answer, usage=usage)

    async def cache_counters(self, target: LlmTarget) -> CacheCounters | None:
        """Read what the server counts of its prefix cache; None where it has no such page."""
        if target.wire != "openai":
            return None
        url = bodies.sibling_url(target, "/metrics").replace("/v1/metrics", "/metrics")
        page = await self._body(target, "GET", url)
        return cache_counters_of(page.decode(errors="replace"), target.model) if page else None

    async def probe_network(self, target: LlmTarget) -> NetworkPath:
        """Measure the way to the target without its model: a new connection, and a small request on it."""
        path = "/models"
        try:
            times, trip_s, _ = await self._small(target, "OPTIONS", bodies.sibling_url(target, path))
        except NotConnected as refused:
            return NetworkPath(fault=LlmFault(refused.kind, str(refused)))
        steps = (times.started_ns, times.dns_ns, times.tcp_ns, times.tls_ns)
        dns_s, tcp_s, tls_s = (
            None if later is None else (later - (earlier or 0)) / SECOND_NS for earlier, later in pairwise(steps)
        )
        return NetworkPath(dns_s, tcp_s, tls_s, trip_s, f"OPTIONS {path}")

    async def _exchange(
        self, target: LlmTarget, sent: HttpRequest, *, is_again: bool = False
    ) -> tuple[ModelExchange, Times]:
        """Make one request; once more where the server had just closed the connection that was to be used again."""
        connection = None if is_again else self._idle_connection(target)
        is_reused = connection is not None
        times = Times(self._clocks.perf_ns())
        exchange = ModelExchange(target, sent.url)
        if connection is None:
            try:
                connection, times = await opened(target.address, self._clocks, self._tls, CONNECT_S)
            except NotConnected as refused:
                exchange.fail(refused.kind, str(refused))
                return exchange, times
        times.stamps = "kernel" if connection.is_stamped else "user"
        try:
            await self._answered(connection, sent, exchange, times)
            if is_reused and connection.response_bytes == 0 and not connection.is_open:
                return await self._exchange(target, sent, is_again=True)
        finally:
            if connection.is_free:
                self._idle.setdefault(_place(target), []).append(connection)
            else:
                connection.close()
        return exchange, times

    async def _answered(
        self, connection: ModelConnection, sent: HttpRequest, exchange: ModelExchange, times: Times
    ) -> None:
        """Send a request and wait until its answer is over, and for a moment until its body is."""
        changed = asyncio.Event()

        def received(stamp: Stamp, items: list[HttpItem]) -> None:
            exchange.receive(stamp.lower_ns, stamp.upper_ns, items)
            if exchange.is_over:
                changed.set()

        try:
            async with asyncio.timeout(self._limit_s):
                await connection.ask(sent, received)
                await changed.wait()
        except TimeoutError:
            exchange.fail(*_late(exchange, self._limit_s, self._clocks.perf_ns()))
        except OSError as error:
            if not exchange.is_over:
                exchange.fail("connection", f"the request could not be sent: {error.strerror or error}")
            connection.close()
        times.asked_ns = connection.asked_ns
        if connection.is_open and not exchange.is_complete and exchange.fault is None:
            changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_END_OF_BODY_S):
                    while not exchange.is_complete and connection.is_open:
                        await changed.wait()
                        changed.clear()

    def _idle_connection(self, target: LlmTarget) -> ModelConnection | None:
        idle = self._idle.get(_place(target), [])
        while idle:
            if (connection := idle.pop()).is_free:
                return connection
            connection.close()
        return None

    async def _small(
        self, target: LlmTarget, method: str, url: str, body: bytes = b""
    ) -> tuple[Times, float | None, HttpAnswer | None]:
        """Make a small request on a new connection: its times, how long the first byte took, and the answer, as far as
        they came. Raises NotConnected."""
        connection, times = await opened(target.address, self._clocks, self._tls, CONNECT_S)
        over = asyncio.Event()
        collected: list[HttpItem] = []
        first_ns: list[int] = []

        def received(stamp: Stamp, items: list[HttpItem]) -> None:
            collected.extend(items)
            first_ns.append(stamp.upper_ns)
            if any(isinstance(item, HttpEnd | HttpFailed) for item in items):
                over.set()

        try:
            with contextlib.suppress(TimeoutError, OSError):
                async with asyncio.timeout(CONNECT_S):
                    await connection.ask(bodies.get_request(target, method, url, body), received)
                    await over.wait()
        finally:
            connection.close()
        heads = [item for item in collected if isinstance(item, HttpHead)]
        trip_s = (first_ns[0] - connection.asked_ns) / SECOND_NS if heads else None
        if not heads or not isinstance(collected[-1], HttpEnd):
            return times, trip_s, None
        data = b"".join(item.data for item in collected if isinstance(item, HttpData))
        return times, trip_s, HttpAnswer(heads[-1].status, heads[-1].headers, data)

    async def _body(self, target: LlmTarget, method: str, url: str, body: bytes = b"") -> bytes:
        """Return what the server answers to a small request; nothing where that is no success."""
        try:
            _, _, answer = await self._small(target, method, url, body)
        except NotConnected:
            return b""
        return answer.body if answer is not None and answer.status == 200 else b""

    async def _fields(self, target: LlmTarget, method: str, url: str, body: bytes = b"") -> dict[str, Any]:
        """Return the JSON object with which the server answers a small request; empty where it does not."""
        try:
            answer: Any = orjson.loads(await self._body(target, method, url, body))
        except orjson.JSONDecodeError:
            return {}
        return answer if isinstance(answer, dict) else {}

    async def _only_model(self, target: LlmTarget) -> str | None:
        """Return the name of the one model that the server offers; None where it does not say or offers several."""
        fields = await self._fields(target, "GET", bodies.sibling_url(target, "/models"))
        entries: Any = fields.get("data") or fields.get("models") or []
        names = [entry.get("id") or entry.get("name") for entry in entries if isinstance(entry, dict)]
        return names[0] if len(names) == 1 and isinstance(names[0], str) else None

    async def _look(self) -> None:
        """Keep the loop looking, and measure the clock once a second."""
        for look in count(1):
            await asyncio.sleep(_LOOK_S)
            if look % _LOOKS_A_SECOND == 0:
                self._clocks.measure()


def cache_counters_of(page: str, model: str | None) -> CacheCounters | None:
    """Read vLLM's counters of a model off a Prometheus page; None where it has none, or of other models alone."""
    counts: dict[str, int] = {}
    try:
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                if sample.name.endswith("_total") and sample.labels.get("model_name", model) in (model, None):
                    name = family.name.removeprefix("vllm:").removeprefix("gpu_")
                    counts[name] = counts.get(name, 0) + int(sample.value)
    except (ValueError, KeyError, IndexError, OverflowError):
        return None
    looked_up, hits = counts.get("prefix_cache_queries"), counts.get("prefix_cache_hits")
    return None if looked_up is None or hits is None else CacheCounters(looked_up, hits)


def _place(target: LlmTarget) -> tuple[str, int, bool]:
    return target.address.host, target.address.port, target.address.tls


def _late(exchange: ModelExchange, limit_s: float, now_ns: int) -> tuple[FaultKind, str]:
    """Return the fault of an answer that is not complete within the limit."""
    if exchange.last_ns is None:
        return "no_answer", f"nothing of the answer came within {limit_s:g} s"
    ago_s = (now_ns - exchange.last_ns) / SECOND_NS
    if not exchange.chunks:
        return (
            "no_answer",
            f"the stream was open for {limit_s:g} s without a token; the last bytes came {ago_s:.1f} s ago",
        )
    if exchange.finish_reason is not None:
        return "never_ended", f"the answer gave its reason to end and the stream did not end within {limit_s:g} s"
    ended = f"the last bytes came {ago_s:.1f} s before" if ago_s > _STILL_WRITING_S else "it was still being written"
    return "never_ended", f"the answer had not ended after {limit_s:g} s, the limit of --timeout; {ended}"
