"""A sidecar of an older version, as the list of runs meets it: one sentence with its address, and how to mend it."""

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
import pytest

from loadtest.exit_codes import ExitCode
from telemetry.model.errors import StoreError
from telemetry.objectives.slo import default_objectives
from telemetry.store.answers import Filter
from telemetry.store.reader import RemoteStore, StoreReader
from telemetry.store.run_folders.catalog import RunCatalog
from telemetry.store.wire import BadQuestionError, answer
from tests.fixtures_turns import fill_store
from tests.integration.commands import carried_out
from tests.nightly import nightly_after
from tests.run_folders import latency_run, run_folder

Answered = tuple[int, bytes]


class OldSidecar(ThreadingHTTPServer):
    """Answers the questions of a store that it knows, as a sidecar does, and others as `unknown` says."""

    daemon_threads = True

    def __init__(self, store: Path, known: set[str], unknown: Callable[[str], Answered]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.reader, self.known, self.unknown = StoreReader(store), known, unknown
        self.asked: list[str] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        sidecar = self.server
        assert isinstance(sidecar, OldSidecar)
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        name = self.path.rpartition("/")[2]
        sidecar.asked.append(name)
        status, content = sidecar.unknown(name)
        if name in sidecar.known:
            try:
                status, content = 200, msgspec.msgpack.encode(answer(sidecar.reader, name, body))
            except BadQuestionError as error:
                status, content = 400, json.dumps({"error": str(error)}).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_args: object) -> None:
        """Nothing: a test looks at what was answered."""


def no_such_question(name: str) -> Answered:
    return 400, json.dumps({"error": f"there is no question {name!r}; known are state, runs, summary"}).encode()


def no_such_field(name: str) -> Answered:
    return 400, json.dumps({"error": f"{name}: Object contains unknown field `now_unix_ns`"}).encode()


def no_such_path(_name: str) -> Answered:
    return 404, b"Not Found"


def other_answer(_name: str) -> Answered:
    return 200, msgspec.msgpack.encode({"summary": None})


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[set[str], Callable[[str], Answered]], OldSidecar]]:
    fill_store(tmp_path / "store", latency_run("r-there", 20))
    started: list[OldSidecar] = []

    def start(known: set[str], unknown: Callable[[str], Answered]) -> OldSidecar:
        started.append(OldSidecar(tmp_path / "store", known, unknown))
        threading.Thread(target=started[-1].serve_forever, daemon=True).start()
        return started[-1]

    yield start
    for server in started:
        server.shutdown()
        server.server_close()
        server.reader.close()


CASES = [
    (no_such_question, "is of an older version, and does not know the question 'run_list'"),
    (no_such_field, "is of an older version, and does not know the question 'run_list'"),
    (no_such_path, "it is of an older version, or something else listens there"),
]
HOW_TO_MEND = "upgrade voiceprobe there"


@pytest.mark.parametrize(("unknown", "sentence"), nightly_after(1, CASES))
def test_older_sidecar_is_one_sentence_in_list_of_runs(
    tmp_path: Path,
    start: Callable[[set[str], Callable[[str], Answered]], OldSidecar],
    unknown: Callable[[str], Answered],
    sentence: str,
) -> None:
    sidecar = start({"runs"}, unknown)
    (entry,) = RunCatalog([sidecar.address], default_objectives()).entries()
    assert (entry.state, entry.store) == ("damaged", sidecar.address)
    assert entry.fault is not None
    assert sentence in entry.fault
    assert HOW_TO_MEND in entry.fault
    assert sidecar.address not in entry.fault, "its row begins with the address"

    run_folder(tmp_path / "runs", "here", latency_run("r-here", 20))
    listed = tmp_path / "listed.json"
    done = carried_out("runs", "--runs", sidecar.address, "--runs", "runs", "--json", "listed.json", cwd=tmp_path)
    assert done.returncode == ExitCode.USAGE
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith(f"voiceprobe: {sidecar.address}: ")
    assert sentence in line
    assert HOW_TO_MEND in line
    # What the other place has is listed all the same.
    assert "here" in done.stdout
    assert {run["run"] for run in json.loads(listed.read_text())["runs"]} == {"r-here", sidecar.address}


def test_answer_of_other_shape_states_which_versions_are_needed(
    tmp_path: Path,
    start: Callable[[set[str], Callable[[str], Answered]], OldSidecar],
) -> None:
    sidecar = start({"runs"}, other_answer)
    done = carried_out("runs", "--runs", sidecar.address, cwd=tmp_path)
    assert done.returncode == ExitCode.USAGE
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith(f"voiceprobe: {sidecar.address}: its answer is not one of this version")
    assert "use the same version of voiceprobe on both machines" in line


def test_a_sidecar_of_this_version_is_listed(
    tmp_path: Path,
    start: Callable[[set[str], Callable[[str], Answered]], OldSidecar],
) -> None:
    sidecar = start({"run_list"}, no_such_question)
    done = carried_out("runs", "--runs", sidecar.address, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (ExitCode.OK, "")
    assert "r-there" in done.stdout
    # A refusal that is about what was asked for stays what the sidecar says of it.
    remote = RemoteStore(start({"turns"}, no_such_question).address, None)
    with pytest.raises(StoreError, match="Expected `int` <= 10000") as caught:
        remote.turns(limit=20_000)
    assert HOW_TO_MEND not in str(caught.value)


def test_run_budgets_are_not_requested_from_older_sidecar(
    start: Callable[[set[str], Callable[[str], Answered]], OldSidecar],
) -> None:
    """An older one looks at every run whatever the filter of `burn_rates` names."""
    objectives, f = default_objectives(), Filter("r-there")
    older = start({"burn_rates", "runs"}, no_such_question)
    with pytest.raises(StoreError, match="does not know the question 'objectives_page'") as caught:
        RemoteStore(older.address, None).objectives_page(objectives, f)
    assert HOW_TO_MEND in str(caught.value)
    assert older.asked == ["objectives_page"]

    sidecar = start({"objectives_page"}, no_such_question)
    page = RemoteStore(sidecar.address, None).objectives_page(objectives, f)
    assert page.run is not None
    assert page.run.run_id == "r-there"
    at_that_moment = sidecar.reader.objectives_page(objectives, f)
    assert replace(page.burn, at_unix_ns=0) == replace(at_that_moment.burn, at_unix_ns=0)
    assert (page.choices, page.evidence) == (at_that_moment.choices, at_that_moment.evidence)
