"""The recorded spans of frameworks, as the adapters get them: read back from the store, without texts."""

import json
from functools import cache
from pathlib import Path

from telemetry.model.turn_spans import SpanRow
from telemetry.model.turns import Turn
from telemetry.sidecar.otlp.json_requests import traces_from_json
from telemetry.store.redaction import table_without_text
from telemetry.store.schema import span_from_row
from tests.fixtures_sidecar import decode_traces
from tests.unit.telemetry.sidecar.adapters.stored_turns import turns_of

FOLDER = Path(__file__).resolve().parents[4] / "fixtures" / "frameworks"
NOW_UNIX_NS = 1_800_000_000_000_000_000


def recorded_files() -> list[str]:
    """The names of all recordings, `FRAMEWORK-VERSION/CALL`."""
    return sorted(str(path.relative_to(FOLDER).with_suffix("")) for path in FOLDER.glob("*/*.json"))


@cache
def recorded_spans(name: str) -> tuple[SpanRow, ...]:
    """The spans of a recording, in the order in which they ended."""
    request = json.loads((FOLDER / f"{name}.json").read_text())["request"]
    decoded = decode_traces([traces_from_json(json.dumps(request).encode())])
    assert decoded.requests[0].fault is None
    assert decoded.requests[0].rejected == 0
    return tuple(span_from_row(row) for row in table_without_text("spans", decoded.spans).to_pylist())


def recorded_turns(name: str) -> list[Turn]:
    """The turns of a recording, in their order, once nothing more will come."""
    return turns_of(recorded_spans(name))
