"""The client against a server that answers as each request declares: connections, faults, counts. No time is judged."""

import asyncio
import json
import ssl
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from loadtest.engine.clock import Clocks
from loadtest.engine.tls import tls_client
from loadtest.llm.answers import SECOND_NS, CacheCounters, LlmAnswer, LlmRequest, Message
from loadtest.llm.bodies import LlmTarget
from loadtest.llm.client import LlmClient, run
from tests.integration.certificates import authority
from tests.integration.llm.declared_server import Plan, refusal, whole
from tests.nightly import nightly_after


@pytest.fixture(scope="module")
def target() -> Generator[LlmTarget]:
    command = [sys.executable, str(Path(__file__).with_name("declared_server.py"))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield LlmTarget(f"http://127.0.0.1:{int(process.stdout.readline())}", "small", key=None)
        finally:
            process.terminate()


def asked(target: LlmTarget, *plans: Plan, at_a_time: bool = True, limit_s: float = 20.0) -> list[LlmAnswer]:
    """Ask for these answers, all at the same time or one after the other."""

    def request(plan: Plan) -> LlmRequest:
        messages = (Message("user", "Go."),)
        return LlmRequest(messages=messages, extra_body={"declared": plan.as_json()})

    async def main() -> list[LlmAnswer]:
        async with LlmClient(limit_s=limit_s) as client:
            if at_a_time:
                return await asyncio.gather(*(client.ask(target, request(plan)) for plan in plans))
            return [await client.ask(target, request(plan)) for plan in plans]

    return run(main())


def test_an_answer_comes_as_it_was_declared(target: LlmTarget) -> None:
    plan = Plan(first_ms=20, tokens=23, per_chunk=4, gap_ms=3, stalls={2: 30}, cached=60, running=True)
    (answer,) = asked(target, plan)
    assert answer.fault is None
    assert answer.text.split() == ["word"] * 23
    assert answer.usage is not None
    assert (answer.usage.prompt, answer.usage.cached, answer.usage.completion) == (100, 60, 23)
    assert sum(chunk.tokens or 0 for chunk in answer.chunks) == 23
    moments = [answer.started_ns, answer.dns_ns, answer.tcp_ns, answer.asked_ns, answer.first_byte_ns]
    moments += [*(chunk.upper_ns for chunk in answer.chunks), answer.finished_ns]
    assert moments == sorted(moments, key=lambda moment: moment or 0)
    # Never early: the server has waited before it sent.
    assert (answer.wall_s or 0) >= max(plan.due_ms()) / 1_000 - 0.0005
    assert all(chunk.lower_ns <= chunk.upper_ns for chunk in answer.chunks)


def test_connections_are_reused_and_as_many_as_streams_are_open(target: LlmTarget) -> None:
    one_by_one = asked(target, *[Plan(first_ms=1, tokens=3, gap_ms=1)] * 3, at_a_time=False)
    assert [answer.connect_s is None for answer in one_by_one] == [False, True, True]
    together = asked(target, *[Plan(first_ms=30, tokens=3, gap_ms=1)] * 5)
    assert [answer.connect_s is None for answer in together] == [False] * 5


@pytest.mark.parametrize(
    ("fault", "kind"),
    nightly_after(
        3,
        [
            ("no_key", "unauthorized"),
            ("unknown_model", "unknown_model"),
            ("rate_limited", "rate_limited"),
            ("mid_error", "error_in_stream"),
            ("empty_choices", "empty_choices"),
            ("buffered", "buffered"),
            ("whole", "not_a_stream"),
            ("cut_off", "cut_off"),
            ("silent", "no_answer"),
            ("no_token", "no_answer"),
            ("never_ended", "never_ended"),
        ],
    ),
)
def test_each_fault_is_named_and_the_next_answer_is_whole(target: LlmTarget, fault: str, kind: str) -> None:
    broken, whole = asked(
        target, Plan(first_ms=1, fault=fault, gap_ms=50), Plan(first_ms=1, gap_ms=1), at_a_time=False, limit_s=1.0
    )
    assert broken.fault is not None
    assert broken.fault.kind == kind, broken.fault.sentence
    assert (broken.first_token_s, broken.wall_s, broken.tokens) == (None, None, None)
    assert ("--timeout; it was still being written" in broken.fault.sentence) == (kind == "never_ended")
    assert (whole.fault, whole.tokens) == (None, 20)


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_wall_clock_that_is_set_moves_no_stamp(target: LlmTarget, hours: int) -> None:
    """The kernel stamps by the wall clock, whose offset is measured once a second."""
    clocks = Clocks(unix_ns=lambda: time.time_ns() + hours * 3_600 * SECOND_NS)
    plan = Plan(first_ms=5, tokens=5, gap_ms=5)
    request = LlmRequest(messages=(Message("user", "Go."),), extra_body={"declared": plan.as_json()})

    async def main() -> LlmAnswer:
        async with LlmClient(clocks=clocks) as client:
            return await client.ask(target, request)

    before_ns = time.perf_counter_ns()
    result = run(main())
    after_ns = time.perf_counter_ns()
    assert result.fault is None
    moments = [chunk.upper_ns for chunk in result.chunks]
    assert moments == sorted(moments)
    assert all(before_ns + 5_000_000 <= moment <= after_ns for moment in moments)


@pytest.mark.nightly
def test_a_server_that_is_not_there_is_named(target: LlmTarget) -> None:
    away = LlmTarget("http://127.0.0.1:1", "small", key=None)
    nowhere = LlmTarget("http://no-such-host.invalid", "small", key=None)
    tls = LlmTarget(target.url.replace("http:", "https:"), "small", key=None)
    for where, kind in ((away, "connection"), (nowhere, "address"), (tls, "tls")):
        (answer,) = asked(where, Plan(), limit_s=1.0)
        assert answer.fault is not None
        assert answer.fault.kind == kind, answer.fault.sentence


def test_a_stream_over_tls_is_read_and_its_connection_used_again(tmp_path: Path) -> None:
    ca = authority(tmp_path)
    files = ca.sign("localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.cert, files.key)
    event = b'data: {"choices":[{"delta":{"content":"One. "}}]}\n\n'
    end = b'data: {"choices":[{"delta":{"content":"Two"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    length = str(len(event + end)).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: " + length + b"\r\n\r\n"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while asked_for := await reader.read(65536):
            assert asked_for.startswith(b"POST /v1/chat/completions")
            writer.write(head + event)
            await asyncio.sleep(0.02)
            writer.write(end)
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(answer, "localhost", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        where = LlmTarget(f"https://localhost:{port}", "small", key=None)
        request = LlmRequest(messages=(Message("user", "Go."),))
        async with LlmClient(tls_client(str(ca.cert))) as client:
            first, second = await client.ask(where, request), await client.ask(where, request)
            path = await client.probe_network(where)
        async with LlmClient() as stranger:
            refused = await stranger.ask(where, request)
        for received in (first, second):
            assert (received.fault, received.text, len(received.chunks)) == (None, "One. Two", 2)
        assert (first.tls_ns or 0) > (first.tcp_ns or 0)
        assert (second.tls_ns, second.connect_s) == (None, None)
        assert (path.tls_s or 0) > 0
        assert refused.fault is not None
        assert (refused.fault.kind, "--ca-file" in refused.fault.sentence) == ("tls", True)
        server.close()

    run(main())


def test_refused_options_are_learned_and_left_out() -> None:
    """OpenAI's newer models answer so: one field named at a time, and the older name of the limit refused."""
    refused, bodies = ["ignore_eos", "min_tokens", "timings_per_token", "continuous_usage_stats", "max_tokens"], []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next((int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length:")), 0)
        body = (await reader.readexactly(length)).decode()
        if head.startswith(b"GET /v1/models"):
            writer.write(whole("200 OK", {"data": [{"id": "small"}]}, "Connection: close"))
        elif wrong := next((name for name in refused if f'"{name}"' in body), None):
            message = f"Unknown parameter: '{wrong}' is not supported with this model."
            writer.write(refusal("400 Bad Request", message, "Connection: close"))
        else:
            bodies.append(json.loads(body))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
            writer.write(b'data: {"choices":[{"delta":{"content":"Yes"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n')
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        where = LlmTarget(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", key=None)
        async with LlmClient() as client:
            assert await client.learn(where) is None
        assert (where.model, where.refused) == ("small", frozenset(refused))
        assert bodies[0]["max_completion_tokens"] == 4
        server.close()

    run(main())


def test_the_way_to_the_server_is_measured_without_its_model(target: LlmTarget) -> None:
    async def main() -> None:
        async with LlmClient() as client:
            path = await client.probe_network(target)
            assert (path.fault, path.tls_s) == (None, None)
            assert all(part is not None and part > 0 for part in (path.dns_s, path.tcp_s, path.round_trip_s))

    run(main())


def test_counters_page_is_next_to_api_of_server(target: LlmTarget) -> None:
    page = "".join(
        f'# TYPE vllm:prefix_cache_{name}_total counter\nvllm:prefix_cache_{name}_total{{model_name="small"}} {count}\n'
        for name, count in (("queries", 30), ("hits", 20))
    )
    asked: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readuntil(b"\r\n\r\n")).partition(b"\r\n")[0])
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(page)}\r\n\r\n{page}".encode())
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        host = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with LlmClient() as client:
            for path in ("", "/v1", "/v1/chat/completions"):
                counters = await client.cache_counters(LlmTarget(host + path, "small", key=None))
                assert counters == CacheCounters(30, 20)
            assert await client.cache_counters(target) is None
        assert asked == [b"GET /metrics HTTP/1.1"] * 3
        server.close()

    run(main())
