"""Turns in the spool are counted as turns, whatever spans lie beside them."""

from pathlib import Path

import pytest

from telemetry.export.instrumentation import CallTrace, announce_run
from telemetry.export.recovery import replay
from telemetry.export.sdk import SdkOptions, start
from telemetry.export.spool import SpoolRecord
from telemetry.export.spooled_turns import turns_in
from tests.fixtures_turns import client_turn


def test_a_record_holds_as_many_turns_as_were_emitted(tmp_path: Path) -> None:
    telemetry = start(SdkOptions(None, "x", spool_dir=tmp_path))
    announce_run(telemetry, "run-1", "start", {})
    call = CallTrace(
        telemetry,
        run_id="run-1",
        call_id="c",
        source="client",
        started_unix_ns=1,
        started_perf_ns=1,
        attributes={},
    )
    for index in range(3):
        call.emit(client_turn(index))
    call.end(2, {})
    telemetry.shutdown(5)
    refused = replay(tmp_path, lambda _: False, turns_in)
    assert (refused.turns, refused.left_turns) == (0, 3)
    taken = replay(tmp_path, lambda _: True, turns_in)
    assert (taken.turns, taken.left_turns, taken.left) == (3, 0, 0)
    assert taken.spans == refused.left_spans == 3 + 2, "the call and the run are spans, too"


@pytest.mark.parametrize("payload", [b"", b"\xff\xff\xff", b"no message at all"])
def test_what_is_no_request_holds_no_turn(payload: bytes) -> None:
    assert turns_in(SpoolRecord("traces", 4, payload)) == 0
    assert turns_in(SpoolRecord("metrics", 4, payload)) == 0
