"""Rows that stand in a store more than once: the same span, turn or point, found by its identity."""

# ruff: noqa: S608 - the identifiers in these statements come from our own tables, values are bound

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import duckdb

from telemetry.store.duckdb_access import literal_path, spill_folder
from telemetry.store.manifest import Table
from telemetry.store.point_rows import NUMBER_KINDS

_THREADS: Final = 2
_MEMORY: Final = "1GB"
# What makes a row itself; a turn without a span is known by its place in the call.
_IDENTITIES: Final[dict[Table, str]] = {
    "turns": (
        "trace_id, span_id, CASE WHEN coalesce(trace_id, '') = '' AND coalesce(span_id, '') = '' "
        "THEN concat_ws(chr(31), run_id, call_id, turn_index, source) END"
    ),
    "spans": "trace_id, span_id",
    "points": f"name, unix_ns, service, attributes, CASE WHEN kind NOT IN {NUMBER_KINDS} THEN kind END",
}


def duplicate_rows(table: Table, files: Sequence[Path]) -> Mapping[Path, list[int]]:
    """The places (from 0) of rows that stand in an earlier file, or earlier in the same one, by file.

    Needs memory for one number per row and for the rows that occur twice; beyond a gigabyte it uses the disk. Raises
    duckdb.Error when a file cannot be read.
    """
    found: dict[Path, list[int]] = defaultdict(list)
    if not files:
        return found
    identity = _IDENTITIES[table]
    with duckdb.connect(":memory:") as connection:
        connection.execute(f"SET threads = {_THREADS}; SET memory_limit = '{_MEMORY}'")
        connection.execute("SET temp_directory = $folder", {"folder": spill_folder()})
        connection.execute(
            "CREATE TEMP TABLE files AS SELECT file, place FROM "
            "(SELECT unnest($files) AS file, generate_subscripts($files, 1) AS place)",
            {"files": [str(path) for path in files]},
        )
        source = "read_parquet($files, filename = true, file_row_number = true, union_by_name = true)"
        if table == "points":  # those of a former version have no kind
            source = f"(SELECT * FROM {source} UNION ALL BY NAME SELECT NULL::VARCHAR AS kind WHERE false)"
        values = {"files": [literal_path(str(path)) for path in files]}
        connection.execute(
            f"CREATE TEMP TABLE twice AS SELECT identity FROM (SELECT hash({identity}) AS identity FROM {source}) "
            "GROUP BY identity HAVING count(*) > 1",
            values,
        )
        rows = connection.execute(
            f"""
            SELECT filename, file_row_number FROM (
                SELECT filename, file_row_number,
                       row_number() OVER (PARTITION BY {identity} ORDER BY place, file_row_number) AS nth
                FROM {source} JOIN files ON file = filename
                WHERE hash({identity}) IN (SELECT identity FROM twice)
            ) WHERE nth > 1 ORDER BY filename, file_row_number
            """,
            values,
        )
        while batch := rows.fetchmany(10_000):
            for file, row in batch:
                found[Path(file)].append(row)
    return found
