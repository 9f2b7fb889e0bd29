"""Metrics that are computed from a table of turns are those of the turns themselves."""

from typing import Any

import msgspec
import pytest

from telemetry.model.metrics import METRICS
from telemetry.model.turns import Turn
from telemetry.store.schema import turns_table
from telemetry.store.turn_metrics import with_metrics
from tests.fixtures_turns import client_turn


def full_turn() -> Turn:
    """A turn in which every number is known, each another one and later ones larger."""
    numbers: dict[str, Any] = {}
    for field in msgspec.structs.fields(Turn):
        kinds = str(field.type)
        if field.default is None and ("int" in kinds or "float" in kinds) and "Literal" not in kinds:
            numbers[field.name] = 1_000_000 + 1_000 * len(numbers)
    return client_turn(**numbers)


def test_every_metric_has_its_value_in_the_table() -> None:
    turn = full_turn()
    fields = turns_table([turn]).select(list(Turn.__struct_fields__))
    row = with_metrics(fields).to_pylist()[0]
    for name, metric in METRICS.items():
        wanted = metric.value(turn)
        assert wanted is not None, name
        assert row[metric.column] == pytest.approx(wanted), name
