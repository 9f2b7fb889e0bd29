"""Good and eligible turns of an objective, counted in the store by the one rule, `telemetry.slo.is_good`.

The rule depends on few things of a turn: its outcome and kind, whether the metric is withheld, unknown, within or
beyond the threshold, and its fallback, route and cache. So turns alike in these are grouped in SQL, and the rule is
asked about one turn of each group.
"""

# ruff: noqa: S608 - the identifiers in these statements come from our own tables, every value is bound

from typing import Final

from telemetry.metrics import METRICS
from telemetry.slo import NotObservable, Objective, is_good
from telemetry.store.answers import Filter
from telemetry.store.queries import VALID_CLIENT, Condition, judged
from telemetry.store.schema import TURN_FIELDS, turn_from_row
from telemetry.store.snapshot import Connection, rows
from telemetry.turns import Turn

_TURN_COLUMNS: Final = ", ".join(TURN_FIELDS)
_DIMENSIONS: Final = ("cohort", "length_class", "noise_profile", "channel_profile", "route")


def count_objective(connection: Connection, f: Filter, objective: Objective) -> tuple[int, int]:
    """Good and eligible turns. Raises NotObservable when none counts because the wire withholds the metric."""
    where = judged(f) & Condition(VALID_CLIENT)
    for column in _DIMENSIONS:
        wanted = getattr(objective, column)
        if wanted is not None:
            where &= Condition(f"{column} = ?", (wanted,))
    value = "NULL" if objective.metric is None else METRICS[objective.metric].column
    groups = rows(
        connection,
        f"""
        SELECT count(*) AS n, arg_min(struct_pack(t := trace_id, s := span_id), started_unix_ns) AS one,
               list_filter(withheld, lambda e: split_part(e, ':', 1) = ?) AS withheld_here
        FROM turns WHERE {where.sql}
        GROUP BY outcome, turn_kind, withheld_here, {value} IS NULL, {value} < ?, {value} = ?,
                 fallback IS NULL, route IS NULL, cache_hit
        """,
        [objective.metric or "", *where.values, objective.threshold, objective.threshold],
    )
    alike = _turns(connection, [(group["one"]["t"], group["one"]["s"]) for group in groups])
    good = eligible = 0
    reason: str | None = None
    for group in groups:
        verdict = is_good(objective, alike[group["one"]["t"], group["one"]["s"]])
        eligible += 0 if verdict is None else group["n"]
        good += group["n"] if verdict else 0
        for entry in group["withheld_here"]:
            reason = entry.partition(":")[2].strip() or f"this wire does not show {objective.metric}"
    if eligible == 0 and reason is not None:
        raise NotObservable(reason)
    return good, eligible


def _turns(connection: Connection, identities: list[tuple[str, str]]) -> dict[tuple[str, str], Turn]:
    if not identities:
        return {}
    known = ", ".join("(?, ?)" for _ in identities)
    values = [part for identity in identities for part in identity]
    statement = f"SELECT {_TURN_COLUMNS} FROM turns WHERE source = 'client' AND (trace_id, span_id) IN ({known})"
    found = [turn_from_row(row) for row in rows(connection, statement, values)]
    return {(turn.trace_id, turn.span_id): turn for turn in found}
