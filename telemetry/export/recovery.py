"""Turns of a process that was killed, brought from its write-ahead log to the collector as the spans that they were."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, TraceFlags

from telemetry.export.spool import SpoolRecord
from telemetry.export.wal import left_behind
from telemetry.model import semconv
from telemetry.model.metrics import TIMESTAMPS, timestamp
from telemetry.model.turn_spans import turn_attributes
from telemetry.model.turns import Turn

_BATCH: Final = 64
_MAX_UNIX_NS: Final = 2**64 - 1


def revive(directory: Path, sink: Callable[[SpoolRecord], bool]) -> bool:
    """Hand the turns of every write-ahead log in `directory` to `sink`, which says whether it took them; a log whose
    turns were all taken is removed. Whether that is so of all. Receivers know a turn by its span: sending it twice does
    no harm. Call it when the processes that write there have ended. Raises OSError."""
    all_taken = True
    for path, turns in left_behind(directory):
        batches = [turns[at : at + _BATCH] for at in range(0, len(turns), _BATCH)]
        if all(sink(_record(batch)) for batch in batches):
            path.unlink()
        else:
            all_taken = False
    return all_taken


def _record(turns: Sequence[Turn]) -> SpoolRecord:
    spans = [_span(turn) for turn in turns]
    return SpoolRecord("traces", len(spans), encode_spans(spans).SerializeToString())


def _span(turn: Turn) -> ReadableSpan:
    known = [at for name in TIMESTAMPS if (at := timestamp(turn, name)) is not None]
    lasted_ns = max(0, max(known, default=turn.started_perf_ns) - turn.started_perf_ns)
    began = min(max(turn.started_unix_ns, 0), _MAX_UNIX_NS)
    identity = SpanContext(
        int(turn.trace_id or "0", 16), int(turn.span_id or "0", 16), False, TraceFlags(TraceFlags.SAMPLED)
    )
    return ReadableSpan(
        semconv.SPAN_TURN,
        context=identity,
        resource=Resource({"service.name": "voiceprobe-caller", "service.instance.id": turn.process_id}),
        instrumentation_scope=InstrumentationScope(semconv.SCOPE),
        attributes=turn_attributes(turn),
        start_time=began,
        end_time=min(began + lasted_ns, _MAX_UNIX_NS),
    )
