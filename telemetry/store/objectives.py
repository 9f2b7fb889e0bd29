"""Good and eligible turns of an objective, counted in the store by the one rule, `telemetry.objectives.slo.is_good`.

The rule depends on few things of a turn: its outcome and kind, whether the metric is withheld, unknown, within or
beyond the threshold, its fallback, route and cache, and of a turn that was cut whether anything was heard and whether
the caller had waited beyond the threshold. So turns alike in these are grouped in SQL, and the rule is
asked about one turn of each group.
"""

# ruff: noqa: S608 - the identifiers in these statements come from our own tables, every value is bound

import math
from collections.abc import Sequence
from typing import Any, Final

from telemetry.model.metrics import METRICS
from telemetry.model.stated_error import GoodRange, good_range, instrument_part_ns
from telemetry.model.turns import Turn
from telemetry.objectives.slo import WAITED_FROM, NotObservable, Objective, is_good
from telemetry.store.answers import Filter
from telemetry.store.error_queries import uncertainty_column
from telemetry.store.queries import VALID_CLIENT, Condition, judged
from telemetry.store.schema import TURN_FIELDS, turn_from_row
from telemetry.store.snapshot import Connection, rows

_TURN_COLUMNS: Final = ", ".join(TURN_FIELDS)
_DIMENSIONS: Final = ("cohort", "length_class", "noise_profile", "channel_profile", "route")


# What the rule asks of a turn that was cut, beside how long its caller had waited.
_CUT_ALIKE: Final = ", ".join(
    f"outcome = 'cut' AND {each}"
    for each in ("first_audio_perf_ns IS NULL", "speech_start_perf_ns IS NULL", "turn_index = 0")
)


def count_objective(connection: Connection, f: Filter, objective: Objective) -> tuple[int, int]:
    """Good and eligible turns. Raises NotObservable when none counts because the wire withholds the metric."""
    value = "NULL" if objective.metric is None else METRICS[objective.metric].column
    waited = _waited_of_cut(objective.metric)
    groups = _groups(
        connection,
        f,
        objective,
        f"""
        turn_index = 0, {value} IS NULL, {value} < ?, {value} = ?,
        fallback IS NULL, route IS NULL, cache_hit, {_CUT_ALIKE}, {waited} > ?
        """,
        [objective.threshold] * 3,
    )
    good = eligible = 0
    reason: str | None = None
    for turn, count, is_withheld, why in groups:
        verdict = is_good(objective, turn)
        eligible += 0 if verdict is None else count
        good += count if verdict else 0
        if is_withheld:
            reason = why or f"this wire does not show {objective.metric}"
    if eligible == 0 and reason is not None:
        raise NotObservable(reason)
    return good, eligible


def range_of_objective(
    connection: Connection, f: Filter, objective: Objective, instrument_ns: float | None
) -> GoodRange | None:
    """How many turns would be good within what is not known of the speech bounds, and of the instrument; None for an
    objective on nothing that counts from them. As in `count_objective`, turns alike are asked about once."""
    if objective.metric is None or METRICS[objective.metric].counts_from is None:
        return None
    metric = METRICS[objective.metric]
    value, stated = metric.column, uncertainty_column(metric)
    waited = _waited_of_cut(objective.metric)
    part_ns = math.ceil(instrument_part_ns(metric, instrument_ns) or 0.0)
    threshold = objective.threshold
    groups = _groups(
        connection,
        f,
        objective,
        f"""
        {value} IS NULL, {stated} IS NULL, {value} <= ?,
        {value} - coalesce({stated}, 0) - ? <= ?, {value} + coalesce({stated}, 0) + ? <= ?,
        {_CUT_ALIKE}, {waited} > ?
        """,
        [threshold, part_ns, threshold, part_ns, threshold, threshold],
    )
    turns = ((turn, count) for turn, count, _, _ in groups)
    return good_range(turns, metric.name, lambda turn: is_good(objective, turn), instrument_ns)


def _groups(
    connection: Connection, f: Filter, objective: Objective, alike: str, values: Sequence[Any]
) -> list[tuple[Turn, int, bool, str | None]]:
    """The eligible turns in groups that a rule cannot tell apart, by the expressions in `alike` besides what every rule
    asks: one turn of each group, how many there are, and whether and why the wire withholds the
    objective's metric."""
    where = _eligible(f, objective)
    groups = rows(
        connection,
        f"""
        SELECT count(*) AS n, arg_min(struct_pack(t := trace_id, s := span_id), started_unix_ns) AS one,
               coalesce(list_contains(withheld_metrics, ?), false) AS is_withheld,
               withheld_reasons[list_position(withheld_metrics, ?)] AS why_withheld
        FROM turns WHERE {where.sql}
        GROUP BY outcome, turn_kind, is_withheld, why_withheld, {alike}
        """,
        [objective.metric or "", objective.metric or "", *where.values, *values],
    )
    ones = [(group["one"]["t"], group["one"]["s"]) for group in groups]
    turns = _turns(connection, ones)
    return [
        (turns[one], group["n"], group["is_withheld"], group["why_withheld"])
        for one, group in zip(ones, groups, strict=True)
    ]


def _eligible(f: Filter, objective: Objective) -> Condition:
    where = judged(f) & Condition(VALID_CLIENT)
    for column in _DIMENSIONS:
        wanted = getattr(objective, column)
        if wanted is not None:
            where &= Condition(f"{column} = ?", (wanted,))
    return where


def _waited_of_cut(metric: str | None) -> str:
    """How long a caller whose turn was cut had waited for what the metric measures; NULL of every other turn."""
    since = WAITED_FROM.get(metric or "")
    return "NULL::BIGINT" if since is None else f"CASE WHEN outcome = 'cut' THEN hangup_perf_ns - {since}_perf_ns END"


def _turns(connection: Connection, identities: list[tuple[str, str]]) -> dict[tuple[str, str], Turn]:
    if not identities:
        return {}
    known = ", ".join("(?, ?)" for _ in identities)
    values = [part for identity in identities for part in identity]
    statement = f"SELECT {_TURN_COLUMNS} FROM turns WHERE source = 'client' AND (trace_id, span_id) IN ({known})"
    found = [turn_from_row(row) for row in rows(connection, statement, values)]
    return {(turn.trace_id, turn.span_id): turn for turn in found}
