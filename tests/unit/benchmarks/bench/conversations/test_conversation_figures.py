"""Figures of conversations from records whose answer is known."""

from typing import Any

import numpy as np
import pytest

from tests.benchmarks.bench.conversations.figures import (
    NOT_STATED,
    ConversationFigures,
    TruthColumn,
    TurnColumn,
    TurnState,
    conversation_figures,
    share_of_core,
)

SECOND = 1_000_000_000
MS = 1_000_000
BEGAN, ENDED = 10 * SECOND, 20 * SECOND


def turn(
    number: int,
    *,
    caller: int = 0,
    at_s: float = 15.0,
    heard_ms: float = 200,
    state: int = 1,
    off_ms: tuple[float, float] | None = None,
) -> list[int]:
    """A turn that ended at a time, and heard something so long after its speech's end, which may truly be shorter and
    longer by `off_ms`."""
    ended = round(at_s * SECOND)
    speech_end = ended - SECOND
    off_ns = (NOT_STATED, NOT_STATED) if off_ms is None else (round(off_ms[0] * MS), round(off_ms[1] * MS))
    return [caller, number, speech_end, speech_end + round(heard_ms * MS), ended, state, *off_ns]


def truth_of(row: list[int], **changes: int) -> list[int]:
    """An answer at the same moments, 200 ms after the same end of speech, and its first chunk 30 ms before."""
    caller, number, speech_end, _, ended, *_ = row
    heard = speech_end + 200 * MS
    found = {
        TruthColumn.CALLER: caller,
        TruthColumn.TURN: number,
        TruthColumn.SPEECH_END: speech_end,
        TruthColumn.SPEECH_END_CERTAIN: 1,
        TruthColumn.FIRST_CHUNK: heard - 30 * MS,
        TruthColumn.FIRST_AUDIO: heard,
        TruthColumn.AUDIO_CERTAIN: 1,
        TruthColumn.REPLY_END: ended - MS,
        TruthColumn.DONE: ended - 2 * MS,
        TruthColumn.WORST_LAG: 0,
        TruthColumn.AUDIO_WITHIN: 0,
    }
    return [*{**found, **{TruthColumn[name]: value for name, value in changes.items()}}.values()]


def made(turns: list[list[int]], truths: list[list[int]], **answer: Any) -> ConversationFigures:
    printed: dict[str, Any] = {
        "cpu_ns": 4 * SECOND,
        "began_perf_ns": BEGAN,
        "ended_perf_ns": ENDED,
        "sent": 5000,
        "hears": "first_audio",
        **answer,
    }
    peer = {"cpu": [[9 * SECOND, 0], [21 * SECOND, 6 * SECOND]]}
    records = (
        np.array(turns, np.int64).reshape(-1, len(TurnColumn)),
        np.array(truths, np.int64).reshape(-1, len(TruthColumn)),
    )
    return conversation_figures(10, printed, np.array([MS] * 100, np.int64), records, peer)


def test_cost_pacing_and_the_endpoint_s_share() -> None:
    found = made([], [])
    assert found.cpu_us_per_caller_s == pytest.approx(40_000)  # 4 s of CPU for 10 callers in 10 s
    assert found.core_share == pytest.approx(0.4)
    assert (found.due, found.sent, found.never_sent_share) == (5000, 5000, 0)
    assert made([], [], sent=4000).never_sent_share == pytest.approx(0.2)
    assert found.lateness_p99_ms == 1
    assert found.peer_core_share == pytest.approx(0.5)
    assert (found.turns, found.error.p50_ms, found.error.max_ms, found.peer_was_limit) == (0, None, None, False)


def test_the_error_is_that_of_voice_to_voice_and_has_no_sign() -> None:
    turns = [turn(number, heard_ms=200 + 0.01 * (-1) ** number) for number in range(99)] + [turn(99, heard_ms=207)]
    found = made(turns, [truth_of(row) for row in turns])
    assert found.turns == found.error.turns == 100
    assert found.error.p50_ms == pytest.approx(0.01)
    assert found.error.max_ms == pytest.approx(7)
    assert made(turns[:99], [truth_of(row) for row in turns]).error.p99_ms is None  # too few to say


def test_a_caller_that_does_not_look_into_the_reply_is_held_against_its_first_chunk() -> None:
    turns = [turn(0, heard_ms=170)]
    assert made(turns, [truth_of(turns[0])], hears="first_chunk").error.max_ms == pytest.approx(0)
    assert made(turns, [truth_of(turns[0])]).error.max_ms == pytest.approx(30)


def test_turns_outside_of_the_window_are_not_counted() -> None:
    turns = [turn(0, at_s=9.9), turn(1, at_s=10.0), turn(2, at_s=19.9), turn(3, at_s=20.0)]
    assert made(turns, [truth_of(row) for row in turns]).turns == 2


def test_invalid_and_unanswered_turns_are_counted_and_have_no_error() -> None:
    turns = [turn(0), turn(1, heard_ms=900, state=TurnState.INVALID), turn(2, heard_ms=900, state=TurnState.UNANSWERED)]
    found = made(turns, [truth_of(row) for row in turns], invalid_by_reason={"drift": 1})
    assert (found.turns, found.invalid, found.unanswered, found.error.turns) == (3, 1, 1, 1)
    assert found.error.max_ms == pytest.approx(0)
    assert found.invalid_by_reason == {"drift": 1}


def test_the_stated_intervals_have_a_width_and_hold_the_truth_or_not() -> None:
    turns = [
        turn(0, heard_ms=200.5, off_ms=(0.6, 0)),  # truly 200: within
        turn(1, heard_ms=200.5, off_ms=(0.4, 0)),  # not within: 0.1 ms too narrow
        turn(2, heard_ms=230, off_ms=(30, 1)),  # wide, and right
        turn(3, heard_ms=199, off_ms=(5, 0.5)),  # not within: the truth is longer
        turn(4, heard_ms=200),  # states none
        turn(5, heard_ms=900, off_ms=(1, 1), state=TurnState.INVALID),
        turn(6, heard_ms=900, off_ms=(1, 1)),
    ]
    truths = [truth_of(row) for row in turns]
    truths[6] = truth_of(turns[6], AUDIO_CERTAIN=0)
    found = made(turns, truths)
    assert (found.widths.turns, found.widths.outside, found.widths.max_ms) == (4, 2, 31)
    truths[1] = truth_of(turns[1], AUDIO_WITHIN=MS // 10)  # the endpoint may have sent it 0.1 ms later
    assert made(turns, truths).widths.outside == 1
    assert found.error.turns == 5, "wide turns are not thrown away"
    assert made(turns[4:5], truths).widths.max_ms is None


def test_an_answer_that_no_caller_recorded_is_missing_unless_it_may_be_under_way() -> None:
    kept, lost, late = turn(0), turn(1), turn(2, at_s=19.5)
    found = made([kept], [truth_of(row) for row in (kept, lost, late)])
    assert found.missing == 1
    assert made([kept, lost], [truth_of(row) for row in (kept, lost, late)]).missing == 0


def test_truths_that_are_not_certain_are_left_out_and_too_many_blame_the_endpoint() -> None:
    turns = [turn(number) for number in range(20)]
    truths = [truth_of(row) for row in turns]
    truths[3] = truth_of(turns[3], AUDIO_CERTAIN=0)
    truths[4] = truth_of(turns[4], SPEECH_END_CERTAIN=0)
    found = made(turns, truths)
    assert (found.error.turns, found.error.unsure, found.peer_was_limit) == (18, 2, False)
    truths[5] = truth_of(turns[5], AUDIO_CERTAIN=0)
    assert made(turns, truths).peer_was_limit


def test_an_endpoint_that_was_late_was_the_limit() -> None:
    turns = [turn(number) for number in range(100)]
    late = [truth_of(row, WORST_LAG=6 * MS) for row in turns]
    assert made(turns, late).peer_was_limit
    assert not made(turns, [truth_of(row, WORST_LAG=4 * MS) for row in turns]).peer_was_limit


def test_the_share_of_a_core_needs_looks_on_both_sides_of_the_window() -> None:
    looks = [[0, 0], [5, 1], [9, 5], [13, 6]]
    assert share_of_core(looks, 5, 9) == pytest.approx(1.0)
    assert share_of_core(looks, 6, 12) == pytest.approx(5 / 8)
    assert share_of_core(looks, 6, 14) is None
