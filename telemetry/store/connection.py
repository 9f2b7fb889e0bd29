"""DuckDB over one consistent read of a store: what a question gets.

The views `turns`, `spans` and `points` hold the segments that can hold a row of the run the question is about, of the
whole store when it is about no run; `run_turns` holds the same as `turns`, until that is narrowed by a copy. What is
asked of every segment by itself is computed once for each, since a segment never changes. A view is made, and what it
holds is verified, when a statement first names it.
"""

# ruff: noqa: S608 - the identifiers in these statements come from our own tables, values are bound or quoted here

import contextlib
import re
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import duckdb

from telemetry.store.cohort_pieces import CohortPieces
from telemetry.store.duckdb_access import dictionaries, quoted_path, spill_folder
from telemetry.store.first_turns import FirstTurns
from telemetry.store.foremost_turns import ForemostTurns
from telemetry.store.manifest import SEGMENTS_FOLDER, TABLES, Segment, Table
from telemetry.store.open_segments import OpenSegments
from telemetry.store.sample_answers import SampleAnswers
from telemetry.store.schema import SCHEMAS, ArrowTable, without_rows
from telemetry.store.segment_checks import SegmentChecks
from telemetry.store.segment_traces import SoughtTrace, TracesOfSegments

# Questions share the machine with what is measured.
_THREADS: Final = 2
# Beyond this a question is refused; one about a few hundred thousand turns stays far below.
_MEMORY_LIMIT: Final = "1GB"
# The clocks of two hosts, and the beginning of a turn as its two sides see it, differ by less than this.
SIDES_APART_NS: Final = 3600 * 1_000_000_000

# What lets a statement read only the columns and the row groups that it asks for.
_NEEDED_OPTIMIZERS: Final = frozenset({"expression_rewriter", "filter_pushdown", "unused_columns"})

Row = dict[str, Any]
_Read = TypeVar("_Read")


class StoreConnection:
    """Statements over the segments of one snapshot. One question at a time. What reads one segment after the other
    calls `give_way` in between."""

    def __init__(self, directory: Path, checks: SegmentChecks, give_way: Callable[[], None] = lambda: None) -> None:
        self._directory = directory
        self.give_way = give_way
        self._checks = checks
        self._duckdb = duckdb.connect(
            ":memory:",
            config={
                "threads": _THREADS,
                "memory_limit": _MEMORY_LIMIT,
                "temp_directory": spill_folder(),
                "autoinstall_known_extensions": "false",
                "parquet_metadata_cache": "true",
            },
        )
        for table, schema in SCHEMAS.items():
            self._duckdb.register("empty_arrow", without_rows(schema))
            self._duckdb.execute(f"CREATE TEMP TABLE empty_{table} AS SELECT * FROM empty_arrow")
            self._duckdb.unregister("empty_arrow")
        known = self._duckdb.execute("SELECT name FROM duckdb_optimizers()").fetchall()
        self._dispensable = ",".join(sorted({name for (name,) in known} - _NEEDED_OPTIMIZERS))
        self._segments: tuple[Segment, ...] = ()
        self._cut_runs = frozenset[str]()
        self._wanted: dict[str, tuple[Table, tuple[Segment, ...], str | None]] = {}
        self._paths: dict[str, str] = {}
        self._views: dict[str, str] = {}
        self._known: dict[tuple[str, str], list[Any]] = {}
        self._traces = TracesOfSegments(directory)
        self.files = OpenSegments(self.folder)
        self.first_turns = FirstTurns(self.files)
        self.sample_answers = SampleAnswers()
        self.foremost_turns = ForemostTurns()
        self.cohort_pieces = CohortPieces()
        self._kept_by_segment = (
            self._traces,
            self.files,
            self.first_turns,
            self.sample_answers,
            self.foremost_turns,
            self.cohort_pieces,
        )

    def close(self) -> None:
        """Release DuckDB."""
        self._duckdb.close()

    @property
    def cut_runs(self) -> frozenset[str]:
        """The runs of which retention has removed turns and left others."""
        return self._cut_runs

    def read(self, segments: Iterable[Segment], cut_runs: Iterable[str] = ()) -> Self:
        """Look at these segments from now on; of `cut_runs`, retention has removed turns."""
        self._cut_runs = frozenset(cut_runs)
        self._segments = tuple(segments)
        files = {segment.file for segment in self._segments}
        self._paths = {file: self._paths.get(file) or self._path(file) for file in files}
        self._known = {key: found for key, found in self._known.items() if key[1] in files}
        for each in self._kept_by_segment:
            each.keep_only(files)
        return self

    def about(self, run_id: str | None) -> Self:
        """Let the views hold what can be of one run; of the whole store for None."""
        for table in TABLES:
            self.view(table, table, self.segments(table, run_id))
        self.view("run_turns", "turns", self.segments("turns", run_id))
        return self

    @contextlib.contextmanager
    def planned_plainly(self) -> Generator[None]:
        """Spend no more on a statement's plan than a statement that reads a few rows is worth.

        Over a hundred columns of a hundred row groups, the optimizer takes a third of the time of such a statement.
        """
        self._duckdb.execute(f"SET disabled_optimizers = '{self._dispensable}'")
        try:
            yield
        finally:
            self._duckdb.execute("RESET disabled_optimizers")

    def copy(self, table: Table, statement: str, values: Sequence[Any]) -> None:
        """Let the view of a table show, until the next question, the rows of a statement as they are now: all that
        is asked of it is then asked of a copy in memory. `run_turns` stays what it is."""
        self.execute(f"CREATE OR REPLACE TEMP TABLE copied_{table} AS {statement}", values)
        self._duckdb.execute(f"CREATE OR REPLACE TEMP VIEW {table} AS SELECT * FROM copied_{table}")
        self._wanted.pop(table, None)
        self._views.pop(table, None)

    @property
    def folder(self) -> Path:
        """Where the segments are."""
        return self._directory / SEGMENTS_FOLDER

    def show(self, name: str, content: ArrowTable) -> None:
        """Give rows in memory a name, until it is given to others."""
        self._duckdb.register(name, content)

    def segments(self, table: Table, run_id: str | None = None) -> list[Segment]:
        """The segments of a table, oldest first; of those that can hold a row of the run when one is named."""
        return [
            segment
            for segment in self._segments
            if segment.table == table and (run_id is None or segment.run_ids is None or run_id in segment.run_ids)
        ]

    def segments_of_trace(self, table: Table, trace_id: str) -> list[Segment]:
        """The segments of a table in which there are rows of a trace, oldest first, and at times another one."""
        segments, trace = self.segments(table), SoughtTrace.of(trace_id)
        found: list[Segment] = []
        for segment in segments:
            self.give_way()
            if self._traces.may_hold(segment, trace):
                found.append(segment)
        if not found:
            self._checks.verify(segments)  # damage may hide the row, and only an intact segment says that there is none
        return found

    def verify(self, segments: Sequence[Segment]) -> None:
        """Make sure of the content of segments that are not read by a statement. Raises UnsoundSegmentsError."""
        self._checks.verify(segments)

    def view(self, name: str, table: Table, segments: Sequence[Segment], file: str | None = None) -> None:
        """Give the rows of these segments a name, with the path of each one's segment in a column `file`, if named."""
        self._wanted[name] = table, tuple(segments), file

    def forget_views(self) -> None:
        """Make every view anew when it is asked for again: a file may have changed under its name."""
        self._views.clear()
        self._known.clear()
        for each in self._kept_by_segment:
            each.forget()
        self._duckdb.execute("SET parquet_metadata_cache = false")
        self._duckdb.execute("SET parquet_metadata_cache = true")

    def execute(
        self, statement: str, parameters: Sequence[Any] | Mapping[str, Any] | None = None
    ) -> duckdb.DuckDBPyConnection:
        """Run a statement, its values bound. Raises UnsoundSegmentsError when it would read a damaged segment."""
        # A word that is the name of a view and means something else costs time, and no figure.
        for name in [each for each in self._wanted if re.search(rf"\b{each}\b", statement, re.IGNORECASE)]:
            self._make_view(name, *self._wanted[name])
            del self._wanted[name]
        return self._duckdb.execute(statement, parameters or [])

    def _make_view(self, name: str, table: Table, segments: Sequence[Segment], file: str | None) -> None:
        self._checks.verify(segments)
        self._name(name, self._source(table, segments, file))

    def of_each_segment(
        self, name: str, table: Table, statement: str, rolled_up: Callable[[Path, Segment], list[Row] | None]
    ) -> list[Row]:
        """The rows that a statement gives of each segment of a table by itself, one segment after the other.

        What the roll-up of a segment says of it is not asked of the segment: `rolled_up` is called with the store's
        folder and the segment, and gives the rows, or None where there is no such roll-up.
        The statement, which always is the same under a `name`, reads `one_by_one` and groups by its column `file`.
        """
        return self.read_of_each_segment(name, table, statement, rolled_up, lambda row: row)

    def read_of_each_segment(
        self,
        name: str,
        table: Table,
        statement: str,
        rolled_up: Callable[[Path, Segment], list[Row] | None],
        read: Callable[[Row], _Read],
    ) -> list[_Read]:
        """As `of_each_segment`, with what `read` makes of each row, once: it is kept, and nobody may change it."""
        segments = self.segments(table)
        for segment in segments:
            if (name, segment.file) not in self._known and (ready := rolled_up(self._directory, segment)) is not None:
                self._known[name, segment.file] = [read(row) for row in ready]
        unknown = [segment for segment in segments if (name, segment.file) not in self._known]
        if unknown:
            self._checks.verify(unknown)
            self._duckdb.execute(
                f"CREATE OR REPLACE TEMP VIEW one_by_one AS SELECT * FROM {self._source(table, unknown, file='file')}"
            )
            found: dict[str, list[_Read]] = {segment.file: [] for segment in unknown}
            for row in rows(self, statement):
                found[Path(row["file"]).name].append(read(row))
            self._known.update({(name, file): each for file, each in found.items()})
        return [each for segment in segments for each in self._known[name, segment.file]]

    def _name(self, name: str, source: str) -> None:
        if self._views.get(name) != source:
            self._views.pop(name, None)
            self._duckdb.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS SELECT * FROM {source}")
            self._views[name] = source

    def _path(self, file: str) -> str:
        return quoted_path(str(self._directory / SEGMENTS_FOLDER / file))

    def _source(self, table: Table, segments: Sequence[Segment], file: str | None = None) -> str:
        if not segments:
            return f"empty_{table}" if file is None else f"(SELECT *, NULL AS {file} FROM empty_{table})"
        files = ", ".join(self._paths[each.file] for each in segments)
        named = "" if file is None else f", filename = '{file}'"
        if not any(self._checks.is_incomplete(segment) for segment in segments):
            return f"read_parquet([{files}]{named})"
        # The empty table gives the columns that none of the segments has.
        return (
            f"(SELECT * FROM empty_{table} UNION ALL BY NAME "
            f"SELECT * FROM read_parquet([{files}], union_by_name = true{named}))"
        )


def near(segments: Iterable[Segment], first_unix_ns: int | None, last_unix_ns: int | None) -> list[Segment]:
    """The segments with rows of about this time: of the other side of turns that began within it."""
    if first_unix_ns is None or last_unix_ns is None:
        return []
    return [
        segment
        for segment in segments
        if segment.first_unix_ns is not None
        and segment.last_unix_ns is not None
        and segment.first_unix_ns <= last_unix_ns + SIDES_APART_NS
        and segment.last_unix_ns >= first_unix_ns - SIDES_APART_NS
    ]


def rows(
    connection: StoreConnection, statement: str, parameters: Sequence[Any] | Mapping[str, Any] | None = None
) -> list[Row]:
    """The rows of a statement as dictionaries."""
    return dictionaries(connection.execute(statement, parameters))
