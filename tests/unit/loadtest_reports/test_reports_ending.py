"""The exit code as a table, and the sentence beside it."""

from dataclasses import replace

import pytest

from loadtest.exit_codes import ExitCode
from loadtest.reports.ending import ending_for, exit_code_for
from loadtest.reports.facts import LostProcess
from telemetry.store.answers import Loss, StartCounts, TurnCounts
from tests.unit.loadtest_reports import reports_material as material

LIMITED = TurnCounts(total=200, ok=197, invalid=3, by_outcome={"ok": 197, "invalid": 3})
AT_THE_LIMIT = TurnCounts(total=200, ok=198, invalid=2, by_outcome={"ok": 198, "invalid": 2})
MET, MISSED, NOT_SHOWN = (material.verdict(met) for met in (True, False, None))


@pytest.mark.parametrize(
    ("run", "summary", "verdicts", "code", "said"),
    [
        ({}, material.summary(), [MET, MET], ExitCode.OK, "all 2 objectives are met"),
        ({}, material.summary(), [MET], ExitCode.OK, "the objective is met"),
        ({}, material.summary(), [], ExitCode.OK, "no objective was asked for"),
        ({}, material.summary(), [MET, MISSED], ExitCode.OBJECTIVE_MISSED, "voice-to-voice-800ms missed"),
        ({}, material.summary(), [MET, NOT_SHOWN], ExitCode.OBJECTIVE_MISSED, "voice-to-voice-800ms not shown"),
        ({}, material.summary(AT_THE_LIMIT), [MET], ExitCode.OK, "met"),
        ({}, material.summary(LIMITED), [MET], ExitCode.GENERATOR_LIMITED, "3 of 200 turns are invalid"),
        ({}, material.summary(LIMITED), [MISSED], ExitCode.GENERATOR_LIMITED, "the generator was the limit"),
        ({}, material.empty_summary(), [], ExitCode.OBJECTIVE_MISSED, "no turn was measured"),
        (
            {"calls_connected": 0, "connect_failure": "connection refused"},
            material.empty_summary(),
            [NOT_SHOWN],
            ExitCode.UNREACHABLE,
            "none of 40 calls reached a session at ws://127.0.0.1:8765/v1/realtime: connection refused",
        ),
        ({"calls_connected": 1}, material.empty_summary(), [NOT_SHOWN], ExitCode.OBJECTIVE_MISSED, "no turn"),
        ({"calls_connected": None}, material.empty_summary(), [], ExitCode.OBJECTIVE_MISSED, "no turn"),
        (
            {"calls_started": 0, "calls_connected": 0},
            material.empty_summary(),
            [],
            ExitCode.OBJECTIVE_MISSED,
            "no turn was measured",
        ),
        (
            {"processes": 2, "lost": (LostProcess(worker="2 of 2", after_s=41.2, calls_cut=3),)},
            material.summary(LIMITED),
            [MET],
            ExitCode.GENERATOR_LIMITED,
            "1 of 2 generator processes was lost after 41 s: of its 3 calls in flight only the finished turns count;",
        ),
        (
            {"processes": 4, "lost": (LostProcess(after_s=12.0, calls_cut=1), LostProcess(), LostProcess(after_s=5.0))},
            material.summary(),
            [MET],
            ExitCode.GENERATOR_LIMITED,
            "3 of 4 generator processes were lost after 12 s and 5 s: of their 1 call in flight only the finished",
        ),
        (
            {"killed_by": "SIGKILL"},
            material.summary(),
            [MET],
            ExitCode.GENERATOR_LIMITED,
            "the generator's first process was ended by SIGKILL; the load was not what was asked for",
        ),
        ({"interrupted": True, "lost": (LostProcess(),)}, material.summary(), [MET], ExitCode.INTERRUPTED, "after 182"),
        ({"interrupted": True}, material.summary(LIMITED), [MISSED], ExitCode.INTERRUPTED, "after 200 turns"),
        ({"interrupted": True, "calls_connected": 0}, material.empty_summary(), [], ExitCode.INTERRUPTED, "0 turns"),
    ],
)
def test_the_exit_code_and_its_reason(run, summary, verdicts, code, said) -> None:
    facts = material.run_facts(**run)
    ending = ending_for(run=facts, summary=summary, verdicts=verdicts)
    assert ending.code is code
    assert said in ending.reason
    assert exit_code_for(run=facts, summary=summary, verdicts=verdicts) is code


@pytest.mark.parametrize(
    ("missing", "code"),
    # 176 good of 181 hold 95 % until the fifth bad turn more: 176 / 185 = 95.1 %, 176 / 186 = 94.6 %.
    [(4, ExitCode.OK), (5, ExitCode.OBJECTIVE_MISSED)],
)
def test_lost_turns_count_as_bad_ones_when_an_objective_is_judged(missing: int, code: ExitCode) -> None:
    summary = material.summary(loss=Loss(processes=2, emitted=182 + missing, received=182, missing=missing))
    ending = ending_for(run=material.run_facts(), summary=summary, verdicts=[MET])
    assert ending.code is code
    assert ("known to be lost" in ending.reason) is (code is ExitCode.OBJECTIVE_MISSED)


def test_calls_that_never_began_are_the_generators_fault_before_anything_else_is() -> None:
    missed = replace(material.summary(), starts=StartCounts(planned=400, started=395, late=3, missed=5))
    ending = ending_for(run=material.run_facts(max_calls=50), summary=missed, verdicts=[material.verdict(False)])
    assert ending.code is ExitCode.GENERATOR_LIMITED
    assert "5 of 400 calls that were due never began because --max-calls 50 were under way" in ending.reason
    few = replace(material.summary(), starts=StartCounts(planned=500, started=495, late=400, missed=5))
    ending = ending_for(run=material.run_facts(), summary=few, verdicts=[material.verdict(True)])
    assert ending.code is ExitCode.OK, "1 % is borne; a late start is in the connect time"
