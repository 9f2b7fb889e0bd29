"""Metrics and bounds that are computed from a table of turns are those of the turns themselves."""

import contextlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from telemetry.model.bounds import BOUNDED
from telemetry.model.metrics import METRICS
from telemetry.model.turns import Turn
from telemetry.store import writer as writing
from telemetry.store.compaction import Compactor
from telemetry.store.compaction_plan import MergeLimits
from telemetry.store.connection import rows
from telemetry.store.schema import SIDES, Batch, turns_table
from telemetry.store.snapshot import Snapshots
from telemetry.store.turn_metrics import with_metrics
from telemetry.store.writer import StoreWriter
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


def bounded_turn(**changes: object) -> Turn:
    """A turn whose bounds can be said in one's head: sent 3 ms late at most, stamped 2 ms late at most."""
    ms = 1_000_000
    return client_turn(
        **{
            "voice_to_voice_ms": 500.0,
            "speech_start_uncertainty_ns": 0,
            "speech_end_uncertainty_ns": 10 * ms,
            "speech_start_later_ns": 0,
            "speech_end_later_ns": 3 * ms,
            "first_audio_earlier_ns": 2 * ms,
            "stamp_error_ns": 1 * ms,
            "held_up_ns": 40 * ms,
            **changes,
        }
    )


def bounds_in_row(row: dict[str, Any], name: str) -> tuple[int | float | None, ...]:
    return tuple(row[METRICS[name].bound_column(side)] for side in SIDES)


def test_the_bounds_of_a_latency_stand_beside_it() -> None:
    (row,) = turns_table([bounded_turn()]).to_pylist()
    assert row["voice_to_voice_ns"] == 500_000_000
    assert (row["voice_to_voice_lower_ns"], row["voice_to_voice_upper_ns"]) == (
        (500 - 2 - 1 - 10 - 3 - 40) * 1_000_000,
        (500 + 1 + 10) * 1_000_000,
    )


def test_the_bounds_of_a_rate_are_those_of_its_time() -> None:
    second = 1_000_000_000
    turn = bounded_turn(
        reply_audio_ns=4 * second,
        tts_first_chunk_perf_ns=4 * second,
        tts_last_chunk_perf_ns=6 * second,
        tts_first_chunk_earlier_ns=second // 2,
        tts_last_chunk_earlier_ns=second,
        stamp_error_ns=0,
    )
    (row,) = turns_table([turn]).to_pylist()
    assert (row["audio_rtfx"], row["audio_rtfx_lower"], row["audio_rtfx_upper"]) == (2.0, 4 / 2.5, 4.0)


def test_a_bound_that_is_infinite_is_none() -> None:
    second = 1_000_000_000
    turn = bounded_turn(
        reply_audio_ns=4 * second,
        tts_first_chunk_perf_ns=4 * second,
        tts_last_chunk_perf_ns=5 * second,
        tts_first_chunk_earlier_ns=0,
        tts_last_chunk_earlier_ns=second,
        stamp_error_ns=0,
    )
    (row,) = turns_table([turn]).to_pylist()
    assert bounds_in_row(row, "audio_rtfx") == (4.0, None)


def test_integers_enclose_the_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("telemetry.store.schema.metric_bounds", lambda _turn, _metric: (-1.5, 1.5))
    (row,) = turns_table([bounded_turn()]).to_pylist()
    assert bounds_in_row(row, "voice_to_voice") == (-2, 2)
    assert bounds_in_row(row, "audio_rtfx") == (-1.5, 1.5)


@pytest.mark.parametrize(
    "changes",
    [
        {"speech_end_later_ns": None},
        {"speech_end_uncertainty_ns": None},
        {"first_audio_earlier_ns": None},
        {"stamp_error_ns": None},
        {"held_up_ns": None},
        {"first_audio_perf_ns": None},
        {"withheld_metrics": ("voice_to_voice",), "withheld_reasons": ("a wire that cannot show it",)},
    ],
)
def test_bounds_that_are_not_known_are_none(changes: dict[str, Any]) -> None:
    (row,) = turns_table([bounded_turn(**changes)]).to_pylist()
    assert bounds_in_row(row, "voice_to_voice") == (None, None)


@pytest.mark.parametrize("missing", [None, *Turn.__struct_fields__])
def test_a_table_has_the_columns_of_its_turns(missing: str | None) -> None:
    """Whichever field a turn lacks: each that a metric or a bound reads is given to it."""
    turn = full_turn()
    if missing is not None and getattr(turn, missing) is not None:
        optional = next(field for field in msgspec.structs.fields(Turn) if field.name == missing)
        if optional.default is None:
            turn = msgspec.structs.replace(turn, **{missing: None})
    table = turns_table([turn])
    assert with_metrics(table.select(list(Turn.__struct_fields__))).equals(table)


def test_every_bounded_metric_has_bounds_in_the_table() -> None:
    row = with_metrics(turns_table([full_turn()]).select(list(Turn.__struct_fields__))).to_pylist()[0]
    for metric in BOUNDED:
        lower, upper = bounds_in_row(row, metric.name)
        assert lower is not None, metric.name
        assert lower <= row[metric.column], metric.name
        assert upper is None or upper >= row[metric.column], metric.name


def test_turns_of_a_segment_without_bounds_have_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that grew from an older version: its segments have no columns of bounds, and are merged with new ones."""
    full = writing.turns_table
    names = [metric.bound_column(side) for metric in BOUNDED for side in SIDES]
    statement = "SELECT voice_to_voice_lower_ns AS low, voice_to_voice_upper_ns AS high, audio_rtfx_upper FROM turns"

    def asked() -> list[tuple[int | None, int | None]]:
        with contextlib.closing(Snapshots(tmp_path)) as store:
            found = store.ask(lambda connection: rows(connection, f"{statement} ORDER BY started_unix_ns"))
        return [(row["low"], row["high"]) for row in found]

    with StoreWriter(tmp_path) as writer:
        monkeypatch.setattr(writing, "turns_table", lambda turns: full(turns).drop_columns(names))
        writer.append(Batch(turns=[bounded_turn(index=0)]))
        assert asked() == [(None, None)]
        monkeypatch.setattr(writing, "turns_table", full)
        for index in range(1, 4):
            writer.append(Batch(turns=[bounded_turn(index=index)]))
        expected = [(None, None), *[(444_000_000, 511_000_000)] * 3]
        assert asked() == expected
        compactor = Compactor(writer, grace_s=0.0, limits=MergeLimits(fan_in=4))
        assert compactor.run_once()
        compactor.stop()
        assert [segment.rows for segment in writer.manifest.segments] == [4]
        assert asked() == expected
