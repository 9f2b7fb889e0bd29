"""Turns that the generator ended before their end: they hide no failure, and are none of the service's."""

import msgspec
import pytest

from telemetry.model.turns import Turn
from telemetry.objectives.judgment import Judgment, is_good, judge_turn
from telemetry.objectives.slo import Objective, default_objectives

MS = 1_000_000
ASKED = 5_000 * MS
CUT = Turn(
    run_id="r",
    call_id="c",
    turn_index=0,
    source="client",
    outcome="cut",
    cut_by="the stop time-out of 1 s",
    started_unix_ns=0,
    started_perf_ns=1_000 * MS,
    speech_start_perf_ns=3_000 * MS,
    speech_end_perf_ns=ASKED,
)


def metric(name: str, threshold_ms: float = 800) -> Objective:
    return Objective(name, "metric", 0.95, name, threshold_ms * MS)


def cut(after_ms: float, **fields: object) -> Turn:
    return msgspec.structs.replace(CUT, hangup_perf_ns=round(ASKED + after_ms * MS), **fields)


@pytest.mark.parametrize("name", ["voice_to_voice", "asr_final_latency", "llm_first_token_latency", "endpointing"])
def test_caller_who_waited_past_threshold_was_answered_too_late(name: str) -> None:
    assert is_good(metric(name), cut(801)) is False
    assert is_good(metric(name), cut(800)) is None, "it might still have come in time"


def test_value_measured_before_cut_counts() -> None:
    heard = {"first_audio_perf_ns": ASKED + 500 * MS}
    assert is_good(metric("voice_to_voice"), cut(3_000, **heard)) is True
    assert is_good(metric("voice_to_voice", 400), cut(3_000, **heard)) is False
    assert judge_turn(metric("asr_final_latency"), cut(3_000, **heard)) is Judgment.NO_VALUE, (
        "bad where others have one"
    )


def test_cut_turn_value_counts_only_if_already_bad() -> None:
    assert is_good(metric("underrun_worst", 100), cut(3_000, underrun_worst_ns=90 * MS)) is None
    assert is_good(metric("underrun_worst", 100), cut(3_000, underrun_worst_ns=110 * MS)) is False


def test_a_cut_turn_says_nothing_of_how_turns_end() -> None:
    assert is_good(Objective("end", "outcome", 0.99, outcomes=("ok",)), cut(60_000)) is None


def test_a_turn_that_was_cut_while_the_caller_spoke_says_nothing() -> None:
    speaking = msgspec.structs.replace(CUT, speech_end_perf_ns=None, hangup_perf_ns=60_000 * MS)
    judged = {judge_turn(objective, speaking) for objective in default_objectives()}
    assert judged == {Judgment.CUT}


def test_connecting_caller_had_waited_for_connection() -> None:
    connecting = msgspec.structs.replace(
        CUT, speech_start_perf_ns=None, speech_end_perf_ns=None, hangup_perf_ns=2_000 * MS
    )
    assert is_good(metric("connect"), connecting) is False
    assert is_good(metric("connect", 1_001), connecting) is None
    assert is_good(metric("connect"), msgspec.structs.replace(connecting, turn_index=1)) is None
    assert is_good(metric("connect"), cut(60_000)) is None, "it was connected"
