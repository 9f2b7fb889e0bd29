"""DuckDB over tables in memory, by which turns are rolled up: apart from the connection that questions share."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import duckdb

from telemetry.store.duckdb_access import dictionaries, quoted_path, spill_folder
from telemetry.store.schema import SCHEMAS, without_rows

Database = duckdb.DuckDBPyConnection

_MEMORY_LIMIT: Final = "256MB"


def open_database() -> Database:
    """A database with the table `no_turns`, which has the columns of `turns`."""
    options: dict[str, Any] = {
        "threads": 1,
        "memory_limit": _MEMORY_LIMIT,
        "temp_directory": spill_folder(),
        "autoinstall_known_extensions": "false",
    }
    database = duckdb.connect(":memory:", config=options)
    database.register("schema_of_turns", without_rows(SCHEMAS["turns"]))
    database.execute("CREATE TABLE no_turns AS SELECT * FROM schema_of_turns")
    database.unregister("schema_of_turns")
    return database


def fetched(database: Database, statement: str, values: Sequence[Any] = ()) -> list[dict[str, Any]]:
    """The rows of a statement as dictionaries."""
    return dictionaries(database.execute(statement, list(values)))


def parquet(paths: Iterable[Path]) -> str:
    """Parquet files as one relation: a statement for each would take several times as long."""
    return f"read_parquet([{', '.join(quoted_path(str(path)) for path in paths)}], union_by_name = true)"
