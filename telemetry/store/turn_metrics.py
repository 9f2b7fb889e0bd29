"""Adds to the fields of turns the columns that follow from them: the metrics, their bounds and the turn's end.

Each metric has one definition, a function of a turn. It is given a turn that has only the fields that metrics read.
"""

from typing import Any, Final

import pyarrow as pa

from telemetry.model.metrics import TIMESTAMPS
from telemetry.model.turns import Turn
from telemetry.store.schema import SCHEMAS, ArrowTable, derived_columns

# Every field that a metric, its bounds or the turn's end are computed from.
READ_BY_METRICS: Final = (
    "started_unix_ns",
    "started_perf_ns",
    *(f"{name}_perf_ns" for name in TIMESTAMPS),
    "speech_start_uncertainty_ns",
    "speech_end_uncertainty_ns",
    *(name for name in Turn.__struct_fields__ if name.endswith(("_earlier_ns", "_later_ns"))),
    "stamp_error_ns",
    "arrival_uncertainty_worst_ns",
    "held_up_ns",
    "held_up_speaking_ns",
    "connect_ns",
    "leading_silence_ns",
    "barge_in_stop_ns",
    "talk_over_ns",
    "underrun_worst_ns",
    "underrun_total_ns",
    "reply_audio_ns",
    "llm_tokens",
    "llm_input_tokens",
    "llm_cached_tokens",
    "llm_chunks",
    "wer_errors",
    "wer_reference_words",
    "rtp_packets_received",
    "rtp_packets_lost",
    "rtp_jitter_worst_ns",
)
_UNREAD: Final[dict[str, Any]] = {"run_id": "", "call_id": "", "turn_index": 0, "source": "client", "outcome": "ok"}


def with_metrics(fields: ArrowTable) -> ArrowTable:
    """The turns of a table that has a column for each field of a turn, as the store keeps them."""
    columns = [fields[name].to_pylist() for name in READ_BY_METRICS]
    withheld = map(tuple, fields["withheld_metrics"].to_pylist())
    turns = [
        Turn(withheld_metrics=of_turn, **_UNREAD, **dict(zip(READ_BY_METRICS, values, strict=True)))
        for of_turn, *values in zip(withheld, *columns, strict=True)
    ]
    return pa.Table.from_arrays([*fields.columns, *derived_columns(turns)], schema=SCHEMAS["turns"])
