"""Nothing that lets callers in is printed or stored, not even by way of an endpoint that repeats it."""

import base64
import contextlib
import http
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote

import httpx
import psutil
import pytest
from websockets.asyncio.server import ServerConnection
from websockets.http11 import Request, Response

from loadtest.run import processes
from telemetry.store.database import DATABASE_NAME, read_only
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
RUN_S = 8
# One connection before the run; then waits of 1, 2 and 4 s at least, so that a slow machine only makes fewer.
MOST = 1 + 4
FEW = ["--calls", "6", "--turns", "1", "--reply-timeout", "1", "--run-time", "1m"]


class Parrot(HostedEndpoint):
    """An endpoint that opens its first session and afterwards repeats in every way what it was shown."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[dict[str, str]] = []

    @property
    def url(self) -> str:
        return f"ws://{USER}:{PASSWORD}@127.0.0.1:{self.port}/v1/realtime?model=test-model&key={KEY}"

    def _look(self, connection: ServerConnection, request: Request) -> Response | None:
        self.seen.append({**dict(request.headers.raw_items()), "path": unquote(request.path)})
        if len(self.seen) % 3 == 2:
            return connection.respond(http.HTTPStatus.UNAUTHORIZED, f"go away {self._echo()}\n")
        return None

    def _sign(self, connection: ServerConnection, request: Request, response: Response) -> None:
        response.headers["CF-Ray"] = RAY
        response.headers["X-Served-By"] = f"cache of {TOKEN}"
        response.headers["Set-Cookie"] = f"session={COOKIE}"

    def _echo(self) -> str:
        return json.dumps({**self.seen[-1], "user": USER, "password": PASSWORD, "passphrase": PASSPHRASE})

    async def _talk(self, connection: ServerConnection) -> None:
        echo, turn = self._echo(), len(self.seen)
        await connection.send(json.dumps({"type": "session.created", "session": {"model": f"model {TOKEN}"}}))
        await connection.recv()
        await connection.send(json.dumps({"type": "session.updated", "session": {"model": f"model {VALUE}"}}))
        if turn == 1:
            async for _ in connection:  # listened to and never answered
                pass
            return
        if turn % 3 == 0:
            error = {"type": "invalid_request_error", "code": "invalid_api_key", "message": f"bad key {echo}"}
            await connection.send(json.dumps({"type": "error", "error": error}))
        await connection.close(1008, f"refused: {TOKEN} {VALUE} {USER} {PASSWORD} {KEY}"[:120])


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


def _databases(folder: Path) -> list[Path]:
    parents = [path.parent for path in folder.rglob(DATABASE_NAME)]
    assert parents, "there is a store to be searched"
    return parents


def _rows(folder: Path) -> dict[str, bytes]:
    """Every column of every table that is stored, decompressed."""
    rows: dict[str, bytes] = {}
    for store in _databases(folder):
        with read_only(store) as database, database.snapshot() as cursor:
            for table in TABLES:
                content = cursor.execute(f"SELECT * FROM {table}").fetchall()  # noqa: S608 - our own names
                rows[f"rows of {table} in {store.relative_to(folder)}"] = str(content).encode()
    return rows


def _stored_rays(folder: Path) -> tuple[set[str], int]:
    """The names of the spans, and the number of turns, that have the header which says which request it was."""
    names, count = set[str](), 0
    for store in _databases(folder):
        with read_only(store) as database, database.snapshot() as cursor:
            spans = "SELECT DISTINCT span_name FROM spans AS span WHERE contains(span::VARCHAR, $1)"
            turns = "SELECT count(*) FROM turns WHERE list_contains(endpoint_header_values, $1)"
            names |= {name for (name,) in cursor.execute(spans, [RAY]).fetchall()}
            count += cursor.execute(turns, [RAY]).fetchall()[0][0]
    return names, count


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


def test_run_repeats_no_secret_and_calls_failing_endpoint_rarely(parrot: Parrot, tmp_path: Path) -> None:
    """The endpoint fails each call: a caller waits longer before each further one."""
    file, out = tmp_path / "summary.json", tmp_path / "out"
    limits = ["--users", "1", "--turns", "1", "--reply-timeout", "1", "--run-time", f"{RUN_S}s"]
    command = ["loadtest.cli.main", "run", parrot.url, *QUICK, *limits, "--out", str(out), "--json", str(file)]
    code, output = _call(command, tmp_path)
    assert code not in (1, 2), output["stderr"].decode()
    assert 2 < len(parrot.seen) <= MOST, output
    shown = parrot.seen[-1]
    assert shown["X-Api-Key"] == VALUE
    assert shown["Authorization"] == f"Bearer {TOKEN}"
    assert KEY in shown["path"]
    kept, rows = _files(tmp_path), _rows(out)
    assert any(b"refused" in text and b"[hidden]" in text for text in rows.values()), "the echo itself was stored"
    names, turns = _stored_rays(out)
    assert names == {"voice.call"}
    assert turns > 0
    assert _leaks({**output, **kept, **rows}) == []


@pytest.mark.nightly
def test_locust_shows_and_spools_no_secret_endpoint_repeats(parrot: Parrot, tmp_path: Path) -> None:
    arguments = ["locust", "-f", str(processes.ROOT / "loadtest" / "locustfile.py"), "--headless", "--host", parrot.url]
    arguments += ["--users", "2", *FEW, "--spool", str(tmp_path / "spool"), "--loglevel", "DEBUG", *QUICK]
    _, output = _call(arguments, tmp_path)
    assert len(parrot.seen) >= 3
    assert b"[hidden]" in output["stdout"] + output["stderr"]
    spooled = _files(tmp_path / "spool")
    assert any(b"[hidden]" in text for text in spooled.values())
    assert _leaks({**output, **spooled}) == []


@pytest.mark.nightly
@pytest.mark.usefixtures("known")
def test_locusts_page_shows_no_secret_and_its_callers_get_in(parrot: Parrot, tmp_path: Path) -> None:
    port = str(processes.free_port())
    arguments = ["-m", "locust", "-f", str(processes.ROOT / "loadtest" / "locustfile.py"), "--host", parrot.url]
    arguments += ["--web-host", "127.0.0.1", "--web-port", port, *QUICK]
    child = processes.start("locust", arguments, tmp_path, says_ready=False)
    with processes.ending(child), httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60.0) as page:
        wait_until(lambda: answers(page))
        shown = page.get("/")
        host = f"ws://127.0.0.1:{parrot.port}/v1/realtime"
        assert host in shown.text
        assert page.post("/swarm", data={"user_count": "1", "spawn_rate": "1", "host": host}).json()["success"]
        wait_until(lambda: any(KEY in seen["path"] for seen in parrot.seen) and len(parrot.seen) >= 3)
        wait_until(lambda: "[hidden]" in page.get("/stats/requests").text)
        pages = ("/", "/stats/requests", "/exceptions", "/stats/report", "/logs")
        seen = {path: page.get(path).content for path in pages}
    assert _leaks({**seen, "log": child.log.read_bytes()}) == []


@pytest.mark.usefixtures("known")
def test_a_preflight_that_is_refused_repeats_no_secret(parrot: Parrot, tmp_path: Path) -> None:
    parrot.seen.append({})  # the first visitor has been
    done = carried_out("run", parrot.url, *QUICK, "--out", "out", cwd=tmp_path)
    assert done.returncode == 5
    assert "go away" in done.stderr
    assert _leaks({"stdout": done.stdout.encode(), "stderr": done.stderr.encode(), **_files(tmp_path)}) == []


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
        ["run", "--users", "2", "--processes", "2", *FEW],
        ["run", "--users", "2", *FEW],
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
