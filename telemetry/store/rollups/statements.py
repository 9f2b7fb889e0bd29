"""The SQL that turns the rows of the table `staged` into cells.

`staged` holds turns of both sources with `grp`, the number of their group (source and dimensions), and `kind`, how the
turn ended as far as figures differ by it; of a silent turn it begins with SILENT.
"""

# ruff: noqa: S608 - the identifiers in these statements come from our own tables

from typing import Final, Protocol

from telemetry.model.generator_health import SUMMARY_FIGURES
from telemetry.model.metrics import HEADLINE, METRICS
from telemetry.store.queries import ANSWERS_OF_CACHE, BEHAVIOR, IS_UNANSWERED
from telemetry.store.rollups.rollup import KEPT_SLOWEST

SILENT: Final = "s:"
VALID: Final = "source = 'client' AND outcome <> 'invalid'"
ASKED: Final = "NOT starts_with(kind, 's:')"
LISTED: Final = ("noise_profile", "length_class", "route")

KIND: Final = f"""
    CASE WHEN turn_kind IS NOT DISTINCT FROM 'silence' THEN '{SILENT}' ELSE '' END ||
    CASE WHEN outcome = 'invalid' THEN 'invalid' WHEN outcome = 'cut' THEN 'cut'
         WHEN outcome = 'error' AND turn_index = 0 THEN 'first'
         WHEN {IS_UNANSWERED} THEN 'unanswered'
         ELSE 'answered' END
    """

# The figures of the generator that turns carry evidence of, by how they are combined.
EVIDENCE_MOST: Final = {
    f.name: f.turn_column for f in SUMMARY_FIGURES if f.turn_column is not None and f.combine == "max"
}
EVIDENCE_P99: Final = {
    f.name: f.turn_column for f in SUMMARY_FIGURES if f.turn_column is not None and f.combine == "p99"
}

# Counted per group: which turns, and how often. Behavior is counted over valid turns, the rest over all of the client.
BOUNDS: Final = {"start": "speech_start_uncertainty_ns", "end": "speech_end_uncertainty_ns"}
_SPOKEN: Final = "outcome <> 'invalid' AND speech_end_perf_ns IS NOT NULL"
_COUNTED: Final = {
    **{
        name: f"count(*) FILTER (outcome <> 'invalid' AND {condition})"
        for name, condition in (BEHAVIOR | ANSWERS_OF_CACHE).items()
    },
    "unknown": "coalesce(sum(unknown_events), 0)::BIGINT",
    "duplicates": "coalesce(sum(duplicate_events), 0)::BIGINT",
    "turns_with_service_latency": "count(*) FILTER (service_latency_reports > 0)",
    "asked": "count(retry_after_ns)",
    "waits": "count(retry_wait_ns)",
    "waited_ns": "coalesce(sum(retry_wait_ns), 0)::BIGINT",
    "spoken": f"count(*) FILTER ({_SPOKEN})",
    "spoken_unknown": f"count(*) FILTER ({_SPOKEN} AND ({' IS NULL OR '.join(BOUNDS.values())} IS NULL))",
}
_MOST: Final = {"asked_worst_ns": "max(retry_after_ns)"} | {
    name: f"max({column})" for name, column in EVIDENCE_MOST.items()
}


def wide() -> str:
    """A row per group of the client, with a column `n_NAME` for what is counted and `most_NAME` for what is largest."""
    columns = [f"{sql} AS n_{name}" for name, sql in _COUNTED.items()]
    columns += [f"{sql}::DOUBLE AS most_{name}" for name, sql in _MOST.items()]
    return f"""
        SELECT grp, {", ".join(columns)}, min(started_unix_ns) FILTER (outcome <> 'invalid') AS first,
               max(started_unix_ns) FILTER (outcome <> 'invalid') AS last
        FROM staged WHERE source = 'client' GROUP BY grp
        """


class Occurring(Protocol):
    """What occurs in a table of turns. To plan a statement takes longer than to carry it out over few turns, so it is
    asked for nothing that does not occur."""

    def has(self, column: str) -> bool:
        """Whether a turn has a value in a column, of a list one with an element."""
        ...

    def has_outcome_but(self, *known: str) -> bool:
        """Whether a turn has an outcome other than these."""
        ...


def counted(occurring: Occurring) -> str:
    """Rows `grp, part, labels, n, total, first, last, text_at, text` of everything that is counted by its name."""
    names = {
        "invalid": ("invalid_reasons", "reason", "unnest(invalid_reasons) AS reason FROM staged "
                    f"WHERE source = 'client' AND {ASKED} AND outcome = 'invalid'"),
        "withheld_turns": ("withheld_metrics", "kind, metric",
                           f"kind, unnest(list_distinct(withheld_metrics)) AS metric FROM staged WHERE {VALID}"),
        "unknown_name": ("unknown_event_names", "name",
                         "unnest(unknown_event_names) AS name FROM staged WHERE source = 'client'"),
        **{f"{part}{each}": (each, each, f"{each} FROM staged WHERE source = 'client' AND {each} IS NOT NULL")
           for part, listed in (("", ("receive_stamp", "pacer")), ("value_", LISTED)) for each in listed},
    }  # fmt: skip
    found = [
        f"SELECT grp, '{part}' AS part, [{labels}] AS labels, count(*) AS n FROM (SELECT grp, {source}) GROUP BY ALL"
        for part, (column, labels, source) in names.items()
        if occurring.has(column)
    ]
    if occurring.has("withheld_metrics"):
        found.append(f"""
            SELECT grp, 'withheld' AS part, [metric, reason] AS labels, count(*) AS n, min(started_unix_ns) AS first
            FROM (SELECT grp, unnest(withheld_metrics) AS metric, unnest(withheld_reasons) AS reason, started_unix_ns
                  FROM staged WHERE {VALID}) WHERE metric IS NOT NULL GROUP BY ALL
            """)
    found.append("""
        SELECT grp, 'turns' AS part, [kind, outcome, fallback, route, cache_tier, cache_hit::VARCHAR,
               endpoint_did_not_read::VARCHAR] AS labels, count(*) AS n,
               min(started_unix_ns) AS first, max(ended_unix_ns) AS last
        FROM staged WHERE source = 'client' GROUP BY ALL
        """)
    if occurring.has_outcome_but("ok", "invalid"):
        found += _ended_otherwise()
    if occurring.has("outcome_reason"):
        found.append(f"""
            SELECT grp, 'remark' AS part, [outcome_reason] AS labels, count(*) AS n
            FROM staged WHERE {VALID} AND {ASKED} AND outcome = 'ok' AND outcome_reason IS NOT NULL GROUP BY ALL
            """)
    found.append("""
        SELECT grp, 'process' AS part, [process_id] AS labels, count(*) AS n, max(ended_unix_ns) AS last
        FROM staged WHERE source = 'client' AND process_id <> '' GROUP BY ALL
        """)
    found += _runs(occurring)
    if occurring.has("wer_reference_words"):
        found.append(_word_errors())
    return " UNION ALL BY NAME ".join(f"({each})" for each in found)


def _ended_otherwise() -> list[str]:
    """The turns that were cut, and those that failed."""
    return [
        f"""
        SELECT grp, 'cut' AS part, [coalesce(cut_by, 'not reported')] AS labels, count(*) AS n
        FROM staged WHERE source = 'client' AND outcome = 'cut' AND {ASKED} GROUP BY ALL
        """,
        f"""
        SELECT grp, 'failure' AS part, [failure_kind, failure_code] AS labels, count(*) AS n,
               max(started_unix_ns) FILTER (outcome_reason IS NOT NULL) AS text_at,
               arg_max(outcome_reason, started_unix_ns) AS text
        FROM staged WHERE source = 'client' AND {ASKED} AND (
            outcome NOT IN ('ok', 'cut', 'invalid') OR (outcome = 'invalid' AND failure_kind = 'generator')
        ) GROUP BY ALL
        """,
    ]


def _word_errors() -> str:
    """The sums of word errors under each condition."""
    sums = ", ".join(
        f"{{'name': '{name}', 'total': coalesce(sum({value}), 0)::DOUBLE}}" for name, value in WORD_ERRORS.items()
    )
    return f"""
        SELECT grp, 'wer' AS part, [noise_profile, snr, channel_profile, each.name] AS labels, n, each.total AS total
        FROM (SELECT grp, noise_profile, snr, channel_profile, n, unnest(sums) AS each
              FROM (SELECT grp, noise_profile, snr_asked_db::VARCHAR AS snr, channel_profile, count(*) AS n,
                           [{sums}] AS sums
                    FROM staged WHERE {VALID} AND wer_reference_words > 0 GROUP BY ALL))
        """


def _runs(occurring: Occurring) -> list[str]:
    """The turns of each run, and what its first ones say of it."""
    found = [
        """
        SELECT grp, 'run' AS part, [source] AS labels, count(*) AS n, min(started_unix_ns) AS first,
               max(ended_unix_ns) AS last
        FROM staged WHERE run_id <> '' GROUP BY ALL
        """
    ]
    # The first one counts here: of two texts the one at the larger moment stays.
    found += [
        f"""
        SELECT grp, 'run_{name}' AS part, [] AS labels, count(*) AS n, -min(started_unix_ns) AS text_at,
               arg_min({name}, started_unix_ns) AS text
        FROM staged WHERE source = 'client' AND run_id <> '' AND {name} IS NOT NULL GROUP BY ALL
        """
        for name in ("target", "protocol")
        if occurring.has(name)
    ]
    return found


WORD_ERRORS: Final = {
    "words": "wer_reference_words",
    "errors": "wer_errors",
    "characters": "wer_reference_characters",
    "errors_squared": "wer_errors::DOUBLE * wer_errors",
    "errors_times_words": "wer_errors::DOUBLE * wer_reference_words",
    "words_squared": "wer_reference_words::DOUBLE * wer_reference_words",
}


def sequences() -> str:
    """Rows `run_id, process_id, first, last`: the sequence numbers that arrived, as ranges without a hole."""
    return """
        SELECT run_id, process_id, min(sequence) AS first, max(sequence) AS last FROM (
            SELECT run_id, process_id, sequence,
                   sequence - row_number() OVER (PARTITION BY run_id, process_id ORDER BY sequence) AS island
            FROM (SELECT DISTINCT run_id, process_id, sequence FROM staged
                  WHERE sequence IS NOT NULL AND process_id <> ''))
        GROUP BY run_id, process_id, island
        """


def slowest() -> str:
    """Rows `grp, trace_id, span_id, first, most` of the turns that waited longest, KEPT_SLOWEST of each group."""
    value = METRICS[HEADLINE].column
    return f"""
        SELECT grp, trace_id, span_id, started_unix_ns AS first, {value}::DOUBLE AS most
        FROM (SELECT grp, trace_id, span_id, started_unix_ns, {value} FROM staged WHERE {VALID} AND {value} IS NOT NULL)
        QUALIFY row_number() OVER (
            PARTITION BY grp ORDER BY {value} DESC, started_unix_ns, span_id) <= {KEPT_SLOWEST}
        """
