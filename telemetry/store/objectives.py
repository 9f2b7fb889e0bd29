"""Good and eligible turns of an objective in SQL: the same answer as `telemetry.slo.is_good` on every turn."""

# ruff: noqa: S608 - the identifiers in these statements come from the metric table, every value is bound

from typing import Any, get_args

from telemetry import semconv
from telemetry.metrics import METRICS
from telemetry.slo import NotObservable, Objective, is_good
from telemetry.store.answers import Filter
from telemetry.store.queries import VALID_CLIENT, Condition, turns_of
from telemetry.store.snapshot import Connection, rows
from telemetry.turns import Turn


def count_objective(connection: Connection, f: Filter, objective: Objective) -> tuple[int, int]:
    """Good and eligible turns. Raises NotObservable when none counts because the wire withholds the metric."""
    where = turns_of(f) & Condition(VALID_CLIENT) & _dimensions(objective)
    eligible, good = _rule(objective)
    withheld = _withheld(objective.metric or "")
    statement = f"""
        SELECT count(*) FILTER (WHERE {eligible.sql}) AS eligible,
               count(*) FILTER (WHERE ({eligible.sql}) AND coalesce({good.sql}, false)) AS good,
               count(*) FILTER (WHERE {withheld.sql}) AS withheld,
               any_value(list_filter(withheld, lambda e: split_part(e, ':', 1) = ?)[1]) AS reason
        FROM turns WHERE {where.sql}
        """
    values = [*eligible.values, *eligible.values, *good.values, *withheld.values, objective.metric or "", *where.values]
    (row,) = rows(connection, statement, values)
    if row["eligible"] == 0 and row["withheld"] > 0:
        raise NotObservable(row["reason"].partition(":")[2].strip() or f"this wire does not show {objective.metric}")
    return row["good"], row["eligible"]


def _dimensions(objective: Objective) -> Condition:
    condition = Condition("true")
    for column in ("cohort", "length_class", "noise_profile", "channel_profile", "route"):
        wanted = getattr(objective, column)
        if wanted is not None:
            condition &= Condition(f"{column} = ?", (wanted,))
    return condition


def _withheld(metric: str) -> Condition:
    return Condition("list_contains(list_transform(withheld, lambda e: split_part(e, ':', 1)), ?)", (metric,))


def _rule(objective: Objective) -> tuple[Condition, Condition]:
    """Which turns count, and which of them are good."""
    if objective.kind == "outcome":
        return Condition("true"), _one_of("outcome", objective.outcomes)
    if objective.kind == "fallback":
        return Condition("fallback IS NOT NULL OR route IS NOT NULL"), Condition("fallback IS NULL")
    if objective.kind == "cache":
        return Condition("cache_hit IS NOT NULL"), Condition("cache_hit")
    if objective.metric is None or objective.threshold is None:
        raise ValueError(f"objective {objective.name} has no metric or no threshold")
    metric = METRICS[objective.metric]
    withheld = _withheld(metric.name)
    counted = _one_of("outcome", _bad_without_a_value(objective))
    eligible = Condition(
        f"NOT {withheld.sql} AND ({metric.column} IS NOT NULL OR {counted.sql})", (*withheld.values, *counted.values)
    )
    compare = ">=" if metric.higher_is_better else "<="
    return eligible, Condition(f"{metric.column} {compare} ?", (objective.threshold,))


def _bad_without_a_value(objective: Objective) -> tuple[str, ...]:
    """The outcomes by which a turn without a value is a bad one: asked of the rule itself, so that there is one."""
    return tuple(
        outcome
        for outcome in get_args(semconv.Outcome)
        if is_good(
            objective,
            Turn(
                run_id="",
                call_id="",
                turn_index=0,
                source="client",
                outcome=outcome,
                started_unix_ns=0,
                started_perf_ns=0,
                cohort=objective.cohort,
                length_class=_known(semconv.LENGTH_CLASSES, objective.length_class),
                noise_profile=objective.noise_profile,
                channel_profile=objective.channel_profile,
                route=_known(semconv.ROUTES, objective.route),
            ),
        )
        is False
    )


def _known(allowed: tuple[str, ...], value: str | None) -> Any:
    return value if value in allowed else None


def _one_of(column: str, allowed: tuple[str, ...]) -> Condition:
    return Condition(f"list_contains(?, {column})", (list(allowed),)) if allowed else Condition("false")
