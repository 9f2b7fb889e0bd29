"""What the pictures of a run are drawn from, read from its store; and the reports that are made with them."""

from dataclasses import replace
from pathlib import Path
from typing import Final

from loadtest.errors import OutputError
from loadtest.reports.run_report import RunPictures, SlowTurn
from loadtest.run.artifacts import artifacts, write_together
from loadtest.run.judged_run import RunResult
from telemetry.model.metrics import METRICS
from telemetry.model.semconv import RAMP
from telemetry.model.turns import Turn
from telemetry.model.waterfall import waterfall
from telemetry.objectives.judgment import is_unanswered
from telemetry.store.answers import Filter, Summary
from telemetry.store.questions.filters import source_of
from telemetry.store.reader import RemoteStore, StoreReader

# So many turns are drawn one by one; of more, the store's slots of time are drawn.
MOST_DOTS: Final = 3_000
# The distribution is made of so many values at most: each is read.
MOST_VALUES: Final = 2_000_000
SLOWEST: Final = 5
_TURNS_PER_SLOT: Final = 60
_MOST_SLOTS: Final = 90
_FEWEST_SLOTS: Final = 12


def leave_reports(reader: StoreReader, result: RunResult, folder: Path) -> RunResult:
    """Write the reports of a run into a folder, all or none; the result says where they are, or why they are not.
    Raises StoreError."""
    contents = artifacts(result.report(read_pictures(reader, result.summary)))
    try:
        write_together(folder, contents)
    except OutputError as error:
        return replace(result, unwritten=error)
    return replace(result, folder=folder)


def read_pictures(reader: StoreReader, summary: Summary) -> RunPictures:
    """Read them for the run that a summary is about. Raises StoreError."""
    where, total = summary.filter, summary.turns.total
    if not total:
        return RunPictures()
    slots = min(_MOST_SLOTS, max(_FEWEST_SLOTS, total // _TURNS_PER_SLOT))
    dots = _dots(reader, summary) if total + summary.ramp_turns <= MOST_DOTS else []
    return RunPictures(
        timeline=reader.timeline(where, buckets=slots),
        dots=dots,
        values_ns=[value for _, value in dots if value is not None] if dots else _values_ns(reader, where, total),
        stages=reader.stage_budget(where),
        slowest=[_slow_turn(reader, turn) for turn in reader.slowest(where, limit=SLOWEST)],
    )


def _dots(reader: StoreReader, summary: Summary) -> list[tuple[int, float | None]]:
    """The valid turns that asked something: when each began, and its voice-to-voice. A turn without one although it
    was answered is left out."""
    value_of = METRICS["voice_to_voice"].value
    found: list[tuple[int, float | None]] = []
    for turn in reader.turns(summary.filter, limit=MOST_DOTS, source=source_of(summary.filter)):
        if turn.outcome == "invalid" or turn.turn_kind == "silence" or turn.phase_kind == RAMP:
            continue
        value = value_of(turn)
        if value is not None or is_unanswered(turn):
            found.append((turn.started_unix_ns, value))
    return found


def _values_ns(reader: StoreReader, where: Filter, total: int) -> list[float] | None:
    if isinstance(reader, RemoteStore) or total > MOST_VALUES:
        return None
    return reader.metric_values(where, "voice_to_voice")


def _slow_turn(reader: StoreReader, turn: Turn) -> SlowTurn:
    """One turn with its other side, if that is in the store."""
    client, service = reader.turn(turn.trace_id, turn.turn_index) if turn.trace_id else (None, None)
    if client is None and service is None:
        client, service = (turn, None) if turn.source == "client" else (None, turn)
    spans = reader.spans(turn.trace_id) if turn.trace_id else []
    laid_out = waterfall(client, service, spans)
    return SlowTurn(turn=turn, waterfall=laid_out, has_both_sides=client is not None and service is not None)
