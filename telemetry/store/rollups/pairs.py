"""Client turns beside the service's turns of the same responses, from the narrow rows of `open_turns`.

The two sides of a response may lie in different segments. A turn whose counterpart was not met stays open; added
roll-ups are paired anew, and what is open in the end had no counterpart. Of a response whose two sides met, a row of
the source `met` stays: it counts in no figure, but says of which call and run later turns of the service are.
"""

# ruff: noqa: S608 - the identifiers in these statements come from our own tables

from collections.abc import Iterator
from typing import Final

from telemetry.store.heard_traces import with_heard_trace
from telemetry.store.rollups.buckets import DURATIONS
from telemetry.store.rollups.database import Database, fetched
from telemetry.store.rollups.histogram import counted_by_group
from telemetry.store.rollups.rollup import DIMENSIONS, OTHER_DIMENSIONS, Key, Rollup, RollupCell, added
from telemetry.store.rollups.rows import cells_of_rows, gathered, grouped, key_of
from telemetry.store.schema import ArrowTable

# `trace_run` is no column of `turns`: the run of a client turn that was met in the same call.
OPEN_COLUMNS: Final = (
    "source",
    *DIMENSIONS,
    *OTHER_DIMENSIONS,
    "trace_id",
    "span_id",
    "call_id",
    "response_id",
    "turn_index",
    "started_unix_ns",
    "outcome",
    "voice_to_voice_ns",
    "leading_silence_ns",
    "speech_end_audio_ns",
    "speech_end_perf_ns",
    "endpoint_perf_ns",
    "asr_final_perf_ns",
    "llm_first_token_perf_ns",
    "tts_first_chunk_perf_ns",
    "trace_run",
)
STAGES: Final = ("endpointing", "asr", "llm", "tts", "leading_silence", "unexplained")
# How many turns of each source a segment's roll-up keeps open: those nearest to where the segment begins and ends, as
# the two sides of a response reach the store within seconds of each other.
KEPT_OPEN: Final = 2_000

_PAIRS: Final = """
    CREATE OR REPLACE TEMP TABLE pairs AS
    WITH clients AS (SELECT * FROM open_turns WHERE source = 'client')
    SELECT c.*, s.trace_id AS of_trace, s.span_id AS of_span, s.run_id AS of_run, s.trace_id IS NOT NULL AS is_joined,
           s.response_id AS of_response_id, s.turn_index AS of_turn_index,
           s.voice_to_voice_ns AS of_voice_to_voice_ns, s.speech_end_audio_ns AS of_speech_end_audio_ns,
           s.speech_end_perf_ns AS of_speech_end_perf_ns, s.endpoint_perf_ns AS of_endpoint_perf_ns,
           s.asr_final_perf_ns AS of_asr_final_perf_ns, s.llm_first_token_perf_ns AS of_llm_first_token_perf_ns,
           s.tts_first_chunk_perf_ns AS of_tts_first_chunk_perf_ns
    FROM clients c LEFT JOIN services s ON c.trace_id = s.heard_trace AND c.trace_id <> '' AND (
        c.response_id = s.response_id
        OR (c.turn_index = s.turn_index AND (c.response_id IS NULL OR s.response_id IS NULL)))
    """
_NO_GROUP: Final = dict.fromkeys(DIMENSIONS)
_GROUP: Final = ", ".join(DIMENSIONS)
_TIMED: Final = "outcome <> 'invalid' AND voice_to_voice_ns IS NOT NULL"
_COUNTS: Final = f"""
    SELECT {_GROUP}, 'pair' AS part, ['joined'] AS labels, count(*) AS n FROM chosen
    WHERE is_joined AND {_TIMED} AND of_voice_to_voice_ns IS NOT NULL GROUP BY ALL
    UNION ALL
    SELECT {_GROUP}, 'pair' AS part, ['uncorrected'] AS labels, count(*) AS n FROM chosen
    WHERE is_joined AND {_TIMED} AND of_voice_to_voice_ns IS NOT NULL
          AND (of_speech_end_audio_ns IS NULL OR speech_end_audio_ns IS NULL) GROUP BY ALL
    UNION ALL
    SELECT {_GROUP}, 'pair' AS part, ['client_only'] AS labels, count(*) AS n FROM chosen
    WHERE NOT is_joined AND {_TIMED} GROUP BY ALL
    UNION ALL
    SELECT {_GROUP}, 'pair' AS part, ['matched', of_run] AS labels, count(DISTINCT (of_trace, of_span)) AS n
    FROM chosen WHERE is_joined AND of_voice_to_voice_ns IS NOT NULL GROUP BY ALL
    """
_UNMATCHED: Final = """
    FROM services s WHERE NOT EXISTS (SELECT 1 FROM pairs p WHERE p.of_trace = s.trace_id AND p.of_span = s.span_id)
    """
_OF_SERVICES: Final = f"""
    SELECT run_id, 'service' AS part, ['matched', NULL] AS labels, count(*) AS n FROM services s
    WHERE voice_to_voice_ns IS NOT NULL
          AND EXISTS (SELECT 1 FROM pairs p WHERE p.of_trace = s.trace_id AND p.of_span = s.span_id) GROUP BY ALL
    UNION ALL
    SELECT run_id, 'service' AS part, ['unmatched', trace_run] AS labels, count(*) AS n
    {_UNMATCHED} AND voice_to_voice_ns IS NOT NULL AND $1 GROUP BY ALL
    """
# The same stages as telemetry.store.queries.stage_budget, a column each, and the difference of the two sides.
_TIMES: Final = """
    SELECT {group}, total_ns > 0 AS is_whole, difference, endpointing, asr, llm, tts, leading_silence,
           total_ns - coalesce(endpointing, 0) - coalesce(asr, 0) - coalesce(llm, 0) - coalesce(tts, 0)
           - coalesce(leading_silence, 0) AS unexplained
    FROM (
        SELECT *, endpoint - speech_end AS endpointing, final - coalesce(endpoint, speech_end) AS asr,
               token - coalesce(final, endpoint, speech_end) AS llm, chunk - token AS tts
        FROM (
            SELECT *, CASE WHEN asr_final <= token AND asr_final >= coalesce(endpoint, own_speech_end)
                           THEN asr_final END AS final
            FROM (
                SELECT {group}, voice_to_voice_ns AS total_ns, leading_silence_ns AS leading_silence,
                       voice_to_voice_ns - of_voice_to_voice_ns
                           - coalesce(of_speech_end_audio_ns - speech_end_audio_ns, 0) AS difference,
                       CASE WHEN {by} THEN of_speech_end_perf_ns
                            - coalesce(of_speech_end_audio_ns - speech_end_audio_ns, 0)
                            ELSE speech_end_perf_ns END AS speech_end,
                       CASE WHEN {by} THEN of_speech_end_perf_ns ELSE speech_end_perf_ns END AS own_speech_end,
                       CASE WHEN {by} THEN of_endpoint_perf_ns ELSE endpoint_perf_ns END AS endpoint,
                       CASE WHEN {by} THEN of_asr_final_perf_ns ELSE asr_final_perf_ns END AS asr_final,
                       CASE WHEN {by} THEN of_llm_first_token_perf_ns ELSE llm_first_token_perf_ns END AS token,
                       CASE WHEN {by} THEN of_tts_first_chunk_perf_ns ELSE tts_first_chunk_perf_ns END AS chunk
                FROM chosen WHERE {timed})))
    """.format(group=_GROUP, by="of_voice_to_voice_ns IS NOT NULL", timed=_TIMED)
_MET: Final = {
    "source": "'met'",
    **{name: name for name in ("run_id", "trace_id", "call_id", "started_unix_ns")},
    "span_id": "of_span",
    "response_id": "of_response_id",
    "turn_index": "of_turn_index",
}
_OPEN: Final = f"""
    SELECT {", ".join(OPEN_COLUMNS)} FROM open_turns o
    WHERE source = 'met' OR (source = 'client' AND EXISTS (
        SELECT 1 FROM pairs p WHERE NOT is_joined AND p.trace_id = o.trace_id AND p.span_id = o.span_id))
    UNION ALL
    SELECT {", ".join(OPEN_COLUMNS)} {_UNMATCHED}
    UNION ALL
    SELECT {", ".join(_MET.get(name, "NULL") for name in OPEN_COLUMNS)} FROM pairs WHERE is_joined
    """


def pair(database: Database, rollup: Rollup, *, is_last: bool) -> Rollup:
    """The roll-up with its open turns brought together. Those without a counterpart stay open, or, if `is_last`, are
    counted as turns that have none."""
    if rollup.open_turns is None or not rollup.open_turns.num_rows:
        return rollup
    database.register("open_turns", rollup.open_turns)
    try:
        database.execute(_services(is_last=is_last))
        database.execute(_PAIRS)
        database.execute(f"CREATE OR REPLACE TEMP VIEW chosen AS SELECT * FROM pairs WHERE is_joined OR {is_last}")
        of_services = [_NO_GROUP | row for row in fetched(database, _OF_SERVICES, [is_last])]
        cells = cells_of_rows([*fetched(database, _COUNTS), *of_services]) | gathered(_histograms(database))
        still_open: ArrowTable | None = None if is_last else database.sql(_OPEN).to_arrow_table()
        return added([Rollup(rollup.cells, rollup.sequences), Rollup(cells, {}, still_open)])
    finally:
        database.unregister("open_turns")
        database.execute("DROP VIEW IF EXISTS open_services; DROP VIEW IF EXISTS known_calls")
        database.execute("DROP VIEW IF EXISTS chosen; DROP TABLE IF EXISTS pairs; DROP TABLE IF EXISTS services")


def _services(*, is_last: bool) -> str:
    """The statements that make the table `services`, one turn of each response.

    A further turn about a response that was met does not count. Which of several turns is the first of its response
    can be said in the end only, as long as their call is not known.
    """
    return f"""
        CREATE OR REPLACE TEMP VIEW open_services AS SELECT * FROM open_turns WHERE source = 'service';
        CREATE OR REPLACE TEMP VIEW known_calls AS
        SELECT trace_id, call_id, run_id FROM open_turns WHERE source <> 'service';
        CREATE OR REPLACE TEMP TABLE services AS
        SELECT o.* REPLACE (coalesce(o.trace_run, c.run_id) AS trace_run)
        FROM (SELECT * FROM ({with_heard_trace("open_services", "known_calls")}) h
              WHERE NOT EXISTS (
                  SELECT 1 FROM open_turns m WHERE m.source = 'met' AND m.trace_id = h.heard_trace
                  AND coalesce(m.response_id, m.turn_index::VARCHAR) = coalesce(h.response_id, h.turn_index::VARCHAR))
              QUALIFY (NOT {is_last} AND heard_trace IS NULL) OR row_number() OVER (
                  PARTITION BY coalesce(heard_trace, trace_id), coalesce(response_id, turn_index::VARCHAR)
                  ORDER BY started_unix_ns, span_id) = 1) o
        LEFT JOIN (SELECT trace_id, min(run_id) AS run_id FROM known_calls GROUP BY trace_id) c
        ON c.trace_id = o.heard_trace
        """


def closed_beyond(
    database: Database, rollup: Rollup, first_unix_ns: int, last_unix_ns: int, kept: int = KEPT_OPEN
) -> Rollup:
    """The roll-up with no more than so many open turns of each source: those that began nearest to one of the two
    moments. The others are counted as turns without a counterpart."""
    if rollup.open_turns is None:
        return rollup
    database.register("open_turns", rollup.open_turns)
    try:
        ordered = database.sql(
            f"""
            SELECT *, row_number() OVER (
                PARTITION BY source ORDER BY least(abs(started_unix_ns - {int(first_unix_ns)}),
                                                   abs(started_unix_ns - {int(last_unix_ns)})), span_id) AS place
            FROM open_turns
            """
        ).to_arrow_table()
    finally:
        database.unregister("open_turns")
    is_kept = ordered.column("place").to_numpy() <= kept
    columns = ordered.select(OPEN_COLUMNS)
    far = pair(database, Rollup(open_turns=columns.filter(~is_kept)), is_last=True)
    return added([Rollup(rollup.cells, rollup.sequences, columns.filter(is_kept)), Rollup(far.cells)])


def _histograms(database: Database) -> Iterator[tuple[Key, RollupCell]]:
    """Cells of the parts `difference` and, by stage, `stage`."""
    table = database.sql(_TIMES).to_arrow_table()
    if not table.num_rows:
        return
    group, groups = grouped(table, DIMENSIONS)
    is_whole = table.column("is_whole").to_numpy()
    for part, name in (("difference", "difference"), *(("stage", stage) for stage in STAGES)):
        column = table.column(name)
        which = column.is_valid().to_numpy() & (is_whole | (part == "difference"))
        values = column.fill_null(0).to_numpy()[which]
        for grp, histogram in counted_by_group(group[which], values, DURATIONS):
            yield key_of(part, groups[grp], (name,)), RollupCell(n=histogram.n, histogram=histogram)
