"""`voiceprobe audit` finds a leak in every place where one is planted, and says when it has not tried everything."""

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import redis
from rich.console import Console

from corpora.manifest.library import open_corpus
from corpora.manifest.manifest import MANIFEST_NAME
from loadtest.audit.job import CORPUS, Audited, AuditRequest, Coverage, audit
from loadtest.audit.places import Places
from loadtest.audit.search import Search, needles_of_value
from loadtest.errors import UsageError
from loadtest.exit_codes import ExitCode
from loadtest.run import processes
from loadtest.scenario.sections import RunLoad
from telemetry.model.durations import Duration
from telemetry.store.schema import Batch
from telemetry.store.writer import StoreWriter
from tests.fixtures_turns import client_turn
from tests.nightly import nightly_after
from tests.programs import needed

SECRET = "anna.keller@example.com"


@pytest.fixture
def places() -> Places:
    return Places(Search(needles_of_value("e-mail", SECRET)))


def leaky_places(places: Places) -> list[str]:
    return sorted({leak.place for leak in places.leaks})


def test_every_file_and_table_is_searched(places: Places, tmp_path: Path) -> None:
    (tmp_path / "store" / "ingest").mkdir(parents=True)
    (tmp_path / "store" / "ingest" / "000000000001.log").write_bytes(b"\0\1" + SECRET.encode())
    (tmp_path / "spool").mkdir()
    (tmp_path / "spool" / "a.wal").write_bytes(gzip.compress(json.dumps({"to": SECRET}).encode()))
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / f"{SECRET}.log").touch()
    (tmp_path / "big").write_bytes(b"x " * (8 << 20) + b"x" + SECRET.encode())
    pq.write_table(
        pa.table({"attributes": [[{"key": "a", "value": SECRET.encode()}]]}), tmp_path / "t.parquet", compression="zstd"
    )
    (tmp_path / "clean").write_text("nothing")
    places.folder(tmp_path)
    assert {"file big", "file store/ingest/000000000001.log", "file spool/a.wal"} < set(leaky_places(places))
    assert f"file name logs/{SECRET}.log" in leaky_places(places)
    assert "table t.parquet" in leaky_places(places)


def test_database_tables_are_searched_in_any_packing(places: Places, tmp_path: Path) -> None:
    turns = [client_turn(number, utterance_id=f"call me on {SECRET}") for number in range(3_000)]
    with StoreWriter(tmp_path / "store") as writer:
        writer.append(Batch(turns))
        places.folder(tmp_path, tables=False)  # as while it is written
    places.folder(tmp_path)
    assert "table turns of store/store.duckdb" in leaky_places(places)
    assert not any("clean" in place for place in leaky_places(places))
    searched = dict(places.searched)
    places.folder(tmp_path)
    assert places.searched == searched, "what has not changed is not searched again"
    (tmp_path / "clean").write_text(f"now {SECRET}")
    places.folder(tmp_path)
    assert "file clean" in leaky_places(places)


def test_unrequested_audio_is_a_leak_and_earlier_audio_is_not(tmp_path: Path) -> None:
    kept, left, waves = tmp_path / "store" / "kept.flac", tmp_path / "store" / "left.flac", tmp_path / "logs" / "a"
    for path in (kept, left, waves):
        path.parent.mkdir(exist_ok=True)
    kept.write_bytes(b"fLaC" + bytes(100))
    places = Places(Search(needles_of_value("e-mail", SECRET)), there_before=[*tmp_path.rglob("*")])
    left.write_bytes(b"fLaC" + bytes(100))
    waves.write_bytes(b"RIFF" + bytes(100))
    (tmp_path / "logs" / "b.log").write_text("no audio")
    places.folder(tmp_path)
    assert leaky_places(places) == ["file logs/a", "file store/left.flac"]


@pytest.fixture
def talkative() -> Iterator[str]:
    """A server that shows the secret on its metrics, in one answer and in a header."""

    class Pages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer(SECRET if self.path == "/metrics" else "ok")

        def do_POST(self) -> None:
            self.answer(SECRET if self.path.endswith("/runs") else "ok")

        def answer(self, text: str) -> None:
            self.send_response(200)
            if self.path == "/healthz":
                self.send_header("x-caller", SECRET)
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_every_page_and_answer_is_searched(places: Places, talkative: str) -> None:
    places.pages(talkative)
    assert leaky_places(places) == ["GET /healthz", "GET /metrics", "GET /metrics (OpenMetrics)", "POST /v1/query/runs"]


def test_a_sidecar_that_does_not_answer_is_an_error(places: Places) -> None:
    with pytest.raises(httpx.HTTPError):
        places.pages("http://127.0.0.1:1")


def test_keys_and_values_of_every_type_are_searched(places: Places, tmp_path: Path) -> None:
    needed("redis-server")
    with processes.redis_server(tmp_path, "--appendonly", "yes") as url:
        assert url is not None
        client = redis.Redis.from_url(url)
        client.set(f"key:{SECRET}", "a")
        client.set("value", f"to {SECRET}")
        client.hset("hash", "to", SECRET)
        client.rpush("list", "a", SECRET)
        client.zadd("scores", {SECRET: 1.0})
        client.set("clean", "b")
        client.close()
        places.redis(url)
    values = [f"Redis value of {key}" for key in ("hash", "list", "scores", "value")]
    assert leaky_places(places) == [f"Redis key key:{SECRET}", *values]
    places.folder(tmp_path)
    assert any("appendonly" in place for place in leaky_places(places)), "and its files"


def test_command_lines_and_environments_are_searched(places: Places) -> None:
    waiting = [sys.executable, "-c", "print(flush=True); input()"]
    for arguments, variables in (([*waiting, SECRET], {}), (waiting, {"CALLER": SECRET}), (waiting, {})):
        places.leaks.clear()
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen(arguments, env=os.environ | variables, **pipes) as process:
            assert process.stdout is not None
            process.stdout.readline()  # before it runs its own code, its command line may still be empty
            places.processes([process.pid])
            process.kill()
        assert bool(places.leaks) == (SECRET in arguments or SECRET in variables.values())


def test_untried_cases_are_listed() -> None:
    assert Coverage(9, 9, 1, 1, 54, redis=True).missing() == []
    assert Coverage(9, 7, 0, 0, 54, redis=False).missing() == [
        "2 of 9 utterances were never answered",
        "no answer came from the assistant's cache",
        "no answer came from the assistant's fallback",
    ]


def test_a_corpus_without_personal_data_is_refused(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    shutil.copytree(open_corpus(CORPUS, check_clips=False).path, corpus)
    manifest = corpus / MANIFEST_NAME
    manifest.write_text(re.sub(r'"pii_kinds":\[[^]]*\]', '"pii_kinds":[]', manifest.read_text()))
    request = AuditRequest(str(corpus), RunLoad(users=1, run_time=Duration.of_s(1)), tmp_path / "out", None)
    with pytest.raises(
        UsageError, match=r"has no utterance whose pii_kinds name personal data|is not installed|unknown"
    ):
        audit(request, Console(quiet=True))


@pytest.mark.parametrize(
    ("leaks", "has_calls"),
    nightly_after(1, [(True, False), (False, False), (True, True), (False, True)]),
    ids=["leaks without calls", "nothing without calls", "leaks", "no leaks"],
)
def test_the_whole_audit(leaks: bool, has_calls: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A short one: whether all was tried is up to the machine, whether anything leaked is not."""
    if not has_calls:  # they take half a minute
        monkeypatch.setattr("loadtest.audit.job.run", lambda *_, **__: ExitCode.OK)
    # A command yields the processor to its callers for the rest of its life; this process has other tests to run.
    monkeypatch.setattr("loadtest.run.processes.stand_by", lambda: None)
    planted: list[str] = []

    def plant(audited: Audited) -> None:
        if leaks:
            (audited.folder / "logs" / "planted.log").write_text(
                "caller: my card number is four zero zero zero one two"
            )
            (audited.folder / "store" / "quarantine").mkdir(exist_ok=True)
            (audited.folder / "store" / "quarantine" / "planted").write_bytes(gzip.compress(b"+49 30 901820"))
            planted.extend(["file logs/planted.log", "file store/quarantine/planted"])
            if audited.redis_url is not None:
                client = redis.Redis.from_url(audited.redis_url)
                client.set("planted", "her name is Margaret Ellsworth")
                client.close()
                planted.append("Redis value of planted")

    report = tmp_path / "audit.json"
    request = AuditRequest(None, RunLoad(users=4, run_time=Duration.of_s(8)), tmp_path / "out", report)
    code = audit(request, Console(quiet=True), plant=plant)
    written = json.loads(report.read_text())
    places = {leak["place"] for leak in written["leaks"]}
    assert written["exit_code"] == code
    assert (code is ExitCode.OBJECTIVE_MISSED) == leaks
    # Redis writes what it receives to its own files.
    assert {place for place in places if not place.startswith("file redis/")} == set(planted)
    assert {"file", "table", "page", "answer", "process"} <= set(written["searched"])
    assert written["coverage"]["framework_spans"] == 54
