"""The kinds of the ingest log's records, and which of them hold no text."""

from telemetry.model.personal_data.texts import Names
from telemetry.sidecar.messages import Take
from telemetry.sidecar.privacy.requests import Redactor
from telemetry.sidecar.privacy.rules import PrivacyRules
from telemetry.sidecar.store_process.groups import DecodedGroup, decode_group, take_again
from telemetry.sidecar.store_process.record_kinds import is_without_text, record_of, signal_of
from telemetry.store.log_records import Record
from tests.fixtures_forwarding import spans_request

BODY = spans_request(1, attributes={"text_output": "call me on 555 0199"})


def decoded(*, keep_text: bool) -> DecodedGroup:
    redactor = Redactor(PrivacyRules(bytes(32), keep_text, Names([])))
    return decode_group([Take(1, "traces", "protobuf", alone=False, body=BODY)], redactor)


def test_kinds_that_stand_on_disks_never_change() -> None:
    assert [record_of(signal, b"").kind for signal in ("traces", "metrics")] == [1, 2]
    assert [record_of(signal, b"", is_without_text=True).kind for signal in ("traces", "metrics")] == [3, 4]
    assert [signal_of(Record(kind, b"")) for kind in range(6)] == [None, "traces", "metrics", "traces", "metrics", None]
    assert [kind for kind in range(6) if is_without_text(Record(kind, b""))] == [3, 4]


def test_a_record_says_that_texts_were_taken_out_of_it() -> None:
    (record,) = decoded(keep_text=False).records
    assert is_without_text(record)
    assert b"555" not in record.payload
    again = take_again(7, record)
    assert again is not None
    assert (again.signal, again.body) == ("traces", record.payload)


def test_what_may_hold_text_does_not_say_so() -> None:
    (record,) = decoded(keep_text=True).records
    assert not is_without_text(record)
    (received,) = decoded(keep_text=True).as_received
    assert received.body == BODY
    assert received.without_text is None
