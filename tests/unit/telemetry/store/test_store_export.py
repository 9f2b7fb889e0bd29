"""Exports of a store for other programs: the Collector's columns, every row, and no partial files."""

import base64
import csv
import io
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from telemetry.model.errors import StoreError
from telemetry.model.turn_spans import SpanEvent, SpanLink, SpanRow
from telemetry.store import export as exporting
from telemetry.store.check import check
from telemetry.store.database import read_only
from telemetry.store.export import export, import_export
from telemetry.store.schema import Batch
from telemetry.store.writer import StoreWriter
from tests.fixtures_turns import START_UNIX_NS, Run, client_turn, fill_store, synthetic_run

# The columns of the table that the Collector's ClickHouse exporter creates, and what each type is in Arrow.
CLICKHOUSE_COLUMNS = """
Timestamp DateTime64(9)
TraceId String
SpanId String
ParentSpanId String
TraceState String
SpanName LowCardinality(String)
SpanKind LowCardinality(String)
ServiceName LowCardinality(String)
ResourceAttributes Map(LowCardinality(String), String)
ScopeName String
ScopeVersion String
SpanAttributes Map(LowCardinality(String), String)
Duration UInt64
StatusCode LowCardinality(String)
StatusMessage String
Events.Timestamp Array(DateTime64(9))
Events.Name Array(LowCardinality(String))
Events.Attributes Array(Map(LowCardinality(String), String))
Links.TraceId Array(String)
Links.SpanId Array(String)
Links.TraceState Array(String)
Links.Attributes Array(Map(LowCardinality(String), String))
"""
ARROW = {
    "DateTime64(9)": "timestamp[ns, tz=UTC]",
    "String": "string",
    "UInt64": "uint64",
    "Map(String, String)": "map<string, string>",
}


def _arrow(clickhouse: str) -> str:
    plain = re.sub(r"LowCardinality\((\w+)\)", r"\1", clickhouse)
    of = re.fullmatch(r"Array\((.+)\)", plain)
    return f"list<item: {ARROW[of[1]]}>" if of else ARROW[plain]


def _span(**changes: object) -> SpanRow:
    given: dict[str, object] = {
        "trace_id": "0af7651916cd43dd8448eb211c80319c",
        "span_id": "b7ad6b7169203331",
        "parent_span_id": "00f067aa0ba902b7",
        "name": "llm_request",
        "service": "assistant",
        "start_unix_ns": START_UNIX_NS + 123_456_789,
        "end_unix_ns": START_UNIX_NS + 1_123_456_789,
        "attributes": {},
    }
    return SpanRow(**(given | changes))  # type: ignore[arg-type]


def _exported(tmp_path: Path, *spans: SpanRow) -> list[dict[str, object]]:
    with StoreWriter(tmp_path / "store", keep_text=True) as writer:
        writer.append(Batch(spans=spans))
    export(tmp_path / "store", tmp_path / "out")
    return pq.read_table(tmp_path / "out" / "otel_traces-00001.parquet").to_pylist()


def test_the_columns_are_those_of_the_collector_in_its_order(tmp_path: Path) -> None:
    declared = [line.split(" ", 1) for line in CLICKHOUSE_COLUMNS.split("\n") if line]
    _exported(tmp_path, _span())
    schema = pq.read_schema(tmp_path / "out" / "otel_traces-00001.parquet")
    columns = [
        [field.name, re.sub(r" \('[^)]*'\)", "", str(field.type)).replace("<element: ", "<item: ")] for field in schema
    ]
    assert columns == [[name, _arrow(kind)] for name, kind in declared]


# Attributes of every type, and what the Collector makes of each.
ATTRIBUTES: dict[str, object] = {
    "text": "grüße",
    "flag": True,
    "off": False,
    "count": -7,
    "ratio": 0.25,
    "whole": 3.0,
    "bytes": b"\x00\xff",
    "list": ["a", 1, True, None],
    "map": {"b": 2, "a": [b"\x01"]},
    "nothing": None,
}
ATTRIBUTE_TEXTS = {
    "text": "grüße",
    "flag": "true",
    "off": "false",
    "count": "-7",
    "ratio": "0.25",
    "whole": "3",
    "bytes": base64.b64encode(b"\x00\xff").decode(),
    "list": '["a",1,true,null]',
    "map": '{"a":["AQ=="],"b":2}',
    "nothing": "",
}


def test_a_span_is_whole_in_the_words_of_the_collector(tmp_path: Path) -> None:
    span = _span(
        kind="Client",
        status_code="Error",
        status_message="refused",
        trace_state="a=b",
        scope_name="scope",
        scope_version="1.2",
        attributes=ATTRIBUTES,
        resource_attributes={"service.name": "assistant", "host.cpus": 8},
        events=(SpanEvent("first", START_UNIX_NS + 5, {"n": 1}), SpanEvent("second", START_UNIX_NS + 7, {})),
        links=(SpanLink("1" * 32, "2" * 16, "s=t", {"why": "retry"}),),
    )
    (row,) = _exported(tmp_path, span)
    began = datetime.fromtimestamp(START_UNIX_NS // 10**9, UTC) + timedelta(microseconds=123_456)
    assert str(row.pop("Timestamp"))[:26] == str(began)[:26]
    assert dict(row.pop("SpanAttributes")) == ATTRIBUTE_TEXTS  # type: ignore[call-overload]
    assert dict(row.pop("ResourceAttributes")) == {"service.name": "assistant", "host.cpus": "8"}  # type: ignore[call-overload]
    assert [moment.value - START_UNIX_NS for moment in row.pop("Events.Timestamp")] == [5, 7]  # type: ignore[attr-defined]
    assert row == {
        "TraceId": span.trace_id,
        "SpanId": span.span_id,
        "ParentSpanId": span.parent_span_id,
        "TraceState": "a=b",
        "SpanName": "llm_request",
        "SpanKind": "Client",
        "ServiceName": "assistant",
        "ScopeName": "scope",
        "ScopeVersion": "1.2",
        "Duration": 1_000_000_000,
        "StatusCode": "Error",
        "StatusMessage": "refused",
        "Events.Name": ["first", "second"],
        "Events.Attributes": [[("n", "1")], []],
        "Links.TraceId": ["1" * 32],
        "Links.SpanId": ["2" * 16],
        "Links.TraceState": ["s=t"],
        "Links.Attributes": [[("why", "retry")]],
    }


def test_a_span_without_anything_has_empty_values_and_never_null(tmp_path: Path) -> None:
    (row,) = _exported(tmp_path, _span(parent_span_id=None, end_unix_ns=START_UNIX_NS))
    assert (row["ParentSpanId"], row["Duration"], row["SpanAttributes"], row["Links.SpanId"]) == ("", 0, [], [])
    assert None not in row.values()


@pytest.mark.slow
def test_every_row_is_exported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "SPANS_IN_A_FILE", 500)
    monkeypatch.setattr(exporting, "_ROWS_AT_ONCE", 90)
    runs = [synthetic_run(f"run-{number}", 120, seed=number) for number in range(3)]
    store = fill_store(tmp_path / "store", *runs)
    seen: list[tuple[int, int]] = []
    done = export(store, tmp_path / "out", progress=lambda now, total: seen.append((now, total)))
    spans = sum(len(run.spans) for run in runs)
    assert (done.turns, done.spans) == (720, spans)
    points = sum(len(run.points) for run in runs)
    assert done.points == pq.read_metadata(tmp_path / "out" / "points.parquet").num_rows == points > 0
    assert seen[-1] == (720 + spans + points,) * 2
    files = sorted((tmp_path / "out").glob("otel_traces-*.parquet"))
    assert sorted(done.files) == [*files, *(tmp_path / "out" / f"{name}.parquet" for name in ("points", "turns"))]
    assert [pq.read_metadata(file).num_rows <= 500 for file in files] == [True] * len(files)
    # A connection of its own: the module's is shared with every other test.
    with duckdb.connect() as connection:
        ids = connection.read_parquet([str(file) for file in files]).project("TraceId, SpanId").fetchall()
    assert sorted(ids) == sorted((span.trace_id, span.span_id) for run in runs for span in run.spans)
    turns = pq.read_table(tmp_path / "out" / "turns.parquet")
    assert turns.num_rows == check(store).rows["turns"]
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "out").iterdir()} == {0o600}


def test_turns_as_csv(tmp_path: Path) -> None:
    store = fill_store(tmp_path / "store", synthetic_run("run", 20))
    export(store, tmp_path / "out", turns="csv")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "out" / "turns.csv").read_text())))
    expected = {turn.span_id: turn for run in [synthetic_run("run", 20)] for turn in run.turns}
    assert {row["span_id"] for row in rows} == set(expected)
    for row in rows:
        turn = expected[row["span_id"]]
        assert (row["outcome"], int(row["started_unix_ns"])) == (turn.outcome, turn.started_unix_ns)
        assert tuple(json.loads(row["llm_chunk_gaps_ns"] or "[]")) == turn.llm_chunk_gaps_ns


def test_turns_are_exported_with_the_bounds_of_their_metrics(tmp_path: Path) -> None:
    exact = {"speech_end_uncertainty_ns": 0, "speech_end_later_ns": 0, "stamp_error_ns": 0, "held_up_ns": 5_000_000}
    known = client_turn(0, voice_to_voice_ms=500, first_audio_earlier_ns=2_000_000, **exact)
    store = fill_store(tmp_path / "store", Run(turns=[known, client_turn(1)]))
    export(store, tmp_path / "csv", turns="csv")
    export(store, tmp_path / "parquet")
    rows = sorted(
        csv.DictReader(io.StringIO((tmp_path / "csv" / "turns.csv").read_text())), key=lambda row: row["span_id"]
    )
    bounds = [(row["voice_to_voice_lower_ns"], row["voice_to_voice_upper_ns"]) for row in rows]
    assert bounds == [("493000000", "500000000"), ("", "")]
    table = pq.read_table(tmp_path / "parquet" / "turns.parquet").sort_by("span_id")
    assert table.column("voice_to_voice_lower_ns").to_pylist() == [493_000_000, None]
    assert table.column("audio_rtfx_upper").to_pylist() == [None, None]


def test_existing_files_are_not_overwritten(tmp_path: Path) -> None:
    store = fill_store(tmp_path / "store", synthetic_run("run", 3))
    (tmp_path / "empty").mkdir()
    export(store, tmp_path / "empty")
    before = {path: path.read_bytes() for path in (tmp_path / "empty").iterdir()}
    with pytest.raises(StoreError, match="is there already; name a folder that is new or empty"):
        export(store, tmp_path / "empty")
    assert {path: path.read_bytes() for path in (tmp_path / "empty").iterdir()} == before
    (tmp_path / "file").write_text("mine")
    with pytest.raises(StoreError, match="is there already"):
        export(store, tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


def test_an_export_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = fill_store(tmp_path / "store", synthetic_run("run", 3))

    def full(_content: object) -> pa.Table:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(exporting, "otel_traces", full)
    with pytest.raises(StoreError, match="No space left on device"):
        export(store, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_folder_without_store_is_refused(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(StoreError, match=r"is not a store|there is no store here"):
            export(folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def _rows(directory: Path, table: str) -> list[tuple[object, ...]]:
    with read_only(directory) as database, database.snapshot() as cursor:
        rows = cursor.execute(f"SELECT * EXCLUDE (stored_unix_ns, commit_number) FROM {table}").fetchall()  # noqa: S608
    return sorted(rows, key=str)


@pytest.mark.slow
def test_export_with_store_spans_is_imported_unchanged(tmp_path: Path) -> None:
    runs = [synthetic_run(f"run-{number}", 60, seed=number) for number in range(2)]
    store = fill_store(tmp_path / "store", *runs)
    export(store, tmp_path / "out", spans="store")
    done = import_export(tmp_path / "out", tmp_path / "back")
    assert (done.turns, done.spans, done.points) == tuple(
        sum(map(len, kind)) for kind in zip(*((run.turns, run.spans, run.points) for run in runs), strict=True)
    )
    for table in ("turns", "spans", "points"):
        assert _rows(tmp_path / "back", table) == _rows(store, table)
    again = import_export(tmp_path / "out", tmp_path / "back")
    assert (again.turns, again.spans, again.points, again.duplicates) == (0, 0, 0, sum(check(store).rows.values()))


@pytest.mark.slow
def test_spans_in_collector_columns_return_attributes_as_text(tmp_path: Path) -> None:
    span = _span(
        attributes={"model": "small", "tokens": 7, "of": ["a", 1]},
        resource_attributes={"host": "h"},
        events=(SpanEvent("chunk", START_UNIX_NS + 5, {"size": 3}), SpanEvent("end", START_UNIX_NS + 6, {})),
        links=(SpanLink("0af7651916cd43dd8448eb211c80319c", "00f067aa0ba902b7", "", {"why": "retry"}),),
    )
    with StoreWriter(tmp_path / "store", keep_text=True) as writer:
        writer.append(Batch(spans=[span, _span(span_id="00000000000000aa")]))
    export(tmp_path / "store", tmp_path / "out")
    import_export(tmp_path / "out", tmp_path / "back", keep_text=True)
    export(tmp_path / "back", tmp_path / "again")
    names = ("otel_traces-00001.parquet", "turns.parquet", "points.parquet")
    for name in names:
        assert pq.read_table(tmp_path / "again" / name).equals(pq.read_table(tmp_path / "out" / name)), name


def test_a_folder_that_is_no_export_is_one_sentence(tmp_path: Path) -> None:
    store = fill_store(tmp_path / "store", synthetic_run("run", 3))
    with pytest.raises(StoreError, match="is not a folder; name the one that `voiceprobe store export` wrote"):
        import_export(tmp_path / "nowhere", tmp_path / "back")
    (tmp_path / "other").mkdir()
    with pytest.raises(StoreError, match=r"lacks turns.parquet, points.parquet, otel_traces-\*.parquet"):
        import_export(tmp_path / "other", tmp_path / "back")
    export(store, tmp_path / "csv", turns="csv")
    with pytest.raises(StoreError, match="a CSV file, which cannot be imported; export them with --turns parquet"):
        import_export(tmp_path / "csv", tmp_path / "back")
    export(store, tmp_path / "torn")
    (tmp_path / "torn" / "points.parquet").write_bytes(b"PAR1")
    with pytest.raises(StoreError, match=r"points.parquet: cannot be read .*export the store again"):
        import_export(tmp_path / "torn", tmp_path / "back")
    assert not (tmp_path / "back").exists()


def test_a_store_in_use_is_not_exported(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "store") as writer:
        writer.append(Batch([client_turn(0)]))
        with pytest.raises(StoreError):
            export(tmp_path / "store", tmp_path / "out")
    assert not (tmp_path / "out").exists()
