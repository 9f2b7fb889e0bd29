"""Why turns failed, counted by cause, and the waits that endpoints asked for."""

from pathlib import Path

from telemetry.model.turns import Turn
from telemetry.store.answers import Retries
from telemetry.store.reader import StoreReader
from telemetry.store.schema import Batch
from telemetry.store.writer import StoreWriter
from tests.fixtures_turns import SECOND, client_turn


def _reader(directory: Path, *turns: Turn) -> StoreReader:
    with StoreWriter(directory) as writer:
        writer.append(Batch(turns=turns))
    return StoreReader(directory)


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
    with _reader(tmp_path, *turns) as reader:
        summary = reader.summary()
        found = [(each.kind, each.code, each.turns, each.example) for each in summary.failures]
        assert found == [
            ("http_status", "429", 3, "turn 3 went wrong"),
            ("no_reply", None, 1, "turn 4 went wrong"),
            (None, None, 1, "turn 5 went wrong"),
        ]
        assert sum(each.turns for each in summary.failures) == summary.turns.eligible - summary.turns.ok
        assert summary.retries == Retries(asked=3, asked_worst_ns=7 * SECOND, waits=1, waited_ns=7 * SECOND)


def test_an_endpoint_that_invents_codes_does_not_fill_the_report(tmp_path: Path) -> None:
    turns = [_failed(index, "endpoint_error", f"code_{index}") for index in range(100)]
    turns += [_failed(100 + index, "http_status", "429") for index in range(5)]
    with _reader(tmp_path, *turns) as reader:
        failures = reader.summary().failures
        assert len(failures) == 20
        assert (failures[0].code, failures[0].turns) == ("429", 5)
        assert (failures[-1].kind, failures[-1].code, failures[-1].turns) == ("other", "82_causes", 82)
        assert sum(each.turns for each in failures) == 105
