"""Text of an endpoint acts on no terminal, log, page or store: it is shown escaped and bounded."""

import base64
import http
import json
import math
import re
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from streamlit.testing.v1 import AppTest
from websockets.asyncio.server import ServerConnection
from websockets.http11 import Request, Response

import dashboard
from dashboard.source import ENV_SLO, ENV_STORE
from loadtest.run import processes
from telemetry.store.database import read_only
from telemetry.store.schema import TABLES
from tests.integration.calling import CORPUS
from tests.integration.runs.hosted_endpoint import HostedEndpoint
from tests.integration.waiting import answers, wait_until

PAINT = "\x1b]0;owned\x07\x1b[2J\x1b[31m\x9b5m\u202egnp.exe\u2028[/red][link=x]<script>alert(1)</script>"
MARK = "<script>alert(1)"
LINK = "[x](javascript:alert(1))"
# Raw, none of these may come out anywhere.
ACTS = [char.encode() for char in ("\x1b", "\x07", "\u202e", "\u2028", "\x9b")]
TONE = base64.b64encode(b"".join(struct.pack("<h", round(9000 * math.sin(n / 8))) for n in range(24_000 // 2))).decode()
QUICK = ["--corpus", CORPUS, "--length", "short", "--clips", "2", "--think", "0.1", "--reply-timeout", "1"]
FEW = ["--users", "4", "--calls", "12", "--turns", "1", "--run-time", "1m"]


class Painter(HostedEndpoint):
    """An endpoint that opens its first session, and then refuses, closes, complains and answers in escape codes."""

    def __init__(self) -> None:
        super().__init__()
        self.visits = 0

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/v1/realtime"

    def _look(self, connection: ServerConnection, request: Request) -> Response | None:
        self.visits += 1
        if self.visits % 4 == 2:
            return connection.respond(http.HTTPStatus.SERVICE_UNAVAILABLE, f"{PAINT}\r\nforged: line\n" + "x" * 5000)
        return None

    async def _talk(self, connection: ServerConnection) -> None:
        visit = self.visits
        for kind in ("session.created", "session.updated"):
            await connection.send(json.dumps({"type": kind, "session": {"model": PAINT}}))
            if kind == "session.created":
                await connection.recv()
        if visit == 1:
            async for _ in connection:  # the preflight hangs up
                pass
        elif visit % 4 == 3:
            await connection.close(1008, PAINT.encode()[:100].decode(errors="ignore"))
        elif visit % 4 == 0:
            error = {"type": "session_expired", "code": PAINT, "message": f"{PAINT} {LINK}\nforged: line" + "y" * 5000}
            await connection.send(json.dumps({"type": "error", "error": error}))
            await connection.close(1000)
        else:
            await self._answer(connection)

    async def _answer(self, connection: ServerConnection) -> None:
        for _ in range(30):
            await connection.recv()
        names = {"voice.cohort": f"{PAINT} {LINK}"[:500], "voice.model": PAINT, "voice.intent": PAINT}
        ids = {"response_id": f"resp {PAINT}", "item_id": f"item {PAINT}"}
        response = {"id": ids["response_id"], "metadata": names, "status": "completed"}
        await connection.send(json.dumps({"type": "input_audio_buffer.speech_stopped", "item_id": "i"}))
        await connection.send(json.dumps({"type": "response.created", "response": response}))
        await connection.send(json.dumps({"type": "response.output_audio.delta", **ids, "delta": TONE}))
        await connection.send(json.dumps({"type": f"made.up {PAINT}"}))
        await connection.send(json.dumps({"type": "response.done", "response": response}))
        async for _ in connection:
            pass


@pytest.fixture
def painter() -> Iterator[Painter]:
    with Painter() as painter:
        yield painter


def _acting(texts: dict[str, bytes]) -> list[str]:
    return [f"{where}: {char!r}" for where, text in texts.items() for char in ACTS if char in text]


def _stored(folder: Path) -> dict[str, bytes]:
    with read_only(folder / "store") as database, database.snapshot() as cursor:
        return {
            table: "\n".join(
                text
                for row in cursor.execute(f"SELECT * FROM {table}").fetchall()  # noqa: S608 - our own names
                for text in _texts(list(row))
            ).encode()
            for table in TABLES
        }


def _texts(value: object) -> Iterator[str]:
    """Every value in rows, lists and structs, as text."""
    if isinstance(value, dict):
        value = [*value.keys(), *value.values()]
    if isinstance(value, list):
        for member in value:
            yield from _texts(member)
    elif value is not None:
        yield str(value)


def _run(painter: Painter, folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "loadtest.cli.main", *arguments, painter.url, *QUICK, "--out", "out"],
        env=processes.environment(),
        cwd=folder,
        capture_output=True,
        timeout=120,
        check=False,
    )


@pytest.mark.nightly
def test_a_run_shows_keeps_and_draws_nothing_that_acts(
    painter: Painter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = _run(painter, tmp_path, "run", *FEW, "--json", "summary.json")
    assert done.returncode in (3, 4, 5, 6), done.stderr.decode()
    rows = _stored(tmp_path / "out")
    assert any(b"\\x1b]0;owned" in text for text in rows.values()), "it was kept, written out"
    longest = max(len(line) for text in rows.values() for line in text.splitlines())
    assert longest < 2000
    logs = {path.name: path.read_bytes() for path in (tmp_path / "out" / "logs").iterdir()}
    summary = {"summary": (tmp_path / "summary.json").read_bytes()}
    assert _acting({"stdout": done.stdout, "stderr": done.stderr, **logs, **rows, **summary}) == []
    assert not re.search(rb"^forged: line", done.stdout + done.stderr, re.MULTILINE)
    monkeypatch.setenv(ENV_STORE, str(tmp_path / "out" / "store"))
    monkeypatch.delenv(ENV_SLO, raising=False)
    with read_only(tmp_path / "out" / "store") as database, database.snapshot() as cursor:
        ids = cursor.execute("SELECT trace_id, turn_index FROM turns WHERE source = 'client'").fetchall()
    pages = [_page(), *(_page(page="turn", trace=trace, turn=str(index)) for trace, index in ids[:8])]
    assert any("&lt;script&gt;" in page for page in pages), "it is shown, as text"
    assert not any("<script>alert" in page for page in pages)
    assert _acting({str(number): page.encode() for number, page in enumerate(pages)}) == []


def _page(**query: str) -> str:
    app = AppTest.from_file(str(Path(dashboard.__file__).with_name("app.py")), default_timeout=180)
    for name, value in query.items():
        app.query_params[name] = value
    app.run()
    assert not app.exception
    assert len(app.markdown) == 0, "nothing of a store is read as Markdown"
    return " ".join(element.proto.body for element in app.get("html"))


@pytest.mark.nightly
@pytest.mark.parametrize("visit", [2, 3, 4], ids=["refused", "closed", "complained"])
def test_a_preflight_says_why_on_one_bounded_line(painter: Painter, tmp_path: Path, visit: int) -> None:
    painter.visits = visit - 1
    done = _run(painter, tmp_path, "run", *FEW)
    if done.returncode != 5:
        assert visit != 2, "a session that opened and closed afterwards is no refusal"
    assert _acting({"stdout": done.stdout, "stderr": done.stderr}) == []
    if visit == 2:
        (line,) = done.stderr.decode().splitlines()
        assert "\\x1b]0;owned\\x07" in line
        assert len(line) < 800


@pytest.mark.nightly
def test_locusts_page_and_its_report_show_it_as_text(painter: Painter, tmp_path: Path) -> None:
    painter.visits = 1
    port = str(processes.free_port())
    arguments = ["-m", "locust", "-f", str(processes.ROOT / "loadtest" / "locustfile.py"), "--host", painter.url]
    arguments += ["--web-host", "127.0.0.1", "--web-port", port, *QUICK, "--turns", "1"]
    child = processes.start("locust", arguments, tmp_path, says_ready=False)
    with processes.ending(child), httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60.0) as page:
        wait_until(lambda: answers(page))
        started = page.post("/swarm", data={"user_count": "2", "spawn_rate": "2", "host": painter.url})
        assert started.json()["success"]
        wait_until(lambda: b"owned" in page.get("/stats/requests").content)
        pages = ("/", "/stats/requests", "/exceptions", "/stats/report", "/logs", "/stats/failures/csv")
        seen = {path: page.get(path).content for path in pages}
    assert _acting({**seen, "log": child.log.read_bytes()}) == []
    for path in ("/", "/stats/report"):
        assert MARK.encode() not in seen[path], path
