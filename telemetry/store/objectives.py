"""Turns of objectives, counted in the store by the one rule, `telemetry.objectives.judgment.judge_turn`.

A rule depends on few things of a turn: its outcome and kind, its dimensions, whether the metric is withheld or unknown,
on which side of the threshold its value and both its bounds are, its fallback, route and cache, and of a turn that was
cut whether anything was heard and whether the caller had waited beyond the threshold. So one statement groups the turns
that no objective can tell apart, and each objective's rule is asked about one turn of each group. All objectives, and
each of them per cohort, come from that one pass over the turns.
"""

# ruff: noqa: S608 - the identifiers in these statements come from our own tables, every value is bound

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from telemetry.model.bounds import BOUNDED
from telemetry.model.intervals import grouped_interval
from telemetry.model.metrics import HEADLINE, METRICS, Metric, is_withheld
from telemetry.model.semconv import Source
from telemetry.model.turns import Turn
from telemetry.objectives.judgment import (
    DECIDED,
    HELD_UP,
    WAITED_FROM,
    EligibleTurns,
    Judgment,
    JudgmentTally,
    has_value,
    judge_turn,
    matches,
    resolve,
)
from telemetry.objectives.slo import NotObservable, Objective
from telemetry.store.answers import Filter
from telemetry.store.connection import StoreConnection, rows
from telemetry.store.questions.filters import Condition, judged, source_of, viewed
from telemetry.store.schema import SIDES, TURN_FIELDS, turn_from_row

_DIMENSIONS: Final = ("cohort", "length_class", "noise_profile", "channel_profile", "route")
# One column holds so many yes-or-no answers about a turn.
_BITS: Final = 60
# The fields of a turn from which a metric's value is computed.
FIELDS_OF: Final[dict[str, tuple[str, ...]]] = {
    "voice_to_voice": ("first_audio_perf_ns", "speech_end_perf_ns"),
    "endpointing": ("endpoint_perf_ns", "speech_end_perf_ns"),
    "asr_partial_latency": ("asr_first_partial_perf_ns", "speech_start_perf_ns"),
    "asr_final_latency": ("asr_final_perf_ns", "speech_end_perf_ns"),
    "llm_first_token_latency": ("llm_first_token_perf_ns", "speech_end_perf_ns"),
    "llm_ttft": ("asr_final_perf_ns", "llm_first_token_perf_ns"),
    "tts_first_chunk_latency": ("tts_first_chunk_perf_ns", "llm_first_token_perf_ns"),
    "leading_silence": ("leading_silence_ns",),
    "time_to_first_sentence": ("llm_first_sentence_perf_ns", "speech_end_perf_ns"),
    "connect": ("connect_ns",),
    "barge_in_stop": ("barge_in_stop_ns",),
    "talk_over": ("talk_over_ns",),
    "underrun_worst": ("underrun_worst_ns",),
    "underrun_total": ("underrun_total_ns",),
    "underrun_count": ("underrun_count",),
    "packet_loss": ("rtp_packets_received", "rtp_packets_lost"),
    "jitter": ("rtp_jitter_worst_ns",),
    "tokens_per_s": ("llm_tokens", "llm_chunks", "llm_first_token_perf_ns", "llm_last_token_perf_ns"),
    "tokens_per_s_wall": (
        "llm_tokens",
        "llm_chunks",
        "llm_last_token_perf_ns",
        "asr_final_perf_ns",
        "speech_end_perf_ns",
    ),
    "tokens_per_chunk": ("llm_tokens", "llm_chunks"),
    "prompt_cached": ("llm_input_tokens", "llm_cached_tokens"),
    "audio_rtfx": ("reply_audio_ns", "tts_first_chunk_perf_ns", "tts_last_chunk_perf_ns"),
    "wer": ("wer_errors", "wer_reference_words"),
}
# From which timestamps and durations, besides these, the bounds of a metric are computed.
_BOUNDED_BY: Final[dict[str, tuple[str, ...]]] = {
    "leading_silence": ("first_audio", "tts_first_chunk"),
    "connect": ("connect",),
    "barge_in_stop": ("speech_start",),
    "talk_over": ("speech_start", "speech_end"),
}
_BOUNDED_BY_ALL: Final = ("stamp_error_ns", "held_up_ns", "held_up_speaking_ns", "arrival_uncertainty_worst_ns")
# What every rule asks of a turn, and what of one that ended early.
_ASKED_OF_ALL: Final = (
    *("run_id", "outcome", "turn_kind", "turn_index", "fallback", "route", "cache_hit", "started_unix_ns"),
    *("withheld_metrics", "withheld_reasons"),
    *("contradicted_metrics", "failure_kind", "barge_in_end"),
)
_ASKED_OF_CUT: Final = (
    *("started_perf_ns", "speech_start_perf_ns", "speech_end_perf_ns", "first_audio_perf_ns", "hangup_perf_ns"),
    *("llm_first_token_perf_ns", "asr_final_perf_ns"),
)

_Question = tuple[str, tuple[Any, ...]]  # about a turn, with its values


@dataclass(frozen=True, slots=True)
class ObjectiveCount:
    """The turns of one objective. `withheld` says why none counts where the wire withholds the metric."""

    turns: EligibleTurns = field(default_factory=EligibleTurns)
    withheld: str | None = None


@dataclass(frozen=True, slots=True)
class ObjectiveCounts:
    """What `objectives.slo.judge` asks, of the objectives that were counted together: over all turns of the filter, and
    over those of each cohort. Every method raises KeyError for an objective that was not among them."""

    whole: Mapping[str, ObjectiveCount]
    cohorts: Mapping[str, Mapping[str, ObjectiveCount]] = field(default_factory=dict[str, dict[str, ObjectiveCount]])

    def count(self, objective: Objective) -> EligibleTurns:
        """The turns of an objective. Raises NotObservable when none counts because the wire withholds the metric."""
        found = self.whole[objective.name]
        if found.withheld is not None:
            raise NotObservable(found.withheld)
        return found.turns

    def is_withheld(self, objective: Objective) -> bool:
        """Whether none counts because the wire withholds the metric."""
        return self.whole[objective.name].withheld is not None

    def of_cohort(self, cohort: str) -> "ObjectiveCounts":
        """The same over the turns of one cohort."""
        return ObjectiveCounts(self.cohorts.get(cohort, {name: ObjectiveCount() for name in self.whole}))


@dataclass(frozen=True, slots=True)
class _Alike:
    """Turns that no objective tells apart: one of them, and how many there are."""

    one: Turn
    count: int


def count_objectives(connection: StoreConnection, f: Filter, objectives: Sequence[Objective]) -> ObjectiveCounts:
    """All objectives over the filter's turns and over each of their cohorts. Objectives have names of their own."""
    if not objectives:
        return ObjectiveCounts({})
    groups = _groups(connection, f, objectives)
    by_cohort: defaultdict[str, list[_Alike]] = defaultdict(list)
    for group in groups:
        if group.one.cohort is not None:
            by_cohort[group.one.cohort].append(group)
    # Whether a run shows a stage is asked of all its turns, not of each cohort's.
    valued = {
        objective.name: {group.one.run_id for group in groups if has_value(objective, group.one)}
        for objective in objectives
    }

    def judged_groups(some: Sequence[_Alike]) -> dict[str, ObjectiveCount]:
        return {each.name: _one(each, some, valued[each.name]) for each in objectives}

    cohorts = {cohort: judged_groups(found) for cohort, found in sorted(by_cohort.items())}
    return ObjectiveCounts(judged_groups(groups), cohorts)


def _one(objective: Objective, groups: Sequence[_Alike], valued: Container[str]) -> ObjectiveCount:
    by_run: dict[str, JudgmentTally] = {}
    withheld: list[Turn] = []
    for group in groups:
        run_id = group.one.run_id
        tally = by_run.setdefault(run_id, JudgmentTally(has_value=run_id in valued))
        tally.take(objective, group.one, group.one.source, group.count)
        if objective.metric is not None and is_withheld(group.one, objective.metric) and matches(objective, group.one):
            withheld.append(group.one)
    turns = sum((tally.counts(objective) for tally in by_run.values()), EligibleTurns())
    why = _why(objective.metric or "", withheld) if withheld and not turns.eligible else None
    return ObjectiveCount(turns, why)


def _why(metric: str, withheld: Sequence[Turn]) -> str:
    """What the earliest of the turns says of its wire."""
    first = min(withheld, key=lambda turn: turn.started_unix_ns)
    place = first.withheld_metrics.index(metric)
    reason = first.withheld_reasons[place] if place < len(first.withheld_reasons) else ""
    return reason or f"this wire does not show {metric}"


def verdicts_by_key(
    connection: StoreConnection, where: Condition, objectives: Sequence[Objective], source: Source, table: str = "turns"
) -> tuple[str, list[Any], dict[str, dict[int, Judgment | None]]]:
    """The rule of each objective for every turn of a source: the key of a turn as an expression with its values, and by
    objective the judgment of the turns of each key that occurs; None for those that do not count."""
    keys, values = _keys(objectives)
    key = f"hash({', '.join(keys)})"
    found = rows(
        connection,
        f"""
        SELECT {key} AS key, arg_min({_packed(objectives)}, started_unix_ns) AS one FROM {table} WHERE {where.sql}
        GROUP BY key
        """,
        [*values, *where.values],
    )
    alike = {row["key"]: _turn(row, source) for row in found}
    return key, values, {objective.name: _verdicts(objective, alike, source) for objective in objectives}


def sampling_intervals(
    connection: StoreConnection, f: Filter, objectives: Sequence[Objective]
) -> dict[str, tuple[float, float]]:
    """The 95 % sampling interval of each objective's share of good turns among those that are not open, by its name:
    turns of one call are not independent. Without those of which less than two calls have such a turn."""
    if not objectives:
        return {}
    where = judged(f) & viewed(f)
    key, values, verdicts = verdicts_by_key(connection, where, objectives, source_of(f))
    found = connection.execute(
        f"""
        SELECT {key} AS key, hash(run_id, call_id) AS call, count(*) AS n FROM turns WHERE {where.sql} GROUP BY ALL
        """,
        [*values, *where.values],
    ).fetchnumpy()
    keys, of_key = np.unique(found["key"], return_inverse=True)
    calls, of_call = np.unique(found["call"], return_inverse=True)

    def by_call(verdict: Mapping[int, Judgment | None], *counted: Judgment) -> np.ndarray[Any, np.dtype[np.int64]]:
        is_counted = np.array([verdict.get(int(each)) in counted for each in keys], dtype=np.bool_)[of_key]
        return np.bincount(of_call, weights=np.where(is_counted, found["n"], 0), minlength=len(calls)).astype(np.int64)

    intervals = {
        name: grouped_interval(by_call(verdict, Judgment.GOOD), by_call(verdict, *DECIDED))
        for name, verdict in verdicts.items()
    }
    return {name: interval for name, interval in intervals.items() if interval is not None}


def _verdicts(objective: Objective, alike: Mapping[int, Turn], source: Source) -> dict[int, Judgment | None]:
    tallies: dict[str, JudgmentTally] = {}
    for turn in alike.values():
        tallies.setdefault(turn.run_id, JudgmentTally()).take(objective, turn, source)

    def verdict(turn: Turn) -> Judgment | None:
        judgment = judge_turn(objective, turn, source)
        return resolve(judgment, objective, has_value=tallies[turn.run_id].has_value)

    return {key: verdict(turn) for key, turn in alike.items()}


def counts_by_part(
    connection: StoreConnection,
    where: Condition,
    part: tuple[str, Sequence[Any]],
    objectives: Sequence[Objective],
    source: Source,
) -> dict[str, dict[int, EligibleTurns]]:
    """The turns of each objective, by a part of the turns: a whole number, as an expression with its values."""
    if not objectives:
        return {}
    keys, values = _keys(objectives)
    sql, of_part = part
    found = rows(
        connection,
        f"""
        SELECT ({sql})::BIGINT AS part, count(*) AS n, arg_min({_packed(objectives)}, started_unix_ns) AS one
        FROM turns WHERE {where.sql} GROUP BY part, {", ".join(keys)}
        """,
        [*of_part, *where.values, *values],
    )
    alike = [(row["part"], row["n"], _turn(row, source)) for row in found]
    return {objective.name: _by_part(objective, alike, source) for objective in objectives}


def _by_part(objective: Objective, alike: Sequence[tuple[int, int, Turn]], source: Source) -> dict[int, EligibleTurns]:
    """Whether a run has a value of the metric is asked of all its turns, not of each part's."""
    tallies: dict[str, dict[int, JudgmentTally]] = {}
    for part, n, turn in alike:
        tallies.setdefault(turn.run_id, {}).setdefault(part, JudgmentTally()).take(objective, turn, source, n)
    counts: dict[int, EligibleTurns] = {}
    for by_part in tallies.values():
        has_value = any(tally.has_value for tally in by_part.values())
        for part, tally in by_part.items():
            tally.has_value = has_value
            if (found := tally.counts(objective)).eligible:
                counts[part] = counts.get(part, EligibleTurns()) + found
    return counts


def _groups(connection: StoreConnection, f: Filter, objectives: Sequence[Objective]) -> list[_Alike]:
    keys, values = _keys(objectives)
    where = judged(f) & viewed(f)
    found = rows(
        connection,
        f"""
        SELECT count(*) AS n, arg_min({_packed(objectives)}, started_unix_ns) AS one
        FROM turns WHERE {where.sql} GROUP BY {", ".join(keys)}
        """,
        [*where.values, *values],
    )
    return [_Alike(_turn(row, source_of(f)), row["n"]) for row in found]


def _turn(row: dict[str, Any], source: Source) -> Turn:
    return turn_from_row({"call_id": "", "source": source, **row["one"]})


def _keys(objectives: Sequence[Objective]) -> tuple[list[str], list[Any]]:
    """What tells turns apart that an objective may judge differently, with the values in it."""
    asked: dict[_Question, None] = {}
    for objective in objectives:
        asked.update(dict.fromkeys(_questions(objective)))
    words, values = _words(list(asked))
    for sql, threshold in dict.fromkeys(each for objective in objectives for each in _identities(objective)):
        words.append(sql)
        values.extend(threshold)
    named = [each for each in _DIMENSIONS[1:] if any(getattr(o, each) is not None for o in objectives)]
    return ["run_id", "cohort", "outcome", "turn_kind", "cache_hit", *named, *words], values


def _packed(objectives: Sequence[Objective]) -> str:
    """One turn with all that the rules read of it."""
    return f"struct_pack({', '.join(f'{name} := {name}' for name in _kept(objectives))})"


def columns_of_rules(objectives: Sequence[Objective]) -> list[str]:
    """The columns of a turn that the rules of objectives read, also to tell turns apart by."""
    metrics = [METRICS[objective.metric] for objective in objectives if objective.metric is not None]
    bounds = [metric.bound_column(side) for metric in metrics if metric in BOUNDED for side in SIDES]
    return [*_kept(objectives), *(metric.column for metric in metrics), *bounds, "span_id"]


def _kept(objectives: Sequence[Objective]) -> list[str]:
    kept = dict.fromkeys((*_ASKED_OF_ALL, *_ASKED_OF_CUT, *_DIMENSIONS))
    for metric in (METRICS[objective.metric] for objective in objectives if objective.metric is not None):
        kept.update(dict.fromkeys((*FIELDS_OF[metric.name], *bound_fields(metric))))
    return list(kept)


def bound_fields(metric: Metric) -> tuple[str, ...]:
    """The fields of a turn from which the bounds of a metric are computed, besides those of its value."""
    if metric not in BOUNDED:
        return ()
    moments = [each.removesuffix("_perf_ns") for each in FIELDS_OF[metric.name]] + [*_BOUNDED_BY.get(metric.name, ())]
    named = [f"{moment}_{kind}_ns" for moment in moments for kind in ("earlier", "later", "uncertainty")]
    return (*(each for each in named if each in TURN_FIELDS), *_BOUNDED_BY_ALL)


def _questions(objective: Objective) -> Iterable[_Question]:
    """The yes-or-no questions about a turn whose answers decide the objective's rule together with the keys that every
    rule asks."""
    yield from (("fallback IS NULL", ()), ("route IS NULL", ()), ("turn_index = 0", ()))
    # Whether anything was heard of the answer, and whether the endpoint broke it off.
    yield "failure_kind IS NOT DISTINCT FROM 'interrupted'", ()
    yield "barge_in_end IS NOT DISTINCT FROM 'never_stopped'", ()
    yield "first_audio_perf_ns IS NULL AND voice_to_voice_ns IS NULL", ()
    yield "llm_first_token_perf_ns IS NULL AND asr_final_perf_ns IS NULL", ()
    yield f"list_contains(withheld_metrics, '{HEADLINE}')", ()
    if objective.metric is None:
        return
    metric, threshold = METRICS[objective.metric], objective.threshold
    value = metric.column
    # The name stands between quotes: a bound value would be read anew for every turn.
    yield f"list_contains(withheld_metrics, '{metric.name}')", ()
    yield f"list_contains(contradicted_metrics, '{metric.name}')", ()
    yield f"{value} IS NULL", ()
    yield f"{value} < ?", (threshold,)
    yield f"{value} = ?", (threshold,)
    for name in FIELDS_OF[metric.name]:  # whether a missing value is a stage that never came
        yield f"{name} IS NULL", ()
    ended_early = "outcome IN ('cut', 'interrupted')"
    for name in ("first_audio_perf_ns", "speech_start_perf_ns", "llm_first_token_perf_ns", "asr_final_perf_ns"):
        yield f"{ended_early} AND {name} IS NULL", ()
    since = WAITED_FROM.get(metric.name)
    if since is not None:
        # As HUGEINT, here and below, so that no value that a sender makes up leaves the integers.
        waited = f"hangup_perf_ns::HUGEINT - {since}_perf_ns"
        if since in HELD_UP:
            waited += (
                f" - coalesce({since}_uncertainty_ns::HUGEINT + {since}_later_ns, 0) - coalesce({HELD_UP[since]}, 0)"
            )
        yield f"{ended_early} AND {waited} > ?", (threshold,)
    if metric in BOUNDED:
        yield from _bound_questions(metric, threshold)


def _bound_questions(metric: Metric, threshold: float | None) -> Iterable[_Question]:
    """Where the threshold lies between the bounds of a value; also were the annotation of the clip right, by which the
    causes of open turns are told apart."""
    bounds = {side: metric.bound_column(side) for side in SIDES}
    asked = list(bounds.values())
    if metric.counts_from is not None:
        stated = f"{metric.counts_from}_uncertainty_ns"
        asked += [f"({bounds['lower']}::HUGEINT + {stated})", f"({bounds['upper']}::HUGEINT - {stated})"]
    for column in asked:
        yield f"{column} IS NULL", ()
        yield f"{column} < ?", (threshold,)
        yield f"{column} = ?", (threshold,)


def _identities(objective: Objective) -> Iterable[_Question]:
    """A turn by itself where the threshold lies between the bounds of a value of which the annotation's part is not its
    own width: the cause is asked of each such turn."""
    metric = METRICS.get(objective.metric or "")
    if metric is None or metric.counts_from is not None:
        return
    if any(each.endswith(("start_uncertainty_ns", "end_uncertainty_ns")) for each in bound_fields(metric)):
        lower, upper = (metric.bound_column(side) for side in SIDES)
        straddles = f"{lower} <= ? AND coalesce({upper} >= ?, true)"
        yield f"CASE WHEN {straddles} THEN span_id END", (objective.threshold, objective.threshold)


def _words(questions: Sequence[_Question]) -> tuple[list[str], list[Any]]:
    """The answers to all questions as bits of as few integers as hold them, and the questions' values in order."""
    words: list[str] = []
    for begin in range(0, len(questions), _BITS):
        bits = (
            f"CASE WHEN {sql} THEN {1 << place}::BIGINT ELSE 0 END"
            for place, (sql, _) in enumerate(questions[begin : begin + _BITS])
        )
        words.append("(" + " + ".join(bits) + ")")
    return words, [value for _, values in questions for value in values]
