"""Groups of OTLP requests, decoded to the store's tables."""

from telemetry.sidecar.otlp.tables import decode_metrics, decode_traces
from telemetry.store.schema import SCHEMAS, turn_from_row
from tests.fixtures_sidecar import turns_request
from tests.fixtures_turns import client_turn


def test_a_group_is_decoded_at_once_and_a_bad_request_harms_no_other() -> None:
    turns = [client_turn(index) for index in range(4)]
    good = [turns_request(turns[:2]).SerializeToString(), turns_request(turns[2:]).SerializeToString()]
    found = decode_traces([good[0], b"\xff\xff", good[1], b""])
    assert [turn_from_row(row) for row in found.turns.to_pylist()] == turns
    assert found.spans["span_id"].to_pylist() == [turn.span_id for turn in turns]
    assert [(each.received, each.rejected, each.reasons) for each in found.requests] == [
        (2, 0, []),
        (0, 0, []),
        (2, 0, []),
        (0, 0, []),
    ]
    assert [each.fault is None for each in found.requests] == [True, False, True, True]
    assert found.requests[1].fault == "the body is not a protobuf ExportTraceServiceRequest"


def test_tables_have_the_columns_of_the_store_even_of_nothing() -> None:
    for decode in (decode_traces, decode_metrics):
        found = decode([])
        assert (found.rows, found.requests) == (0, [])
        assert (found.turns.schema, found.spans.schema, found.points.schema) == (
            SCHEMAS["turns"],
            SCHEMAS["spans"],
            SCHEMAS["points"],
        )
