"""Copies what a store holds into files that other programs read, also while a sidecar writes it."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from telemetry.model.errors import StoreError
from telemetry.store import manifest as manifests
from telemetry.store.inventory import Progress
from telemetry.store.manifest import Segment, StoreManifest, Table
from telemetry.store.otel_traces import OTEL_TRACES_SCHEMA, otel_traces
from telemetry.store.private_files import make_folder, open_private
from telemetry.store.schema import SCHEMAS, ArrowTable

TurnsFormat = Literal["parquet", "csv"]
SPANS_FILE: Final = "otel_traces-{:05d}.parquet"
SPANS_IN_A_FILE: Final = 1_000_000
_ROWS_AT_ONCE: Final = 16_384
_ATTEMPTS: Final = 20
_PART: Final = ".part"


@dataclass(frozen=True, slots=True)
class Exported:
    """The files that were written, the rows of each table in them, and the segments that had to be left out."""

    files: tuple[Path, ...]
    turns: int
    spans: int
    points: int
    faults: tuple[str, ...]


def export(
    directory: Path, target: Path, *, turns: TurnsFormat = "parquet", progress: Progress = lambda _done, _total: None
) -> Exported:
    """Write the turns, the spans and the metric points of a store into a new or empty folder.

    `turns.parquet` (or `.csv`) and `points.parquet` have the columns of the store, the `otel_traces-…` files
    those of the Collector's ClickHouse table. Raises StoreError when the store cannot be read or the folder cannot be
    written.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise StoreError(f"{target}: is there already; name a folder that is new or empty")
    with ExitStack() as stack:
        segments, faults = _opened(directory, stack)
        total = sum(segment.rows for segment, _ in segments)
        writing = _Writing(target, progress, total)
        try:
            make_folder(target)
            with writing:
                turn_rows = _write_turns(writing, _batches(segments, "turns"), turns)
                span_rows = _write_spans(writing, _batches(segments, "spans"))
                point_rows = _write_points(writing, _batches(segments, "points"))
        except (OSError, pa.ArrowException) as error:
            writing.remove()
            why = getattr(error, "strerror", None) or error
            raise StoreError(f"{target}: cannot be exported to ({why}); nothing is left of it there") from error
        except BaseException:
            writing.remove()
            raise
        return Exported(writing.publish(), turn_rows, span_rows, point_rows, tuple(faults))


def _opened(directory: Path, stack: ExitStack) -> tuple[list[tuple[Segment, BinaryIO]], list[str]]:
    """The sound segments of one manifest, open, so that none goes before it is read; and what is wrong with others."""
    for _ in range(_ATTEMPTS):
        manifest = manifests.load(directory)
        if manifest == StoreManifest() and not (directory / manifests.MANIFEST_NAME).exists():
            raise StoreError(f"{directory}: is not a store; name the folder that the sidecar was given")
        files = stack.enter_context(ExitStack())
        found: list[tuple[Segment, BinaryIO]] = []
        faults: list[str] = []
        for segment in manifest.segments:
            path = manifests.segment_path(directory, segment)
            try:
                file = files.enter_context(path.open("rb"))
                if manifests.is_intact(directory, segment):
                    found.append((segment, file))
                    continue
                why = "its content is not what was written"
            except FileNotFoundError:
                why = "the file is missing"
            except OSError as error:
                raise StoreError(f"{path}: cannot be read ({error.strerror}); see to that and export again") from error
            faults.append(f"{path}: {segment.rows:,} rows of {segment.table} left out, {why}")
        if not faults or manifests.load(directory).sequence == manifest.sequence:
            return found, faults
        files.close()
    raise StoreError(f"{directory}: the store changes faster than it can be read; export it again")


def _batches(segments: list[tuple[Segment, BinaryIO]], table: Table) -> Iterator[ArrowTable]:
    schema = SCHEMAS[table]
    for segment, file in segments:
        if segment.table == table:
            for batch in pq.ParquetFile(file).iter_batches(_ROWS_AT_ONCE):
                yield _as_now(pa.Table.from_batches([batch]), schema)


def _as_now(content: ArrowTable, schema: Any) -> ArrowTable:
    """The columns of today's schema; those that an older version did not have are unknown."""
    return pa.Table.from_arrays(
        [
            content.column(field.name).cast(field.type)
            if field.name in content.schema.names
            else pa.nulls(content.num_rows, field.type)
            for field in schema
        ],
        schema=schema,
    )


class _Writing:
    """The files under way, which get their names when all of them are whole."""

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

    def open(self, name: str, writer: Callable[[BinaryIO], Any]) -> Any:
        """A writer of a new file."""
        file = self._stack.enter_context(open_private(self._target / (name + _PART), os.O_EXCL))
        self._names.append(name)
        return self._stack.enter_context(writer(file))

    def wrote(self, rows: int) -> None:
        """Show progress."""
        self._done_rows += rows
        self._progress(self._done_rows, self._total_rows)

    def publish(self) -> tuple[Path, ...]:
        """Give every file its name."""
        files = tuple(self._target / name for name in self._names)
        for file in files:
            file.with_name(file.name + _PART).rename(file)
        return files

    def remove(self) -> None:
        """Remove what is there so far."""
        for name in self._names:
            (self._target / (name + _PART)).unlink(missing_ok=True)


def _write_turns(writing: _Writing, batches: Iterator[ArrowTable], turns: TurnsFormat) -> int:
    rows = 0
    writer = writing.open(f"turns.{turns}", _csv_writer if turns == "csv" else _turns_writer)
    for content in batches:
        writer.write_table(_flat(content) if turns == "csv" else content)
        rows += content.num_rows
        writing.wrote(content.num_rows)
    return rows


def _turns_writer(file: BinaryIO) -> Any:
    return pq.ParquetWriter(file, SCHEMAS["turns"], compression="zstd")


def _csv_writer(file: BinaryIO) -> Any:
    return csv.CSVWriter(file, _flat(SCHEMAS["turns"].empty_table()).schema)


def _write_points(writing: _Writing, batches: Iterator[ArrowTable]) -> int:
    rows = 0
    writer = writing.open("points.parquet", _points_writer)
    for content in batches:
        writer.write_table(content)
        rows += content.num_rows
        writing.wrote(content.num_rows)
    return rows


def _points_writer(file: BinaryIO) -> Any:
    return pq.ParquetWriter(file, SCHEMAS["points"], compression="zstd")


def _flat(content: ArrowTable) -> ArrowTable:
    """The table with its lists as JSON text, which a cell of a CSV file can hold."""
    for place, field in enumerate(content.schema):
        if pa.types.is_list(field.type):
            texts = [
                None if value is None else orjson.dumps(value).decode() for value in content.column(place).to_pylist()
            ]
            content = content.set_column(place, field.name, pa.array(texts, pa.string()))
    return content


def _write_spans(writing: _Writing, batches: Iterator[ArrowTable]) -> int:
    rows = rows_in_file = 0
    number = 1
    writer = writing.open(SPANS_FILE.format(number), _spans_writer)
    for content in batches:
        if rows_in_file and rows_in_file + content.num_rows > SPANS_IN_A_FILE:
            writer.close()
            number, rows_in_file = number + 1, 0
            writer = writing.open(SPANS_FILE.format(number), _spans_writer)
        writer.write_table(otel_traces(content))
        rows += content.num_rows
        rows_in_file += content.num_rows
        writing.wrote(content.num_rows)
    return rows


def _spans_writer(file: BinaryIO) -> Any:
    return pq.ParquetWriter(file, OTEL_TRACES_SCHEMA, compression="zstd")
