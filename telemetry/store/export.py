"""Copies a store that no process writes to into files, for other programs or for another version, and reads them back.

`turns.parquet` and `points.parquet` have the columns of the store. Spans are written as `otel_traces-…`, with the
columns of the Collector's ClickHouse table, where attributes are texts; or as `spans-…` with the store's own columns,
which keep every type. `rollouts.parquet` has the decisions on rollouts, if there are any.
"""

import os
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import duckdb
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from telemetry.model.errors import StoreError
from telemetry.store.check import Progress
from telemetry.store.database import DATABASE_NAME, number, read_only
from telemetry.store.otel_traces import otel_traces, spans_of_otel_traces
from telemetry.store.private_files import make_folder, open_private
from telemetry.store.rollout_rows import has_rollouts
from telemetry.store.schema import SCHEMAS, TABLES, ArrowTable, Table, without_rows
from telemetry.store.writer import StoreWriter

TurnsFormat = Literal["parquet", "csv"]
SpansFormat = Literal["otel_traces", "store"]
SPANS_FILES: Final[dict[SpansFormat, str]] = {
    "otel_traces": "otel_traces-{:05d}.parquet",
    "store": "spans-{:05d}.parquet",
}
ROLLOUTS_FILE: Final = "rollouts.parquet"
SPANS_IN_A_FILE: Final = 1_000_000
_ROWS_AT_ONCE: Final = 16_384
_PART: Final = ".part"


@dataclass(frozen=True, slots=True)
class Exported:
    """The files that were written, and the rows of each table in them."""

    files: tuple[Path, ...]
    turns: int
    spans: int
    points: int


@dataclass(frozen=True, slots=True)
class Imported:
    """The numbers of rows of each table that were added, and that were already stored."""

    turns: int
    spans: int
    points: int
    duplicates: int


def export(
    directory: Path,
    target: Path,
    *,
    turns: TurnsFormat = "parquet",
    spans: SpansFormat = "otel_traces",
    progress: Progress = lambda _done, _total: None,
) -> Exported:
    """Write the turns, the spans and the metric points of a store into a new or empty folder.

    Raises StoreError when the store cannot be read or the folder cannot be written, and InUseError while a sidecar
    owns the store.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise StoreError(f"{target}: is there already; name a folder that is new or empty")
    if directory.is_dir() and not (directory / DATABASE_NAME).exists():
        read_only(directory).close()  # says what else it is, where it is a store of an earlier version
        raise StoreError(f"{directory}: is not a store; name the folder that the sidecar was given")
    with read_only(directory) as database, database.snapshot() as cursor:
        total = sum(number(cursor, f"SELECT count(*) FROM {table}") for table in TABLES)
        writing = _Writing(target, progress, total)
        try:
            make_folder(target)
            with writing:
                flat = _flat if turns == "csv" else None
                turn_rows = _write(writing, _batches(cursor, "turns"), f"turns.{turns}", flat)
                shaped = otel_traces if spans == "otel_traces" else None
                span_rows = _write(writing, _batches(cursor, "spans"), SPANS_FILES[spans], shaped)
                point_rows = _write(writing, _batches(cursor, "points"), "points.parquet")
                _write_rollouts(writing, cursor)
        except (OSError, pa.ArrowException, duckdb.Error) as error:
            writing.remove()
            why = getattr(error, "strerror", None) or error
            raise StoreError(f"{target}: cannot be exported to ({why}); nothing is left of it there") from error
        except BaseException:  # an export that is interrupted leaves nothing behind either
            writing.remove()
            raise
        return Exported(writing.publish(), turn_rows, span_rows, point_rows)


def import_export(
    source: Path,
    directory: Path,
    *,
    keep_text: bool = False,
    progress: Progress = lambda _done, _total: None,
) -> Imported:
    """Store the rows that `export` wrote, in this or an earlier version, in a store (created if missing). Rows that are
    already stored are left as they are, so that an interrupted import can be repeated.

    Raises StoreError for a folder without an export, a file that cannot be read, and a store that cannot be written.
    """
    files = _exported_files(source)
    total = sum(_rows_of(file) for _, file in files)
    stored, duplicates, done = dict.fromkeys(TABLES, 0), 0, 0
    empty = {table: without_rows(SCHEMAS[table]) for table in TABLES}
    with StoreWriter(directory, keep_text=keep_text) as writer:
        for table, file in files:
            for content in _read(table, file):
                appended = writer.append_tables(**{**empty, table: content})
                stored[table] += appended.rows
                duplicates += appended.duplicates
                done += content.num_rows
                progress(done, total)
        _import_rollouts(writer, source / ROLLOUTS_FILE)
    return Imported(**stored, duplicates=duplicates)


def _exported_files(source: Path) -> list[tuple[Table, Path]]:
    if not source.is_dir():
        raise StoreError(f"{source}: is not a folder; name the one that `voiceprobe store export` wrote")
    spans = sorted(source.glob("spans-*.parquet")) or sorted(source.glob("otel_traces-*.parquet"))
    turns, points = source / "turns.parquet", source / "points.parquet"
    if not turns.exists() and (source / "turns.csv").exists():
        raise StoreError(
            f"{source}: its turns are a CSV file, which cannot be imported; export them with --turns parquet"
        )
    missing = [file.name for file in (turns, points) if not file.exists()] + (
        [] if spans else ["otel_traces-*.parquet"]
    )
    if missing:
        raise StoreError(f"{source}: lacks {', '.join(missing)}; name the folder that `voiceprobe store export` wrote")
    return [("turns", turns), *(("spans", file) for file in spans), ("points", points)]


def _rows_of(file: Path) -> int:
    try:
        return pq.read_metadata(file).num_rows
    except (OSError, pa.ArrowException) as error:
        raise StoreError(f"{file}: cannot be read ({error}); export the store again") from error


def _read(table: Table, file: Path) -> Iterator[ArrowTable]:
    """The rows of an exported file in the columns of the store; columns that its version did not have are null."""
    schema = SCHEMAS[table]
    try:
        with pq.ParquetFile(file) as opened:
            for batch in opened.iter_batches(_ROWS_AT_ONCE):
                content = pa.Table.from_batches([batch])
                if file.name.startswith("otel_traces"):
                    content = spans_of_otel_traces(content, schema)
                yield _as_now(content, schema)
    except (OSError, pa.ArrowException) as error:
        raise StoreError(f"{file}: cannot be read ({error}); export the store again") from error


def _as_now(content: ArrowTable, schema: Any) -> ArrowTable:
    return pa.Table.from_arrays(
        [
            content.column(field.name).cast(field.type)
            if field.name in content.schema.names
            else pa.nulls(content.num_rows, field.type)
            for field in schema
        ],
        schema=schema,
    )


def _batches(cursor: duckdb.DuckDBPyConnection, table: Table) -> Generator[ArrowTable]:
    """Yield the rows of a table; first an empty batch, so that a file has its columns even without rows."""
    schema = SCHEMAS[table]
    yield without_rows(schema)
    columns = ", ".join(schema.names)
    relation: Any = cursor.sql(f"SELECT {columns} FROM {table}")
    for batch in relation.to_arrow_reader(_ROWS_AT_ONCE):
        yield pa.Table.from_batches([batch]).cast(schema)


class _Writing:
    """The files being written, which get their final names when all of them are complete."""

    def __init__(self, target: Path, progress: Progress, total_rows: int) -> None:
        self._target = target
        self._progress = progress
        self._total_rows = total_rows
        self._done_rows = 0
        self._names: list[str] = []
        self._stack = ExitStack()

    def __enter__(self) -> "_Writing":
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def open(self, name: str, schema: Any) -> Any:
        """A writer of a new file, Parquet or CSV by its name."""
        file = self._stack.enter_context(open_private(self._target / (name + _PART), os.O_EXCL))
        self._names.append(name)
        is_csv = name.endswith(".csv")
        writer: Any = csv.CSVWriter(file, schema) if is_csv else pq.ParquetWriter(file, schema, compression="zstd")
        return self._stack.enter_context(writer)

    def wrote(self, rows: int) -> None:
        """Show progress."""
        self._done_rows += rows
        self._progress(self._done_rows, self._total_rows)

    def publish(self) -> tuple[Path, ...]:
        """Rename every file to its final name."""
        files = tuple(self._target / name for name in self._names)
        for file in files:
            file.with_name(file.name + _PART).rename(file)
        return files

    def remove(self) -> None:
        """Remove the files written so far."""
        for name in self._names:
            (self._target / (name + _PART)).unlink(missing_ok=True)


def _write(
    writing: _Writing,
    batches: Iterator[ArrowTable],
    name: str,
    shaped: Callable[[ArrowTable], ArrowTable] | None = None,
) -> int:
    """Write all rows, in numbered files of at most SPANS_IN_A_FILE if the name has a number; return the number of
    rows."""
    rows = rows_in_file = number = 0
    is_numbered, writer = name != name.format(0), None
    for stored in batches:
        content = stored if shaped is None else shaped(stored)
        if writer is None or (is_numbered and rows_in_file and rows_in_file + content.num_rows > SPANS_IN_A_FILE):
            if writer is not None:
                writer.close()
            number, rows_in_file = number + 1, 0
            writer = writing.open(name.format(number), content.schema)
        writer.write_table(content)
        rows += content.num_rows
        rows_in_file += content.num_rows
        writing.wrote(content.num_rows)
    return rows


def _write_rollouts(writing: _Writing, cursor: duckdb.DuckDBPyConnection) -> None:
    """Write the decisions on rollouts, if there were any."""
    if not has_rollouts(cursor):
        return
    rollouts: Any = cursor.sql("FROM rollout_rows ORDER BY rollout, sequence").to_arrow_table()
    if rollouts.num_rows:
        writing.open(ROLLOUTS_FILE, rollouts.schema).write_table(rollouts)


def _import_rollouts(writer: StoreWriter, file: Path) -> None:
    if not file.exists():
        return
    try:
        content = pq.read_table(file)
    except (OSError, pa.ArrowException) as error:
        raise StoreError(f"{file}: cannot be read ({error}); export the store again") from error
    with writer.change() as cursor:
        cursor.register("given_rollouts", content)
        cursor.execute(
            "INSERT INTO rollout_rows BY NAME FROM given_rollouts ANTI JOIN rollout_rows USING (rollout, sequence)"
        )
        cursor.unregister("given_rollouts")


def _flat(content: ArrowTable) -> ArrowTable:
    """The table with its lists as JSON text for the cells of a CSV file."""
    for place, field in enumerate(content.schema):
        if pa.types.is_list(field.type):
            texts = [
                None if value is None else orjson.dumps(value).decode() for value in content.column(place).to_pylist()
            ]
            content = content.set_column(place, field.name, pa.array(texts, pa.string()))
    return content
