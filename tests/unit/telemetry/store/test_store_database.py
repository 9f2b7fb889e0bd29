"""Ownership of a store, the rights of other processes, and errors for a folder that is not a store of this version."""

import json
import os
import re
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import duckdb
import msgspec
import pytest

from telemetry.model.errors import StoreError
from telemetry.store.database import DATABASE_NAME, OWNER_NAME, InUseError, owned, read_only
from telemetry.store.reader import StoreReader
from telemetry.store.schema import Batch
from telemetry.store.wire import Owner
from telemetry.store.writer import StoreWriter
from tests.fixtures_turns import client_turn

_HOLD = """
import sys
from pathlib import Path
from telemetry.store.schema import Batch
from telemetry.store.writer import StoreWriter
from tests.fixtures_turns import client_turn
writer = StoreWriter(Path(sys.argv[1]))
writer.append(Batch([client_turn(0)]))
print("held", flush=True)
sys.stdin.read()
"""


def _turns(directory: Path) -> int:
    with read_only(directory) as database, database.snapshot() as cursor:
        (count,) = cursor.execute("SELECT count(*) FROM turns").fetchone() or (None,)
    return count


@pytest.fixture
def other_owner(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that owns the store at tmp_path / "store"."""
    command = [sys.executable, "-c", _HOLD, str(tmp_path / "store")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


@pytest.mark.slow
def test_a_store_that_another_process_owns_names_it(tmp_path: Path, other_owner: subprocess.Popen[str]) -> None:
    for ask in (owned, read_only):
        with pytest.raises(InUseError, match=f"in use by process {other_owner.pid}; stop it"):
            ask(tmp_path / "store", within_s=0.0)


@pytest.mark.slow
def test_waiting_process_gets_store_when_its_owner_ends(tmp_path: Path, other_owner: subprocess.Popen[str]) -> None:
    waited: list[float] = []

    def end_it(wait_s: float) -> None:
        waited.append(wait_s)
        other_owner.send_signal(signal.SIGKILL)
        other_owner.wait()

    with owned(tmp_path / "store", within_s=60.0, sleep_s=end_it):
        pass
    assert waited
    assert _turns(tmp_path / "store") == 1, "what was committed before the kill is there"


def test_one_process_owns_a_store_once(tmp_path: Path) -> None:
    with owned(tmp_path), pytest.raises(InUseError, match="this process writes to the store already"):
        owned(tmp_path)
    with owned(tmp_path):
        pass


def test_only_the_user_may_look_into_a_store(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with StoreWriter(tmp_path / "new" / "store") as writer:
            writer.append(Batch([client_turn(0)]))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new" / "store").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "new" / "store" / DATABASE_NAME).stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["manifest.json", "manifest.previous.json", "segments"])
@pytest.mark.parametrize("ask", [owned, read_only])
def test_store_of_earlier_version_is_refused_with_migration_path(tmp_path: Path, name: str, ask) -> None:
    (tmp_path / name).write_text(json.dumps({"version": 4}))
    with pytest.raises(StoreError, match=r"earlier version; export it with .*store export.*store import"):
        ask(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name], "nothing is deleted and nothing is added"


@pytest.mark.parametrize("ask", [owned, read_only])
def test_another_format_is_refused_with_the_way_out(tmp_path: Path, ask) -> None:
    with owned(tmp_path) as database:
        database.cursor().execute("UPDATE store_state SET format = 99")
    with pytest.raises(StoreError, match=r"has format 99, this version reads 2; export it .*import it here"):
        ask(tmp_path)


@pytest.mark.parametrize(
    ("ask", "content", "why"),
    [
        (read_only, b"", "is not a store|cannot be opened"),  # an owner makes a database of an empty file
        (owned, b"not a database" * 100, "cannot be opened"),
        (read_only, b"not a database" * 100, "cannot be opened"),
        (owned, None, "is not a store"),
        (read_only, None, "is not a store"),
    ],
)
def test_a_file_that_is_no_store_is_one_sentence(tmp_path: Path, ask, content: bytes | None, why: str) -> None:
    if content is None:
        with duckdb.connect(str(tmp_path / DATABASE_NAME)) as other:
            other.execute("CREATE TABLE mine (x INTEGER)")
    else:
        (tmp_path / DATABASE_NAME).write_bytes(content)
    with pytest.raises(StoreError, match=why):
        ask(tmp_path)


@pytest.mark.slow
def test_a_torn_file_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    with StoreWriter(tmp_path) as writer:
        for index in range(50):
            writer.append(Batch([client_turn(index)]))
    file = tmp_path / DATABASE_NAME
    torn = file.read_bytes()[: 12 * 1024]
    file.write_bytes(torn)
    for ask in (owned, read_only):
        with pytest.raises(StoreError):
            ask(tmp_path)
    assert file.read_bytes() == torn


def test_missing_store_is_one_sentence_and_empty_folder_is_store(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no store here; start the sidecar with --store"):
        read_only(tmp_path / "nowhere")
    assert _turns(tmp_path) == 0
    assert list(tmp_path.iterdir()) == []


@contextmanager
def _listening(status: int) -> Iterator[str]:
    """A program that answers every request with a status; its address."""

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_args: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.slow
def test_rows_of_killed_owner_are_read_if_its_port_is_reused(
    tmp_path: Path, other_owner: subprocess.Popen[str]
) -> None:
    store = tmp_path / "store"
    with ExitStack() as programs:
        addresses = [programs.enter_context(_listening(status)) for status in (401, 404, 500)]

        def turns(address: str) -> int:
            owner = Owner(pid=other_owner.pid, url=address, token="of the killed one")
            (store / OWNER_NAME).write_bytes(msgspec.json.encode(owner))
            return len(StoreReader(store).turns())

        for address in addresses:
            with pytest.raises(StoreError, match=re.escape(address)):  # it holds the store: what it answers counts
                turns(address)
        other_owner.send_signal(signal.SIGKILL)
        other_owner.wait()
        assert (store / f"{DATABASE_NAME}.wal").exists()
        assert [turns(address) for address in addresses] == [1, 1, 1]
