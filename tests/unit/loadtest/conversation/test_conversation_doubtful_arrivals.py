"""Moments that several messages share because they were read together: left out beyond the limit, and only then."""

from dataclasses import replace
from typing import Final

import pytest

from loadtest.conversation.doubtful_arrivals import without_doubtful_moments
from loadtest.conversation.evidence import MS, Evidence
from loadtest.conversation.record import build_turn
from telemetry.model.metrics import METRICS, is_withheld
from telemetry.model.semconv import ARRIVAL_NOT_KNOWN
from telemetry.model.turns import Turn
from tests.invalid_turns import assert_reasons_are_shown
from tests.unit.loadtest.conversation.test_conversation_record import CALL, OPTIONS, exchange

LIMIT: Final = 5 * MS
BEGIN: Final = 1_000 * MS
TURN: Final = Turn(
    run_id="run",
    call_id="call",
    turn_index=0,
    source="client",
    outcome="ok",
    outcome_observed="ok",
    started_unix_ns=0,
    started_perf_ns=BEGIN,
    speech_start_perf_ns=BEGIN,
    speech_end_perf_ns=BEGIN + 100 * MS,
    endpoint_perf_ns=BEGIN + 110 * MS,
    asr_first_partial_perf_ns=BEGIN + 50 * MS,
    asr_final_perf_ns=BEGIN + 120 * MS,
    llm_first_token_perf_ns=BEGIN + 130 * MS,
    llm_first_sentence_perf_ns=BEGIN + 140 * MS,
    llm_last_token_perf_ns=BEGIN + 150 * MS,
    llm_chunks=3,
    llm_chunk_gaps_ns=(10 * MS, 10 * MS),
    tts_first_chunk_perf_ns=BEGIN + 200 * MS,
    tts_last_chunk_perf_ns=BEGIN + 400 * MS,
    first_audio_perf_ns=BEGIN + 220 * MS,
    reply_end_perf_ns=BEGIN + 600 * MS,
    reply_audio_ns=300 * MS,
    underrun_worst_ns=20 * MS,
    underrun_total_ns=30 * MS,
    underrun_count=2,
)


@pytest.mark.parametrize(
    ("after_ms", "unknown"),
    [
        (50, {"asr_partial_latency"}),
        (110, {"endpointing"}),
        (120, {"asr_final_latency", "llm_ttft", "tokens_per_s_wall"}),
        (130, {"llm_first_token_latency", "llm_ttft", "tts_first_chunk_latency", "tokens_per_s", "itl"}),
        (140, {"time_to_first_sentence", "itl"}),
        (145, {"itl"}),
        (150, {"tokens_per_s", "tokens_per_s_wall", "itl"}),
        (300, {"underrun_worst", "underrun_total", "underrun_count"}),
        (400, {"underrun_worst", "underrun_total", "underrun_count", "audio_rtfx"}),
        (170, set()),
        (500, set()),
    ],
)
def test_a_metric_is_unknown_where_a_moment_that_it_hangs_on_is(after_ms: int, unknown: set[str]) -> None:
    moment = BEGIN + after_ms * MS
    assert without_doubtful_moments(TURN, {moment: LIMIT}, LIMIT) is TURN, "at the limit"
    turn = without_doubtful_moments(TURN, {moment: LIMIT + 1}, LIMIT)
    assert (turn.outcome, turn.invalid_reasons) == ("ok", ())
    assert set(turn.withheld_metrics) == unknown
    assert turn.withheld_reasons == (ARRIVAL_NOT_KNOWN,) * len(unknown)
    for name in set(METRICS) - {"wer"}:
        before, after = METRICS[name].value(TURN), METRICS[name].value(turn)
        assert after == (None if is_withheld(turn, name) else before), name
    assert (turn.llm_chunk_gaps_ns == ()) == ("itl" in unknown)
    assert (turn.reply_end_perf_ns is None) == ("underrun_total" in unknown)


@pytest.mark.parametrize("after_ms", [200, 210, 220])
def test_a_turn_whose_first_audible_sample_is_in_doubt_is_invalid(after_ms: int) -> None:
    moment = BEGIN + after_ms * MS
    assert without_doubtful_moments(TURN, {moment: LIMIT}, LIMIT).outcome == "ok"
    turn = without_doubtful_moments(TURN, {moment: LIMIT + 1}, LIMIT)
    assert (turn.outcome, turn.outcome_observed, turn.invalid_reasons) == ("invalid", "ok", ("receive lag",))


def test_a_reason_is_given_once_and_what_the_wire_withholds_keeps_its_own() -> None:
    reply = BEGIN + 200 * MS
    late = Turn(**{name: getattr(TURN, name) for name in Turn.__struct_fields__} | {
        "invalid_reasons": ("drift", "receive lag"),
        "withheld_metrics": ("itl",),
        "withheld_reasons": ("no text on this wire",),
    })  # fmt: skip
    turn = without_doubtful_moments(late, {reply: 9 * MS, BEGIN + 145 * MS: 9 * MS}, LIMIT)
    assert turn.invalid_reasons == ("drift", "receive lag")
    assert dict(zip(turn.withheld_metrics, turn.withheld_reasons, strict=True))["itl"] == "no text on this wire"


def test_no_starvation_is_none_also_in_doubt() -> None:
    smooth = Turn(**{name: getattr(TURN, name) for name in Turn.__struct_fields__} | {
        "underrun_worst_ns": 0, "underrun_total_ns": 0, "underrun_count": 0,
    })  # fmt: skip
    assert without_doubtful_moments(smooth, {BEGIN + 300 * MS: 50 * MS}, LIMIT).underrun_total_ns == 0


def test_a_chunk_that_is_stamped_together_with_the_next_gives_no_figure() -> None:
    """Two chunks, 20 ms apart, read at once: both have the stamp of the second."""
    heard = exchange()
    first = build_turn(exchange(), CALL, OPTIONS).tts_first_chunk_perf_ns
    assert first is not None
    heard.evidence.note_doubt(first, OPTIONS.limits.receive_lag_ns)
    assert build_turn(heard, CALL, OPTIONS).outcome == "ok"
    heard.evidence.note_doubt(first, OPTIONS.limits.receive_lag_ns + 1)
    turn = build_turn(heard, CALL, OPTIONS)
    assert (turn.outcome, turn.receive_lag_worst_ns) == ("invalid", 50_000)
    assert turn.arrival_uncertainty_worst_ns == OPTIONS.limits.receive_lag_ns + 1
    assert_reasons_are_shown(turn)
    generous = replace(OPTIONS, limits=replace(OPTIONS.limits, receive_lag_ns=6 * MS))
    assert build_turn(heard, CALL, generous).outcome == "ok"


def test_what_comes_between_two_looks_on_time_is_no_doubt() -> None:
    evidence = Evidence()
    assert evidence.arrival_uncertainty_worst_ns is None
    evidence.note_doubt(7, 2 * MS)
    assert (evidence.unsure_ns, evidence.arrival_uncertainty_worst_ns) == ({}, 2 * MS)
    evidence.note_doubt(7, 2 * MS + 1)
    assert evidence.unsure_ns == {7: 2 * MS + 1}
