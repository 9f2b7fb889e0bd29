"""Any turn comes back from Parquet, and over OTLP in either encoding, as it was."""

import contextlib
import io

import msgspec
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from telemetry.model.contradictions import timestamp_contradictions, without_contradictions
from telemetry.model.metrics import METRICS
from telemetry.model.turns import Turn, with_plain_texts
from telemetry.sidecar.otlp.attributes import OtlpDecodeError
from telemetry.store.schema import turn_from_row, turns_table
from tests.fixtures_sidecar import decoded_metrics, decoded_traces, turns_json, turns_request
from tests.strategies_turns import turns


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.lists(turns(), max_size=2))
def test_turn_to_parquet_to_turn(written: list[Turn]) -> None:
    file = io.BytesIO()
    pq.write_table(turns_table(written), file)
    rows = pq.read_table(file).to_pylist()
    assert [turn_from_row(row) for row in rows] == written
    for turn, row in zip(written, rows, strict=True):
        for metric in METRICS.values():
            value = metric.value(turn)
            if value is not None and abs(value) < 2**63 and not turn.withheld_metrics:
                assert row[metric.column] == value, metric.name


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.lists(turns(), max_size=2, unique_by=lambda turn: turn.span_id))
def test_turn_over_otlp_in_both_encodings(sent: list[Turn]) -> None:
    # Texts may come from anybody: the receiver writes control characters out. What cannot be is withheld, and all else
    # comes back as it was.
    sent = [msgspec.structs.replace(turn, started_unix_ns=max(1, turn.started_unix_ns)) for turn in sent]
    kept = [with_plain_texts(without_contradictions(turn, timestamp_contradictions(turn))) for turn in sent]
    by_protobuf = decoded_traces(turns_request(sent).SerializeToString())
    assert by_protobuf.reasons == []
    assert by_protobuf.turns == kept
    by_json = decoded_traces(turns_json(sent), "json")
    assert by_json.turns == kept
    again = decoded_traces(turns_request(kept).SerializeToString())
    assert again.turns == kept
    assert by_json.spans == by_protobuf.spans


@settings(max_examples=80, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_decoded_or_refused(body: bytes) -> None:
    for decode in (decoded_traces, decoded_metrics):
        for encoding in ("protobuf", "json"):
            with contextlib.suppress(OtlpDecodeError):
                decode(body, encoding)
