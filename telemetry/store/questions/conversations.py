"""Conversations apart from their latency: behavior, recognition, calls without a session, failures and their causes,
impossible values.
"""

import math
from collections.abc import Iterable, Sequence
from statistics import NormalDist
from typing import Any, Final

from telemetry.model.metrics import CONNECT
from telemetry.model.services import service_day
from telemetry.store.answers import (
    Behavior,
    Beside,
    CallCounts,
    ContradictedValue,
    Contradictions,
    FailureCount,
    Filter,
    RemarkCount,
    Retries,
    SpeechBoundErrors,
    Summary,
    WerByCondition,
)
from telemetry.store.connection import Row, StoreConnection, rows
from telemetry.store.questions.filters import ANY, VALID, Condition, grouped, is_steady, judged, turns_of, valid, viewed

MOST_CAUSES: Final = 20
MOST_REMARKS: Final = 10
# Which of the valid turns each count of `behavior` counts.
BEHAVIOR: Final = {
    "barge_ins": "barge_in_at_ns IS NOT NULL",
    "barge_ins_recovered": "barge_in_recovered",
    "barge_ins_stopped": "barge_in_end = 'stopped'",
    "barge_ins_ended": "barge_in_end = 'ended_by_itself'",
    "barge_ins_not_stopped": "barge_in_end = 'never_stopped'",
    "barge_ins_unclear": "barge_in_end = 'cannot_tell'",
    "barge_ins_missed": "barge_in_at_ns IS NULL AND barge_in_reason IS NOT NULL",
    "backchannels": "backchannel_stopped IS NOT NULL",
    "backchannels_stopped": "backchannel_stopped",
    "silent_turns": "turn_kind = 'silence'",
    "reprompted": "reprompted",
    "intents_expected": "expected_intent IS NOT NULL",
    "intents_reported": "expected_intent IS NOT NULL AND intent IS NOT NULL",
    "intents_matched": "expected_intent = intent",
}


NAMED_EVENTS: Final = 8
_START, _END = "speech_start_uncertainty_ns", "speech_end_uncertainty_ns"
# How well it is known where the callers' speech began and ended, of the turns of a FILTER.
_SPEECH_BOUNDS: Final = {
    "turns": "count(*) {}",
    "turns_unknown": f"count(*) {{}} - count({_START} + {_END}) {{}}",
    "start_median_ns": f"quantile_cont({_START}, 0.5) {{}}",
    "start_worst_ns": f"max({_START}) {{}}",
    "end_median_ns": f"quantile_cont({_END}, 0.5) {{}}",
    "end_worst_ns": f"max({_END}) {{}}",
}
# Over all turns, those of ramps and silent ones too: they are no figures of the service or of a stage.
_BESIDE: Final = {
    "unknown": "coalesce(sum(unknown_events), 0)::BIGINT",
    "duplicates": "coalesce(sum(duplicate_events), 0)::BIGINT",
    "turns_with_service_latency": "count(*) FILTER (service_latency_reports > 0)",
    "unknown_names": f"list_sort(list_distinct(flatten(list(unknown_event_names) FILTER (unknown_events > 0))))"
    f"[:{NAMED_EVENTS}]",
}
_RETRIES: Final = {
    "asked": "count(retry_after_ns)",
    "asked_worst_ns": "max(retry_after_ns)",
    "waits": "count(retry_wait_ns)",
    "waited_ns": "coalesce(sum(retry_wait_ns), 0)::BIGINT",
}


def counts_of_turns(connection: StoreConnection, f: Filter) -> tuple[Behavior, SpeechBoundErrors, Beside, Retries]:
    """Return how callers behaved, and how well it is known where their speech began and ended, over the valid turns;
    and over all turns what arrived outside conversations, and how long callers were asked to wait before they called
    again."""
    where, bounded = turns_of(f) & viewed(f), "FILTER (is_judged AND speech_end_perf_ns IS NOT NULL)"
    columns = {
        **{name: f"count(*) FILTER (is_judged AND ({condition}))" for name, condition in BEHAVIOR.items()},
        **{name: sql.replace("{}", bounded) for name, sql in _SPEECH_BOUNDS.items()},
        **_BESIDE,
        **_RETRIES,
    }
    selected = ", ".join(f"{sql} AS {name}" for name, sql in columns.items())
    judged_turns = f"(SELECT *, {VALID} AND {is_steady(f)} AS is_judged FROM turns WHERE {where.sql})"
    (row,) = rows(connection, f"SELECT {selected} FROM {judged_turns}", where.values)
    row["unknown_names"] = tuple(row["unknown_names"] or ())

    def of(names: Iterable[str]) -> dict[str, Any]:
        return {name: row[name] for name in names}

    return (
        Behavior(**of(BEHAVIOR)),
        SpeechBoundErrors(**of(_SPEECH_BOUNDS)),
        Beside(**of(_BESIDE)),
        Retries(**of(_RETRIES)),
    )


# Why no objective is judged then.
UNREACHED: Final = "no call reached a session"


_CALLS: Final = """
    count(DISTINCT call_id) AS started,
    count(DISTINCT call_id) FILTER (WHERE turn_index = 0 AND (connect_ns IS NOT NULL OR outcome = 'ok')) AS connected,
    arg_max(outcome_reason, started_unix_ns)
        FILTER (WHERE turn_index = 0 AND connect_ns IS NULL AND outcome <> 'invalid') AS connect_failure,
    count(DISTINCT call_id) FILTER (WHERE turn_index = 0 AND connect_ns IS NULL AND outcome = 'invalid') AS prevented,
    arg_max(target, started_unix_ns) AS target
    """


def call_counts(connection: StoreConnection, f: Filter = ANY) -> CallCounts:
    """Return how many calls the client began and how many reached a session: their first turn carries the connect time,
    or was answered on a connection that was open before."""
    where = turns_of(f) & viewed(f)
    (row,) = rows(connection, f"SELECT {_CALLS} FROM turns WHERE {where.sql}", list(where.values))
    return CallCounts(**row)


def unreached_runs(connection: StoreConnection, run_ids: Sequence[str]) -> dict[str, str]:
    """Return `unreached_run` for the runs of which no call reached a session; no caller was answered in them."""
    statement = f"""
        SELECT run_id, {_CALLS} FROM turns
        WHERE run_id IN (SELECT unnest(?::VARCHAR[])) AND source = 'client' GROUP BY run_id
        """
    counts = {row.pop("run_id"): CallCounts(**row) for row in rows(connection, statement, [list(run_ids)])}
    return {
        run_id: unreached_reason(calls.started, calls.target or "an unknown target", calls.connect_failure)
        for run_id, calls in counts.items()
        if calls.none_reached
    }


def unreached_reason(calls: int, target: str, failure: str | None) -> str:
    """Return what is said of a run none of whose calls reached a session, as half a sentence."""
    return f"none of {calls} calls reached a session at {target}{f': {failure}' if failure else ''}"


def unreached(connection: StoreConnection, summary: Summary) -> str | None:
    """Return `unreached_run` of a summary's run; None also if a filter narrows the run."""
    run_id, turns = summary.filter.run_id, summary.turns
    if run_id is None or summary.filter != Filter(run_id=run_id) or not turns.total or summary.metrics[CONNECT].n:
        return None
    return unreached_run(connection, run_id, answered=turns.ok)


def unreached_run(connection: StoreConnection, run_id: str, answered: int) -> str | None:
    """Return why no call of the run reached a session, as half a sentence; None if one did, if the generator
    itself prevented all of them, and of what services report of themselves. `answered` is in how many turns the caller
    was answered."""
    # Who was answered reached one, though nobody timed how it connected. The calls of a large run are not counted one
    # by one where that is known already.
    is_known = bool(answered) or service_day(run_id) is not None
    return None if is_known else unreached_runs(connection, [run_id]).get(run_id)


def contradictions(connection: StoreConnection, f: Filter) -> Contradictions:
    """Count contradictions over the filter's turns, ramps and silent ones included, and over what services report of
    the same traces."""
    where = turns_of(f)
    traces = Condition("true") if f.run_id is None else Condition("run_id = ?", (f.run_id,))
    statement = f"""
        WITH noted AS (SELECT * FROM turns WHERE len(contradicted_metrics) > 0 OR late_spans > 0),
        mine AS (SELECT source, contradicted_metrics, contradicted_causes, late_spans FROM noted
                 WHERE ({where.sql}) OR (source = 'service' AND trace_id IN (
                     SELECT trace_id FROM turns WHERE {traces.sql} AND {where.sql} AND source = 'client'
                     AND trace_id IN (SELECT trace_id FROM noted WHERE trace_id <> '')))),
        named AS (SELECT source, unnest(contradicted_metrics) AS metric, unnest(contradicted_causes) AS cause FROM mine)
        SELECT source, metric, cause, count(*) AS n FROM named WHERE metric IS NOT NULL GROUP BY ALL
        UNION ALL SELECT NULL, 'late', NULL, coalesce(sum(late_spans), 0)::BIGINT FROM mine
        UNION ALL SELECT NULL, 'revised', NULL, count(*) FILTER (WHERE late_spans > 0) FROM mine
        ORDER BY n DESC, source, metric, cause
        """
    contradicted = rows(connection, statement, [*where.values, *traces.values, *where.values])
    counts = {row["metric"]: row["n"] for row in contradicted if row["source"] is None}
    values = tuple(
        ContradictedValue(row["source"], row["metric"], row["cause"] or "", row["n"])
        for row in contradicted
        if row["source"] is not None
    )
    return Contradictions(values, counts["late"], counts["revised"])


FEWEST_TURNS: Final = 20
_Z: Final = NormalDist().inv_cdf(0.975)


def wer_by_condition(connection: StoreConnection, f: Filter) -> tuple[WerByCondition, ...]:
    """A row for each profile whose turns have a transcript to compare: clean first, then by noise and falling SNR."""
    where = judged(f) & valid(f) & Condition("wer_reference_words > 0")
    profiles = rows(
        connection,
        f"""
        SELECT noise_profile, snr_asked_db, channel_profile, count(*) AS turns,
               sum(wer_reference_words)::BIGINT AS words, sum(wer_errors)::BIGINT AS errors,
               coalesce(sum(wer_reference_characters), 0)::BIGINT AS characters,
               sum(wer_errors * wer_errors)::DOUBLE AS errors_squared,
               sum(wer_errors * wer_reference_words)::DOUBLE AS errors_times_words,
               sum(wer_reference_words * wer_reference_words)::DOUBLE AS words_squared
        FROM turns WHERE {where.sql}
        GROUP BY noise_profile, snr_asked_db, channel_profile
        ORDER BY channel_profile <> 'clean', channel_profile, noise_profile <> 'clean', noise_profile,
                 snr_asked_db DESC NULLS FIRST
        """,
        list(where.values),
    )
    return tuple(
        WerByCondition(
            noise_profile=row["noise_profile"],
            snr_asked_db=row["snr_asked_db"],
            channel_profile=row["channel_profile"],
            turns=row["turns"],
            words=row["words"],
            errors=row["errors"],
            characters=row["characters"],
            interval=_rate_interval(row),
        )
        for row in profiles
    )


def _rate_interval(sums: Row) -> tuple[float, float] | None:
    """The interval of errors / words over the turns of one condition; None with fewer than FEWEST_TURNS turns.

    The variance of this ratio of two sums is that of errors - rate x words, over words squared. A bootstrap would need
    each turn, and 1.2 s for 5,000 of them.
    """
    turns, words = sums["turns"], sums["words"]
    if turns < FEWEST_TURNS:
        return None
    rate = sums["errors"] / words
    squares = sums["errors_squared"] - 2 * rate * sums["errors_times_words"] + rate * rate * sums["words_squared"]
    half = _Z * math.sqrt(max(0.0, squares) * turns / (turns - 1)) / words
    return max(0.0, rate - half), rate + half


def failures(connection: StoreConnection, f: Filter) -> tuple[FailureCount, ...]:
    """Eligible turns that failed, by cause, and those that the generator itself prevented, the most common first."""
    prevented = "(outcome = 'invalid' AND failure_kind = 'generator')"
    where = grouped(f) & Condition(f"(outcome NOT IN ('ok', 'cut', 'invalid') OR {prevented})")
    statement = f"""
        SELECT failure_kind AS kind, failure_code AS code, count(*) AS turns,
               arg_max(outcome_reason, started_unix_ns) AS example
        FROM turns WHERE {where.sql} GROUP BY ALL ORDER BY turns DESC, kind NULLS LAST, code NULLS FIRST
        """
    return folded([FailureCount(**row) for row in rows(connection, statement, list(where.values))])


def folded(causes: Sequence[FailureCount]) -> tuple[FailureCount, ...]:
    """The causes, most common first; those beyond MOST_CAUSES, of an endpoint with ever new codes, are one."""
    if len(causes) <= MOST_CAUSES:
        return tuple(causes)
    rest = causes[MOST_CAUSES - 1 :]
    example = next((cause.example for cause in rest if cause.example), None)
    beyond = FailureCount("other", f"{len(rest)}_causes", sum(cause.turns for cause in rest), example)
    return (*causes[: MOST_CAUSES - 1], beyond)


def remarks(connection: StoreConnection, f: Filter) -> tuple[RemarkCount, ...]:
    """Eligible turns that ended well, by the endpoint's remark, the most common first."""
    where = grouped(f) & Condition("outcome = 'ok' AND outcome_reason IS NOT NULL")
    statement = f"""
        SELECT outcome_reason AS remark, count(*) AS turns
        FROM turns WHERE {where.sql} GROUP BY ALL ORDER BY turns DESC, remark LIMIT {MOST_REMARKS}
        """
    return tuple(RemarkCount(**row) for row in rows(connection, statement, list(where.values)))
