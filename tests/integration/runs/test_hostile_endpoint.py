"""An endpoint that repeats what it was shown, in escape codes: nothing that lets callers in is printed or stored, and
its text acts on no terminal, log, page or store: it is shown escaped and bounded."""

import base64
import contextlib
import http
import json
import math
import re
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote

import httpx
import psutil
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
from tests.integration.commands import carried_out
from tests.integration.runs.hosted_endpoint import HostedEndpoint
from tests.integration.waiting import answers, wait_until

TOKEN, VALUE, PASSPHRASE = "tok-51f0c8aa93be", "val-77d2e91b04cc", "open-sesame-4711"
USER, PASSWORD, KEY = "ursula-4711", "pw-0c9d8e7f6a5b", "key-9b8a7c6d5e4f"
COOKIE, RAY = "cookie-8f7e6d5c4b3a", "8a1b2c3d4e5f-FRA"
SECRETS = {
    "cookie": COOKIE,
    "token": TOKEN,
    "header": VALUE,
    "passphrase": PASSPHRASE,
    "user": USER,
    "password": PASSWORD,
    "query": KEY,
    "basic": base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode(),
}
ENVIRONMENT = {"VOICEPROBE_TOKEN": TOKEN, "MY_KEY": VALUE, "VOICEPROBE_CLIENT_KEY_PASSPHRASE": PASSPHRASE}
QUICK = ["--corpus", CORPUS, "--length", "short", "--clips", "2", "--think", "0.1", "--header", "X-Api-Key=MY_KEY"]
PAINT = "\x1b]0;owned\x07\x1b[2J\x1b[31m\x9b5m\u202egnp.exe\u2028[/red][link=x]<script>alert(1)</script>"
MARK = "<script>alert(1)"
LINK = "[x](javascript:alert(1))"
# Raw, none of these may come out anywhere.
ACTS = [char.encode() for char in ("\x1b", "\x07", "\u202e", "\u2028", "\x9b")]
TONE = base64.b64encode(b"".join(struct.pack("<h", round(9000 * math.sin(n / 8))) for n in range(24_000 // 2))).decode()
RUN_S = 8
# One connection before the run; then waits of 1, 2 and 4 s at least, so that a slow machine only makes fewer.
MOST = 1 + 4
FEW = ["--turns", "1", "--reply-timeout", "1", "--run-time", "1m"]


class Parrot(HostedEndpoint):
    """An endpoint that opens its first session, and then refuses, complains, closes and answers: it repeats what it was
    shown in every way, in escape codes."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[dict[str, str]] = []

    @property
    def url(self) -> str:
        return f"ws://{USER}:{PASSWORD}@127.0.0.1:{self.port}/v1/realtime?model=test-model&key={KEY}"

    def _look(self, connection: ServerConnection, request: Request) -> Response | None:
        self.seen.append({**dict(request.headers.raw_items()), "path": unquote(request.path)})
        if len(self.seen) % 4 == 2:
            body = f"go away {PAINT} {self._echo()}\r\nforged: line\n" + "x" * 5000
            return connection.respond(http.HTTPStatus.UNAUTHORIZED, body)
        return None

    def _sign(self, connection: ServerConnection, request: Request, response: Response) -> None:
        response.headers["CF-Ray"] = RAY
        response.headers["X-Served-By"] = f"cache of {TOKEN}"
        response.headers["Set-Cookie"] = f"session={COOKIE}"

    def _echo(self) -> str:
        return json.dumps({**self.seen[-1], "user": USER, "password": PASSWORD, "passphrase": PASSPHRASE})

    async def _talk(self, connection: ServerConnection) -> None:
        echo, visit = self._echo(), len(self.seen)
        for kind in ("session.created", "session.updated"):
            await connection.send(json.dumps({"type": kind, "session": {"model": f"{PAINT} {TOKEN} {VALUE}"}}))
            if kind == "session.created":
                await connection.recv()
        if visit == 1:
            async for _ in connection:  # listened to and never answered
                pass
        elif visit % 4 == 3:
            text = f"{PAINT} bad key {echo} {LINK}\nforged: line" + "y" * 5000
            error = {"type": "session_expired", "code": PAINT, "message": text}
            await connection.send(json.dumps({"type": "error", "error": error}))
            await connection.close(1000)
        elif visit % 4 == 0:
            reason = f"refused: {TOKEN} {VALUE} {USER} {KEY} {PAINT}"
            await connection.close(1008, reason.encode()[:120].decode(errors="ignore"))
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
def parrot() -> Iterator[Parrot]:
    with Parrot() as parrot:
        yield parrot


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put what lets callers in into the environment of this process."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


def _leaks(texts: Mapping[str, bytes]) -> list[str]:
    return [
        f"{where}: {name}"
        for where, text in texts.items()
        for name, secret in SECRETS.items()
        if secret.encode() in text
    ]


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _acting(texts: dict[str, bytes]) -> list[str]:
    return [f"{where}: {char!r}" for where, text in texts.items() for char in ACTS if char in text]


def _rows(folder: Path) -> dict[str, bytes]:
    """Every value of every table that is stored, decompressed."""
    with read_only(folder / "store") as database, database.snapshot() as cursor:
        return {
            f"rows of {table}": "\n".join(
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


def _stored_rays(folder: Path) -> tuple[set[str], int]:
    """The names of the spans, and the number of turns, that have the header which says which request it was."""
    with read_only(folder / "store") as database, database.snapshot() as cursor:
        spans = "SELECT DISTINCT span_name FROM spans AS span WHERE contains(span::VARCHAR, $1)"
        turns = "SELECT count(*) FROM turns WHERE list_contains(endpoint_header_values, $1)"
        names = {name for (name,) in cursor.execute(spans, [RAY]).fetchall()}
        return names, cursor.execute(turns, [RAY]).fetchall()[0][0]


def _call(arguments: list[str], cwd: Path) -> tuple[int, dict[str, bytes]]:
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        env={**processes.environment(), **ENVIRONMENT},
        cwd=cwd,
        capture_output=True,
        timeout=600,
        check=False,
    )
    return done.returncode, {"stdout": done.stdout, "stderr": done.stderr}


def _run(parrot: Parrot, folder: Path, *load: str) -> tuple[int, dict[str, bytes], dict[str, bytes]]:
    """A run in a folder: its exit code, all that it printed and left, and the rows of its store."""
    command = ["loadtest.cli.main", "run", parrot.url, *QUICK, *FEW, *load, "--out", "out", "--json", "summary.json"]
    code, output = _call(command, folder)
    assert code not in (1, 2), output["stderr"].decode()
    return code, {**output, **_files(folder)}, _rows(folder / "out")


def _assert_harmless(printed: Mapping[str, bytes], rows: Mapping[str, bytes]) -> None:
    """Nothing lets anybody in, and nothing acts, in what was printed, left and stored."""
    assert _leaks({**printed, **rows}) == []
    shown = {name: text for name, text in printed.items() if name.startswith(("std", "summary", "out/logs/"))}
    assert _acting({**shown, **rows}) == []
    assert not re.search(rb"^forged: line", printed["stdout"] + printed["stderr"], re.MULTILINE)
    assert max(len(line) for text in rows.values() for line in text.splitlines()) < 2000
    assert any(b"\\x1b]0;owned" in text for text in rows.values()), "it was kept, written out"


def test_run_repeats_no_secret_and_calls_failing_endpoint_rarely(parrot: Parrot, tmp_path: Path) -> None:
    """The endpoint fails each call: a caller waits longer before each further one."""
    _, printed, rows = _run(parrot, tmp_path, "--users", "1", "--run-time", f"{RUN_S}s")
    assert 2 < len(parrot.seen) <= MOST, printed["stdout"]
    shown = parrot.seen[-1]
    assert shown["X-Api-Key"] == VALUE
    assert shown["Authorization"] == f"Bearer {TOKEN}"
    assert KEY in shown["path"]
    assert any(b"[hidden]" in text for text in rows.values()), "the echo itself was stored"
    names, turns = _stored_rays(tmp_path / "out")
    assert names == {"voice.call"}
    assert turns > 0
    _assert_harmless(printed, rows)


@pytest.mark.nightly
def test_the_pages_of_a_run_show_text_that_acts_as_text(
    parrot: Parrot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, printed, rows = _run(parrot, tmp_path, "--users", "4", "--calls", "12")
    assert code in (3, 4, 5, 6)
    _assert_harmless(printed, rows)
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
def test_locust_shows_and_spools_no_secret_endpoint_repeats(parrot: Parrot, tmp_path: Path) -> None:
    arguments = ["locust", "-f", str(processes.ROOT / "loadtest" / "locustfile.py"), "--headless", "--host", parrot.url]
    arguments += [
        "--users",
        "2",
        "--calls",
        "6",
        *FEW,
        "--spool",
        str(tmp_path / "spool"),
        "--loglevel",
        "DEBUG",
        *QUICK,
    ]
    _, output = _call(arguments, tmp_path)
    assert len(parrot.seen) >= 3
    assert b"[hidden]" in output["stdout"] + output["stderr"]
    spooled = _files(tmp_path / "spool")
    assert any(b"[hidden]" in text for text in spooled.values())
    assert _leaks({**output, **spooled}) == []


@pytest.mark.nightly
@pytest.mark.usefixtures("known")
def test_locusts_page_shows_no_secret_and_no_text_that_acts(parrot: Parrot, tmp_path: Path) -> None:
    parrot.seen.append({})  # the visitor to whom it only listens has been
    port = str(processes.free_port())
    arguments = ["-m", "locust", "-f", str(processes.ROOT / "loadtest" / "locustfile.py"), "--host", parrot.url]
    arguments += ["--web-host", "127.0.0.1", "--web-port", port, *QUICK, "--turns", "1", "--reply-timeout", "1"]
    child = processes.start("locust", arguments, tmp_path, says_ready=False)
    with processes.ending(child), httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60.0) as page:
        wait_until(lambda: answers(page))
        host = f"ws://127.0.0.1:{parrot.port}/v1/realtime"
        assert host in page.get("/").text
        assert page.post("/swarm", data={"user_count": "2", "spawn_rate": "2", "host": host}).json()["success"]
        wait_until(lambda: any(KEY in seen.get("path", "") for seen in parrot.seen) and len(parrot.seen) >= 4)
        wait_until(lambda: all(word in page.get("/stats/requests").text for word in ("[hidden]", "owned")))
        pages = ("/", "/stats/requests", "/exceptions", "/stats/report", "/logs", "/stats/failures/csv")
        seen = {path: page.get(path).content for path in pages}
    assert _leaks({**seen, "log": child.log.read_bytes()}) == []
    assert _acting({**seen, "log": child.log.read_bytes()}) == []
    for path in ("/", "/stats/report"):
        assert MARK.encode() not in seen[path], path


@pytest.mark.usefixtures("known")
def test_a_refused_preflight_is_one_bounded_harmless_line(parrot: Parrot, tmp_path: Path) -> None:
    parrot.seen.append({})  # the first visitor has been
    done = carried_out("run", parrot.url, *QUICK, "--out", "out", cwd=tmp_path)
    output = {"stdout": done.stdout.encode(), "stderr": done.stderr.encode()}
    assert done.returncode == 5
    assert _leaks({**output, **_files(tmp_path)}) == []
    assert _acting(output) == []
    (line,) = done.stderr.splitlines()
    assert "go away" in line
    assert "\\x1b]0;owned\\x07" in line
    assert len(line) < 800


@pytest.mark.nightly
@pytest.mark.parametrize("visit", [3, 4], ids=["complained", "closed"])
def test_session_that_opened_and_failed_prints_harmless_text(parrot: Parrot, tmp_path: Path, visit: int) -> None:
    parrot.seen += [{}] * (visit - 1)
    command = ["loadtest.cli.main", "run", parrot.url, *QUICK, *FEW, "--users", "4", "--calls", "12", "--out", "out"]
    _, output = _call(command, tmp_path)
    assert _acting(output) == []
    assert _leaks(output) == []


@pytest.mark.usefixtures("known")
def test_unsendable_values_are_reported_at_once_and_not_shown(tmp_path: Path) -> None:
    given = ["--header", "Host=MY_KEY", "--header", f"X-Key={VALUE}", "--header", "X-Other=NOT_THERE"]
    where = f"ftp://{USER}:{PASSWORD}@127.0.0.1/?key={KEY}"
    done = carried_out("run", where, *given, "--out", "out", cwd=tmp_path)
    lines = done.stderr.splitlines()
    assert done.returncode == 2
    assert len(lines) == 4, lines
    assert all(line.startswith("voiceprobe: ") for line in lines)
    assert _leaks({"stdout": done.stdout.encode(), "stderr": done.stderr.encode()}) == []
    assert not (tmp_path / "out").exists()


class Watch:
    """Notes the command line of every process that descends from this one, while it lasts."""

    def __init__(self, own: Collection[str]) -> None:
        self.seen: dict[int, bytes] = {}
        self._own = own  # what the test itself typed is not ours to hide
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(60)

    def _look(self) -> None:
        me = psutil.Process()
        while not self._over.wait(0.05):
            for child in me.children(recursive=True):
                with contextlib.suppress(psutil.Error, OSError):
                    line = Path(f"/proc/{child.pid}/cmdline").read_bytes()
                    if line and not any(name.encode() in line for name in self._own):
                        self.seen[child.pid] = line


@pytest.mark.nightly
@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="needs a list of processes that shows arguments")
@pytest.mark.parametrize("by", ["argument", "variable"])
@pytest.mark.parametrize(
    "command",
    [
        ["run", "--users", "2", "--processes", "2", "--calls", "6", *FEW],
        ["run", "--users", "2", "--calls", "6", *FEW],
        ["capacity", "--from", "1", "--max", "1", "--turns-per-step", "20", "--step-time", "2s", "--rest", "0"],
    ],
    ids=["processes", "run", "capacity"],
)
def test_no_list_of_processes_shows_a_credential(parrot: Parrot, tmp_path: Path, command: list[str], by: str) -> None:
    name, *flags = command
    given = [parrot.url] if by == "argument" else []
    arguments = ["-m", "loadtest.cli.main", name, *given, *QUICK, *flags, "--out", str(tmp_path / "out")]
    variables = {"VOICEPROBE_TARGET": parrot.url} if by == "variable" else {}
    with Watch(["loadtest.cli.main"] if by == "argument" else []) as watch:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            env={**processes.environment(), **ENVIRONMENT, **variables},
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        # The callers were seen, and they were let in by the whole address.
        wait_until(lambda: process.poll() is not None or (_has_callers(watch) and len(parrot.seen) >= 4))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=600)
    assert process.returncode not in (1, 2), err.decode()
    assert _has_callers(watch)
    assert all(KEY in seen["path"] for seen in parrot.seen)
    assert _leaks({str(pid): line for pid, line in watch.seen.items()}) == []
    assert _leaks({"stdout": out, "stderr": err, **_files(tmp_path / "out")}) == []


def _has_callers(watch: Watch) -> bool:
    return any(b"locustfile" in line for line in list(watch.seen.values()))
