"""The exit code as a table, and its sentence."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import pytest

from docs_build.pages import PAGES
from loadtest.calibration.json_object import calibration_object
from loadtest.exit_codes import ExitCode
from loadtest.reports.calibration_citing import BINDING, Citation, choose, cite, rounded_up_ms
from loadtest.reports.run_info import LostProcess, ProcessShare
from loadtest.reports.run_outcome import run_outcome_for
from telemetry.objectives.judgment import EligibleTurns
from telemetry.objectives.objective import Objective
from telemetry.objectives.run_verdict import run_verdict
from telemetry.objectives.slo import Verdict, judge
from telemetry.store.answers import FailureCount, StartCounts, Summary, TelemetryLoss, TurnCounts
from telemetry.store.questions.verdicts import calls_kept
from tests.unit.loadtest.calibration.calibration_material import MACHINE, MS, calibration, step
from tests.unit.loadtest.reports import reports_material as material

LIMITED = TurnCounts(total=200, ok=180, invalid=20, by_outcome={"ok": 180, "invalid": 20})
UNREAD = TurnCounts(total=40, ok=40, invalid=0, by_outcome={"ok": 40}, endpoint_did_not_read=8)
FROZEN = TurnCounts(total=4, ok=0, invalid=0, by_outcome={"timeout": 4})
MET, MISSED, UNDECIDED = (material.verdict(met) for met in (True, False, None))
# Without the turns that the generator spoiled 176 of 180 would be met.
SPOILED = material.verdict_on(EligibleTurns(176, 200, {"generator": 20}))
LOST = material.verdict_on(EligibleTurns(176, 200, {"telemetry lost": 20}))


NOTHING = material.empty_summary()
TITLE = "“The caller hears an answer in time”"
OF_THE_GENERATOR = "held up, did not say as recorded or could not begin"
NONE_REACHED = "calls reached a session at ws://127.0.0.1:8765/v1/realtime: connection refused"


def case(
    code: ExitCode, reason: str, verdicts: Sequence[Verdict] = (), whole: Summary | TurnCounts | None = None, **run: Any
) -> tuple[Any, ...]:
    """A run as `run_outcome_for` gets it, and what must come of it."""
    whole = material.summary(whole) if whole is None or isinstance(whole, TurnCounts) else whole
    return run, whole, list(verdicts), code, reason


@pytest.mark.parametrize(
    ("run", "summary", "verdicts", "code", "output"),
    [
        case(ExitCode.OK, "all 2 objectives are met", [MET, MET]),
        case(ExitCode.OK, "the objective is met", [MET]),
        case(ExitCode.OK, "no objective was asked for"),
        case(ExitCode.OK, "no objective was asked for", (), LIMITED),
        case(ExitCode.OBJECTIVE_MISSED, f"{TITLE} missed", [MET, MISSED]),
        case(ExitCode.UNDECIDED, f"{TITLE} undecided", [MET, UNDECIDED]),
        case(ExitCode.OBJECTIVE_MISSED, "in time” missed; “The caller hears", [UNDECIDED, MISSED, MET]),
        case(ExitCode.UNDECIDED, "undecided", [UNDECIDED], LIMITED),
        case(ExitCode.GENERATOR_LIMITED, "in time” undecided because of 20 turns", [MET, SPOILED], LIMITED),
        case(ExitCode.OBJECTIVE_MISSED, "missed", [MISSED, SPOILED], LIMITED),
        case(ExitCode.UNDECIDED, "undecided", [MET, LOST]),
        case(ExitCode.UNDECIDED, f"{TITLE} undecided; not one of 4 turns was answered well", [UNDECIDED], FROZEN),
        case(ExitCode.OK, "met", [MET], LIMITED),  # met even if all 20 had been bad
        case(ExitCode.OK, "the objective is met", [MET], UNREAD),
        case(
            ExitCode.OBJECTIVE_MISSED,
            f"{TITLE} missed; the endpoint did not read what was said in 8 turns",
            [MISSED],
            UNREAD,
        ),
        case(ExitCode.UNDECIDED, "no turn was measured", (), NOTHING),
        case(
            ExitCode.UNREACHABLE,
            f"none of 40 {NONE_REACHED}",
            [UNDECIDED],
            NOTHING,
            calls_connected=0,
            connect_failure="connection refused",
        ),
        case(
            ExitCode.GENERATOR_LIMITED,
            f"{OF_THE_GENERATOR}; used up; raise the limit (ulimit -n)",
            [SPOILED],
            replace(
                material.summary(LIMITED),
                failures=(FailureCount("generator", "EMFILE", 20, "used up; raise the limit (ulimit -n)"),),
            ),
            calls_started=3,
            calls_connected=0,
            calls_prevented=3,
        ),
        case(
            ExitCode.UNREACHABLE,
            f"none of 3 {NONE_REACHED}",
            [UNDECIDED],
            NOTHING,
            calls_started=3,
            calls_connected=0,
            calls_prevented=2,
            connect_failure="connection refused",
        ),
        case(ExitCode.UNDECIDED, "no turn", [UNDECIDED], NOTHING, calls_connected=1),
        case(ExitCode.UNDECIDED, "no turn", (), NOTHING, calls_started=None, calls_connected=None),
        case(
            ExitCode.GENERATOR_LIMITED,
            "the generator began no call before the run ended",
            (),
            NOTHING,
            calls_started=0,
            calls_connected=0,
        ),
        *(
            case(
                ExitCode.UNDECIDED,
                "no turn was measured, so nothing is shown",
                (),
                NOTHING,
                calls_started=0,
                calls_connected=0,
                **more,
            )
            for more in ({"is_under_way": True}, {"arrivals": "constant"})
        ),
        case(
            ExitCode.UNDECIDED,
            "nothing is shown: 7 turns are known to be lost",
            (),
            replace(NOTHING, loss=TelemetryLoss(processes=2, emitted=7, received=0, missing=7)),
            calls_started=3,
            calls_connected=3,
        ),
        case(
            ExitCode.GENERATOR_LIMITED,
            "1 of 2 generator processes was lost after 41 s: of its 3 calls in flight only the finished turns count;",
            [MET],
            LIMITED,
            processes=2,
            lost=(LostProcess(worker="2 of 2", after_s=41.2, calls_cut=3),),
        ),
        case(
            ExitCode.GENERATOR_LIMITED,
            "3 of 4 generator processes were lost after 12 s and 5 s: of their 1 call in flight only the finished",
            [MET],
            processes=4,
            lost=(LostProcess(after_s=12.0, calls_cut=1), LostProcess(), LostProcess(after_s=5.0)),
        ),
        case(
            ExitCode.GENERATOR_LIMITED,
            "the generator's first process was ended by SIGKILL; the load was not what was asked for",
            [MET],
            killed_by="SIGKILL",
        ),
        case(
            ExitCode.GENERATOR_LIMITED,
            "the generator's first process lost contact with its workers: they were held up for too long; the load was",
            [MET],
            processes=2,
            workers_missing=True,
        ),
        case(ExitCode.INTERRUPTED, "after 182", [MET], interrupted=True, lost=(LostProcess(),)),
        case(ExitCode.INTERRUPTED, "after 200 turns", [MISSED], LIMITED, interrupted=True),
        case(ExitCode.INTERRUPTED, "0 turns", (), NOTHING, interrupted=True, calls_connected=0),
    ],
)
def test_the_exit_code_and_its_reason(run, summary, verdicts, code, output) -> None:
    info = material.run_info(**run)
    run_outcome = run_outcome_for(run=info, summary=summary, verdicts=verdicts)
    assert run_outcome.code is code
    assert output in run_outcome.reason


def verdict_sentence(summary: Summary, verdicts: list[Verdict]) -> str:
    """Return the sentence of pages, the list of runs and reports on the run."""
    objectives = [Objective(verdict.name, "metric", verdict.target, "voice_to_voice", 800e6) for verdict in verdicts]
    return run_verdict(objectives, verdicts, kept=calls_kept(summary, verdicts)).sentence


ANSWERED = TurnCounts(total=182, ok=181, invalid=1, by_outcome={"ok": 181, "invalid": 1})
STARTS = StartCounts(planned=400, started=395, late=3, dropped=5)


@pytest.mark.parametrize(
    ("turns", "verdicts"),
    [
        (ANSWERED, [MISSED]),
        (replace(ANSWERED, by_outcome={"ok": 179, "timeout": 2, "invalid": 1}), [UNDECIDED]),
        (replace(ANSWERED, by_outcome={"ok": 179, "no_reply": 1, "error": 1, "invalid": 1}), []),
        (replace(ANSWERED, endpoint_did_not_read=2), [UNDECIDED]),
    ],
    ids=["slow", "frozen", "no objective", "not read"],
)
def test_calls_dropped_because_service_kept_others_are_its_fault(turns, verdicts) -> None:
    summary = replace(material.summary(turns), starts=STARTS)
    run_outcome = run_outcome_for(run=material.run_info(max_calls=50), summary=summary, verdicts=verdicts)
    assert run_outcome.code is ExitCode.OBJECTIVE_MISSED
    assert run_outcome.reason.endswith(
        "; 5 of 400 calls that were due never began because --max-calls 50 were under way, kept by the service"
    )
    # The verdict on the run says the same: neither "met" with that exit code, nor "undecided".
    sentence = verdict_sentence(summary, verdicts)
    assert sentence.startswith("Miss")
    assert sentence.endswith(
        "5 of 400 calls that were due never began because as many as are allowed were under way, kept by the service"
    )


def _with_dropped(good: int, dropped: int) -> tuple[Summary, Verdict]:
    """100 turns, so many of them good, and calls that never began; judged as a run is."""
    objective = Objective("fast", "metric", 0.95, "voice_to_voice", 800e6)
    verdicts = judge([objective], lambda _: EligibleTurns(good, 100), prevented=dropped)
    starts = StartCounts(planned=100 + dropped, started=100, late=0, dropped=dropped)
    return replace(material.summary(ANSWERED), starts=starts), verdicts[0]


@pytest.mark.parametrize(
    ("good", "dropped", "code"),
    [
        (99, 4, ExitCode.OK),  # 99 of 104 are 95.2 %
        (100, 5, ExitCode.OK),
        (100, 6, ExitCode.GENERATOR_LIMITED),  # 100 of 106 are 94.3 %
        (97, 4, ExitCode.GENERATOR_LIMITED),  # 97 to 101 of 104
        (94, 6, ExitCode.OBJECTIVE_MISSED),  # at best 100 of 106, which are 94.3 %
        (80, 200, ExitCode.OBJECTIVE_MISSED),  # at best 280 of 300, which are 93.3 %
    ],
)
def test_calls_that_never_began_are_open_turns_of_the_generator(good: int, dropped: int, code: ExitCode) -> None:
    """Met where it is met had they all been bad, missed where it is missed had they all been good, whatever share of
    the calls they are."""
    summary, verdict = _with_dropped(good, dropped)
    run_outcome = run_outcome_for(run=material.run_info(max_calls=50), summary=summary, verdicts=[verdict])
    assert run_outcome.code is code
    assert calls_kept(summary, [verdict]) is None or code is ExitCode.OBJECTIVE_MISSED
    never = f"{dropped} of {100 + dropped} calls that were due never began because --max-calls 50 were under way"
    assert (never in run_outcome.reason) is (code is not ExitCode.OK)
    if code is ExitCode.GENERATOR_LIMITED:
        assert run_outcome.reason.endswith(f"{never}: allow more calls, or ask for a lower rate")
        assert verdict.open == {"generator": dropped}


def test_run_in_which_no_call_could_begin_is_generator_limited() -> None:
    nothing = TurnCounts(total=0, ok=0, invalid=0, by_outcome={})
    objective = Objective("fast", "metric", 0.95, "voice_to_voice", 800e6)
    for dropped, code in ((400, ExitCode.GENERATOR_LIMITED), (3, ExitCode.UNDECIDED), (0, ExitCode.UNDECIDED)):
        starts = StartCounts(planned=dropped, started=0, late=0, dropped=dropped)
        verdicts = judge([objective], lambda _: EligibleTurns(), prevented=dropped)
        run = material.run_info(arrivals="constant")
        run_outcome = run_outcome_for(
            run=run, summary=replace(material.summary(nothing), starts=starts, phases=()), verdicts=verdicts
        )
        assert run_outcome.code is code, run_outcome


def test_run_of_enough_turns_all_invalid_is_generator_limited() -> None:
    objective = Objective("fast", "metric", 0.95, "voice_to_voice", 800e6)
    for turns, code in ((20, ExitCode.GENERATOR_LIMITED), (19, ExitCode.UNDECIDED)):
        counts = TurnCounts(total=turns, ok=0, invalid=turns, by_outcome={"invalid": turns}, not_as_recorded=turns)
        open_turns = EligibleTurns(0, turns, {"generator": turns})
        verdicts = judge([objective], lambda _, open_turns=open_turns: open_turns)
        summary = material.summary(counts)
        assert run_outcome_for(run=material.run_info(), summary=summary, verdicts=verdicts).code is code


def test_documented_order_of_exit_codes_is_that_of_runs() -> None:
    """Everything that leads to a code is added to what leads to those after it."""
    verdicts, run, codes = [MET], dict[str, Any](), list[ExitCode]()
    for verdict, change in (
        (None, {}),
        (UNDECIDED, {}),
        (MISSED, {}),
        (None, {"lost": (LostProcess(),)}),
        (None, {"calls_connected": 0}),
        (None, {"interrupted": True}),
    ):
        verdicts += [] if verdict is None else [verdict]
        run |= change
        summary = material.summary(LIMITED)
        codes.append(run_outcome_for(run=material.run_info(**run), summary=summary, verdicts=verdicts).code)
    order = PAGES["reference/exit-codes.md"]().partition("## Order")[2]
    assert [str(int(code)) for code in reversed(codes)] == re.findall(r"^\d\. `(\d+)`", order, re.MULTILINE)
    assert run_outcome_for(run=material.run_info(), summary=summary, verdicts=[SPOILED, MISSED]).code is (
        ExitCode.OBJECTIVE_MISSED
    )


def _shares(*used: float | None) -> tuple[ProcessShare, ...]:
    return tuple(ProcessShare(worker=str(number), turns=9, cpu_ratio=ratio) for number, ratio in enumerate(used, 1))


CALIBRATED: Final = Citation("beyond", "", processes=4)


@pytest.mark.parametrize(
    ("run", "remedy"),
    [
        ({}, "use fewer callers or more processes"),
        (
            {"shares": _shares(0.93), "cores": 4},
            "its one process used 93 % of a core: use more processes (--processes 2), or fewer callers",
        ),
        (
            {"shares": _shares(0.93), "calibration": CALIBRATED},
            "its one process used 93 % of a core: use more processes (--processes 4), or fewer callers",
        ),
        (
            {"shares": _shares(0.61, 0.97, None), "processes": 3, "cores": 4},
            "the busiest of its 3 processes used 97 % of a core: use more processes (--processes 4), or fewer callers",
        ),
        (
            {"shares": _shares(0.93, 0.9), "processes": 2, "cores": 2},
            "the busiest of its 2 processes used 93 % of a core, and there are 2 cores: use fewer callers, or several"
            " machines",
        ),
        (
            {"shares": _shares(0.93), "cores": 1},
            "its one process used 93 % of a core, and there is 1 core: use fewer callers, or several machines",
        ),
        (
            {"shares": _shares(0.3), "cores": 2},
            "its one process used 30 % of a core, so something else held it up: leave it more of the machine, or use"
            " fewer callers",
        ),
    ],
)
def test_a_limited_generator_says_what_mends_it(run: dict[str, Any], remedy: str) -> None:
    run_outcome = run_outcome_for(run=material.run_info(**run), summary=material.summary(LIMITED), verdicts=[SPOILED])
    assert run_outcome.code is ExitCode.GENERATOR_LIMITED
    assert run_outcome.reason.endswith(f"held up, did not say as recorded or could not begin; {remedy}")


BESIDE = ", plus the error of the clips' speech bounds"


def stored(*, reached: bool = True, **changes: Any) -> dict[str, Any]:
    """A calibration with trust up to 40 callers; the larger load is worse there."""
    steps = [step(10, error_ns=31_000), step(40, error_ns=312_000)]
    steps += [step(80, error_ns=2 * MS)] if reached else []
    return calibration_object(calibration(*steps, **changes))


@pytest.mark.parametrize(
    ("users", "sentence", "error_ms", "callers"),
    [
        (1, "calibrated to ±0.04 ms at 10 callers on 2026-11-21" + BESIDE, 0.04, 10),
        (10, "calibrated to ±0.04 ms at 10 callers on 2026-11-21" + BESIDE, 0.04, 10),
        (11, "calibrated to ±0.32 ms at 40 callers on 2026-11-21" + BESIDE, 0.32, 40),
        (40, "calibrated to ±0.32 ms at 40 callers on 2026-11-21" + BESIDE, 0.32, 40),
    ],
)
def test_run_cites_smallest_calibrated_load_that_covers_it(
    users: int, sentence: str, error_ms: float, callers: int
) -> None:
    citation = cite(stored(), MACHINE, users)
    assert (citation.state, citation.sentence, citation.error_ms, citation.callers) == (
        "calibrated",
        sentence,
        error_ms,
        callers,
    )


def test_no_bound_is_claimed_above_the_ceiling() -> None:
    citation = cite(stored(), MACHINE, 41)
    assert citation.state == "beyond"
    assert citation.sentence == "beyond the calibrated ceiling of 40 callers (2026-11-21)"
    assert citation.error_ms is None


def test_a_ceiling_that_was_not_reached_asks_for_more() -> None:
    citation = cite(stored(reached=False), MACHINE, 41)
    assert citation.state == "not reached"
    assert citation.sentence == "beyond the 40 callers that were calibrated on 2026-11-21: run voiceprobe calibrate"


@pytest.mark.parametrize("name", BINDING)
def test_another_machine_or_engine_is_reported(name: str) -> None:
    citation = cite(stored(machine=MACHINE | {name: "other"}), MACHINE, 1)
    assert (citation.state, citation.error_ms) == ("elsewhere", None)
    assert citation.sentence == f"calibrated on another machine ({name} differs): run voiceprobe calibrate"


def test_without_a_calibration_nothing_is_claimed() -> None:
    citation = cite(None, MACHINE, 1)
    assert (citation.state, citation.sentence, citation.error_ms) == (
        "none",
        "not calibrated: run voiceprobe calibrate",
        None,
    )


def test_a_calibration_without_a_trustworthy_load_is_no_bound() -> None:
    citation = cite(calibration_object(calibration(step(4, error_ns=2 * MS))), MACHINE, 1)
    assert (citation.state, citation.error_ms) == ("beyond", None)
    assert citation.sentence == "no load was trustworthy when this machine was calibrated on 2026-11-21"


def test_newest_calibration_of_this_machine_is_chosen_first() -> None:
    old, new = stored(started_unix_ns=1), stored(started_unix_ns=2)
    foreign = stored(started_unix_ns=3, machine=MACHINE | {"cpu": "other"})
    assert choose([new, foreign, old], MACHINE) is new
    assert choose([foreign], MACHINE) is foreign
    assert choose([], MACHINE) is None


@pytest.mark.parametrize(("seconds", "shown"), [(0.00004, 0.04), (0.000041, 0.05), (0.0, 0.0), (0.00099, 0.99)])
def test_a_bound_is_never_rounded_towards_zero(seconds: float, shown: float) -> None:
    assert rounded_up_ms(seconds) == shown


def test_calibration_for_more_processes_does_not_hold_for_fewer() -> None:
    steps = [step(10), step(20, processes=2, error_ns=70_000), step(40, processes=2, error_ns=2 * MS)]
    value = calibration_object(calibration(*steps))
    few = cite(value, MACHINE, 11, 1)
    assert (few.state, few.error_ms, few.processes) == ("beyond", None, 2)
    assert few.sentence == "11 callers in one process were not calibrated on 2026-11-21: they want 2 processes"
    enough = cite(value, MACHINE, 11, 2)
    assert (enough.state, enough.error_ms, enough.callers, enough.processes) == ("calibrated", 0.07, 20, 2)
    # A step of one process holds for two that have a core each, not for three on two cores.
    assert cite(value, MACHINE, 10, 2).error_ms == 0.04
    assert cite(value, MACHINE, 10, 3).state == "beyond"
