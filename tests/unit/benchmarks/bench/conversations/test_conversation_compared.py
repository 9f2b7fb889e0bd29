"""Conversations beside C and beside their targets, from figures whose answer is known."""

import pytest

from tests.benchmarks.bench.conversations.compared import (
    CallersOfACore,
    ConversationRow,
    callers_of_a_core,
    conversation_rows,
    conversation_verdicts,
)
from tests.benchmarks.bench.conversations.figures import ConversationFigures, StatedWidths, VoiceToVoiceError
from tests.benchmarks.bench.conversations.rounds import ConversationTrial
from tests.benchmarks.bench.conversations.tables import markdown_lines, remarks


def figures(
    callers: int,
    *,
    core: float = 0.1,
    late_ms: float = 0.5,
    error_ms: float | None = 0.1,
    unsent: float = 0.0,
    outside: int = 0,
) -> ConversationFigures:
    return ConversationFigures(
        callers=callers,
        window_s=6.0,
        turns=200 if error_ms is not None else 50,
        invalid=3,
        unanswered=0,
        missing=0,
        invalid_by_reason={"drift": 3},
        cpu_us_per_caller_s=core / callers * 1e6,
        core_share=core,
        lateness_p50_ms=0.1,
        lateness_p99_ms=late_ms,
        lateness_max_ms=5.0,
        due=1000,
        sent=1000,
        never_sent_share=unsent,
        error=VoiceToVoiceError(200, 0, 0.02, error_ms, 3.0),
        widths=StatedWidths(200, outside, 0.05, 0.4, 3.5),
        peer_core_share=0.2,
        peer_lag_p99_ms=0.3,
        peer_was_limit=False,
    )


def tried(
    callers: int, *, times: tuple[float, ...] = (1.8,), core: float = 0.3, **ours: float
) -> list[ConversationTrial]:
    """A round for each ratio to C, in which ours took `core`."""
    trials: list[ConversationTrial] = []
    for number, ratio in enumerate(times):
        trials.append(ConversationTrial(callers, number, "control", figures(callers, core=core / ratio)))
        trials.append(ConversationTrial(callers, number, "ours", figures(callers, core=core, **ours)))
    return trials


def rows_of(*loads: list[ConversationTrial]) -> list[ConversationRow]:
    return conversation_rows([trial for load in loads for trial in load])


def test_the_ratio_is_taken_within_a_round() -> None:
    trials = [
        ConversationTrial(200, number, sender, figures(200, core=core))
        for number, pair in enumerate(((0.1, 0.2), (0.3, 0.45), (0.2, 0.5)))
        for sender, core in zip(("control", "ours"), pair, strict=True)
    ]
    control, ours = conversation_rows(trials)
    assert control.times_control is None
    assert ours.times_control is not None
    assert (ours.times_control.least, ours.times_control.middle, ours.times_control.most) == pytest.approx(
        (1.5, 2, 2.5)
    )
    assert (ours.turns, ours.invalid, ours.invalid_by_reason) == (600, 9, {"drift": 9})


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (rows_of(tried(200, core=0.2), tried(800, core=0.5)), CallersOfACore(800, "at least", "")),
        (rows_of(tried(400, core=0.5), tried(600, core=0.7)), CallersOfACore(500, "interpolated", "core")),
        (
            rows_of(tried(400, core=0.5), tried(600, core=0.7, late_ms=1.0)),
            CallersOfACore(400, "largest load", "core, pacing"),
        ),
        (
            rows_of(tried(400, core=0.2), tried(600, core=0.3, error_ms=1.1), tried(800, core=0.4)),
            CallersOfACore(400, "largest load", "voice-to-voice"),
        ),
        (rows_of(tried(200, core=0.7)), CallersOfACore(None, "none of the loads tried", "core")),
        (rows_of(tried(200, late_ms=2.0)), CallersOfACore(None, "none of the loads tried", "pacing")),
        ([], None),
    ],
)
def test_how_many_callers_fit_into_the_share_of_a_core(
    rows: list[ConversationRow], expected: CallersOfACore | None
) -> None:
    assert callers_of_a_core(rows) == expected


def test_a_load_with_too_few_turns_for_a_percentile_says_nothing_about_a_core() -> None:
    few = ConversationTrial(200, 0, "ours", figures(200, error_ms=None))
    assert callers_of_a_core(conversation_rows([few])) is None


def test_a_load_that_came_to_no_figures_did_not_fit() -> None:
    broken = [ConversationTrial(400, 0, sender, None, "it did not start") for sender in ("control", "ours")]
    rows = rows_of(tried(200, core=0.2), broken)
    assert callers_of_a_core(rows) == CallersOfACore(200, "largest load", "core, pacing, voice-to-voice")
    assert {verdict.found for verdict in conversation_verdicts(rows)[:4]} == {"no figure"}


def test_targets_take_the_worst_of_the_loads_that_they_are_promised_for() -> None:
    rows = rows_of(
        tried(100, times=(5.0,), late_ms=9.0, error_ms=9.0),
        tried(200, times=(1.9,), late_ms=0.3),
        tried(1000, times=(2.1,), core=0.5, late_ms=0.999, error_ms=1.0, unsent=0.002),
    )
    verdicts = conversation_verdicts(rows)
    assert [(verdict.found, verdict.met) for verdict in verdicts[:4]] == [
        *(("2.10 ×", False), ("1.00 ms", True), ("0.20%", False), ("1.00 ms", True))
    ]
    assert [verdict.met for verdict in conversation_verdicts(rows_of(tried(800, late_ms=1.0)))[:2]] == [True, False]


@pytest.mark.parametrize(
    ("rows", "found", "met"),
    [
        (rows_of(tried(200), tried(800, core=0.6)), "800 (at least)", True),
        (rows_of(tried(200), tried(600, core=0.4)), "600 (at least)", None),
        (rows_of(tried(800, core=0.5), tried(1000, core=0.7)), "900 (interpolated)", True),
        (rows_of(tried(600), tried(800, late_ms=3.0)), "600 (largest load; the next one missed: pacing)", False),
        (rows_of(tried(200, core=0.9)), "none of the loads tried (missed: core)", False),
    ],
)
def test_the_callers_of_a_core_beside_their_target(rows: list[ConversationRow], found: str, met: bool | None) -> None:
    verdict = conversation_verdicts(rows)[-1]
    assert (verdict.target, verdict.found, verdict.met) == ("800 conversations on 60 % of a core", found, met)


def test_the_documents_table_holds_what_was_measured() -> None:
    lines = markdown_lines(rows_of(tried(200, times=(1.5, 2.0), core=0.4)))
    assert lines[-2].startswith("| 200 | C, epoll + timerfd | 1 | 23% |")
    assert lines[-1] == "| 200 | voiceprobe | 1.75 (1.50–2.00) | 40% | 0.50 | 0.0% | 0.100 | 0.400 | 6 of 400 |"
    assert markdown_lines([]) == []


def test_what_is_wrong_with_a_row_is_a_sentence_each() -> None:
    _, ours = rows_of(tried(200))
    assert remarks(ours) == ["invalid by drift (3)"]
    _, wrong = rows_of([ConversationTrial(200, 0, sender, figures(200, outside=2)) for sender in ("control", "ours")])
    assert remarks(wrong)[0] == "the true voice-to-voice of 2 of 200 turns is not within the stated interval"
    failed, _ = rows_of([*tried(200), ConversationTrial(200, 9, "control", None, "it did not start")])
    assert remarks(failed)[0] == "no figure from one round, it did not start"


def test_a_machine_on_which_even_c_is_late_says_so() -> None:
    late = [ConversationTrial(200, 0, sender, figures(200, late_ms=1.0)) for sender in ("control", "ours")]
    control, ours = conversation_rows(late)
    assert any("the machine had other work" in remark for remark in remarks(control))
    assert not any(
        "the machine had other work" in remark for remark in [*remarks(ours), *remarks(rows_of(tried(200))[0])]
    )
