"""What the roll-ups of single segments say of the runs of a store, read without the segments themselves."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from telemetry.model.errors import StoreError
from telemetry.model.semconv import RAMP
from telemetry.store import queries
from telemetry.store.answers import Filter
from telemetry.store.manifest import SEGMENTS_FOLDER, Segment
from telemetry.store.rollups import files, run_declarations
from telemetry.store.rollups.rollup import Key, Rollup, RollupCell
from telemetry.store.rollups.statements import SILENT

_RUN: Final = "run"
_TURNS: Final = "turns"
_TARGET: Final = "run_target"
_PROTOCOL: Final = "run_protocol"
_PARTS: Final = frozenset({_RUN, _TURNS, _TARGET, _PROTOCOL, files.SEQUENCES})

Row = dict[str, Any]


def catalog_rows(directory: Path, segment: Segment) -> list[Row] | None:
    """The runs of a segment of turns, with the columns of `run_catalog.CatalogRow`; None without a roll-up of it.

    A run is one row without a process; its processes follow with the bounds of their sequence numbers and no turns.
    """
    try:
        file = files.read(directory / SEGMENTS_FOLDER, segment)
        return None if file is None else _rows(file.rollup(parts=_PARTS), segment)
    except StoreError:
        return None


def declaration_rows(directory: Path, segment: Segment) -> list[Row] | None:
    """The `voice.run` spans of a segment of spans; None where it has no roll-up that can be read."""
    try:
        found = run_declarations.read(directory / SEGMENTS_FOLDER, segment)
    except StoreError:
        return None
    return None if found is None else [{"file": segment.file, **row} for row in found]


def _rows(rollup: Rollup, segment: Segment) -> list[Row]:
    found: dict[str, Row] = {}
    for key, cell in rollup.of(_RUN):
        run_id, turns = key.run_id or "", cell.n if key.labels == _source_of(key) == ("service",) else 0
        row = found.setdefault(run_id, _row(segment, run_id, cell.first, cell.last))
        row["first_unix_ns"] = min(row["first_unix_ns"], cell.first or 0)
        row["last_unix_ns"] = max(row["last_unix_ns"], cell.last or 0)
        row["viewed_turns"] += turns
    for key, cell in rollup.of(_TURNS):  # of callers
        if key.run_id and key.phase_kind != RAMP and not (key.labels[0] or "").startswith(SILENT):
            found[key.run_id]["viewed_turns"] += cell.n
    for name, part in (("target", _TARGET), ("protocol", _PROTOCOL)):
        for run_id, (unix_ns, text) in _earliest(rollup.of(part)).items():
            found[run_id] |= {name: text, f"{name}_unix_ns": unix_ns}
    processes: list[Row] = []
    for (run_id, process_id), ranges in rollup.sequences.items():
        run: Mapping[str, Any] = found.get(run_id, {})
        processes.append(
            _row(segment, run_id, run.get("first_unix_ns"), run.get("last_unix_ns"))
            | {"process_id": process_id, "lowest": int(ranges[:, 0].min()), "highest": int(ranges[:, 1].max())}
        )
    return [*found.values(), *processes]


def _row(segment: Segment, run_id: str, first_unix_ns: int | None, last_unix_ns: int | None) -> Row:
    return {
        "file": segment.file,
        "run_id": run_id,
        "process_id": "",
        "first_unix_ns": first_unix_ns or 0,
        "last_unix_ns": last_unix_ns or 0,
        "viewed_turns": 0,
        "target": None,
        "target_unix_ns": None,
        "protocol": None,
        "protocol_unix_ns": None,
        "lowest": None,
        "highest": None,
    }


def _source_of(key: Key) -> tuple[str]:
    """Who saw the turns that count in a run (`queries.VIEWED`)."""
    return (queries.source_of(Filter(run_id=key.run_id)),)


def _earliest(cells: Any) -> dict[str, tuple[int, str]]:
    """By run, the earliest moment and its text. Such a cell holds the moment with its sign changed."""
    found: dict[str, tuple[int, str]] = {}
    items: list[tuple[Key, RollupCell]] = list(cells)
    for key, cell in items:
        if cell.text_at is not None and cell.text is not None:
            run_id, each = key.run_id or "", (-cell.text_at, cell.text)
            found[run_id] = min(each, found.get(run_id, each))
    return found
