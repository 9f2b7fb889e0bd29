"""Why turns failed, counted by cause, and the waits that endpoints asked for."""

from pathlib import Path

import pytest

from telemetry.model.turns import Turn
from telemetry.store.answers import Filter, Retries
from tests.fixtures_turns import SECOND, client_turn
from tests.unit.telemetry.store.opened_stores import reader_of


def _failed(index: int, kind: str | None, code: str | None = None, **changes: object) -> Turn:
    output = f"turn {index} went wrong"
    cause = {"failure_kind": kind, "failure_code": code, "outcome_reason": output}
    return client_turn(index, voice_to_voice_ms=None, **{"outcome": "error", **cause, **changes})


def test_failed_turns_are_counted_by_their_cause(tmp_path: Path) -> None:
    turns = [
        client_turn(0),
        *(_failed(index, "http_status", "429", retry_after_ns=7 * SECOND) for index in (1, 2, 3)),
        _failed(4, "no_reply", outcome="no_reply"),
        _failed(5, None),  # of a store that knew no causes
        _failed(6, "http_status", "500", outcome="invalid", outcome_observed="error"),
        _failed(7, "http_status", "429", turn_kind="silence"),
        client_turn(8, retry_wait_ns=7 * SECOND),
    ]
    with reader_of(tmp_path, *turns) as reader:
        summary = reader.summary()
        causes = [(failure.kind, failure.code, failure.turns, failure.example) for failure in summary.failures]
        assert causes == [
            ("http_status", "429", 3, "turn 3 went wrong"),
            ("no_reply", None, 1, "turn 4 went wrong"),
            (None, None, 1, "turn 5 went wrong"),
        ]
        assert sum(failure.turns for failure in summary.failures) == summary.turns.eligible - summary.turns.ok
        assert summary.retries == Retries(asked=3, asked_worst_ns=7 * SECOND, waits=1, waited_ns=7 * SECOND)


def test_generator_failure_is_among_causes_with_its_remedy(tmp_path: Path) -> None:
    turns = [
        client_turn(0),
        *(
            _failed(index, "generator", "EADDRNOTAVAIL", outcome="invalid", outcome_observed="error")
            for index in (1, 2)
        ),
        _failed(3, "tcp", "ECONNREFUSED"),
        client_turn(4, outcome="invalid", invalid_reasons=("frame lateness",)),
    ]
    with reader_of(tmp_path, *turns) as reader:
        summary = reader.summary()
    assert [(failure.kind, failure.code, failure.turns, failure.example) for failure in summary.failures] == [
        ("generator", "EADDRNOTAVAIL", 2, "turn 2 went wrong"),
        ("tcp", "ECONNREFUSED", 1, "turn 3 went wrong"),
    ]
    assert (summary.turns.invalid, summary.turns.eligible) == (3, 2)


def _unconnected(index: int, kind: str, **changes: object) -> Turn:
    return _failed(index, kind, "ECODE", connect_ns=None, run_id="run-1", **changes)


@pytest.mark.slow
def test_calls_prevented_by_generator_leave_target_reachable(tmp_path: Path) -> None:
    prevented = [_unconnected(index, "generator", outcome="invalid", outcome_observed="error") for index in range(3)]
    refused = [_unconnected(index, "tcp") for index in (3, 4)]
    of_run = Filter(run_id="run-1")
    with reader_of(tmp_path / "prevented", *prevented) as reader:
        calls = reader.calls(of_run)
        assert (calls.started, calls.connected, calls.prevented, calls.connect_failure) == (3, 0, 3, None)
        assert reader.summary(of_run).unreached is None
    with reader_of(tmp_path / "both", *prevented, *refused) as reader:
        calls = reader.calls(of_run)
        assert (calls.started, calls.prevented, calls.connect_failure) == (5, 3, "turn 4 went wrong")
        assert "none of 5 calls reached a session" in (reader.summary(of_run).unreached or "")


def test_remarks_on_turns_that_ended_well_are_counted(tmp_path: Path) -> None:
    short = {"outcome_reason": "the endpoint cut its reply short (content_filter)"}
    turns = [
        client_turn(0),
        *(client_turn(index, **short) for index in (1, 2)),
        client_turn(3, outcome_reason="the reply was never closed"),
        client_turn(4, turn_kind="silence", **short),
        _failed(5, "no_reply", outcome="no_reply"),
    ]
    with reader_of(tmp_path, *turns) as reader:
        remarks = [(remark.remark, remark.turns) for remark in reader.summary().remarks]
        assert remarks == [("the endpoint cut its reply short (content_filter)", 2), ("the reply was never closed", 1)]


def test_an_endpoint_that_invents_codes_does_not_fill_the_report(tmp_path: Path) -> None:
    turns = [_failed(index, "endpoint_error", f"code_{index}") for index in range(100)]
    turns += [_failed(100 + index, "http_status", "429") for index in range(5)]
    with reader_of(tmp_path, *turns) as reader:
        failures = reader.summary().failures
        assert len(failures) == 20
        assert (failures[0].code, failures[0].turns) == ("429", 5)
        assert (failures[-1].kind, failures[-1].code, failures[-1].turns) == ("other", "82_causes", 82)
        assert sum(failure.turns for failure in failures) == 105
