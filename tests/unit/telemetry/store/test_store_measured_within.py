"""The true statistics of a metric lie within what is stated, whatever the turns truly were within their own bounds."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from telemetry.model.bounds import BOUNDED, STATISTICS, MeasuredWithin
from telemetry.model.metrics import METRICS
from telemetry.model.turns import Turn
from telemetry.store import writer as writing
from telemetry.store.answers import SpeechBoundErrors
from telemetry.store.schema import SIDES
from tests.fixtures_turns import MS, client_turn, synthetic_run
from tests.unit.telemetry.store.opened_stores import reader_of

EARLIER = [name for name in Turn.__struct_fields__ if name.endswith("_earlier_ns")]


def stated(turn: Turn, **changes: object) -> Turn:
    """The turn, measured without any error."""
    exact: dict[str, Any] = dict.fromkeys(EARLIER, 0) | dict.fromkeys(
        ("speech_start_later_ns", "speech_end_later_ns", "stamp_error_ns", "held_up_ns", "held_up_speaking_ns"), 0
    )
    exact |= {"speech_start_uncertainty_ns": 0, "speech_end_uncertainty_ns": 0}
    return msgspec.structs.replace(turn, **(exact | changes))


def measured(turn: Turn, dice: random.Random, unknown: float) -> Turn:
    """The turn, with an error of its own for whatever was measured, or with some that is not known."""
    errors: dict[str, Any] = {name: dice.randrange(20 * MS) for name in EARLIER}
    errors |= {"speech_end_later_ns": dice.randrange(15 * MS), "speech_end_uncertainty_ns": dice.randrange(120 * MS)}
    errors |= {"held_up_ns": dice.choice((0, 0, dice.randrange(80 * MS))), "stamp_error_ns": dice.randrange(MS)}
    if dice.random() < unknown:
        errors[dice.choice(("speech_end_uncertainty_ns", "held_up_ns", "stamp_error_ns"))] = None
    return stated(turn, **errors)


def true_latency(turn: Turn, dice: random.Random, arrived: str) -> int | None:
    """Draw a true latency from the end of speech: each error somewhere between none and all of it."""
    end, arrival = turn.speech_end_perf_ns, getattr(turn, f"{arrived}_perf_ns")
    if end is None or arrival is None:
        return None
    errors = (turn.speech_end_uncertainty_ns, turn.held_up_ns, turn.stamp_error_ns)
    if None in errors:
        return dice.choice((-1, 1)) * 10**12
    annotated, held_up, stamp = (error or 0 for error in errors)
    truly_ended = end + dice.randint(0, turn.speech_end_later_ns or 0) + dice.randint(-annotated, annotated)
    arrived_truly = arrival - dice.randint(0, getattr(turn, f"{arrived}_earlier_ns")) + dice.randint(-stamp, stamp)
    return arrived_truly - dice.randint(0, held_up) - truly_ended


ARRIVES = {
    "voice_to_voice": "first_audio",
    "asr_final_latency": "asr_final",
    "llm_first_token_latency": "llm_first_token",
    "endpointing": "endpoint",
    "time_to_first_sentence": "llm_first_sentence",
}


def statistics(values: Sequence[float]) -> dict[str, float]:
    return {name: float(np.percentile(values, int(name[1:]))) for name in ("p50", "p95", "p99")} | {"max": max(values)}


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "unknown"), [(1, 0.0), (2, 0.0), (3, 0.02), (4, 0.3)])
def test_the_true_statistics_lie_within_what_is_stated(tmp_path: Path, seed: int, unknown: float) -> None:
    run = [turn for turn in synthetic_run(turns=220, seed=seed).turns if turn.source == "client"]
    dice = random.Random(f"errors of {seed}")
    turns = [measured(turn, dice, unknown) for turn in run]
    valid = [turn for turn in turns if turn.outcome != "invalid"]
    with reader_of(tmp_path, *turns) as reader:
        metrics = reader.summary().metrics
    checked = 0
    for again in range(20):
        dice = random.Random(f"{seed}/{again}")
        for name, arrived in ARRIVES.items():
            truly = statistics([value for turn in valid if (value := true_latency(turn, dice, arrived)) is not None])
            within = metrics[name].measured_within
            assert within is not None
            for statistic in STATISTICS:
                bounds = getattr(within, statistic)
                if bounds is not None:
                    checked += 1
                    assert bounds[0] - 1 <= truly[statistic] <= bounds[1] + 1, (name, statistic)
    assert checked > (100 if unknown < 0.1 else 0)


def test_the_bounds_are_worked_out_on_paper(tmp_path: Path) -> None:
    """The values are 490, 480, 555 and 510, 540, 605 ms: the last was held up by 40 ms."""
    turns = [
        stated(
            client_turn(index, voice_to_voice_ms=ms, connect_ns=4 * MS, wer_errors=1, wer_reference_words=8),
            speech_end_uncertainty_ns=uncertain_ms * MS,
            held_up_ns=held_up_ms * MS,
        )
        for index, (ms, uncertain_ms, held_up_ms) in enumerate(((500, 10, 0), (510, 30, 0), (600, 5, 40)))
    ]
    with reader_of(tmp_path, *turns) as reader:
        summary = reader.summary()
    stats = summary.metrics["voice_to_voice"]
    assert (stats.p50, stats.p95, stats.p99, stats.max) == (510 * MS, None, None, 600 * MS)
    assert stats.measured_within == MeasuredWithin((490 * MS, 540 * MS), None, None, (555 * MS, 605 * MS), 0)
    assert summary.speech_bounds == SpeechBoundErrors(3, 0, 0.0, 0, 10.0 * MS, 30 * MS)
    # What is counted is exact; so is what was measured without error, and what was not measured has no bounds.
    assert summary.metrics["wer"].measured_within == MeasuredWithin((0.125, 0.125), None, None, (0.125, 0.125))
    assert summary.metrics["connect"].measured_within == MeasuredWithin((4e6, 4e6), None, None, (4e6, 4e6))
    assert summary.metrics["asr_final_latency"].measured_within == MeasuredWithin(None, None, None, None)
    assert summary.metrics["itl"].measured_within is None


def test_bounds_of_cohort_and_phase_are_of_their_own_turns(tmp_path: Path) -> None:
    turns = [
        stated(
            client_turn(
                index, voice_to_voice_ms=500, cohort=cohort, phase=cohort, phase_kind="hold", connect_ns=4 * MS
            ),
            speech_end_uncertainty_ns=uncertain_ms * MS,
            connect_earlier_ns=uncertain_ms * MS // 10,
        )
        for index, (cohort, uncertain_ms) in enumerate((("a", 10), ("b", 20)))
    ]
    with reader_of(tmp_path, *turns) as reader:
        summary = reader.summary()
    for parts in (summary.cohorts, summary.phases):
        heard = [(part.metrics["voice_to_voice"].measured_within, part.metrics["connect"].measured_within)
                 for part in parts]  # fmt: skip
        assert [(voice.p50, connect.p50) for voice, connect in heard if voice and connect] == [
            ((490 * MS, 510 * MS), (3 * MS, 4 * MS)),
            ((480 * MS, 520 * MS), (2 * MS, 4 * MS)),
        ]


def test_an_invalid_turn_widens_nothing(tmp_path: Path) -> None:
    turns = [
        stated(client_turn(0, voice_to_voice_ms=500)),
        client_turn(1, voice_to_voice_ms=900, outcome="invalid", invalid_reasons=("drift",)),
    ]
    with reader_of(tmp_path, *turns) as reader:
        within = reader.summary().metrics["voice_to_voice"].measured_within
    assert within == MeasuredWithin((500 * MS, 500 * MS), None, None, (500 * MS, 500 * MS))


@pytest.mark.slow
def test_few_unknown_bounds_keep_median_known_but_not_tail(tmp_path: Path) -> None:
    turns = [stated(client_turn(i, voice_to_voice_ms=500 + i), speech_end_uncertainty_ns=10 * MS) for i in range(97)]
    turns += [client_turn(i, voice_to_voice_ms=300) for i in range(97, 100)]
    with reader_of(tmp_path, *turns) as reader:
        within = reader.summary().metrics["voice_to_voice"].measured_within
    assert within is not None
    assert within.turns_unknown == 3
    assert within.p50 is not None
    # Three unknown turns may lie at either end: they move the median by three places at most, in addition to the 10 ms.
    assert (within.p50[1] - within.p50[0]) / MS == pytest.approx(23.0)
    assert (within.p99, within.max) == (None, None)
    with reader_of(tmp_path / "none", *(client_turn(i) for i in range(30))) as reader:
        nothing = reader.summary().metrics["voice_to_voice"].measured_within
    assert nothing == MeasuredWithin(None, None, None, None, 30)


def test_a_rate_that_may_be_infinite_has_no_greatest_value(tmp_path: Path) -> None:
    turn = stated(
        client_turn(0),
        reply_audio_ns=4_000 * MS,
        tts_first_chunk_perf_ns=4_000 * MS,
        tts_last_chunk_perf_ns=5_000 * MS,
        tts_last_chunk_earlier_ns=1_000 * MS,
    )
    with reader_of(tmp_path, turn) as reader:
        stats = reader.summary().metrics["audio_rtfx"]
    assert (stats.p50, stats.measured_within) == (4.0, MeasuredWithin(None, None, None, None))


def test_turns_of_a_segment_without_bounds_are_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = writing.turns_table
    names = [metric.bound_column(side) for metric in BOUNDED for side in SIDES]
    names += ["speech_start_uncertainty_ns", "speech_end_uncertainty_ns"]
    monkeypatch.setattr(writing, "turns_table", lambda turns: full(turns).drop_columns(names))
    with reader_of(tmp_path, *(stated(client_turn(i)) for i in range(20))) as reader:
        summary = reader.summary()
    assert summary.speech_bounds == SpeechBoundErrors(20, 20)
    assert summary.metrics["voice_to_voice"].measured_within == MeasuredWithin(None, None, None, None, 20)


def test_every_metric_states_its_bounds(tmp_path: Path) -> None:
    run = [turn for turn in synthetic_run(turns=60).turns if turn.source == "client"]
    with reader_of(tmp_path, *(stated(turn, arrival_uncertainty_worst_ns=0) for turn in run)) as reader:
        metrics = reader.summary().metrics
    measured = {name for name in METRICS if metrics[name].n}
    assert len(measured) > 12
    for name in measured:
        stats, within = metrics[name], metrics[name].measured_within
        assert within is not None
        assert within.turns_unknown == 0
        for statistic in STATISTICS:
            figure = getattr(stats, statistic)
            bounds = getattr(within, statistic)
            assert bounds == (None if figure is None else pytest.approx((figure, figure))), (name, statistic)
