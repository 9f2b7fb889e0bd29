"""Turns counted by objectives: the rule of `telemetry.objectives.judgment` as SQL, and the counts by it.

`with_judgments` returns a table of turns with a column for each objective: whether the turn is good, bad, open with its
cause, or does not count. Counts, sampling intervals, the columns of a comparison and the selections of an explanation
are all taken from these columns.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from telemetry.model.bounds import BOUNDED
from telemetry.model.errors import StoreError
from telemetry.model.intervals import grouped_interval
from telemetry.model.metrics import CONNECT, HEADLINE, METRICS, NOT_OF_AN_ANSWER, Metric
from telemetry.model.semconv import Source
from telemetry.model.turns import OF_OBJECTIVES
from telemetry.objectives.judgment import HELD_UP, SETTLED, WAITED_FROM, EligibleTurns, Judgment
from telemetry.objectives.objective import Objective
from telemetry.objectives.slo import NotObservable
from telemetry.store.answers import Filter
from telemetry.store.connection import StoreConnection
from telemetry.store.questions.filters import ASKED, Condition, Objectives, judged, source_of, viewed
from telemetry.store.questions.summaries import IS_UNANSWERED
from telemetry.store.schema import TURN_FIELDS

# A judgment in a column of small integers.
JUDGMENTS: Final = tuple(Judgment)
GOOD, BAD, NO_VALUE, GENERATOR, SPEECH, CUT, INTERRUPTED, CONTRADICTED, NOT_STATED, PENDING, _LOST = range(
    len(JUDGMENTS)
)

# So many objectives are judged by one statement.
_TOGETHER: Final = 16
_INTEGERS: Final = (-(2**63), 2**63 - 1)
_HAS_TEXT: Final = "llm_first_token_perf_ns IS NOT NULL"
# Which turns without a value of a metric have nothing to measure, as `Metric.is_undefined` says.
_UNDEFINED: Final[dict[str, str]] = {
    CONNECT: "turn_index <> 0",
    "llm_ttft": f"{_HAS_TEXT} AND asr_final_perf_ns IS NOT NULL",
    "barge_in_stop": "barge_in_end IS DISTINCT FROM 'never_stopped'",
    "talk_over": "true",
    "tokens_per_s": _HAS_TEXT,
    "tokens_per_s_wall": _HAS_TEXT,
    "audio_rtfx": "tts_first_chunk_perf_ns IS NOT NULL",
    "wer": "asr_final_perf_ns IS NOT NULL",
}
# By the kind of objective, which turns the endpoint states nothing of, and which are good by what it states.
_STATED: Final = {
    "fallback": ("fallback IS NULL AND route IS NULL", "fallback IS NULL"),
    "cache": ("cache_hit IS NULL", "cache_hit"),
}
# As `judgment.was_heard`.
_WAS_HEARD: Final = f"""(first_audio_perf_ns IS NOT NULL OR {METRICS[HEADLINE].column} IS NOT NULL
    OR (coalesce(list_contains(withheld_metrics, '{HEADLINE}'), false)
        AND ({_HAS_TEXT} OR asr_final_perf_ns IS NOT NULL)))"""
# Most turns are of this kind: their values alone are judged, and nothing else is asked.
_IS_PLAIN: Final = f"{ASKED} AND outcome = 'ok' AND NOT coalesce(len(contradicted_metrics) > 0, false)"
# What the rules ask of the other turns, whatever the objective.
_REST_COLUMNS: Final = {"is_unanswered": IS_UNANSWERED, "was_heard": _WAS_HEARD}
# Outcomes that leave a turn open whatever its values are.
_UNDECIDED: Final = f"WHEN outcome = 'invalid' THEN {GENERATOR} WHEN outcome = 'pending' THEN {PENDING}"
_BROKEN_OFF: Final = "failure_kind IS NOT DISTINCT FROM 'interrupted'"


@dataclass(frozen=True, slots=True)
class ObjectiveCount:
    """The turns of one objective. `withheld` says why none counts if the wire withholds the metric."""

    turns: EligibleTurns = field(default_factory=EligibleTurns)
    withheld: str | None = None


@dataclass(frozen=True, slots=True)
class ObjectiveCounts:
    """The inputs of `objectives.slo.judge` for the objectives that were counted together: over all turns of the filter,
    and over those of each cohort. Every method raises KeyError for an objective that was not among them."""

    whole: Mapping[str, ObjectiveCount]
    cohorts: Mapping[str, Mapping[str, ObjectiveCount]] = field(default_factory=dict[str, dict[str, ObjectiveCount]])

    def count(self, objective: Objective) -> EligibleTurns:
        """The turns of an objective. Raises NotObservable if none counts because the wire withholds the metric."""
        counted = self.whole[objective.name]
        if counted.withheld is not None:
            raise NotObservable(counted.withheld)
        return counted.turns

    def is_withheld(self, objective: Objective) -> bool:
        """Return whether none counts because the wire withholds the metric."""
        return self.whole[objective.name].withheld is not None

    def of_cohort(self, cohort: str) -> "ObjectiveCounts":
        """The same over the turns of one cohort."""
        return ObjectiveCounts(self.cohorts.get(cohort, {name: ObjectiveCount() for name in self.whole}))


_Counts = dict[str, EligibleTurns]  # by objective
# By objective, when the earliest turn began whose wire withholds the metric, and the reason that it states.
_Reasons = dict[str, tuple[int, str]]


def count_objectives(connection: StoreConnection, f: Filter, objectives: Objectives) -> ObjectiveCounts:
    """All objectives over the filter's turns and over each of their cohorts. Objectives have names of their own."""
    if not objectives:
        return ObjectiveCounts({})
    where, source, cohort = judged(f) & viewed(f), source_of(f), Condition("cohort")
    return _answer(
        objectives,
        {name: counts for (name,), counts in counts_by(connection, where, objectives, source, cohort).items()},
        {name: reasons for (name,), reasons in _withheld_by(connection, where, objectives, cohort).items()},
    )


def count_by_run(
    connection: StoreConnection, where: Condition, objectives: Sequence[Objective], source: Source
) -> dict[str, ObjectiveCounts]:
    """Return `count_objectives` for each run that has turns of a source that meet a condition."""
    counts: dict[str, dict[str | None, _Counts]] = {}
    reasons: dict[str, dict[str | None, _Reasons]] = {}
    key = Condition("run_id, cohort")
    for (run_id, cohort), eligible in counts_by(connection, where, objectives, source, key).items():
        counts.setdefault(run_id, {})[cohort] = eligible
    for (run_id, cohort), withheld in _withheld_by(connection, where, objectives, key).items():
        reasons.setdefault(run_id, {})[cohort] = withheld
    return {run_id: _answer(objectives, by_cohort, reasons.get(run_id, {})) for run_id, by_cohort in counts.items()}


def counts_by(
    connection: StoreConnection, where: Condition, objectives: Sequence[Objective], source: Source, key: Condition
) -> dict[tuple[Any, ...], _Counts]:
    """The turns of each objective among those of a source that meet a condition, by the values of a key: expressions on
    the columns of a turn."""
    by_key: dict[tuple[Any, ...], _Counts] = {}
    for some in _portions(objectives):
        table, judgments = with_judgments(where, some, source), [column_of(place) for place in range(len(some))]
        tallies = connection.execute(
            f"SELECT {key.sql}, {', '.join(judgments)}, count(*) FROM {table.sql} GROUP BY ALL",
            [*key.values, *table.values],
        ).fetchall()
        counted: dict[tuple[Any, ...], list[Counter[int | None]]] = {}
        for *values, turns in tallies:
            key_counts = counted.setdefault(tuple(values[: -len(some)]), [Counter[int | None]() for _ in some])
            for counts, judgment in zip(key_counts, values[-len(some) :], strict=True):
                counts[judgment] += turns
        for values, key_counts in counted.items():
            by_key.setdefault(values, {}).update(
                {objective.name: _eligible(counts) for objective, counts in zip(some, key_counts, strict=True)}
            )
    return by_key


def _portions(objectives: Sequence[Objective]) -> Iterator[Sequence[Objective]]:
    """Split the objectives over several statements: the time to plan one grows with the square of its columns."""
    return (objectives[begin : begin + _TOGETHER] for begin in range(0, len(objectives), _TOGETHER))


def _eligible(counts: Counter[int | None]) -> EligibleTurns:
    known = {code: turns for code, turns in counts.items() if code is not None}
    causes = {JUDGMENTS[code].value: turns for code, turns in known.items() if code > BAD}
    return EligibleTurns(known.get(GOOD, 0), sum(known.values()), dict(sorted(causes.items())))


def _withheld_by(
    connection: StoreConnection, where: Condition, objectives: Sequence[Objective], key: Condition
) -> dict[tuple[Any, ...], _Reasons]:
    """Return for each objective the earliest turn that would count if the wire did not withhold the metric, by a
    key."""
    asked = [objective for objective in objectives if objective.metric is not None]
    if not asked:
        return {}
    meant = [matching(objective) & Condition(is_withheld(objective.metric or "")) for objective in asked]
    columns = [
        f"""min(started_unix_ns) FILTER ({condition.sql}),
        arg_min(coalesce(withheld_reasons[list_position(withheld_metrics, '{objective.metric}')], ''), started_unix_ns)
            FILTER ({condition.sql})"""
        for objective, condition in zip(asked, meant, strict=True)
    ]
    earliest = connection.execute(
        f"""
        SELECT {key.sql}, {", ".join(columns)} FROM turns WHERE {where.sql} AND len(withheld_metrics) > 0 GROUP BY ALL
        """,
        [
            *key.values,
            *(value for condition in meant for value in (*condition.values, *condition.values)),
            *where.values,
        ],
    ).fetchall()
    by_key: dict[tuple[Any, ...], _Reasons] = {}
    for row in earliest:
        values, pairs = row[: -2 * len(asked)], row[-2 * len(asked) :]
        by_key[values] = {
            objective.name: pairs[2 * place : 2 * place + 2]
            for place, objective in enumerate(asked)
            if pairs[2 * place] is not None
        }
    return by_key


def _answer(
    objectives: Sequence[Objective],
    counts: Mapping[str | None, _Counts],
    reasons: Mapping[str | None, _Reasons],
) -> ObjectiveCounts:
    """Build the answer from counts and reasons by cohort: those of each cohort, and those of all turns."""

    def over(cohorts: Collection[str | None]) -> dict[str, ObjectiveCount]:
        answer: dict[str, ObjectiveCount] = {}
        for objective in objectives:
            turns = sum((counts[name][objective.name] for name in cohorts if name in counts), EligibleTurns())
            stated = [reasons[name][objective.name] for name in cohorts if objective.name in reasons.get(name, {})]
            why = None
            if stated and not turns.eligible:
                why = min(stated)[1] or f"this wire does not show {objective.metric}"
            answer[objective.name] = ObjectiveCount(turns, why)
        return answer

    named = sorted(name for name in counts if name is not None)
    return ObjectiveCounts(over(counts.keys()), {name: over([name]) for name in named})


def sampling_intervals(
    connection: StoreConnection, f: Filter, objectives: Sequence[Objective]
) -> dict[str, tuple[float, float]]:
    """The 95 % sampling interval of each objective's share of good turns among those that are not open, by name: turns
    of one call are not independent. Objectives with such turns of less than two calls are left out."""
    intervals: dict[str, tuple[float, float]] = {}
    for some in _portions(objectives):
        table = with_judgments(judged(f) & viewed(f), some, source_of(f))
        columns = [
            f"count(*) FILTER ({column_of(place)} = {GOOD}) AS good_{place}, "
            f"count(*) FILTER ({column_of(place)} <= {BAD}) AS decided_{place}"
            for place in range(len(some))
        ]
        counts: dict[str, Any] = connection.execute(
            f"SELECT {', '.join(columns)} FROM {table.sql} GROUP BY run_id, call_id", table.values
        ).fetchnumpy()
        for place, objective in enumerate(some):
            interval = grouped_interval(counts[f"good_{place}"], counts[f"decided_{place}"])
            if interval is not None:
                intervals[objective.name] = interval
    return intervals


def column_of(place: int) -> str:
    """The column with the judgment of a turn by an objective: an index into JUDGMENTS, NULL if the turn does not
    count."""
    return f"judged_{place}"


def is_withheld(metric: str) -> str:
    """Return whether the wire withholds a metric of METRICS on a turn, as an expression."""
    return f"coalesce(list_contains(withheld_metrics, '{METRICS[metric].name}'), false)"


def matching(objective: Objective) -> Condition:
    """The condition of the turns to which an objective is restricted."""
    condition = Condition("true")
    for name in OF_OBJECTIVES:
        if (wanted := getattr(objective, name)) is not None:
            condition &= Condition(f"{name} IS NOT DISTINCT FROM ?", (wanted,))
    return condition


def with_judgments(where: Condition, objectives: Sequence[Objective], source: Source) -> Condition:
    """The turns of a source that meet a condition, as a table: all columns of a turn and one for each objective.

    Whether a stage is shown is decided over all turns of their runs: if a cohort or a minute has no value, it is
    missing. Raises StoreError for an objective with an unknown metric, or without what its kind needs.
    """
    if not objectives:
        return Condition(f"(SELECT * FROM turns WHERE {where.sql})", where.values)
    for objective in objectives:
        _check(objective)
    metrics = list(dict.fromkeys(METRICS[objective.metric] for objective in objectives if objective.metric is not None))
    shown = ", ".join(f"bool_or({_has_value(metric)}) AS shows_{metric.name}" for metric in metrics) or "NULL"
    extra_columns = [f"CASE WHEN NOT is_plain THEN {sql} END AS {name}" for name, sql in _REST_COLUMNS.items()]
    extra_columns += [
        f"NOT is_plain AND coalesce(list_contains(contradicted_metrics, '{metric.name}'), false) "
        f"AS denies_{metric.name}"
        for metric in metrics
    ]
    extra_columns += [
        f"({_value_rule(objective)})::TINYINT AS by_value_{place}"
        for place, objective in enumerate(objectives)
        if objective.kind == "metric"
    ]
    columns = [_judgment(objective, source, f"by_value_{place}") for place, objective in enumerate(objectives)]
    named = ", ".join(f"({column.sql})::TINYINT AS {column_of(place)}" for place, column in enumerate(columns))
    return Condition(
        f"""(SELECT *, {named} FROM (SELECT *, {", ".join(extra_columns)} FROM (
            SELECT turns.*, of_run.*, {_IS_PLAIN} AS is_plain FROM turns
            JOIN (SELECT run_id AS run, {shown} FROM turns WHERE source = '{source}'
                  AND run_id IN (SELECT run_id FROM turns WHERE {where.sql}) GROUP BY run_id) AS of_run
            ON run_id = run WHERE {where.sql})))""",
        (*(value for column in columns for value in column.values), *where.values, *where.values),
    )


def _check(objective: Objective) -> None:
    if objective.metric is not None and objective.metric not in METRICS:
        raise StoreError(
            f"objective {objective.name}: there is no metric {objective.metric!r:.60}; known are {', '.join(METRICS)}"
        )
    if objective.kind == "metric" and (objective.metric is None or objective.threshold is None):
        raise StoreError(f"objective {objective.name} has no metric or no threshold; state both")


def _has_value(metric: Metric) -> str:
    # A metric that has a column of its own is stored only where it is shown.
    shown = f" AND NOT {is_withheld(metric.name)}" if metric.column in TURN_FIELDS else ""
    return f"{metric.column} IS NOT NULL{shown}"


def _judgment(objective: Objective, source: Source, by_value: str) -> Condition:
    """Return the judgment of a turn by an objective; `by_value` is the column with the judgment of the value alone."""
    if objective.kind == "metric":
        rule = Condition(_metric_rule(objective, source, by_value))
    elif objective.kind == "outcome":
        rule = _outcome_rule(objective)
    else:
        rule = Condition(_stated_rule(*_STATED[objective.kind]))
    if not objective.is_of_a_part:
        return rule
    counts = matching(objective)
    return Condition(f"CASE WHEN {counts.sql} THEN {rule.sql} END", (*counts.values, *rule.values))


def _decided(good: str) -> str:
    return f"CASE WHEN {good} THEN {GOOD} ELSE {BAD} END"


def _stated_rule(nothing: str, good: str) -> str:
    return f"""CASE WHEN NOT ({ASKED}) OR ({nothing}) THEN NULL {_UNDECIDED}
        ELSE {_decided(good)} END"""


def _outcome_rule(objective: Objective) -> Condition:
    places = ", ".join("?" for _ in objective.outcomes) or "NULL"
    return Condition(
        f"""CASE WHEN NOT ({ASKED}) THEN NULL {_UNDECIDED} WHEN outcome = 'cut' THEN {CUT}
        WHEN outcome = 'interrupted' AND NOT was_heard THEN CASE WHEN {_BROKEN_OFF} THEN {BAD} ELSE {INTERRUPTED} END
        ELSE {_decided(f"outcome IN ({places})")} END""",
        objective.outcomes,
    )


def _metric_rule(objective: Objective, source: Source, by_value: str) -> str:
    metric = METRICS[objective.metric or ""]
    threshold = _threshold(metric, objective)
    denied = f"denies_{metric.name}"
    unanswered = "" if metric.name in NOT_OF_AN_ANSWER else f"WHEN is_unanswered THEN {BAD}"
    silent = "" if metric.name == CONNECT else f"WHEN NOT ({ASKED}) THEN NULL"
    return f"""CASE WHEN is_plain AND {_has_value(metric)} THEN {by_value} {silent}
        WHEN {is_withheld(metric.name)} THEN NULL
        WHEN {metric.column} IS NULL AND NOT {denied} AND {_UNDEFINED.get(metric.name, "false")} THEN NULL
        {_UNDECIDED}
        WHEN outcome = 'cut' AND NOT {denied} THEN {_cut_rule(metric, threshold, by_value)}
        {unanswered}
        WHEN {denied} THEN {CONTRADICTED}
        WHEN {metric.column} IS NOT NULL THEN {by_value}
        ELSE {_missing_rule(metric, threshold, source)} END"""


def _threshold(metric: Metric, objective: Objective) -> str:
    """A threshold as a literal that compares as exactly as in memory: for integers, the next one below."""
    threshold = objective.threshold or 0
    if metric.unit not in ("ns", "count"):
        return f"{threshold!r}::DOUBLE"
    if not math.isfinite(threshold):
        return str(_INTEGERS[threshold > 0])
    return str(min(max(math.floor(threshold), _INTEGERS[0]), _INTEGERS[1]))


def _value_rule(objective: Objective) -> str:
    """Return the rule by the interval of the value, or by the value if its interval is not known."""
    metric = METRICS[objective.metric or ""]
    value, threshold = metric.column, _threshold(metric, objective)
    if metric not in BOUNDED:
        return _decided(f"{value} {'>=' if metric.higher_is_better else '<='} {threshold}")
    lower, upper = metric.bound_column("lower"), metric.bound_column("upper")
    # Where one bound alone is stored, the other is beyond every threshold.
    good, bad = _sides(
        metric,
        f"coalesce({lower}, CASE WHEN {upper} IS NULL THEN {value} END)",
        f"coalesce({upper}, CASE WHEN {lower} IS NULL THEN {value} END)",
        threshold,
    )
    return f"CASE WHEN {good} THEN {GOOD} WHEN {bad} THEN {BAD} ELSE {_unsure_rule(metric, threshold)} END"


def _sides(metric: Metric, lower: str, upper: str, threshold: str) -> tuple[str, str]:
    """Return whether a value between two bounds certainly meets the threshold, and whether it certainly misses it."""
    if metric.higher_is_better:
        return f"{lower} >= {threshold}", f"{upper} < {threshold}"
    return f"{upper} <= {threshold}", f"{lower} > {threshold}"


def _unsure_rule(metric: Metric, threshold: str) -> str:
    """The cause where the threshold lies between the bounds: the annotation of the clip, if the turn were decided
    without it (`bounds.measured_bounds`), else our own measuring."""
    measured = _measured_bounds(metric)
    if measured is None:
        return str(GENERATOR)
    good, bad = _sides(metric, *measured, threshold)
    return f"CASE WHEN {good} OR {bad} THEN {SPEECH} ELSE {GENERATOR} END"


def _measured_bounds(metric: Metric) -> tuple[str, str] | None:
    """The bounds of a value, were the annotation of the clip right; None where they are the same. As HUGEINT, so that
    no value that a sender makes up leaves the integers."""
    lower, upper, value = metric.bound_column("lower"), metric.bound_column("upper"), metric.column
    if metric.counts_from is not None:
        annotated = f"{metric.counts_from}_uncertainty_ns"
        return f"({lower}::HUGEINT + {annotated})", f"({upper}::HUGEINT - {annotated})"
    if metric.name == "talk_over":
        annotated = "coalesce(speech_start_uncertainty_ns, 0) + coalesce(speech_end_uncertainty_ns, 0)"
        width = f"({upper}::HUGEINT - {value} - ({annotated}))"
        # The answer began when the caller had certainly finished.
        is_exact = f"""({value} = 0 AND turn_kind = 'question' AND first_audio_perf_ns::HUGEINT - first_audio_earlier_ns
            - stamp_error_ns > speech_end_perf_ns::HUGEINT + speech_end_later_ns)"""
        return (
            f"CASE WHEN {is_exact} THEN {value} ELSE greatest(0, {value} - {width}) END",
            f"CASE WHEN {is_exact} THEN {value} ELSE {value} + {width} END",
        )
    if metric.name == "tokens_per_s_wall":
        begin, end = "speech_end_perf_ns::HUGEINT", "llm_last_token_perf_ns::HUGEINT"
        counted = f"{value} * ({end} - {begin})::DOUBLE"
        longest = f"({end} + stamp_error_ns - {begin})"
        shortest = f"({end} - llm_last_token_earlier_ns - stamp_error_ns - {begin} - speech_end_later_ns)"
        # With a transcript nothing depends on the annotation.
        return (
            f"CASE WHEN asr_final_perf_ns IS NULL THEN {counted} / {longest}::DOUBLE ELSE {lower} END",
            f"CASE WHEN asr_final_perf_ns IS NOT NULL THEN {upper} WHEN {shortest} > 0 THEN {counted} / "
            f"{shortest}::DOUBLE END",
        )
    return None


def _no_value(metric: Metric) -> str:
    """A missing value of a stage that other turns of the run have is bad; without any the stage is not shown."""
    return f"CASE WHEN shows_{metric.name} THEN {BAD} END"


def _cut_rule(metric: Metric, threshold: str, by_value: str) -> str:
    """Return the rule for a turn that the generator ended early: stages that had not ended by then took at least that
    long."""
    connected = f"WHEN speech_start_perf_ns IS NOT NULL THEN {CUT}" if metric.name == CONNECT else ""
    if metric.name not in SETTLED:
        by_value = f"coalesce(nullif({by_value}, {GOOD}), {CUT})"
    return f"""CASE WHEN {metric.column} IS NOT NULL THEN {by_value} {connected}
        WHEN NOT {_waited_beyond(metric, threshold)} THEN {CUT} WHEN first_audio_perf_ns IS NULL THEN {BAD}
        ELSE {_no_value(metric)} END"""


def _missing_rule(metric: Metric, threshold: str, source: Source) -> str:
    no_value = _no_value(metric)
    interrupted = f"""WHEN outcome = 'interrupted' AND NOT was_heard THEN
        CASE WHEN {_waited_beyond(metric, threshold)} THEN {BAD} ELSE {INTERRUPTED} END"""
    if source == "service":
        rest = str(NOT_STATED) if metric.name == HEADLINE else f"CASE WHEN shows_{metric.name} THEN {NOT_STATED} END"
    elif metric.name in (HEADLINE, "barge_in_stop"):
        rest = str(BAD)
    else:
        rest = f"CASE WHEN outcome = 'error' THEN {BAD} ELSE {no_value} END" if metric.name == CONNECT else no_value
    return f"CASE {interrupted} ELSE {rest} END"


def _waited_beyond(metric: Metric, threshold: str) -> str:
    """Return whether the caller had certainly waited longer than the threshold when the turn ended."""
    since = WAITED_FROM.get(metric.name)
    if since is None:
        return "false"
    waited = f"hangup_perf_ns::HUGEINT - {since}_perf_ns"
    if since in HELD_UP:
        waited += f" - coalesce({since}_uncertainty_ns::HUGEINT + {since}_later_ns, 0) - coalesce({HELD_UP[since]}, 0)"
    return f"coalesce({waited} > {threshold}, false)"
