"""What was noticed beside the conversations of a filter's turns, added up in the store."""

# ruff: noqa: S608 - the identifiers in these statements come from our own tables, every value is bound

from typing import Final

from telemetry.store.answers import Filter
from telemetry.store.beside import Beside
from telemetry.store.connection import StoreConnection, rows
from telemetry.store.queries import turns_of, viewed

NAMED_EVENTS: Final = 8


def beside(connection: StoreConnection, f: Filter) -> Beside:
    """Over all client turns, those of ramps and silent ones too: it is no figure of the service."""
    where = turns_of(f) & viewed(f)
    statement = f"""
        SELECT coalesce(sum(unknown_events), 0)::BIGINT AS unknown,
               coalesce(sum(duplicate_events), 0)::BIGINT AS duplicates,
               count(*) FILTER (WHERE service_latency_reports > 0) AS turns_with_service_latency,
               list_sort(list_distinct(flatten(list(unknown_event_names))))[:{NAMED_EVENTS}] AS unknown_names
        FROM turns WHERE {where.sql}
        """
    (row,) = rows(connection, statement, list(where.values))
    return Beside(
        unknown=row["unknown"],
        duplicates=row["duplicates"],
        turns_with_service_latency=row["turns_with_service_latency"],
        unknown_names=tuple(row["unknown_names"] or ()),
    )
