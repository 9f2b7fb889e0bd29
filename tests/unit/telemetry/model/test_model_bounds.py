"""Between which two values each metric of a turn truly lies, from what the turn states of its timestamps."""

import math
from typing import Any

import msgspec
import pytest

from telemetry.model.bounds import (
    BOUNDED,
    Bounds,
    MeasuredWithin,
    finite,
    measured_within,
    metric_bounds,
    timestamp_bounds,
    turn_figures,
    turn_measured_within,
)
from telemetry.model.metrics import DEFINITIONS, METRICS
from telemetry.model.turns import Turn
from tests.fixtures_turns import client_turn

END = 1_000
TURN = Turn(
    run_id="r",
    call_id="c",
    turn_index=0,
    source="client",
    outcome="ok",
    turn_kind="question",
    started_unix_ns=0,
    started_perf_ns=0,
    speech_start_perf_ns=100,
    speech_end_perf_ns=END,
    asr_final_perf_ns=1_200,
    llm_first_token_perf_ns=1_300,
    llm_last_token_perf_ns=1_800,
    tts_first_chunk_perf_ns=1_500,
    first_audio_perf_ns=1_600,
    hangup_perf_ns=5_000,
    speech_start_later_ns=1,
    speech_end_later_ns=2,
    speech_start_uncertainty_ns=5,
    speech_end_uncertainty_ns=0,
    asr_final_earlier_ns=10,
    llm_first_token_earlier_ns=20,
    llm_last_token_earlier_ns=30,
    tts_first_chunk_earlier_ns=40,
    first_audio_earlier_ns=50,
    stamp_error_ns=3,
    held_up_ns=7,
    talk_over_ns=0,
    leading_silence_ns=100,
    llm_tokens=11,
)


@pytest.mark.parametrize(
    ("metric", "low", "high"),
    [
        ("voice_to_voice", 1_600 - 50 - 3 - END - 2 - 7, 1_600 + 3 - END),
        ("asr_final_latency", 1_200 - 10 - 3 - END - 2 - 7, 1_200 + 3 - END),
        ("llm_ttft", 100 - 20, 100 + 10),  # two stamps of one clock
        ("tts_first_chunk_latency", 200 - 40, 200 + 20),
        ("leading_silence", 100 - 50, 100 + 40),
        ("tokens_per_s", 10e9 / (500 + 20 + 6), 10e9 / (500 - 30 - 6)),
        ("talk_over", 0, 0),  # the answer began when the caller had certainly finished
    ],
)
def test_a_metric_lies_between_its_shortest_and_its_longest(metric: str, low: float, high: float) -> None:
    assert metric_bounds(TURN, METRICS[metric]) == pytest.approx((low, high))


@pytest.mark.parametrize(
    ("changes", "bounds"),
    [
        ({"first_audio_perf_ns": END + 40}, (0, 11)),  # it may have begun before the caller had finished
        ({"turn_kind": "barge_in"}, (0, 11)),  # the reply before it may have gone on
        ({"talk_over_ns": 300}, (289, 311)),
        ({"stamp_error_ns": None}, None),
    ],
)
def test_talk_over_is_exact_where_nothing_can_have_overlapped(
    changes: dict[str, Any], bounds: tuple[float, float] | None
) -> None:
    assert metric_bounds(msgspec.structs.replace(TURN, **changes), METRICS["talk_over"]) == bounds


def test_what_a_turn_does_not_state_has_no_bounds() -> None:
    bare = msgspec.structs.replace(TURN, held_up_ns=None, stamp_error_ns=None, llm_first_token_earlier_ns=None)
    for name in ("voice_to_voice", "asr_final_latency", "llm_ttft", "tts_first_chunk_latency", "tokens_per_s"):
        assert METRICS[name].value(bare) is not None
        assert metric_bounds(bare, METRICS[name]) is None
    assert timestamp_bounds(bare, "first_audio") is None
    assert timestamp_bounds(bare, "hangup") == (5_000, 5_000), "our own doing"
    assert timestamp_bounds(TURN, "reply_end") is None, "there is none"


def test_what_is_counted_is_exact() -> None:
    counted = msgspec.structs.replace(TURN, wer_errors=1, wer_reference_words=4, stamp_error_ns=None)
    assert metric_bounds(counted, METRICS["wer"]) == (0.25, 0.25)
    assert METRICS["wer"] not in BOUNDED


MS = 1e6


@pytest.mark.parametrize(
    ("metric", "figure", "bounds", "text"),
    [
        ("voice_to_voice", 818 * MS, (806 * MS, 818 * MS), "measured within 806–818"),
        # 1 % of the figure, to either side, goes without saying; what is beyond it does not.
        ("voice_to_voice", 800 * MS, (792 * MS, 808 * MS), None),
        ("voice_to_voice", 800 * MS, (791.9 * MS, 800 * MS), "measured within 791–800"),
        ("voice_to_voice", 800 * MS, (800 * MS, 808.1 * MS), "measured within 800–809"),
        # Rounded outward, so that what is read holds the true value too.
        ("voice_to_voice", 818 * MS, (806.9 * MS, 829.1 * MS), "measured within 806–830"),
        ("voice_to_voice", 818.4 * MS, (806.9 * MS, 818.4 * MS), "measured within 806–818"),
        ("voice_to_voice", 817.6 * MS, (817.6 * MS, 829.1 * MS), "measured within 818–830"),
        ("tts_first_chunk_latency", 20 * MS, (19.74 * MS, 20.21 * MS), "measured within 19.7–20.3"),
        ("voice_to_voice", 105 * MS, (99.98 * MS, 110 * MS), "measured within 99.9–110"),
        ("voice_to_voice", 1_204 * MS, (1_100 * MS, 1_204 * MS), "measured within 1,100–1,204"),
        ("voice_to_voice", 490 * MS, (0.46 * 1e9 - 1e-7, 0.5 * 1e9 + 1e-7), "measured within 460–500"),
        # A dash is never read as a sign.
        ("voice_to_voice", 2 * MS, (-3 * MS, 4 * MS), "measured within −3.0 to 4.0"),
        ("voice_to_voice", -20 * MS, (-30 * MS, -10 * MS), "measured within −30.0 to −10.0"),
        ("underrun_worst", 0.0, (0.0, 0.0), None),
        ("underrun_worst", 0.0, (0.0, 5 * MS), "measured within 0.0–5.0"),
        ("tokens_per_s", 42.0, (40.04, 44.01), "measured within 40.0–44.1"),
        ("audio_rtfx", 2.0, (1.6, 4.0), "measured within 1.60–4.00"),
        ("wer", 0.125, (0.125, 0.125), None),
        ("audio_rtfx", 2.0, (1.6, math.inf), None),
        ("voice_to_voice", None, None, None),
        ("voice_to_voice", 818 * MS, None, None),
    ],
)
def test_bounds_are_stated_where_they_differ(
    metric: str, figure: float | None, bounds: Bounds | None, text: str | None
) -> None:
    assert measured_within(DEFINITIONS[metric], figure, bounds) == text


@pytest.mark.parametrize(
    ("lower", "upper"), [(None, 1.0), (1.0, None), (-math.inf, 1.0), (1.0, math.inf), (math.nan, 1.0), (1.0, math.nan)]
)
def test_what_may_lie_anywhere_has_no_bounds(lower: float | None, upper: float | None) -> None:
    assert finite(lower, upper) is None


def test_statistics_of_what_is_counted_are_exact() -> None:
    assert MeasuredWithin.exactly(1.0, None, None, 2.0) == MeasuredWithin((1.0, 1.0), None, None, (2.0, 2.0), 0)


def test_the_metrics_of_a_turn_have_their_bounds() -> None:
    turn = client_turn(
        voice_to_voice_ms=500,
        speech_end_uncertainty_ns=0,
        speech_end_later_ns=0,
        first_audio_earlier_ns=12_000_000,
        stamp_error_ns=0,
        held_up_ns=0,
        asr_final_perf_ns=3_200_000_000,
        leading_silence_ns=20_000_000,
        tts_first_chunk_earlier_ns=0,
        underrun_worst_ns=0,
        wer_errors=1,
        wer_reference_words=8,
    )
    names = ("voice_to_voice", "asr_final_latency", "leading_silence", "underrun_worst", "wer", "connect")
    assert turn_figures(turn, [METRICS[name] for name in names]) == [
        ("Voice to voice", "500 ms, within 488–500"),
        ("ASR final", "200 ms, bounds not known"),
        ("Leading silence", "20.0 ms, within 8.0–20.0"),
        ("Worst underrun", "0.0 ms"),
        ("Word error rate", "12.5 %"),
    ]
    assert turn_measured_within(turn, METRICS["voice_to_voice"]) == "measured within 488–500"
    assert turn_measured_within(turn, METRICS["asr_final_latency"]) is None
