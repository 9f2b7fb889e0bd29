"""Waiting of a run until its store holds what the sidecar has acknowledged, and what the service reports."""

import threading
from collections.abc import Callable
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import httpx
import pytest

from loadtest.reports.run_info import SpoolInfo
from loadtest.run import sidecars
from loadtest.run.request import CheckedRun
from loadtest.run.sidecars import VISIBLE_S, Sidecar
from telemetry.export.span_log import LogRecord, ReplayResult, SpanLog
from telemetry.store.answers import ClientServiceDelta, Filter
from telemetry.store.reader import StoreReader

PLACE = Sidecar("http://127.0.0.1:4318", Path("store"))
ANSWERS = httpx.Response(200, json={})
SLOW, GONE = httpx.ReadTimeout("timed out"), httpx.ConnectError("Connection refused")
BUSY = httpx.Response(503)  # it has as many connections as it accepts


class Asked:
    """A sidecar that answers one after the other, the last for good, on a clock that moves with each question."""

    def __init__(self, answers: list[httpx.Response | Exception], answer_s: float) -> None:
        self._answers, self._answer_s = answers, answer_s
        self.asked, self.now_s = 0, 0.0

    def state(self, url: str) -> httpx.Response:
        assert url == PLACE.url
        self.now_s += self._answer_s
        answer = self._answers[min(self.asked, len(self._answers) - 1)]
        self.asked += 1
        if isinstance(answer, Exception):
            raise answer
        return answer


Ask = Callable[..., Asked]


@pytest.fixture
def asking(monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Lets the sidecar of a run answer so."""

    def of(answers: list[httpx.Response | Exception], answer_s: float = 1.0) -> Asked:
        asked = Asked(answers, answer_s)
        monkeypatch.setattr(sidecars, "_ask_state", asked.state)
        monkeypatch.setattr(sidecars.time, "monotonic", lambda: asked.now_s)
        monkeypatch.setattr(sidecars.time, "sleep", lambda _: None)
        return asked

    return of


def delivered_all(out: Path, own: Sidecar = PLACE) -> SpoolInfo:
    checked = cast(CheckedRun, SimpleNamespace(request=SimpleNamespace(out=out)))
    with ExitStack() as stack:
        return sidecars.deliver_all(checked, Path("objectives.yaml"), own, stack)


@pytest.mark.parametrize(
    ("answers", "is_there", "asked"),
    [
        ([ANSWERS], True, 1),
        ([SLOW, SLOW, ANSWERS], True, 3),
        ([BUSY, ANSWERS], True, 2),
        ([GONE], False, 1),
        ([SLOW, GONE], False, 2),
    ],
    ids=["answers", "slow", "busy", "gone", "killed"],
)
def test_a_run_waits_until_its_sidecar_answers(
    asking: Ask, answers: list[httpx.Response | Exception], is_there: bool, asked: int
) -> None:
    sidecar = asking(answers)
    assert sidecars._is_there(PLACE) is is_there
    assert sidecar.asked == asked


NOTHING_TAKEN = ReplayResult(left_requests=2, left_spans=9, left_turns=3)


@pytest.mark.parametrize(
    ("deliveries", "info"),
    [
        ([ReplayResult(requests=2, spans=9, turns=3)], SpoolInfo(turns=3, spans=9)),
        (
            [
                ReplayResult(requests=1, spans=3, turns=1, left_requests=1, left_spans=6, left_turns=2),
                ReplayResult(requests=1, spans=6, turns=2),
            ],
            SpoolInfo(turns=3, spans=9),
        ),
        ([NOTHING_TAKEN, NOTHING_TAKEN], SpoolInfo(waiting_turns=3, waiting_spans=9)),
    ],
    ids=["all at once", "refused once", "full disk"],
)
def test_spool_is_delivered_once_more_to_a_sidecar_that_is_there(
    asking: Ask, monkeypatch: pytest.MonkeyPatch, deliveries: list[ReplayResult], info: SpoolInfo
) -> None:
    """A second sidecar could not open the store that the first one holds."""
    sidecar = asking([ANSWERS])
    left = iter(deliveries)

    def delivered(spool: Path, url: str) -> ReplayResult:
        assert (spool, url) == (Path("run/spool"), PLACE.url)
        return next(left)

    monkeypatch.setattr(sidecars, "deliver_spool", delivered)
    assert delivered_all(Path("run")) == info
    assert not list(left)
    assert sidecar.asked == len(deliveries), "what it has acknowledged is committed once it answers"


class BusyAtFirst(BaseHTTPRequestHandler):
    """A sidecar that is there and answers 503 to the first request with telemetry; it takes every other."""

    posted: ClassVar[list[bytes]]

    def do_GET(self) -> None:
        self._answer(200)

    def do_POST(self) -> None:
        self.posted.append(self.rfile.read(int(self.headers["content-length"])))
        self._answer(503 if len(self.posted) == 1 else 200)

    def _answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Write nothing to the terminal."""


def test_spool_that_was_refused_once_reaches_the_sidecar(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(BusyAtFirst, "posted", [], raising=False)
    log = SpanLog(tmp_path / "spool", "caller", b"")
    assert log.append(LogRecord("metrics", 5, 0, b"abc"))
    log.close()
    with ThreadingHTTPServer(("127.0.0.1", 0), BusyAtFirst) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            info = delivered_all(tmp_path, Sidecar(f"http://127.0.0.1:{server.server_port}", tmp_path / "store"))
        finally:
            server.shutdown()
    assert len(BusyAtFirst.posted) == 2
    assert BusyAtFirst.posted[0] == BusyAtFirst.posted[1]
    assert info == SpoolInfo()
    assert not list((tmp_path / "spool").glob("*.wal"))


@pytest.mark.parametrize("answer", [SLOW, BUSY])
def test_a_sidecar_that_never_answers_ends_the_wait(asking: Ask, answer: httpx.Response | Exception) -> None:
    sidecar = asking([answer], answer_s=5.0)
    assert sidecars._is_there(PLACE)
    assert sidecar.now_s == VISIBLE_S


class Joining:
    """A store in which so many of eight heard turns have a counterpart, question after question."""

    def __init__(self, *joined: int, heard: int = 8) -> None:
        self._joined, self._heard = joined, heard
        self.asked = 0

    def summary(self, where: Filter) -> Any:
        assert where == Filter(run_id="run-1")
        joined = self._joined[min(self.asked, len(self._joined) - 1)]
        self.asked += 1
        delta = ClientServiceDelta(joined, self._heard - joined, 0, None, None, None)
        return type("Summary", (), {"client_service_delta": delta})


ASSEMBLING, IDLE = httpx.Response(200, json={"framework_spans_open": 4}), httpx.Response(200, json={})


@pytest.mark.parametrize(
    ("store", "state", "asked", "notes"),
    [
        (Joining(8), IDLE, 1, []),
        (Joining(3, 3, 5, 8), IDLE, 4, ["waiting for what the service reports: 3 of 8 turns so far"]),
        (Joining(0), IDLE, 1, []),  # nobody reports here
        (Joining(0), GONE, 1, []),
        (Joining(0, 0, 8), ASSEMBLING, 3, ["waiting for what the service reports: 0 of 8 turns so far"]),
        (Joining(0, heard=0), ASSEMBLING, 1, []),  # nothing was heard that could have a counterpart
        (Joining(3), IDLE, 20, ["waiting for what the service reports: 3 of 8 turns so far"]),  # it samples
    ],
)
def test_the_report_waits_for_what_the_service_still_reports(
    monkeypatch: pytest.MonkeyPatch, store: Joining, state: httpx.Response | Exception, asked: int, notes: list[str]
) -> None:
    sidecar, noted = Asked([state], 0.0), list[str]()

    def sleep(seconds: float) -> None:
        sidecar.now_s += seconds

    monkeypatch.setattr(sidecars, "_ask_state", sidecar.state)
    monkeypatch.setattr(sidecars.time, "monotonic", lambda: sidecar.now_s)
    monkeypatch.setattr(sidecars.time, "sleep", sleep)
    sidecars.await_service(cast("StoreReader", store), "run-1", PLACE, noted.append)
    assert (store.asked, noted) == (asked, notes)
