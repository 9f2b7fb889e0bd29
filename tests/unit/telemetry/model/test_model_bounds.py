"""Bounds of each metric by what a turn states of its timestamps, and values that contradict them."""

import math
from typing import Any, get_args

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
from telemetry.model.contradictions import (
    SpanBounds,
    SpanEvidence,
    latency_contradiction,
    timestamp_contradictions,
    without_contradictions,
)
from telemetry.model.metrics import DEFINITIONS, METRICS
from telemetry.model.semconv import CONTRADICTION_LABELS, Contradiction
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


def test_values_without_stated_error_have_no_bounds() -> None:
    bare = msgspec.structs.replace(TURN, held_up_ns=None, stamp_error_ns=None, llm_first_token_earlier_ns=None)
    for name in ("voice_to_voice", "asr_final_latency", "llm_ttft", "tts_first_chunk_latency", "tokens_per_s"):
        assert METRICS[name].value(bare) is not None
        assert metric_bounds(bare, METRICS[name]) is None
    assert timestamp_bounds(bare, "first_audio") is None
    assert timestamp_bounds(bare, "hangup") == (5_000, 5_000), "our own doing"
    assert timestamp_bounds(TURN, "reply_end") is None, "there is none"


def test_counted_value_is_exact() -> None:
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
def test_infinite_or_missing_side_gives_no_bounds(lower: float | None, upper: float | None) -> None:
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


S = 1_000_000_000


def service_turn(**seconds: float | None) -> Turn:
    """A turn from 100 s to 104 s of a service's clock; timestamps in seconds by their names."""
    stamps = {f"{name}_perf_ns": None if at is None else round(at * S) for name, at in seconds.items()}
    start = {"started_perf_ns": 100 * S, "started_unix_ns": 100 * S, "speech_start_perf_ns": None}
    return client_turn(0, voice_to_voice_ms=None, **{**start, "source": "service", "outcome": "ok", **stamps})


@pytest.mark.parametrize(
    ("latency_s", "lasted_s", "cause"),
    [
        (203, 1.3, "longer_than_span"),  # LiveKit's end-of-turn delay
        (700, 2, "longer_than_span"),  # Pipecat's latency
        (450, 2, "longer_than_span"),  # 450 ms, stated in another unit
        (-0.4, 3, "before_request"),
        (1.3, 1.3, None),
        (1.301, 1.3, None),  # stamps of two clocks
        (59.9, 60, None),  # slow, and still in its span
        (0.0, 0, None),
        (-0.0, 1, None),
        (0.2, -1, None),  # the clock was set back within the span
        (1.2, -1, "longer_than_span"),
    ],
)
def test_a_latency_fits_the_span_that_states_it(latency_s: float, lasted_s: float, cause: Contradiction | None) -> None:
    assert latency_contradiction(round(latency_s * S), round(lasted_s * S)) == cause


def test_a_latency_that_is_not_a_number_cannot_be() -> None:
    assert latency_contradiction(None, S) == "not_a_number"


def test_answer_before_speech_end_is_valid_within_its_span() -> None:
    assert latency_contradiction(-S, 4 * S, may_be_negative=True) is None
    assert latency_contradiction(-5 * S, 4 * S, may_be_negative=True) == "longer_than_span"


@pytest.mark.parametrize(
    ("stamps", "spans", "faults"),
    [
        # A service that starts speculatively: before the end of speech, and in its turn.
        ({"speech_start": 100, "speech_end": 103, "llm_first_token": 101}, {}, {}),
        # 41 s before the end of speech, on a machine with another clock.
        ({"speech_start": 100, "speech_end": 102, "llm_first_token": 61}, {}, {"llm_first_token": "before_turn"}),
        ({"speech_end": 102, "tts_first_chunk": 99.5}, {}, {"tts_first_chunk": "before_turn"}),
        ({"speech_end": 102, "first_audio": 90}, {}, {"first_audio": "before_turn"}),
        # A detector is sure of the speech only later, when the turn's span begins.
        ({"speech_start": 97, "speech_end": 99.6, "asr_final": 99.8}, {}, {}),
        ({"speech_end": 61, "first_audio": 102}, {}, {"speech_end": "before_turn"}),
        ({"llm_first_token": 102.1}, {"llm_first_token": (102.4, 103)}, {"llm_first_token": "before_request"}),
        ({"speech_end": 102, "asr_final": 103.5}, {"asr_final": (101, 102)}, {"asr_final": "after_span"}),
        ({"speech_end": 102, "speech_start": 100}, {"speech_end": (102.2, 104)}, {}),
        ({"speech_end": 109, "llm_first_token": 102}, {"speech_end": (100, 104)}, {"speech_end": "after_span"}),
        # A stage that began in its turn may end after it.
        ({"speech_end": 102, "tts_first_chunk": 120}, {"tts_first_chunk": (103, 121)}, {}),
        ({"speech_start": 103, "speech_end": 102}, {}, {"speech_end": "out_of_order"}),
        ({"llm_first_token": 103, "llm_last_token": 102}, {}, {"llm_last_token": "out_of_order"}),
    ],
)  # fmt: skip
def test_a_moment_fits_its_turn_and_its_span(
    stamps: dict[str, float], spans: dict[str, tuple[float, float]], faults: dict[str, str]
) -> None:
    evidence = SpanEvidence(100 * S, {name: SpanBounds(round(a * S), round(b * S)) for name, (a, b) in spans.items()})
    assert timestamp_contradictions(service_turn(**{"speech_end": None, **stamps}), evidence) == faults


def test_value_before_turn_of_client_is_impossible() -> None:
    turn = client_turn(asr_final_perf_ns=-2 * S, llm_first_token_perf_ns=3_100_000_000)
    cleaned = without_contradictions(turn, timestamp_contradictions(turn))
    assert (cleaned.contradicted_metrics, cleaned.contradicted_causes) == (
        ("asr_final_latency", "llm_ttft"),
        ("before_turn", "before_turn"),
    )
    assert METRICS["voice_to_voice"].value(cleaned) == 500_000_000
    assert METRICS["llm_first_token_latency"].value(cleaned) == 100_000_000


def test_a_negative_voice_to_voice_that_a_client_heard_is_kept() -> None:
    turn = client_turn(voice_to_voice_ms=-900.0)
    assert without_contradictions(turn, timestamp_contradictions(turn)) == turn
    assert METRICS["voice_to_voice"].value(turn) == -900_000_000


def test_slowness_alone_is_no_contradiction() -> None:
    turn = client_turn(voice_to_voice_ms=3_600_000.0, llm_first_token_perf_ns=3_000 * S)
    assert without_contradictions(turn, timestamp_contradictions(turn)) == turn


def test_a_duration_below_zero_is_left_out() -> None:
    turn = client_turn(connect_ns=-1, leading_silence_ns=-5, llm_chunk_gaps_ns=(4, -2), talk_over_ns=0)
    cleaned = without_contradictions(turn, timestamp_contradictions(turn))
    assert dict(zip(cleaned.contradicted_metrics, cleaned.contradicted_causes, strict=True)) == {
        "connect": "negative",
        "leading_silence": "negative",
        "itl": "out_of_order",
    }
    assert (cleaned.connect_ns, cleaned.leading_silence_ns, cleaned.llm_chunk_gaps_ns, cleaned.talk_over_ns) == (
        None,
        None,
        (),
        0,
    )


def test_unobservable_value_is_not_contradicted() -> None:
    turn = client_turn(
        asr_final_perf_ns=-9 * S, withheld_metrics=("asr_final_latency",), withheld_reasons=("no text on this wire",)
    )
    cleaned = without_contradictions(turn, timestamp_contradictions(turn))
    assert (cleaned.asr_final_perf_ns, cleaned.contradicted_metrics) == (None, ())


def test_looking_twice_changes_nothing() -> None:
    turn = client_turn(first_audio_perf_ns=-7 * S, connect_ns=-3)
    once = without_contradictions(turn, timestamp_contradictions(turn))
    assert once.contradicted_metrics == ("voice_to_voice", "connect")
    assert without_contradictions(once, timestamp_contradictions(once)) == once


def test_values_that_were_left_out_before_are_named_too() -> None:
    cleaned = without_contradictions(client_turn(), {}, {"endpointing": "longer_than_span"})
    assert (cleaned.contradicted_metrics, cleaned.contradicted_causes) == (("endpointing",), ("longer_than_span",))


def test_every_cause_has_words_for_people() -> None:
    assert set(CONTRADICTION_LABELS) == set(get_args(Contradiction))
