"""Between which two values each metric of a turn truly lies, from what the turn states of its timestamps."""

from typing import Any

import msgspec
import pytest

from telemetry.model.bounds import BOUNDED, metric_bounds, timestamp_bounds
from telemetry.model.metrics import METRICS
from telemetry.model.turns import Turn

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
