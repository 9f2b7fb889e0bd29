"""Runs as their processes would have sent them, for tests of the chip that says how far figures can be trusted."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from telemetry.model import semconv
from telemetry.model.turns import Turn
from telemetry.store.schema import Batch, PointRow
from telemetry.store.writer import StoreWriter
from tests.fixtures_turns import SECOND, client_turn, run_span

NOW = 1_795_000_000 * SECOND
HOUR = 3600 * SECOND


def written(
    folder: Path,
    run_id: str,
    turns: int,
    *,
    invalid: int = 0,
    lost: int = 0,
    ends: bool = True,
    is_lost: bool = False,
    calibrated: str = "",
    at: int = NOW - HOUR,
    **changes: Any,
) -> list[Turn]:
    """Write a run of which the first turns are invalid, and the last ones were emitted and never arrived; it says how
    many it emitted if it `ends`. The process of one that `is_lost` never announced its end."""
    worker = f"worker-{run_id}"
    kept = [
        client_turn(
            index,
            run_id=run_id,
            process_id=worker,
            call_id=f"{run_id}-{index}",
            started_unix_ns=at + index * SECOND // 10,
            **changes,
        )
        for index in range(turns)
    ]
    kept = [
        msgspec.structs.replace(
            turn, outcome="invalid" if index < invalid else "ok", span_id=f"{hash_of(run_id)}{index:08x}"
        )
        for index, turn in enumerate(kept)
    ]
    declared = {"voice.run.process_id": worker, **({"voice.run.calibrated_to_ms": calibrated} if calibrated else {})}
    spans = [
        replace(span, attributes={**span.attributes, **declared})
        for span in (run_span(run_id, at, phase) for phase in (("start",) if is_lost else ("start", "end")))
    ]
    attributes = {"run_id": run_id, "process_id": worker}
    emitted = PointRow(semconv.METRIC_TURNS_EMITTED, at + 60 * SECOND, float(turns + lost), attributes, "voiceprobe")
    with StoreWriter(folder) as writer:
        writer.append(Batch(kept[:turns], spans, [emitted] if ends else []))
    return kept


def hash_of(run_id: str) -> str:
    return f"{sum(map(ord, run_id)):08x}"
