"""Lines of the log: one for each message, without what a request contained."""

import json
import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from telemetry.model.errors import StoreError
from telemetry.sidecar.faults import FaultBoard
from telemetry.sidecar.logs import LineFormatter, log_event

ROOT = Path(__file__).parents[4]


def _record(message: str, raised: BaseException | None = None, **extra: object) -> logging.LogRecord:
    caught = None if raised is None else (type(raised), raised, raised.__traceback__)
    record = logging.LogRecord("some.logger", logging.WARNING, "file.py", 1, message, None, caught)
    record.created = 1_700_000_000.5
    vars(record).update(extra)
    return record


def _raised(error: BaseException) -> BaseException:
    try:
        raise error
    except type(error) as raised:
        return raised


def test_json_log_line_has_time_process_and_event_details() -> None:
    record = _record("the disk is full", event="fault_began", details={"fault": "room", "path": Path("a")})
    fields = json.loads(LineFormatter(as_json=True).format(record))
    assert fields.pop("pid") == os.getpid()
    assert fields == {
        "time": "2023-11-14T22:13:20.500Z",
        "level": "warning",
        "process": "sidecar",
        "logger": "some.logger",
        "message": "the disk is full",
        "event": "fault_began",
        "fault": "room",
        "path": "a",
    }
    text = LineFormatter(as_json=False).format(record)
    assert text == "2023-11-14T22:13:20.500Z warning sidecar: the disk is full"


@pytest.mark.parametrize("as_json", [True, False])
def test_nothing_breaks_out_of_its_line(as_json: bool) -> None:
    message = 'a\nb\r\n\x1b[31m{"level": "info"}\u2028\udcff' + "x" * 10_000
    line = LineFormatter(as_json=as_json).format(_record(message, details={}, event="e\n\udcff"))
    assert "\x1b" not in line
    assert len(line.splitlines()) == 1
    assert len(line) < 3000
    line.encode()


@pytest.mark.parametrize("as_json", [True, False])
def test_foreign_exception_text_is_hidden_and_ours_is_shown(as_json: bool) -> None:
    formatter = LineFormatter(as_json=as_json)
    line = formatter.format(_record("it failed", _raised(ValueError("what was said in a call"))))
    assert "what was said" not in line
    assert re.search(r"ValueError.*test_sidecar_logs.py:\d+ _raised", line)
    assert "the store is locked" in formatter.format(_record("it failed", _raised(StoreError("the store is locked"))))
    denied = PermissionError(13, "Permission denied", "what was said in a call")
    line = formatter.format(_record("it failed", _raised(denied)))
    assert "Permission denied" in line
    assert "what was said" not in line


def test_a_fault_is_an_event_when_it_begins_and_when_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    faults = FaultBoard()
    faults.set("room", "30 MiB")
    faults.set("room", "29 MiB")
    faults.set("commit", "full", stops_storing=True)
    assert (faults.is_storing, len(faults.all())) == (False, 2)
    faults.set("room", None)
    faults.set("commit", None)
    faults.set("commit", None)
    assert (faults.is_storing, faults.all()) == (True, ())
    seen = [(record.levelname, vars(record)["event"], vars(record)["details"]["fault"]) for record in caplog.records]
    assert seen == [
        ("WARNING", "fault_began", "room"),
        ("ERROR", "fault_began", "commit"),
        ("INFO", "fault_ended", "room"),
        ("INFO", "fault_ended", "commit"),
    ]


PROGRAM = """
import logging, sys, threading, warnings
from telemetry.sidecar.logs import log_event, start_logging
start_logging(*sys.argv[1:])
logging.getLogger("uvicorn.error").info("hidden")
logging.getLogger("grpc").error("of grpc")
logging.getLogger("a").debug("detail")
log_event(logging.getLogger("a"), logging.INFO, "ready", "it is ready")
warnings.warn("careful")
thread = threading.Thread(target=lambda: {}["what was said"])
thread.start()
thread.join()
{}["what was said"]
"""


def _written(*arguments: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, cwd=ROOT, check=False, timeout=180
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "said" not in done.stderr.replace('{}["what was said"]', "")
    return done.stderr.splitlines()


@pytest.mark.slow
def test_a_process_writes_everything_in_one_form() -> None:
    lines = [json.loads(line) for line in _written("auto", "debug")]
    assert {line["process"] for line in lines} == {"sidecar"}
    assert [line["level"] for line in lines] == ["error", "debug", "info", "warning", "critical", "critical"]
    assert [line["exception"]["type"] for line in lines[-2:]] == ["KeyError", "KeyError"]
    levels = [line.split()[1] for line in _written("text", "warning")]
    assert levels == ["error", "warning", "critical", "critical"]


def test_the_event_of_a_message_is_in_its_record(caplog: pytest.LogCaptureFixture) -> None:
    log_event(logging.getLogger("a"), logging.ERROR, "stopped", "100 % done", code=3)
    (record,) = caplog.records
    assert (record.getMessage(), vars(record)["details"]) == ("100 % done", {"code": 3})
