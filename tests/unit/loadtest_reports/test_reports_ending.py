"""The exit code as a table, and the sentence beside it."""

import pytest

from loadtest.exit_codes import ExitCode
from loadtest.reports.ending import ending_for, exit_code_for
from loadtest.reports.facts import without_credentials
from telemetry.store.answers import Loss, TurnCounts
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


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("ws://127.0.0.1:8765/v1/realtime", "ws://127.0.0.1:8765/v1/realtime"),
        ("wss://user:pass@voice.example:9443/x#part", "wss://voice.example:9443/x"),
        ("wss://voice.example/v1?model=m-1&api_key=abc", "wss://voice.example/v1?model=m-1&api_key=hidden"),
        ("wss://voice.example/v1?token=", "wss://voice.example/v1?token=hidden"),
        ("wss://[::1]:80/v1", "wss://[::1]:80/v1"),
    ],
)
def test_an_address_is_shown_without_its_secrets(given: str, shown: str) -> None:
    assert without_credentials(given) == shown
