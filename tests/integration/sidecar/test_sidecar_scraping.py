"""A sidecar that reads the pages of model servers: of real ones, slow, endless, broken and dead ones."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram, start_http_server

from telemetry.store.questions.caches import ModelServer
from telemetry.store.reader import StoreReader
from tests.fixtures_sidecar import running_sidecar
from tests.integration.waiting import wait_until

LABELS = ("model_name", "engine")


class Bad(BaseHTTPRequestHandler):
    """Answers each path in a way of its own."""

    def do_GET(self) -> None:
        if self.path == "/slow":
            time.sleep(3600)
        self.send_response({"/refused": 401, "/elsewhere": 302}.get(self.path, 200))
        if self.path == "/elsewhere":
            self.send_header("location", "/garbage")
        self.end_headers()
        try:
            while self.path == "/endless":
                self.wfile.write(b"# a comment without an end\n" * 10_000)
            self.wfile.write(b"\xff\x00<html>{" if self.path == "/garbage" else b"")
        except OSError:
            pass

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in its base class
        del format, args


@contextmanager
def bad_server() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Bad)
    server.daemon_threads = True
    server.block_on_close = False
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def servers(store: Path) -> dict[str, ModelServer]:
    with StoreReader(store) as reader:
        return {model_server.name: model_server for model_server in reader.model_servers(0, time.time_ns())}


@pytest.mark.nightly
def test_metrics_of_model_servers_are_stored_despite_neighbors(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    queries = Counter("vllm:prefix_cache_queries", "Queried tokens.", LABELS, registry=registry).labels("m", "0")
    hits = Counter("vllm:prefix_cache_hits", "Cached tokens.", LABELS, registry=registry).labels("m", "0")
    queue = Histogram("vllm:request_queue_time_seconds", "Waiting.", LABELS, registry=registry).labels("m", "0")
    exposed, thread = start_http_server(0, "127.0.0.1", registry)
    try:
        with bad_server() as bad:
            paths = ("slow", "refused", "elsewhere", "endless", "garbage")
            names = {
                "vllm": f"http://127.0.0.1:{exposed.server_address[1]}/metrics",
                "dead": "http://127.0.0.1:9/metrics",
                **{path: f"{bad}/{path}" for path in paths},
            }
            tables = [f'[[scrape]]\nname = "{name}"\nurl = "{url}"\ninterval = "1s"\n' for name, url in names.items()]
            (tmp_path / "sidecar.toml").write_text("\n".join(tables))
            with running_sidecar(tmp_path / "store", "--config", str(tmp_path / "sidecar.toml")) as sidecar:
                wait_until(lambda: "vllm" in servers(tmp_path / "store"))
                queries.inc(1_000)
                hits.inc(250)
                for _ in range(30):
                    queue.observe(0.02)

                def all_read() -> bool:
                    known = servers(tmp_path / "store")
                    others = all(known[name].failed_readings >= 2 for name in names if name != "vllm" and name in known)
                    is_counted = known["vllm"].queue is not None and known["vllm"].queue.count == 30
                    return set(known) == set(names) and others and is_counted

                wait_until(all_read)
                assert sidecar.terminate() == 0
            known = servers(tmp_path / "store")
            assert known["vllm"].model == "m"
            assert known["vllm"].failed_readings == 0
            assert (known["vllm"].prefix_tokens, known["vllm"].prefix_hits_per_token) == (1_000, 0.25)
            waited = known["vllm"].queue
            assert waited is not None
            assert waited.mean_s == pytest.approx(0.02)
            assert (waited.p95_above_s, waited.p95_until_s) == (0.01, 0.025)
            assert all(known[name].readings == 0 for name in names if name != "vllm")
    finally:
        exposed.shutdown()
        exposed.server_close()
        thread.join(60)
