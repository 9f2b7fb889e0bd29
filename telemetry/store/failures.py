"""Why turns failed, by cause, and how often callers were asked to call again later."""

# ruff: noqa: S608 - the identifiers in these statements are our own, every value is bound

from collections.abc import Sequence
from typing import Final

from telemetry.store.answers import Filter
from telemetry.store.causes import FailureCount, RemarkCount, Retries
from telemetry.store.connection import StoreConnection, rows
from telemetry.store.questions import filters
from telemetry.store.questions.filters import Condition, viewed

MOST_CAUSES: Final = 20
MOST_REMARKS: Final = 10


def failures(connection: StoreConnection, f: Filter) -> tuple[FailureCount, ...]:
    """Eligible turns that did not end well by their cause, and those that the generator itself prevented, the commonest
    first."""
    prevented = "(outcome = 'invalid' AND failure_kind = 'generator')"
    where = filters.grouped(f) & Condition(f"(outcome NOT IN ('ok', 'cut', 'invalid') OR {prevented})")
    statement = f"""
        SELECT failure_kind AS kind, failure_code AS code, count(*) AS turns,
               arg_max(outcome_reason, started_unix_ns) AS example
        FROM turns WHERE {where.sql} GROUP BY ALL ORDER BY turns DESC, kind NULLS LAST, code NULLS FIRST
        """
    return folded([FailureCount(**row) for row in rows(connection, statement, list(where.values))])


def folded(found: Sequence[FailureCount]) -> tuple[FailureCount, ...]:
    """The causes, the commonest first, with what an endpoint with ever new codes sends beyond MOST_CAUSES as one."""
    if len(found) <= MOST_CAUSES:
        return tuple(found)
    rest = found[MOST_CAUSES - 1 :]
    example = next((cause.example for cause in rest if cause.example), None)
    beyond = FailureCount("other", f"{len(rest)}_causes", sum(cause.turns for cause in rest), example)
    return (*found[: MOST_CAUSES - 1], beyond)


def remarks(connection: StoreConnection, f: Filter) -> tuple[RemarkCount, ...]:
    """Eligible turns that ended well by what is remarked of them, the commonest first."""
    where = filters.grouped(f) & Condition("outcome = 'ok' AND outcome_reason IS NOT NULL")
    statement = f"""
        SELECT outcome_reason AS remark, count(*) AS turns
        FROM turns WHERE {where.sql} GROUP BY ALL ORDER BY turns DESC, remark LIMIT {MOST_REMARKS}
        """
    return tuple(RemarkCount(**row) for row in rows(connection, statement, list(where.values)))


def retries(connection: StoreConnection, f: Filter) -> Retries:
    """Over all client turns: waits are no figure of a stage."""
    where = filters.turns_of(f) & viewed(f)
    statement = f"""
        SELECT count(retry_after_ns) AS asked, max(retry_after_ns) AS asked_worst_ns, count(retry_wait_ns) AS waits,
               coalesce(sum(retry_wait_ns), 0)::BIGINT AS waited_ns
        FROM turns WHERE {where.sql}
        """
    (row,) = rows(connection, statement, list(where.values))
    return Retries(**row)
