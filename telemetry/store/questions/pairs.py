"""Client turns compared with the service's report on them: how far the two agree, and where the time of a turn goes.

A turn's row holds both sides (telemetry.store.pairing).
"""

from dataclasses import replace
from typing import Final

from telemetry.model.stats import enough
from telemetry.model.turns import Turn
from telemetry.store.answers import REPORTED_STAGES, ClientServiceDelta, Filter, StageStats
from telemetry.store.connection import Row, StoreConnection, rows, rows_of_trace
from telemetry.store.pairing import digest
from telemetry.store.questions.filters import (
    ANY,
    TURN_COLUMNS,
    Condition,
    Natural,
    full_turns,
    judged,
    source_of,
    turns_of,
    valid,
    viewed,
)
from telemetry.store.questions.percentiles import Groups, Values, add_percentiles, stated
from telemetry.store.schema import STAGES, turn_from_row

# Client-heard minus service-reported voice-to-voice, as the row of either side has it; of speech that ended by the
# service's account later than by the client's, the service's part is longer.
_DIFFERENCE: Final = """
    TRY_CAST({sign} * (voice_to_voice_ns::HUGEINT - other_voice_to_voice_ns
             - coalesce(other_speech_end_audio_ns::HUGEINT - speech_end_audio_ns, 0)) AS BIGINT)
    """
_DIVIDED: Final = "CASE WHEN voice_to_voice_ns > 0 THEN {} END"
_LENGTHS: Final = {**STAGES, "leading_silence": _DIVIDED.format("leading_silence_ns")}
_EXPLAINED: Final = " - ".join(f"coalesce({length}, 0)" for length in (*STAGES.values(), "leading_silence_ns"))
_STAGES: Final = [
    *(Values(stage, length) for stage, length in _LENGTHS.items()),
    Values("unexplained", f"TRY_CAST({_DIVIDED.format(f'voice_to_voice_ns::HUGEINT - {_EXPLAINED}')} AS BIGINT)"),
]


def paired(
    connection: StoreConnection, f: Filter, *, is_many: bool = False
) -> tuple[ClientServiceDelta, dict[str, StageStats]]:
    """Return how far both sides of a filter's turns agree, and the time of a turn by stage.

    The difference is over the turns that figures are taken over, none of a ramp; where a service does not say where it
    believes that speech ended, it is `uncorrected` for it. The stages are of every valid turn with a voice-to-voice,
    ramps left out. In a view by service and day they are the service's turns.
    """
    is_heard = source_of(f) == "client"
    difference = Values("difference", _DIFFERENCE.format(sign=1 if is_heard else -1))
    values, where = [difference, *_STAGES], judged(f) & valid(f)
    (row,) = rows(
        connection,
        f"""
        SELECT {", ".join(f"count({quantity.value}) AS n_{quantity.name}" for quantity in values)},
               max(abs({difference.value})) AS abs_max,
               count(*) FILTER (other_voice_to_voice_ns IS NOT NULL AND voice_to_voice_ns IS NOT NULL
                   AND (speech_end_audio_ns IS NULL OR other_speech_end_audio_ns IS NULL)) AS uncorrected,
               count(voice_to_voice_ns) FILTER (other_turn IS NULL) AS alone,
               count(*) FILTER (voice_to_voice_ns > 0 AND other_voice_to_voice_ns IS NOT NULL) AS by_service
        FROM turns WHERE {where.sql}
        """,
        where.values,
    )
    add_percentiles(connection, Groups({None: row}, where), values, is_many=is_many)
    by_service = is_heard and row["by_service"] > 0
    (p50, _, p99), within = row.get("q_difference") or (None, None, None), stated(row.get("within_difference"))
    delta = ClientServiceDelta(
        joined=row["n_difference"],
        client_only=row["alone"] if is_heard else 0,
        service_only=_not_heard(connection, f) if is_heard else row["alone"],
        difference_p50_ns=p50,
        difference_p99_ns=enough("p99", row["n_difference"], p99),
        difference_abs_max_ns=None if row["abs_max"] is None else float(row["abs_max"]),
        approximate=bool(within),
        uncorrected=row["uncorrected"],
        estimated_within=within,
    )
    shown = [stage.name for stage in _STAGES if row[f"n_{stage.name}"]]
    return delta, {name: _stage(name, row, by_service=by_service) for name in shown}


def _not_heard(connection: StoreConnection, f: Filter) -> int:
    """Count responses for which the service states a wait but that no caller heard: those of the filter's run, or of
    the calls of a narrower filter."""
    if replace(f, run_id=None) != ANY:
        heard = turns_of(f) & viewed(f)
        mine = Condition(f"heard_call IN (SELECT heard_call FROM turns WHERE {heard.sql})", heard.values)
    elif f.run_id is not None:
        mine = Condition("(run_id = ? OR other_run = ?)", (f.run_id, digest(f.run_id)))
    else:
        mine = Condition("true")
    counted = connection.execute(
        f"""
        SELECT count(DISTINCT hash(heard_call, CASE WHEN heard_call IS NULL THEN trace_id END,
                                   coalesce(response_id, turn_index::VARCHAR)))
        FROM turns WHERE source = 'service' AND voice_to_voice_ns IS NOT NULL AND other_turn IS NULL AND {mine.sql}
        """,
        mine.values,
    ).fetchall()
    return int(counted[0][0])


def stage_budget(connection: StoreConnection, f: Filter = ANY) -> dict[str, StageStats]:
    """Split voice-to-voice into endpointing, asr, llm, tts, leading_silence, and the unexplained rest (`unexplained`:
    network, playout). Stages that no turn shows are left out."""
    return paired(connection, f)[1]


def _stage(stage: str, row: Row, *, by_service: bool) -> StageStats:
    n, (p50, p95, _), within = row[f"n_{stage}"], row[f"q_{stage}"], stated(row.get(f"within_{stage}"))
    return StageStats(
        name=stage,
        n=n,
        p50_ns=p50,
        p95_ns=enough("p95", n, p95),
        approximate=bool(within),
        by_service=by_service and stage in REPORTED_STAGES,
        estimated_within=within,
    )


def both_sides(connection: StoreConnection, trace_id: str, turn_index: Natural) -> tuple[Turn | None, Turn | None]:
    """The turn at a position in the call of a trace, as heard and as reported; None for a side that is not in the
    store."""
    columns, order = f"{TURN_COLUMNS}, other_turn, other_started_unix_ns", "source, started_unix_ns, span_id"
    stored = rows_of_trace(connection, "turns", trace_id, columns=columns, order=order)
    shown = next((row for row in stored if row["turn_index"] == turn_index), None)
    if shown is None:
        return None, None
    then = Condition("started_unix_ns = ?", (shown["other_started_unix_ns"],))
    others = [] if shown["other_turn"] is None else full_turns(connection, then, "span_id", 10_000)
    other = next((turn for turn in others if digest(turn.trace_id, turn.span_id) == shown["other_turn"]), None)
    turn = turn_from_row(shown)
    return (turn, other) if turn.source == "client" else (other, turn)
