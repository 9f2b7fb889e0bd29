"""Progress of a run on a terminal of 80 and 120 columns and as lines of a log."""

from dataclasses import replace
from typing import Any

import pytest

from loadtest.reports import tables
from loadtest.reports.progress import LiveInfo, errors_so_far, live_lines, live_view, turns_needed, what_is_left
from telemetry.objectives.judgment import EligibleTurns
from telemetry.objectives.objective import Objective
from telemetry.objectives.slo import NotObservable, default_objectives, judge
from telemetry.store.answers import FailureCount, Summary, TurnCounts
from tests.unit.loadtest.reports import reports_material as material
from tests.unit.loadtest.reports.reports_material import row, words

MS = material.MS
OBJECTIVES = default_objectives()
SO_FAR = TurnCounts(total=40, ok=36, invalid=1, by_outcome={})
FAILURES = (FailureCount("no_reply", None, 2, "no answer within 10 s"), FailureCount("http_status", "429", 1, None))


def summary(turns: TurnCounts = SO_FAR, **changes: Any) -> Summary:
    whole = material.summary(turns, **changes)
    heard = material.stats("voice_to_voice", 39, p50=450.0 * MS, p95=812.0 * MS, max=900.0 * MS)
    return replace(whole, metrics={**whole.metrics, "voice_to_voice": heard})


def info(**changes: Any) -> LiveInfo:
    known: dict[str, Any] = {
        "target": "ws://127.0.0.1:1/v1",
        "users": 8,
        "elapsed_s": 12.4,
        "run_time_s": 60.0,
        "calls_in_flight": 7,
        "summary": summary(),
        "objectives": OBJECTIVES,
        "verdicts": judge(
            OBJECTIVES,
            lambda objective: EligibleTurns(17, 18) if objective.counts == "calls" else EligibleTurns(36, 39),
        ),
    }
    return LiveInfo(**known | changes)


def shown(live: LiveInfo, width: int = 80) -> str:
    return material.printed(live_view(live), width)


@pytest.mark.parametrize("width", [80, 120])
def test_each_stage_is_shown_with_its_objective(width: int) -> None:
    text = shown(info(), width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text, "nothing is cut off"
    assert row(text, "Voice to voice") == [
        "Voice to voice",
        "450 ms",
        "812 ms",
        "too few",
        "95 % ≤ 800 ms",
        "92.3 % of 39",
    ]
    assert row(text, "ASR final") == ["ASR final", "310 ms", "402 ms", "too few", "95 % ≤ 400 ms", "92.3 % of 39"]
    assert row(text, "Ended well") == ["Ended well", "–", "–", "–", "99 %", "too few (39 of 100)"]
    assert row(text, "Connect")[-2:] == ["95 % ≤ 1,000 ms", "too few (18 of 20)"]


def test_remaining_time_counts_from_end_of_preparation() -> None:
    text = words(shown(info(elapsed_s=62.4, preparation_s=12.0)))
    assert "1:02 elapsed" in text
    assert "0:09 remaining" in text
    assert "the last calls are ending" in words(shown(info(elapsed_s=72.4, preparation_s=12.0)))


def test_progress_shows_time_left_callers_and_turn_outcomes() -> None:
    text = words(shown(info(summary=summary(failures=FAILURES))))
    assert "0:12 elapsed" in text
    assert "0:47 remaining" in text
    assert "7 of 8 on a call to ws://127.0.0.1:1/v1" in text
    assert "40: 36 ok, 3 not ok, 1 invalid" in text
    assert "errors no reply 2, HTTP status 429 1" in text
    assert "left about 61 more turns needed for the 99 % objective" in text


def test_the_lines_of_a_log_say_the_same() -> None:
    first, stages, errors = live_lines(info(summary=summary(failures=FAILURES)))
    assert first == (
        "  12 s: 7 of 8 on a call; turns 40: 36 ok, 3 not ok, 1 invalid; 0:47 remaining;"
        " about 61 more turns needed for the 99 % objective"
    )
    assert stages.startswith(
        "        p50/p95/p99: Voice to voice 450/812/too few (95 % ≤ 800 ms: 92.3 % of 39); ASR final"
    )
    assert "Ended well (99 %: too few (39 of 100))" in stages
    assert errors == "        errors: no reply 2, HTTP status 429 1"


def test_before_the_first_turn_nothing_is_known() -> None:
    nothing = info(summary=None, objectives=(), verdicts=(), calls_in_flight=None)
    text = words(shown(nothing))
    assert "none yet" in text
    assert "– of 8" in text
    assert "Voice to voice" not in text
    assert len(live_lines(nothing)) == 1


def test_unobservable_stage_is_named_and_needs_no_turns() -> None:
    def count(objective: Objective) -> EligibleTurns:
        if objective.metric == "asr_final_latency":
            raise NotObservable("this wire has no transcripts")
        return EligibleTurns(180, 180)

    verdicts = judge(OBJECTIVES, count)
    assert row(shown(info(verdicts=verdicts)), "ASR final")[-1] == "not observable"
    assert turns_needed(verdicts) == ""


def test_the_most_demanding_objective_says_how_many_are_needed() -> None:
    few = judge(
        OBJECTIVES, lambda objective: EligibleTurns(19, 19) if objective.counts == "calls" else EligibleTurns(200, 200)
    )
    assert turns_needed(few) == "about 1 more call needed for the 95 % objective"
    assert turns_needed(judge(OBJECTIVES, lambda _: EligibleTurns(200, 200))) == ""
    # 38 more of 62 a minute, and one that no number decides.
    timed = judge(OBJECTIVES, lambda _: EligibleTurns(62, 62), measured_s=60.0)
    assert turns_needed(timed) == "about 38 more turns needed for the 99 % objective, about 37 s at this rate"
    opened = judge(OBJECTIVES[:1], lambda _: EligibleTurns(18, 20, {"generator": 2}))
    assert turns_needed(opened) == ("more turns cannot decide the 95 % objective while as many are open (2 generator)")
    assert turns_needed(judge(OBJECTIVES[:1], lambda _: EligibleTurns(2, 3, {"generator": 1}))) == ""


def test_the_end_is_stated_by_time_by_turns_or_by_the_user() -> None:
    assert what_is_left(info(elapsed_s=61.0)) == "the last calls are ending"
    assert what_is_left(info(run_time_s=None, expected_turns=110)) == "40 of about 110 turns"
    assert what_is_left(info(run_time_s=None)) == "until Ctrl-C"
    assert "40 of about 110 turns" in shown(info(run_time_s=None, expected_turns=110))


def test_a_limited_generator_and_notes_are_seen_at_once() -> None:
    (objective,) = (objective for objective in OBJECTIVES if objective.metric == "voice_to_voice")
    verdicts = judge([objective], lambda _: EligibleTurns(31, 40, {"generator": 8}))
    live = info(objectives=[objective], verdicts=verdicts, note="the sidecar does not answer")
    for text in (words(shown(live)), words(" ".join(live_lines(live)))):
        assert "1 objective undecided so far because of turns that the load generator could not measure" in text
        assert "the sidecar does not answer" in text


def test_percentiles_of_the_answered_are_marked() -> None:
    whole = summary()
    heard = replace(whole.metrics["voice_to_voice"], unanswered=10)
    text = shown(info(summary=replace(whole, metrics={**whole.metrics, "voice_to_voice": heard})))
    assert row(text, "Voice to voice")[1] == "450 ms*"
    assert tables.ANSWERED_NOTE in words(text)


def test_many_causes_and_foreign_names_stay_short_and_plain() -> None:
    causes = tuple(FailureCount("http_status", f"[red]{code}[/red]\x1b", 9 - code, None) for code in range(6))
    text = errors_so_far(summary(failures=causes))
    assert text.endswith(", others 9")
    assert "\x1b" not in text
    assert "[red]0[/red]" in words(shown(info(summary=summary(failures=causes)), 200))


def test_voice_to_voice_is_shown_without_objective_on_it() -> None:
    text = shown(info(objectives=(), verdicts=()))
    assert row(text, "Voice to voice") == ["Voice to voice", "450 ms", "812 ms", "too few"]
