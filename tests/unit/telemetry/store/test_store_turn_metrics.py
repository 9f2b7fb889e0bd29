"""Metrics and bounds that are computed from a table of turns are those of the turns themselves."""

from typing import Any

import msgspec
import pytest

from telemetry.model.bounds import BOUNDED
from telemetry.model.metrics import METRICS
from telemetry.model.turns import Turn
from telemetry.store.schema import SIDES, turns_table
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
    row = turns_table([turn]).to_pylist()[0]
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


def test_bounds_of_latency_are_in_its_row() -> None:
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


def test_infinite_bound_is_stored_as_null() -> None:
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
    monkeypatch.setattr("telemetry.store.schema.bounds_of_value", lambda _turn, _metric, _value: (-1.5, 1.5))
    second = 1_000_000_000
    chunks = {"tts_first_chunk_perf_ns": 4 * second, "tts_last_chunk_perf_ns": 5 * second}
    (row,) = turns_table([bounded_turn(reply_audio_ns=4 * second, **chunks)]).to_pylist()
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


def test_every_bounded_metric_has_bounds_in_the_table() -> None:
    row = turns_table([full_turn()]).to_pylist()[0]
    for metric in BOUNDED:
        lower, upper = bounds_in_row(row, metric.name)
        assert lower is not None, metric.name
        assert lower <= row[metric.column], metric.name
        assert upper is None or upper >= row[metric.column], metric.name
